//! Host in a process of its own, for tests that kill it.
//!
//! Each argument is one server: a JSON array of program and arguments. Starts all of them under
//! guards, prints `ready` and waits. SIGTERM shuts it down; its exit code says whether any process
//! was left.

use std::io::{Error, Write as _};
use std::process::ExitCode;

use ostler_host::{Caller, Host, HostOptions, ServerName, ServerSpec};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error + Send + Sync>> {
    let mut terminated = signal(SignalKind::terminate())?;
    let specs = std::env::args().skip(1).enumerate().map(|(number, text)| parse_spec(number, &text));
    let specs = specs.collect::<Result<Vec<_>, _>>()?;
    let guard = Some(ostler_testkit::guard_command());
    let host = Host::new(HostOptions { guard, max_processes: specs.len(), ..HostOptions::default() });
    let mut starts = JoinSet::new();
    for spec in specs {
        let host = host.clone();
        // Servers are registered one after the other, so they are lazy and started together.
        starts.spawn(async move {
            let name = spec.name.clone();
            host.spawn(&Caller::local(), spec.lazy()).await?;
            host.start(name.as_str()).await
        });
    }
    while let Some(started) = starts.join_next().await {
        started??;
    }
    writeln!(std::io::stdout(), "ready")?;
    terminated.recv().await;
    Ok(if host.shutdown().await { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse_spec(number: usize, text: &str) -> Result<ServerSpec, Box<dyn std::error::Error + Send + Sync>> {
    let mut argv: Vec<String> = serde_json::from_str(text)?;
    if argv.is_empty() {
        return Err(Error::other("a server needs a program").into());
    }
    let program = argv.remove(0);
    Ok(ServerSpec::stdio(ServerName::new(&format!("s{number}"))?, program).args(argv))
}
