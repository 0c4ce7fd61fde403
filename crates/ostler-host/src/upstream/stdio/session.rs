//! A live connection to a child process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler_core::fault::{Fault, FaultKind};
use ostler_core::supervisor::Failure;
use ostler_wire::{Era, Hello, LineSplitter, Outcome};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::line::Line;
use super::process::{Handle, Process};
use super::reader::{Reader, Tally};
use super::writer;
use crate::lists::Kind;
use crate::upstream::heard::{no_wishes, wishes};
use crate::upstream::{Ask, BoxFuture, Events, Force, Session, Vitals};

/// How long the other sign of an end (exit, end of output) is waited for once
/// one of them has been seen.
const GRACE: Duration = Duration::from_millis(100);
/// How long the output of an ended server may be silent before it is complete.
/// Only a descendant that holds the pipe open makes this wait necessary.
const LAST_WORDS: Duration = Duration::from_millis(25);
/// How long they may take in all: who keeps talking is not the server any
/// more, or does not listen.
const ALL_LAST_WORDS: Duration = Duration::from_millis(500);

/// A live connection to a child process.
#[derive(Debug)]
pub(crate) struct StdioSession {
    hello: Hello,
    line: Arc<Line>,
    tally: Arc<Tally>,
    handle: Arc<Handle>,
    ended: watch::Receiver<Option<Failure>>,
}

/// What [`StdioSession::begin`] needs beside the process.
pub(crate) struct Beginning {
    pub(crate) hello: Hello,
    pub(crate) events: Events,
    /// Holds whatever came after the handshake in the same read.
    pub(crate) splitter: LineSplitter,
    /// The longest line.
    pub(crate) cap: usize,
    /// How much time a call gets after progress, and after an answer to a question.
    pub(crate) patience: Duration,
    /// Set when the server has asked something that nobody could attribute.
    pub(crate) is_confused: Arc<AtomicBool>,
}

impl StdioSession {
    /// Starts reading and writing.
    pub(crate) fn begin(process: Process, beginning: Beginning) -> Arc<Self> {
        let Process { stdin, stdout, handle } = process;
        let line = Arc::new(Line::new(stdin, beginning.hello.session_meta.clone()));
        let tally = Arc::new(Tally::new());
        let hello = beginning.hello.clone();
        let reader = Reader::new(Arc::clone(&line), Arc::clone(&tally), beginning);
        let handle = Arc::new(handle);
        let (tell, ended) = watch::channel(None);
        tokio::spawn(writer::run(Arc::clone(&line)));
        let clock = Arc::clone(&line);
        tokio::spawn(async move { clock.keep_time().await });
        tokio::spawn(watch_over(reader, stdout, Arc::clone(&line), Arc::clone(&handle), tell));
        Arc::new(Self { hello, line, tally, handle, ended })
    }

    async fn exchange(&self, ask: Ask<'_>) -> Result<Outcome, Fault> {
        let (id, answer) = self.line.enter(&ask).await?;
        let mut call = Call { line: &self.line, id: Some(id) };
        let reply = answer.await;
        call.id = None;
        reply.unwrap_or_else(|_| Err(Fault::unknown(FaultKind::Closed)))
    }
}

/// Cancels its call when it is dropped with the number still in it.
struct Call<'a> {
    line: &'a Line,
    id: Option<u64>,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.line.give_up(id, "the caller went away");
        }
    }
}

impl Session for StdioSession {
    fn hello(&self) -> &Hello {
        &self.hello
    }

    fn request<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<Outcome, Fault>> {
        Box::pin(self.exchange(ask))
    }

    fn notify(&self, method: &str, params: Option<&[u8]>) {
        // A modern server takes nothing but requests and their cancellation.
        if self.hello.era == Era::Legacy {
            self.line.post(|out| ostler_wire::write_notification(out, method, params));
        }
    }

    fn listen(&self, resources: &[String]) {
        if self.hello.era == Era::Legacy {
            return;
        }
        match wishes(&self.hello, resources) {
            Some(params) => self.line.listen(&params),
            // To hear of nothing any more, it is asked for nothing.
            None if self.line.is_listening() => self.line.listen(&no_wishes()),
            None => {}
        }
    }

    fn hears_changes(&self, kind: Kind) -> bool {
        match self.hello.era {
            Era::Legacy => true,
            Era::Modern => self.line.hears(kind),
        }
    }

    fn ended(&self) -> BoxFuture<'_, Failure> {
        let mut ended = self.ended.clone();
        Box::pin(async move {
            match ended.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(failure)) => failure.clone(),
                Ok(None) | Err(_) => Failure::new(FaultKind::Closed, Instant::now().into_std()),
            }
        })
    }

    fn close(&self, force: Force) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.line.finish(&FaultKind::Retired);
            self.handle.end(force).await;
        })
    }

    fn vitals(&self) -> Vitals {
        Vitals {
            pid: Some(self.handle.pid),
            stderr: self.handle.words(),
            skipped_lines: self.tally.skipped(),
            dropped_notifications: self.tally.dropped.load(Ordering::Relaxed),
        }
    }

    fn signs(&self) -> (Option<Instant>, Option<Instant>) {
        (self.tally.last_heard(), self.line.oldest())
    }
}

/// Reads to the end, whichever sign of it comes first, and tells why.
async fn watch_over(
    reader: Reader,
    stdout: pipe::Receiver,
    line: Arc<Line>,
    handle: Arc<Handle>,
    tell: watch::Sender<Option<Failure>>,
) {
    let tally = Arc::clone(&reader.tally);
    let reading = reader.run(stdout);
    tokio::pin!(reading);
    let sign = tokio::select! {
        () = &mut reading => FaultKind::Closed,
        exit = handle.exited() => FaultKind::Exited(exit),
        () = line.broken.notified() => FaultKind::Write("the server closed its input".into()),
    };
    if sign != FaultKind::Closed {
        // Answers that were written before the end still count.
        let _ = timeout(ALL_LAST_WORDS, async {
            loop {
                let before = tally.bytes.load(Ordering::Relaxed);
                let is_over = timeout(LAST_WORDS, &mut reading).await.is_ok();
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
    let mut failure = Failure::new(kind, Instant::now().into_std());
    failure.quote(handle.last_words(failure.exit).await);
    tell.send_replace(Some(failure));
}
