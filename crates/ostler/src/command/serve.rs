//! `ostler serve`: the daemon.

use std::path::Path;
use std::time::Duration;

use tokio::runtime::Builder;

use crate::config_file::Found;
use crate::daemon::{self, Launch};
use crate::failure::Failure;
use crate::spot::{Kind, Spot};
use crate::{cli, config_file, trust};

/// How long what is still being written to disk may take at the end.
const LAST_WRITES: Duration = Duration::from_millis(200);

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
    let Some(claim) = spot.claim(kind, |_| {})? else {
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
