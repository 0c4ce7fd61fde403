//! `ostler start`, `stop` and `reload`: what an operator does with servers.

use serde::Deserialize;
use serde_json::Value;

use crate::cli;
use crate::failure::Failure;
use crate::output::{self, tell};
use crate::reach::{self, Reach, There, Trouble, Way};

/// Why these commands want a daemon.
const WHY: &str = "between commands no server runs that could be started or stopped";

pub(super) fn run(verb: &'static str, server: &str, shared: &cli::Shared) -> Result<(), Failure> {
    with_daemon(shared, async |there| {
        let status = there.operate(server, verb).await?;
        let pid = status.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        tell(&format!("`{}` is {}{pid}", status.name, status.state.as_str()));
        Ok(())
    })
}

/// What became of a change of the config, as far as it is shown.
#[derive(Deserialize)]
struct Change {
    plan: Plan,
    failed: Vec<Failed>,
}

#[derive(Deserialize)]
struct Plan {
    added: Vec<String>,
    changed: Vec<String>,
    removed: Vec<String>,
    untouched: Vec<String>,
    needs_restart: Vec<String>,
}

#[derive(Deserialize)]
struct Failed {
    server: String,
    error: crate::told::Told,
}

/// Reads the config again.
pub(super) fn reload_config(shared: &cli::Shared) -> Result<(), Failure> {
    with_daemon(shared, async |there| {
        let change: Change = match there.post::<Value>("/api/v1/config/reload").await {
            Ok(value) => serde_json::from_value(value)
                .map_err(|error| Failure::Refused { what: error.to_string(), hint: None })?,
            Err(trouble) => return Err(trouble),
        };
        let Plan { added, changed, removed, untouched, needs_restart } = change.plan;
        let lists = [
            ("added", added),
            ("changed", changed),
            ("removed", removed),
            ("untouched", untouched),
            ("needs a restart", needs_restart),
        ];
        let lines = lists.iter().filter(|(_, names)| !names.is_empty());
        output::print(
            &lines.map(|(word, names)| format!("{word}: {}\n", names.join(", "))).collect::<String>(),
        )?;
        for Failed { server, error } in &change.failed {
            let cause = error.cause.as_deref().unwrap_or(&error.message);
            tell(&format!("error: the change of `{server}` failed, so it stays as it was\n  cause: {cause}"));
        }
        if change.failed.is_empty() { Ok(()) } else { Err(Failure::NoneAnswered(change.failed.len()).into()) }
    })
}

/// `ostler logs`: what a server says on stderr.
pub(super) fn show_logs(typed: &cli::Logs, shared: &cli::Shared) -> Result<(), Failure> {
    with_daemon(shared, async |there| there.logs(&typed.server, typed.follow).await)
}

fn with_daemon(
    shared: &cli::Shared,
    work: impl AsyncFnOnce(&There) -> Result<(), Trouble>,
) -> Result<(), Failure> {
    let there = reach::find_daemon(shared, WHY)?;
    reach::run(Way::There(there), async |reach| match reach {
        Reach::There(there) => work(there).await.map_err(Failure::from),
        Reach::Here(_) => Err(Failure::NoDaemon { why: WHY }),
    })
}
