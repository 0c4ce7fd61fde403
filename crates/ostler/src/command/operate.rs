//! `ostler start`, `stop` and `reload`: what an operator does with servers.

use std::borrow::Cow;

use ostler_core::config::{Plan, Problem};
use ostler_core::name::ServerName;

use crate::api::{LockChange, Outcome, ServerError};
use crate::failure::Failure;
use crate::invocation::command;
use crate::output::{self, tell};
use crate::reach::{self, Reach, There, Trouble, Way};
use crate::{cli, config_file};

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

/// Whether a daemon takes up the lock file on disk with its config.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LockOnDisk {
    Taken,
    Kept,
}

/// Reads the config again.
pub(super) fn reload_config(shared: &cli::Shared) -> Result<(), Failure> {
    reload(reach::find_daemon(shared, WHY)?, LockOnDisk::Taken)
}

/// Has a daemon read its config again.
pub(super) fn reload(there: There, lock: LockOnDisk) -> Result<(), Failure> {
    ask(there, async |there| {
        let done = match there.reload_config(lock).await? {
            Outcome::Applied { plan, failed, lock } => {
                show_change(plan, &failed).and_then(|()| show_lock(&lock))
            }
            Outcome::Broken { problems } => Err(show_problems(&problems)),
            Outcome::Unreadable { why, hint } => Err(Failure::Refused { what: why, hint }),
            Outcome::Untrusted { file } => {
                Err(Failure::Untrusted { file: config_file::shown(&file).to_owned(), is_edited: true })
            }
        };
        Ok(done?)
    })
}

fn show_change(plan: Plan, failed: &[ServerError]) -> Result<(), Failure> {
    let Plan { added, changed, removed, untouched, roles, needs_restart } = plan;
    let named = |names: &[ServerName]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let lists = [
        ("added", named(&added)),
        ("changed", named(&changed)),
        ("removed", named(&removed)),
        ("untouched", named(&untouched)),
        ("roles", roles),
        ("needs a restart", needs_restart.into_iter().map(Cow::into_owned).collect()),
    ];
    for (word, names) in lists.iter().filter(|(_, names)| !names.is_empty()) {
        output::print(&format!("{word}: {}\n", names.join(", ")))?;
    }
    for ServerError { server, error } in failed {
        let cause = error.cause.as_deref().unwrap_or(&error.message);
        tell(&format!("error: the change of `{server}` failed, so it stays as it was\n  cause: {cause}"));
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::NoneAnswered(failed.len())) }
}

/// Says what became of the lock file. One that can't be used is a failure: what was approved before stays in force.
fn show_lock(change: &LockChange) -> Result<(), Failure> {
    match change {
        LockChange::Unchanged => Ok(()),
        LockChange::TakenUp => output::print("lock file: taken up\n"),
        LockChange::Gone => output::print("lock file: gone, so nothing is pinned any more\n"),
        LockChange::Unusable => {
            tell(&format!(
                "the lock file was not taken up; what was approved before stays in force ({} says why)",
                command("diff")
            ));
            Err(Failure::Config {
                file: "the lock file".into(),
                counted: output::count(1, "problem"),
                first: None,
            })
        }
    }
}

/// Says what is wrong with the config; the daemon goes on with the one before.
fn show_problems(problems: &[Problem]) -> Failure {
    for Problem { severity, file, line, message, hint, .. } in problems {
        tell(&format!("{}:{line}: {severity}: {message}", config_file::shown(file).display()));
        hint.iter().for_each(|hint| tell(&format!("  hint: {hint}")));
    }
    let file = problems.first().map(|problem| config_file::shown(&problem.file).to_owned());
    let counted = output::count(problems.len(), "problem");
    Failure::Config { file: file.unwrap_or_default(), counted, first: None }
}

fn with_daemon(
    shared: &cli::Shared,
    work: impl AsyncFnOnce(&There) -> Result<(), Trouble>,
) -> Result<(), Failure> {
    ask(reach::find_daemon(shared, WHY)?, work)
}

fn ask(there: There, work: impl AsyncFnOnce(&There) -> Result<(), Trouble>) -> Result<(), Failure> {
    reach::run(Way::There(there), async |reach| match reach {
        Reach::There(there) => work(there).await.map_err(Failure::from),
        Reach::Here(_) => Err(Failure::NoDaemon { why: WHY }),
    })
}
