//! `ostler start`, `stop` and `reload`: operations on the servers of a daemon.

use std::borrow::Cow;

use ostler_core::config::{Plan, Problem};
use ostler_core::server_name::ServerName;

use crate::api::{LockChange, ReloadOutcome, ServerError};
use crate::client::{self, Backend, BackendChoice, DaemonClient, RequestFailure};
use crate::failure::CommandFailure;
use crate::invocation::command;
use crate::output::{self, print_stderr};
use crate::{cli, config_file};

/// Reason in the error without a daemon.
const DAEMON_REQUIRED: &str = "between commands no server runs that could be started or stopped";

pub(super) fn run(
    verb: &'static str,
    server: &str,
    shared: &cli::GlobalOptions,
) -> Result<(), CommandFailure> {
    with_daemon(shared, async |there| {
        let status = there.operate(server, verb).await?;
        let pid = status.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        print_stderr(&format!("`{}` is {}{pid}", status.name, status.state.as_str()));
        Ok(())
    })
}

/// Choice to reload the lock file together with the config, or not.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LockFileAction {
    Apply,
    Ignore,
}

/// Reloads the config of the daemon.
pub(super) fn reload_config(shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    reload(client::require_daemon(shared, DAEMON_REQUIRED)?, LockFileAction::Apply)
}

/// Makes a daemon reload its config.
pub(super) fn reload(there: DaemonClient, lock: LockFileAction) -> Result<(), CommandFailure> {
    run_on_daemon(there, async |there| {
        let done = match there.reload_config(lock).await? {
            ReloadOutcome::Applied { plan, failed, lock } => {
                print_plan(plan, &failed).and_then(|()| print_lock_change(&lock))
            }
            ReloadOutcome::Broken { problems } => Err(report_problems(&problems)),
            ReloadOutcome::Unreadable { why, hint } => Err(CommandFailure::Refused { what: why, hint }),
            ReloadOutcome::Untrusted { file } => Err(CommandFailure::Untrusted {
                file: config_file::relative_to_cwd(&file).to_owned(),
                is_edited: true,
            }),
        };
        Ok(done?)
    })
}

fn print_plan(plan: Plan, failed: &[ServerError]) -> Result<(), CommandFailure> {
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
        print_stderr(&format!(
            "error: the changed `{server}` did not start, so the process before serves on, with its new rights\n  cause: {cause}"
        ));
    }
    if failed.is_empty() { Ok(()) } else { Err(CommandFailure::NoneAnswered(failed.len())) }
}

/// Prints the change of the lock file. An unusable lock file is a failure: the earlier pins stay in force.
fn print_lock_change(change: &LockChange) -> Result<(), CommandFailure> {
    match change {
        LockChange::Unchanged => Ok(()),
        LockChange::TakenUp => output::print("lock file: taken up\n"),
        LockChange::Gone => output::print("lock file: gone, so nothing is pinned any more\n"),
        LockChange::Unusable => {
            print_stderr(&format!(
                "the lock file was not taken up; what was approved before stays in force ({} says why)",
                command("diff")
            ));
            Err(CommandFailure::Config {
                file: "the lock file".into(),
                counted: output::count(1, "problem"),
                first: None,
            })
        }
    }
}

/// Reports the problems of the config; the daemon keeps the one before.
fn report_problems(problems: &[Problem]) -> CommandFailure {
    for Problem { severity, file, line, message, hint, .. } in problems {
        print_stderr(&format!(
            "{}:{line}: {severity}: {message}",
            config_file::relative_to_cwd(file).display()
        ));
        hint.iter().for_each(|hint| print_stderr(&format!("  hint: {hint}")));
    }
    let file = problems.first().map(|problem| config_file::relative_to_cwd(&problem.file).to_owned());
    let counted = output::count(problems.len(), "problem");
    CommandFailure::Config { file: file.unwrap_or_default(), counted, first: None }
}

fn with_daemon(
    shared: &cli::GlobalOptions,
    work: impl AsyncFnOnce(&DaemonClient) -> Result<(), RequestFailure>,
) -> Result<(), CommandFailure> {
    run_on_daemon(client::require_daemon(shared, DAEMON_REQUIRED)?, work)
}

fn run_on_daemon(
    there: DaemonClient,
    work: impl AsyncFnOnce(&DaemonClient) -> Result<(), RequestFailure>,
) -> Result<(), CommandFailure> {
    client::run_with_backend(BackendChoice::Daemon(there), async |reach| match reach {
        Backend::Daemon(there) => work(there).await.map_err(CommandFailure::from),
        Backend::InProcess(_) => Err(CommandFailure::NoDaemon { why: DAEMON_REQUIRED }),
    })
}
