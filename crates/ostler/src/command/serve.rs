//! `ostler serve`: the daemon.

use std::path::Path;
use std::time::Duration;

use tokio::runtime::Builder;

use super::down;
use crate::config_file::Found;
use crate::daemon::{self, Launch};
use crate::failure::Failure;
use crate::output::{Style, tell};
use crate::reach::{Address, There};
use crate::spot::{Kind, Note, Spot};
use crate::{cli, config_file, trust};

/// How long what is still being written to disk may take at the end.
const LAST_WRITES: Duration = Duration::from_millis(200);

/// How long calls of a daemon that makes way may take. It is the time that clients of `ostler stdio` wait at most, with
/// some left for the start of the next one.
const LAST_CALLS: Duration = Duration::from_secs(30);

pub(super) fn run(typed: &cli::Serve, file: Option<&Path>) -> Result<(), Failure> {
    if typed.linger.is_some() {
        // A client's signals and its terminal are not the daemon's. This fails
        // for the leader of a session, which has neither.
        let _ = nix::unistd::setsid();
    }
    let found = match typed.builtin {
        true => Found::Nowhere("nothing".into()),
        false => config_file::find(file)?,
    };
    let found = if typed.found { found.in_working_directory() } else { found };
    let spot = Spot::of(found.file())?;
    let kind = if typed.linger.is_some() { Kind::Lingering } else { Kind::Served };
    let Some(claim) = spot.claim(kind, |note| make_way(&spot, note))? else {
        // Of several that are started for clients at once, one is enough.
        return if typed.linger.is_some() { Ok(()) } else { Err(Failure::AlreadyRunning(spot.running())) };
    };
    let chosen = config_file::choose_untold(found, typed.listen)?;
    if let Some(file) = &chosen.file {
        trust::require(chosen.origin, file, &chosen.config)?;
    }
    let launch = Launch {
        chosen,
        named: file.map(Path::to_owned),
        claim,
        listen: typed.listen,
        port_file: typed.port_file.clone(),
        linger: typed.linger,
    };
    // Calls wait for servers and not for a processor: one thread serves them
    // with fewer switches, and less memory, than several.
    let mut builder = match typed.threads {
        0 | 1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if typed.threads > 1 {
        builder.worker_threads(typed.threads);
    }
    let runtime = builder.enable_all().build().map_err(Failure::Machine)?;
    let result = runtime.block_on(daemon::run(launch));
    runtime.shutdown_timeout(LAST_WRITES);
    result
}

/// Asks a daemon that `ostler stdio` has started to end. Its clients come to this one.
fn make_way(spot: &Spot, note: &Note) {
    tell(&format!(
        "taking over from the daemon that `ostler stdio` started (pid {}); its calls in flight finish first",
        note.pid
    ));
    let ask = || -> Result<(), Failure> {
        let unreadable = || Failure::Unreachable { url: note.url.clone(), why: "no address".into() };
        let there = There::new(Address::near(&note.url).ok_or_else(unreadable)?, spot.token());
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Machine)?;
        runtime.block_on(down::end(&there, Some(spot), Some(LAST_CALLS))).map(drop)
    };
    if let Err(failure) = ask() {
        tell(&failure.render(Style::stderr()));
    }
}
