//! An agent loop's view of the library: start a server, see its tools, call
//! one again and again, and tell the errors that matter from the rest.
//!
//! ```sh
//! cargo run --example embed -- TOOL COMMAND [ARGUMENT]...
//! ```
#![expect(clippy::print_stdout, reason = "it is an example of a program that prints")]

use std::error::Error;
use std::time::Duration;

use ostler_host::{Caller, Host, HostOptions, Limits, RoleLimits, ServerName, ServerSpec, Snapshot};
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(tool), Some(command)) = (args.next(), args.next()) else {
        return Err("usage: embed TOOL COMMAND [ARGUMENT]...".into());
    };
    let host = Host::new(HostOptions::default());
    let me = Caller::local().with_budget(5);
    let server = ServerSpec::stdio(ServerName::new("server")?, command).args(args);
    host.spawn(&me, server.clone()).await?;
    // A reload: what a config says, at once. The server is the same, so its process stays.
    let limits =
        Limits { roles: [("agent".into(), RoleLimits { max_in_flight: Some(8), budget: None })].into() };
    let applied = host.apply(Snapshot { servers: vec![server], limits, ..host.snapshot() }).await;
    println!("unchanged {}", applied.unchanged.len());
    for listed in host.tools(&me, "server").await? {
        println!("tool {}", listed.exposed_name);
    }
    for turn in 1.. {
        match host.call(&me, "server", &tool, json!({ "turn": turn })).await {
            Ok(answer) => println!("answer {}", answer.text()),
            Err(error) => match (error.code(), error.retry_after()) {
                // The budget of this dispatch is spent: the agent's turn is over.
                ("over-budget", _) => break,
                // It may have run. Only the model or a person can decide to try again.
                ("outcome-unknown" | "timed-out", _) => println!("unsure {}", error.render()),
                // Crashed, starting or busy: the host brings it back, the loop goes on.
                ("server-unavailable" | "overloaded", Some(wait)) => {
                    tokio::time::sleep(wait.min(Duration::from_secs(1))).await;
                }
                _ => {
                    println!("failed {}", error.render());
                    break;
                }
            },
        }
    }
    host.shutdown().await;
    Ok(())
}
