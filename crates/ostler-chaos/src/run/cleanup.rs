//! Cleanup of a run: no process outlives it, however it ends.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use ostler_testkit::Proc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

/// Longer than killed processes need to be gone on a busy machine.
const GONE: Duration = Duration::from_secs(10);
/// Interval of checks for killed processes.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A signal that has ended the run early.
#[derive(Debug, thiserror::Error)]
#[error("ended by {0} before its time, with everything that the run had started")]
pub(crate) struct Interrupted(Signal);

impl Interrupted {
    /// Returns the exit code that a shell gives to a program that a signal has ended.
    pub(crate) fn code(&self) -> u8 {
        128 + u8::try_from(self.0 as i32).unwrap_or_default()
    }
}

/// Waits for a signal that asks the run to end.
pub(crate) async fn wait_for_signal() -> std::io::Result<Interrupted> {
    let mut keyboard = signal(SignalKind::interrupt())?;
    let mut request = signal(SignalKind::terminate())?;
    let mut terminal = signal(SignalKind::hangup())?;
    Ok(Interrupted(tokio::select! {
        _ = keyboard.recv() => Signal::SIGINT,
        _ = request.recv() => Signal::SIGTERM,
        _ = terminal.recv() => Signal::SIGHUP,
    }))
}

/// Kills every process that names the run's folder, until none is left. Returns those that can't be
/// killed.
pub(crate) async fn kill_all(folder: &Path) -> Vec<Proc> {
    let due = Instant::now() + GONE;
    loop {
        // Dropped tasks end their processes when they are next polled.
        sleep(EXIT_POLL_INTERVAL).await;
        let left: Vec<Proc> = processes_naming(folder).collect();
        if left.is_empty() || Instant::now() >= due {
            return left;
        }
        left.into_iter().for_each(Proc::kill);
    }
}

/// Returns the other processes that have the folder in their arguments or their environment.
fn processes_naming(folder: &Path) -> impl Iterator<Item = Proc> + '_ {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let holds = |file: &str| {
            let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
            names(&bytes, folder.as_os_str())
        };
        let is_it = pid != std::process::id() && (holds("cmdline") || holds("environ"));
        is_it.then(|| Proc::find(pid))?
    })
}

fn names(bytes: &[u8], folder: &OsStr) -> bool {
    let folder = folder.as_bytes();
    bytes.windows(folder.len().max(1)).any(|window| window == folder)
}
