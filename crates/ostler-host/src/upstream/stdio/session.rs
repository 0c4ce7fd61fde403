//! Session over stdio: a live connection to a child process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler_core::fault::{Fault, FaultKind};
use ostler_core::supervisor::ServerFailure;
use ostler_wire::{Era, LineSplitter, RpcOutcome, ServerInfo};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::multiplexer::Multiplexer;
use super::process::{ProcessHandle, ServerProcess};
use super::reader::{StdioCounters, StdioReader};
use super::writer;
use crate::lists::Kind;
use crate::upstream::subscription_ack::{empty_subscription_params, subscription_params};
use crate::upstream::{
    BoxFuture, CloseMode, ServerNotificationSink, ServerSession, SessionStats, UpstreamRequest,
};

/// Timeout for the second sign of an end (exit, end of output) once the first has been seen.
const GRACE: Duration = Duration::from_millis(100);
/// Silence after which the output of an ended server is complete. Only a descendant that holds the pipe open makes
/// this wait necessary.
const OUTPUT_IDLE: Duration = Duration::from_millis(25);
/// Upper bound on both waits together: continued output comes from a descendant, or from a server that ignores its
/// end.
const MAX_OUTPUT_WAIT: Duration = Duration::from_millis(500);

/// A live connection to a child process.
#[derive(Debug)]
pub(crate) struct StdioSession {
    server_info: ServerInfo,
    multiplexer: Arc<Multiplexer>,
    counters: Arc<StdioCounters>,
    handle: Arc<ProcessHandle>,
    ended: watch::Receiver<Option<ServerFailure>>,
}

/// Inputs of [`StdioSession::start`] beside the process.
pub(crate) struct StdioSessionParts {
    pub(crate) server_info: ServerInfo,
    pub(crate) notification_sink: ServerNotificationSink,
    /// Holds the bytes that came after the handshake in the same read.
    pub(crate) splitter: LineSplitter,
    /// Upper bound on one line, in bytes.
    pub(crate) cap: usize,
    /// Time that a call gets after progress, and after an answer to a server request.
    pub(crate) progress_extension: Duration,
    /// Set once a server request could not be attributed.
    pub(crate) has_ambiguous_requests: Arc<AtomicBool>,
}

impl StdioSession {
    /// Starts reading and writing.
    pub(crate) fn start(process: ServerProcess, beginning: StdioSessionParts) -> Arc<Self> {
        let ServerProcess { stdin, stdout, handle } = process;
        let line = Arc::new(Multiplexer::new(stdin, beginning.server_info.session_meta.clone()));
        let tally = Arc::new(StdioCounters::new());
        let hello = beginning.server_info.clone();
        let reader = StdioReader::new(Arc::clone(&line), Arc::clone(&tally), beginning);
        let handle = Arc::new(handle);
        let (tell, ended) = watch::channel(None);
        tokio::spawn(writer::run(Arc::clone(&line)));
        let clock = Arc::clone(&line);
        tokio::spawn(async move { clock.run_deadlines().await });
        tokio::spawn(read_to_end(reader, stdout, Arc::clone(&line), Arc::clone(&handle), tell));
        Arc::new(Self { server_info: hello, multiplexer: line, counters: tally, handle, ended })
    }

    async fn run_request(&self, ask: UpstreamRequest<'_>) -> Result<RpcOutcome, Fault> {
        let (id, answer) = self.multiplexer.send(&ask).await?;
        let mut call = StdioCancelOnDrop { multiplexer: &self.multiplexer, id: Some(id) };
        let reply = answer.await;
        call.id = None;
        reply.unwrap_or_else(|_| Err(Fault::unknown(FaultKind::Closed)))
    }
}

/// Cancels its call if it is dropped with the id still in it.
struct StdioCancelOnDrop<'a> {
    multiplexer: &'a Multiplexer,
    id: Option<u64>,
}

impl Drop for StdioCancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.multiplexer.cancel_call(id, "the caller went away");
        }
    }
}

impl ServerSession for StdioSession {
    fn server_info(&self) -> &ServerInfo {
        &self.server_info
    }

    fn request<'a>(&'a self, ask: UpstreamRequest<'a>) -> BoxFuture<'a, Result<RpcOutcome, Fault>> {
        Box::pin(self.run_request(ask))
    }

    fn notify(&self, method: &str, params: Option<&[u8]>) {
        // A modern server takes nothing but requests and their cancellation.
        if self.server_info.era == Era::Legacy {
            self.multiplexer.send_detached(|out| ostler_wire::write_notification(out, method, params));
        }
    }

    fn listen(&self, resources: &[String]) {
        if self.server_info.era == Era::Legacy {
            return;
        }
        match subscription_params(&self.server_info, resources) {
            Some(params) => self.multiplexer.listen(&params),
            // A request for nothing replaces the earlier one.
            None if self.multiplexer.is_listening() => self.multiplexer.listen(&empty_subscription_params()),
            None => {}
        }
    }

    fn notifies_changes(&self, kind: Kind) -> bool {
        match self.server_info.era {
            Era::Legacy => true,
            Era::Modern => self.multiplexer.is_notified_of(kind),
        }
    }

    fn ended(&self) -> BoxFuture<'_, ServerFailure> {
        let mut ended = self.ended.clone();
        Box::pin(async move {
            match ended.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(failure)) => failure.clone(),
                Ok(None) | Err(_) => ServerFailure::new(FaultKind::Closed, Instant::now().into_std()),
            }
        })
    }

    fn close(&self, force: CloseMode) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.multiplexer.finish(&FaultKind::Retired);
            self.handle.end(force).await;
        })
    }

    fn stats(&self) -> SessionStats {
        SessionStats {
            pid: Some(self.handle.pid),
            stderr: self.handle.recent_stderr(),
            skipped_lines: self.counters.skipped(),
            dropped_notifications: self.counters.dropped.load(Ordering::Relaxed),
        }
    }

    fn activity(&self) -> (Option<Instant>, Option<Instant>) {
        (self.counters.last_heard(), self.multiplexer.oldest())
    }
}

/// Reads until the first sign of the end and returns the failure.
async fn read_to_end(
    reader: StdioReader,
    stdout: pipe::Receiver,
    line: Arc<Multiplexer>,
    handle: Arc<ProcessHandle>,
    tell: watch::Sender<Option<ServerFailure>>,
) {
    let tally = Arc::clone(&reader.counters);
    let reading = reader.run(stdout);
    tokio::pin!(reading);
    let sign = tokio::select! {
        () = &mut reading => FaultKind::Closed,
        exit = handle.exited() => FaultKind::Exited(exit),
        () = line.write_broken.notified() => FaultKind::Write("the server closed its input".into()),
    };
    if sign != FaultKind::Closed {
        // Answers that were written before the end still count.
        let _ = timeout(MAX_OUTPUT_WAIT, async {
            loop {
                let before = tally.bytes.load(Ordering::Relaxed);
                let is_over = timeout(OUTPUT_IDLE, &mut reading).await.is_ok();
                if is_over || tally.bytes.load(Ordering::Relaxed) == before {
                    break;
                }
            }
        })
        .await;
    }
    let kind = match sign {
        FaultKind::Exited(exit) => FaultKind::Exited(exit),
        other => handle.exited_within(GRACE).await.map_or(other, FaultKind::Exited),
    };
    line.finish(&kind);
    let mut failure = ServerFailure::new(kind, Instant::now().into_std());
    failure.attach_stderr(handle.final_stderr(failure.exit).await);
    tell.send_replace(Some(failure));
}
