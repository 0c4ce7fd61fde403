//! Server process: its pipes, its exit, and the request that ends it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::fault::Exit;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};

use super::stderr_tail::{StderrLog, StderrTail};
use super::{guarded, unguarded};
use crate::process::client::SpawnerClient;
use crate::process::protocol::SpawnRequest;
use crate::redact::Redactor;
use crate::upstream::{CleanupGuard, CloseMode};

/// Timeout for the end of stderr after a server's exit. Only a descendant that holds the pipe open makes this wait
/// necessary.
const STDERR_TIMEOUT: Duration = Duration::from_millis(100);

/// Progress of the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessLife {
    /// The server's process runs.
    Running,
    /// The server's own process has ended.
    Exited(Exit),
    /// No descendant is left either.
    Gone(Exit),
}

/// A running process. Dropping it without [`ProcessHandle::end`] kills it.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    pub(crate) stdin: pipe::Sender,
    pub(crate) stdout: pipe::Receiver,
    pub(crate) handle: ProcessHandle,
}

/// Handle of a process whose pipes have been taken.
#[derive(Debug)]
pub(crate) struct ProcessHandle {
    pub(crate) pid: u32,
    pub(crate) stderr: Arc<StderrTail>,
    /// Closed when stderr has been read to its end.
    stderr_drained: watch::Receiver<()>,
    life: watch::Receiver<ProcessLife>,
    /// Closing it kills the process.
    close_requests: mpsc::Sender<CloseMode>,
}

impl ServerProcess {
    /// Starts a process, under a guard if there is a spawner.
    pub(crate) async fn start(
        order: &SpawnRequest,
        warden: Option<&SpawnerClient>,
        stay: CleanupGuard,
        (log, veil): (&Arc<StderrLog>, &Arc<Redactor>),
    ) -> io::Result<Self> {
        let (life_in, life) = watch::channel(ProcessLife::Running);
        // At most one graceful and one forced request are sent.
        let (keeper, requests) = mpsc::channel(2);
        let started = match warden {
            Some(warden) => {
                guarded::start(order, warden, ProcessMonitor { life: life_in, requests, cleanup: stay })
                    .await?
            }
            None => unguarded::start(order, ProcessMonitor { life: life_in, requests, cleanup: stay })?,
        };
        let stderr = Arc::new(log.begin(started.pid, veil));
        let (is_draining, drained) = watch::channel(());
        tokio::spawn(drain(started.stderr, Arc::clone(&stderr), is_draining));
        let handle =
            ProcessHandle { pid: started.pid, stderr, stderr_drained: drained, life, close_requests: keeper };
        Ok(Self { stdin: started.stdin, stdout: started.stdout, handle })
    }
}

/// State of the task that monitors a process.
#[derive(Debug)]
pub(crate) struct ProcessMonitor {
    /// Receives the progress of the end.
    pub(crate) life: watch::Sender<ProcessLife>,
    /// Close requests of the host; closed when the handle is dropped.
    pub(crate) requests: mpsc::Receiver<CloseMode>,
    /// Held until nothing of the process is left.
    pub(crate) cleanup: CleanupGuard,
}

/// A started process, as both kinds of monitors return it.
#[derive(Debug)]
pub(crate) struct StartedProcess {
    pub(crate) pid: u32,
    pub(crate) stdin: pipe::Sender,
    pub(crate) stdout: pipe::Receiver,
    pub(crate) stderr: pipe::Receiver,
}

impl ProcessHandle {
    /// Makes the handle of a process that does not exist: it runs until a close is requested.
    #[cfg(fuzzing)]
    pub(crate) fn for_fuzzing() -> Self {
        let (life_in, life) = watch::channel(ProcessLife::Running);
        let (close_requests, mut requests) = mpsc::channel(2);
        tokio::spawn(async move {
            requests.recv().await;
            life_in.send_replace(ProcessLife::Gone(Exit::Untold));
        });
        let stderr = Arc::new(StderrTail::alone(&Arc::default()));
        Self { pid: 0, stderr, stderr_drained: watch::channel(()).1, life, close_requests }
    }

    /// Waits for the server's own process to end.
    pub(crate) async fn exited(&self) -> Exit {
        let mut life = self.life.clone();
        let end = life.wait_for(|life| *life != ProcessLife::Running).await;
        match end.as_deref() {
            Ok(ProcessLife::Exited(exit) | ProcessLife::Gone(exit)) => *exit,
            // The monitor has ended, so no exit status will come.
            Ok(ProcessLife::Running) | Err(_) => Exit::Untold,
        }
    }

    /// Waits briefly for the exit, which an error names.
    pub(crate) async fn exited_within(&self, patience: Duration) -> Option<Exit> {
        tokio::time::timeout(patience, self.exited()).await.ok()
    }

    /// Returns the stderr output so far.
    pub(crate) fn recent_stderr(&self) -> Vec<String> {
        self.stderr.recent_lines()
    }

    /// Returns the last stderr output. The exit may be known before all of it has been read.
    pub(crate) async fn final_stderr(&self, exit: Option<Exit>) -> Vec<String> {
        if exit.is_some() {
            let _ = tokio::time::timeout(STDERR_TIMEOUT, self.stderr_drained.clone().changed()).await;
        }
        self.stderr.final_lines()
    }

    /// Ends the process and its descendants; returns when none is left. The caller has closed stdin.
    pub(crate) async fn end(&self, force: CloseMode) {
        // A full queue holds a request that is at least as strong.
        let _ = self.close_requests.try_send(force);
        let mut life = self.life.clone();
        let _ = life.wait_for(|life| matches!(life, ProcessLife::Gone(_))).await;
    }
}

/// Reads stderr to its end at any rate of output, so that the server never blocks. Dropping `_is_draining` signals
/// the end.
async fn drain(mut stderr: pipe::Receiver, tail: Arc<StderrTail>, _is_draining: watch::Sender<()>) {
    let mut chunk = vec![0; 16 << 10];
    while let Ok(n) = stderr.read(&mut chunk).await {
        if n == 0 {
            break;
        }
        tail.push(&chunk[..n]);
    }
    tail.end_line();
}
