//! `ostler down`: ends daemons.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;

use crate::client::{self, DaemonAddress, DaemonClient};
use crate::daemon_info::DaemonInfo;
use crate::failure::CommandFailure;
use crate::instance::{self, DaemonInstance};
use crate::output::{self, print_stderr};
use crate::{cli, config_file, xdg};

/// Timeout of a daemon's shutdown: the time of calls, of servers that ignore every signal, and a margin.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
/// Polling interval of the shutdown.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The stable shape of `--json`.
#[derive(Serialize)]
struct DownOutput<'a> {
    ended: &'a [DaemonInfo],
}

/// Daemon to shut down.
struct DownTarget {
    daemon: DaemonClient,
    /// Instance whose lock the daemon holds; `None` for a daemon on another machine.
    instance: Option<DaemonInstance>,
}

pub(super) fn run(typed: &cli::DownArgs, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    let targets = targets(typed, shared)?;
    if targets.is_empty() {
        print_stderr(&describe_none(typed, shared));
    }
    let (mut ended, mut failed) = (Vec::new(), None);
    for target in targets {
        match target.and_then(|target| target.shut_down()) {
            Ok(about) => ended.push(about),
            Err(failure) => {
                if let Some(before) = failed.replace(failure) {
                    print_stderr(&before.render(output::Style::stderr()));
                }
            }
        }
    }
    if typed.json {
        // A failure alone becomes JSON where it is reported.
        if failed.is_none() || !ended.is_empty() {
            output::print_json(&DownOutput { ended: &ended })?;
        }
    } else {
        for about in &ended {
            let DaemonInfo { url, pid, .. } = about;
            output::print(&format!("ended the daemon at {url} (pid {pid}), config {}\n", about.config()))?;
            match about.clients {
                None | Some(0) => {}
                Some(1) => print_stderr(
                    "1 client is attached through `ostler stdio`; its next request starts a daemon",
                ),
                Some(some) => print_stderr(&format!(
                    "{some} clients are attached through `ostler stdio`; the next request of one starts a daemon"
                )),
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Returns the daemons that the arguments name.
fn targets(
    typed: &cli::DownArgs,
    shared: &cli::GlobalOptions,
) -> Result<Vec<Result<DownTarget, CommandFailure>>, CommandFailure> {
    let target = |(spot, note): (DaemonInstance, instance::DaemonRecord)| {
        let there = DaemonClient::new(DaemonAddress::local(&note.url)?, spot.admin_token());
        Some(DownTarget { daemon: there, instance: Some(spot) })
    };
    if typed.all {
        let settled = instance::all_settled().into_iter();
        return Ok(settled.filter_map(|found| found.map(target).transpose()).collect());
    }
    if let Some(address) = &shared.daemon {
        let is_meant = |(_, note): &(DaemonInstance, instance::DaemonRecord)| note.url == address.to_string();
        let near = instance::all_running().into_iter().find(is_meant).and_then(target);
        let named = || {
            let there = DaemonClient::new(address.clone(), client::admin_token_for(address, None));
            DownTarget { daemon: there, instance: None }
        };
        return Ok(vec![Ok(near.unwrap_or_else(named))]);
    }
    let spot = DaemonInstance::for_config(config_file::find(shared.config.as_deref())?.file())?;
    // The next daemon may have another state directory.
    let found = spot.wait_until_settled()?.and_then(|note| target(spot.with_state_of(note)));
    Ok(found.map(Ok).into_iter().collect())
}

/// Returns the message that no daemon was found, with those that there are.
fn describe_none(typed: &cli::DownArgs, shared: &cli::GlobalOptions) -> String {
    if typed.all {
        return "no daemon runs".into();
    }
    let file = config_file::find(shared.config.as_deref()).ok();
    let config = file.as_ref().and_then(|found| found.file()).map(xdg::abbreviate_home);
    let none = match config {
        Some(file) => format!("no daemon runs for {}", output::escape_line(&file)),
        None => "no daemon is running for this directory (no config)".into(),
    };
    match instance::all_running().len() {
        0 => none,
        others => format!(
            "{none}; {} for other configs: `ostler daemons` lists them, `ostler down --all` ends them",
            if others == 1 { "one runs".into() } else { format!("{others} run") }
        ),
    }
}

impl DownTarget {
    /// Shuts the daemon down and waits until it is gone.
    fn shut_down(&self) -> Result<DaemonInfo, CommandFailure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(CommandFailure::Machine)?;
        let about = runtime.block_on(shut_down(&self.daemon, self.instance.as_ref(), None))?;
        let began = Instant::now();
        while !self.is_gone(about.pid) {
            if began.elapsed() >= EXIT_TIMEOUT {
                return Err(CommandFailure::StillRunning { url: about.url, pid: about.pid });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(about)
    }

    fn is_gone(&self, pid: u32) -> bool {
        match &self.instance {
            Some(spot) => !spot.is_held_by(pid),
            None => std::net::TcpStream::connect(self.daemon.address().authority()).is_err(),
        }
    }
}

/// Requests a shutdown, with this much time for calls. A daemon of a version without this request gets a signal, if its
/// process holds the lock of the instance. A pid that the other end names is never enough: it may be any process here.
pub(super) async fn shut_down(
    there: &DaemonClient,
    spot: Option<&DaemonInstance>,
    calls: Option<Duration>,
) -> Result<DaemonInfo, CommandFailure> {
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
