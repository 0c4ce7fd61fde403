//! `ostler serve`: the daemon.

use std::path::Path;
use std::time::Duration;

use tokio::runtime::Builder;

use super::down;
use crate::client::{DaemonAddress, DaemonClient};
use crate::config_file::FoundConfig;
use crate::daemon::{self, LaunchOptions};
use crate::failure::CommandFailure;
use crate::instance::{DaemonInstance, DaemonKind, DaemonRecord};
use crate::output::{Style, print_stderr};
use crate::{cli, config_file, trust};

/// Timeout of pending writes to disk at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(200);

/// Timeout of calls at a handover. It is the time that clients of `ostler stdio` wait at most, minus a margin for the
/// start of the next daemon.
const HANDOVER_CALLS_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn run(typed: &cli::ServeArgs, file: Option<&Path>) -> Result<(), CommandFailure> {
    if typed.linger.is_some() {
        // Detaches the daemon from the client's terminal and its signals. This fails for the leader of a session, which
        // has neither.
        let _ = nix::unistd::setsid();
    }
    let found = match typed.builtin {
        true => FoundConfig::NotFound("nothing".into()),
        false => config_file::find(file)?,
    };
    let found = if typed.found { found.in_working_directory() } else { found };
    let spot = DaemonInstance::for_config(found.file())?;
    let kind = if typed.linger.is_some() { DaemonKind::Lingering } else { DaemonKind::Served };
    let Some(claim) = spot.claim(kind, |note| request_handover(&spot, note))? else {
        // Of several daemons that are started for clients at once, one is enough.
        return if typed.linger.is_some() {
            Ok(())
        } else {
            Err(CommandFailure::AlreadyRunning(spot.running()))
        };
    };
    let chosen = config_file::load_quietly(found, typed.listen)?;
    if let Some(file) = &chosen.file {
        trust::require_trust(chosen.origin, file, &chosen.config)?;
    }
    let launch = LaunchOptions {
        chosen,
        config_arg: file.map(Path::to_owned),
        claim,
        listen: typed.listen,
        port_file: typed.port_file.clone(),
        linger: typed.linger,
    };
    // Calls wait for servers and not for a processor: one thread serves them with fewer switches, and less memory, than
    // several.
    let mut builder = match typed.threads {
        0 | 1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if typed.threads > 1 {
        builder.worker_threads(typed.threads);
    }
    let runtime = builder.enable_all().build().map_err(CommandFailure::Machine)?;
    let result = runtime.block_on(daemon::run(launch));
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    result
}

/// Requests a handover from a daemon that `ostler stdio` has started. Its clients reconnect to this one.
fn request_handover(spot: &DaemonInstance, note: &DaemonRecord) {
    print_stderr(&format!(
        "taking over from the daemon that `ostler stdio` started (pid {}); its calls in flight finish first",
        note.pid
    ));
    let ask = || -> Result<(), CommandFailure> {
        let unreadable = || CommandFailure::Unreachable { url: note.url.clone(), why: "no address".into() };
        let there =
            DaemonClient::new(DaemonAddress::local(&note.url).ok_or_else(unreadable)?, spot.admin_token());
        let runtime = Builder::new_current_thread().enable_all().build().map_err(CommandFailure::Machine)?;
        runtime.block_on(down::shut_down(&there, Some(spot), Some(HANDOVER_CALLS_TIMEOUT))).map(drop)
    };
    if let Err(failure) = ask() {
        print_stderr(&failure.render(Style::stderr()));
    }
}
