//! Daemon of a run, which is killed and started again at the same address.

use std::fs::File;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::daemon_processes::{DaemonProcesses, MARK};
use super::testbed::Testbed;

/// Longer than any start on a busy machine.
const DAEMON_START_TIMEOUT: Duration = Duration::from_secs(30);
/// The daemon promises to end within ten seconds.
const DAEMON_STOP_TIMEOUT: Duration = Duration::from_secs(12);
/// Lines of the log that are shown when a daemon does not start.
const SHOWN: usize = 20;
/// Interval of checks during a start.
const START_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A daemon that runs, or has just been killed.
#[derive(Debug)]
pub(crate) struct DaemonProcess {
    testbed: Arc<Testbed>,
    child: Child,
    pid: u32,
    /// The daemon's number among those of the run.
    life: u32,
    is_up: watch::Sender<bool>,
}

impl DaemonProcess {
    pub(crate) async fn start(testbed: &Arc<Testbed>) -> anyhow::Result<Self> {
        let (mut child, pid) = spawn(testbed, 1)?;
        wait_until_up(testbed, &mut child).await?;
        let is_up = watch::Sender::new(true);
        Ok(Self { testbed: Arc::clone(testbed), child, pid, life: 1, is_up })
    }

    /// Returns a receiver that is true while a daemon runs.
    pub(crate) fn subscribe(&self) -> watch::Receiver<bool> {
        self.is_up.subscribe()
    }

    pub(crate) fn mark(&self) -> String {
        mark(&self.testbed, self.life)
    }

    pub(crate) fn processes(&self) -> anyhow::Result<DaemonProcesses> {
        DaemonProcesses::find(self.pid, self.mark()).context("the daemon has ended")
    }

    /// Returns the exit status, if the daemon has ended by itself.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Kills the daemon with SIGKILL and waits until it is reaped.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        self.is_up.send_replace(false);
        self.child.kill().await.context("the daemon can't be killed")
    }

    /// Stops the daemon with SIGTERM and returns its exit status.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        self.is_up.send_replace(false);
        if let Ok(processes) = self.processes() {
            processes.daemon().signal(Signal::SIGTERM);
        }
        let ending = tokio::time::timeout(DAEMON_STOP_TIMEOUT, self.child.wait());
        Ok(ending.await.context("the daemon does not end within ten seconds of SIGTERM")??)
    }

    /// Starts the daemon again at its address.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<()> {
        self.life += 1;
        (self.child, self.pid) = spawn(&self.testbed, self.life)?;
        wait_until_up(&self.testbed, &mut self.child).await?;
        self.is_up.send_replace(true);
        Ok(())
    }
}

/// Returns the mark of one daemon. Runs may take place side by side, each in its own folder.
fn mark(testbed: &Testbed, life: u32) -> String {
    format!("{}/{life}", testbed.folder.display())
}

fn spawn(testbed: &Testbed, life: u32) -> anyhow::Result<(Child, u32)> {
    let _ = std::fs::remove_file(testbed.folder.join("host/port"));
    let log = File::options().create(true).append(true).open(testbed.folder.join("daemon.log"))?;
    let address = format!("127.0.0.1:{}", testbed.ports.daemon);
    let mut command = testbed.host_command(&[
        "serve",
        "--config",
        "ostler.toml",
        "--listen",
        &address,
        "--port-file",
        "port",
    ]);
    command.env(MARK, mark(testbed, life)).stdout(log.try_clone()?).stderr(log);
    let child =
        command.spawn().with_context(|| format!("{} can't be started", testbed.programs.ostler.display()))?;
    let pid = child.id().context("the daemon has ended at once")?;
    Ok((child, pid))
}

/// Returns the last lines of a log, which may be gone when the error is read.
fn log_tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(SHOWN);
    if lines.is_empty() { "nothing".into() } else { lines[from..].join("\n") }
}

async fn wait_until_up(testbed: &Testbed, child: &mut Child) -> anyhow::Result<u16> {
    let end = Instant::now() + DAEMON_START_TIMEOUT;
    let log = testbed.folder.join("daemon.log");
    loop {
        let text = std::fs::read_to_string(testbed.folder.join("host/port")).ok();
        if let Some(port) = text.and_then(|text| text.trim().parse().ok()) {
            return Ok(port);
        }
        if let Some(status) = child.try_wait()? {
            bail!("the daemon does not come up ({status}); it says:\n{}", log_tail(&log));
        }
        if Instant::now() >= end {
            bail!("the daemon does not come up within 30 s; it says:\n{}", log_tail(&log));
        }
        sleep(START_POLL_INTERVAL).await;
    }
}
