//! `ostler down`: the end of daemons.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;

use crate::about::About;
use crate::failure::Failure;
use crate::output::{self, tell};
use crate::reach::{self, Address, There};
use crate::spot::{self, Spot};
use crate::{cli, config_file, folders};

/// How long a daemon may take to end: the time of calls, of servers that ignore everything, and some more.
const GONE_WITHIN: Duration = Duration::from_secs(20);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(10);

/// The stable shape of `--json`.
#[derive(Serialize)]
struct Listing<'a> {
    ended: &'a [About],
}

/// A daemon that is to end.
struct Target {
    there: There,
    /// Where its lock is; none for one on another machine.
    spot: Option<Spot>,
}

pub(super) fn run(typed: &cli::Down, shared: &cli::Shared) -> Result<(), Failure> {
    let targets = targets(typed, shared)?;
    if targets.is_empty() {
        tell(&describe_none(typed, shared));
    }
    let (mut ended, mut failed) = (Vec::new(), None);
    for target in targets {
        match target.end() {
            Ok(about) => ended.push(about),
            Err(failure) => {
                if let Some(before) = failed.replace(failure) {
                    tell(&before.render(output::Style::stderr()));
                }
            }
        }
    }
    if typed.json {
        // A failure alone is told as JSON where it is reported.
        if failed.is_none() || !ended.is_empty() {
            output::print_json(&Listing { ended: &ended })?;
        }
    } else {
        for about in &ended {
            let About { url, pid, .. } = about;
            output::print(&format!("ended the daemon at {url} (pid {pid}), config {}\n", about.config()))?;
            match about.clients {
                None | Some(0) => {}
                Some(1) => {
                    tell("1 client is attached through `ostler stdio`; its next request starts a daemon")
                }
                Some(some) => tell(&format!(
                    "{some} clients are attached through `ostler stdio`; the next request of one starts a daemon"
                )),
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

/// The daemons that are meant.
fn targets(typed: &cli::Down, shared: &cli::Shared) -> Result<Vec<Target>, Failure> {
    let target = |(spot, note): (Spot, spot::Note)| {
        let there = There::new(Address::near(&note.url)?, spot.token());
        Some(Target { there, spot: Some(spot) })
    };
    if typed.all {
        return Ok(spot::all_settled().into_iter().filter_map(target).collect());
    }
    if let Some(address) = &shared.daemon {
        let is_meant = |(_, note): &(Spot, spot::Note)| note.url == address.to_string();
        let near = spot::all_running().into_iter().find(is_meant).and_then(target);
        let named = || {
            let there = There::new(address.clone(), reach::token_for(address, None));
            Target { there, spot: None }
        };
        return Ok(vec![near.unwrap_or_else(named)]);
    }
    let spot = Spot::of(config_file::find(shared.config.as_deref())?.file())?;
    // The one that follows may have another state directory.
    let found = spot.settled().and_then(|note| target(spot.with(note)));
    Ok(found.into_iter().collect())
}

/// Says that there is nothing to end, and what there is.
fn describe_none(typed: &cli::Down, shared: &cli::Shared) -> String {
    if typed.all {
        return "no daemon runs".into();
    }
    let file = config_file::find(shared.config.as_deref()).ok();
    let config = file.as_ref().and_then(|found| found.file()).map(folders::short);
    let none = match config {
        Some(file) => format!("no daemon runs for {}", output::clean(&file)),
        None => "no daemon is running for this directory (no config)".into(),
    };
    match spot::all_running().len() {
        0 => none,
        others => format!(
            "{none}; {} for other configs: `ostler daemons` lists them, `ostler down --all` ends them",
            if others == 1 { "one runs".into() } else { format!("{others} run") }
        ),
    }
}

impl Target {
    /// Ends the daemon and waits until it is gone.
    fn end(&self) -> Result<About, Failure> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Machine)?;
        let about = runtime.block_on(end(&self.there, self.spot.as_ref(), None))?;
        let began = Instant::now();
        while !self.is_gone(about.pid) {
            if began.elapsed() >= GONE_WITHIN {
                return Err(Failure::StillRunning { url: about.url, pid: about.pid });
            }
            std::thread::sleep(LOOK);
        }
        Ok(about)
    }

    fn is_gone(&self, pid: u32) -> bool {
        match &self.spot {
            Some(spot) => !spot.is_held_by(pid),
            None => std::net::TcpStream::connect(self.there.address().authority()).is_err(),
        }
    }
}

/// Asks a daemon to end, with this much time for its calls. One of a version that can't be asked gets a signal, if it is
/// the process that holds the lock of `spot`. A pid that the other end names is never enough: it may be any process here.
pub(super) async fn end(
    there: &There,
    spot: Option<&Spot>,
    calls: Option<Duration>,
) -> Result<About, Failure> {
    let refused = match there.shut_down(calls).await {
        Ok(about) => return Ok(about),
        Err(trouble) => trouble.into(),
    };
    let Some(spot) = spot else { return Err(refused) };
    let Ok(about) = there.version().await else { return Err(refused) };
    match i32::try_from(about.pid) {
        Ok(pid) if pid > 1 && spot.is_lock_holder(about.pid) => {
            kill(Pid::from_raw(pid), Signal::SIGTERM).map(|()| about).map_err(|_| refused)
        }
        _ => Err(refused),
    }
}
