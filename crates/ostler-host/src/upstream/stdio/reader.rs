//! Reader: turns lines into responses, server requests and notifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::fault::{Delivery, Fault, FaultKind};
use ostler_core::rate_limit::RateLimiter;
use ostler_wire::{Frame, LineSplitter, Message, MethodName, NotificationKind, ProgressParams, RequestId};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::multiplexer::Multiplexer;
use super::server_requests::{self, ServerRequestHandler};
use super::session::StdioSessionParts;
use crate::upstream::subscription_ack::ACKNOWLEDGED;
use crate::upstream::{ServerNotification, ServerNotificationSink};

/// Rate limit of a server's notifications: per second, and in one burst.
const NOTIFICATION_LIMIT: (u32, u32) = (200, 1_000);

/// Size of a read that fills a whole pipe: the server writes as fast as it can.
const FLOOD: usize = 64 << 10;

/// Lines after which the reader yields: a read may hold thousands of tiny ones.
const YIELD_INTERVAL: usize = 1_000;

/// Counters of the reader; read by status.
#[derive(Debug)]
pub(crate) struct StdioCounters {
    born: Instant,
    /// Milliseconds from `born` to the last byte read, plus one; 0 before the first.
    heard: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Lines that were no messages, blank ones apart.
    skipped: AtomicU64,
    /// Blank lines, as the splitter counts them.
    blank: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

impl StdioCounters {
    pub(crate) fn new() -> Self {
        Self {
            born: Instant::now(),
            heard: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            blank: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    fn note_read(&self, bytes: usize) {
        let ms = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.heard.store(ms + 1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the number of lines that were no messages.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed) + self.blank.load(Ordering::Relaxed)
    }

    /// Returns the time of the server's last output.
    pub(crate) fn last_heard(&self) -> Option<Instant> {
        let ms = self.heard.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.born + Duration::from_millis(ms))
    }
}

/// Reader of one connection.
pub(crate) struct StdioReader {
    multiplexer: Arc<Multiplexer>,
    pub(crate) counters: Arc<StdioCounters>,
    notification_sink: ServerNotificationSink,
    splitter: LineSplitter,
    /// Upper bound on one line in bytes, for an error.
    cap: usize,
    /// Time that a call gets from a progress notification on.
    progress_extension: Duration,
    server_requests: ServerRequestHandler,
    rate_limit: RateLimiter,
    /// Announced changes that were not passed on yet, each once.
    changes: Vec<ServerNotification>,
}

impl StdioReader {
    pub(crate) fn new(
        multiplexer: Arc<Multiplexer>,
        counters: Arc<StdioCounters>,
        beginning: StdioSessionParts,
    ) -> Self {
        let StdioSessionParts {
            notification_sink,
            splitter,
            cap,
            progress_extension,
            has_ambiguous_requests: is_confused,
            ..
        } = beginning;
        Self {
            server_requests: ServerRequestHandler {
                multiplexer: Arc::clone(&multiplexer),
                progress_extension,
                has_ambiguous_requests: is_confused,
            },
            multiplexer,
            counters,
            notification_sink,
            splitter,
            cap,
            progress_extension,
            rate_limit: RateLimiter::new(NOTIFICATION_LIMIT.0, NOTIFICATION_LIMIT.1),
            changes: Vec::new(),
        }
    }

    /// Reads until the server closes its output.
    pub(crate) async fn run(mut self, mut stdout: pipe::Receiver) {
        loop {
            // Bytes that came with the handshake's last read are handled first.
            let mut frames = 0;
            while let Some(frame) = self.splitter.next_frame() {
                self.handle_frame(frame);
                frames += 1;
                if frames % YIELD_INTERVAL == 0 {
                    self.flush_changes();
                    yield_now().await;
                }
            }
            self.flush_changes();
            self.counters.blank.store(self.splitter.blank_lines(), Ordering::Relaxed);
            match stdout.read_buf(self.splitter.buffer()).await {
                Ok(0) | Err(_) => break,
                Ok(n) => {
                    self.counters.note_read(n);
                    if n >= FLOOD {
                        // The pipe is full again before this read is handled: without a yield the reader would keep
                        // the thread for as many reads as the runtime's budget allows.
                        yield_now().await;
                    }
                }
            }
        }
        self.handle_remainder();
    }

    /// Handles the bytes after the last newline: a server may omit the newline at its end, but half a response is
    /// none, and its content is unknown.
    fn handle_remainder(&mut self) {
        while let Some(frame) = self.splitter.finish() {
            match frame {
                Frame::Line(line) => match Message::parse(line) {
                    Ok(message) => self.dispatch(message),
                    Err(_) => self.skip(),
                },
                Frame::Oversize(_) => self.skip(),
            }
        }
        self.flush_changes();
    }

    fn handle_frame(&mut self, frame: Frame) {
        match frame {
            Frame::Line(line) => match Message::parse(line.clone()) {
                Ok(message) => self.dispatch(message),
                Err(error) => self.take_malformed(&line, &error),
            },
            Frame::Oversize(oversize) => {
                self.skip();
                self.fail(oversize.answered_id.as_ref(), FaultKind::Oversize(self.cap));
            }
        }
    }

    fn dispatch(&mut self, message: Message) {
        match message {
            Message::Response { id: Some(id), outcome } => {
                // A caller that gets a response must see the changes announced before it.
                self.flush_changes();
                if !self.multiplexer.complete(&id, Ok(outcome)) && !self.end_listening(&id) {
                    self.skip();
                }
            }
            Message::Response { id: None, .. } => self.skip(),
            Message::Request { id, method, params } => {
                self.server_requests.handle_request(&id, method, params)
            }
            Message::Notification { method, params } => self.on_notification(method, params),
        }
    }

    /// Fails the calls that a malformed line names, if any; log lines and blank lines name none.
    fn take_malformed(&mut self, line: &Bytes, error: &ostler_wire::MessageError) {
        self.skip();
        let kind = FaultKind::Malformed(error.to_string());
        ostler_wire::extract_response_ids(line, |id| self.fail(Some(&id), kind.clone()));
    }

    fn fail(&mut self, id: Option<&RequestId>, kind: FaultKind) {
        let Some(id) = id else { return };
        // The server has answered, but not in a usable way.
        if !self.multiplexer.complete(id, Err(Fault { delivery: Delivery::Answered, kind })) {
            self.end_listening(id);
        }
    }

    /// Returns whether the response ends a listen request. Later changes are missed, so the lists are marked as
    /// changed once more.
    fn end_listening(&mut self, id: &RequestId) -> bool {
        let Some(heard) = id.number().and_then(|number| self.multiplexer.end_listening(number)) else {
            return false;
        };
        heard.assumed_changes().for_each(|event| self.note_change(event));
        true
    }

    fn on_notification(&mut self, method: MethodName, params: Option<Bytes>) {
        let event = match NotificationKind::from_method(method.as_str()) {
            NotificationKind::ToolsChanged => ServerNotification::ToolsChanged,
            NotificationKind::ResourcesChanged => ServerNotification::ResourcesChanged,
            NotificationKind::ResourceUpdated => {
                ServerNotification::ResourceUpdated(params.unwrap_or_default())
            }
            NotificationKind::PromptsChanged => ServerNotification::PromptsChanged,
            NotificationKind::Progress if self.allow_notification() => return self.on_progress(params),
            NotificationKind::Log if self.allow_notification() => {
                return self.forward_notification(method, params, |_, params| {
                    ServerNotification::Log(params.unwrap_or_default())
                });
            }
            NotificationKind::Cancelled if self.allow_notification() => {
                return self.on_cancelled(params.as_deref());
            }
            NotificationKind::Other if method == ACKNOWLEDGED => {
                return self.multiplexer.acknowledge(params.as_deref().unwrap_or(b"{}"));
            }
            NotificationKind::Other if self.allow_notification() => {
                return self.forward_notification(method, params, |method, params| {
                    ServerNotification::Other { method, params }
                });
            }
            // A call in flight does not identify the owner of a task; clients poll its state.
            NotificationKind::Task => return,
            NotificationKind::Progress
            | NotificationKind::Log
            | NotificationKind::Cancelled
            | NotificationKind::Other => return,
        };
        self.note_change(event);
    }

    /// Records a change. It is never dropped, since no later message would announce it; a thousand of them in one
    /// read are passed on once.
    fn note_change(&mut self, event: ServerNotification) {
        if !self.changes.contains(&event) {
            self.changes.push(event);
        }
    }

    /// Passes a notification to the one call that it can be about, or to all listeners.
    fn forward_notification(
        &mut self,
        method: MethodName,
        params: Option<Bytes>,
        event: impl FnOnce(MethodName, Option<Bytes>) -> ServerNotification,
    ) {
        match self.multiplexer.sole_observer() {
            Some(voice) => voice.on_notification(method.as_str(), params.as_ref()),
            None => {
                // In the order in which the server sent it.
                self.flush_changes();
                (self.notification_sink)(event(method, params));
            }
        }
    }

    /// Handles a cancellation: the server withdraws a request, or ends a listen request.
    fn on_cancelled(&mut self, params: Option<&[u8]>) {
        let Some(id) = params.and_then(server_requests::cancelled_id) else { return };
        self.multiplexer.cancel_server_request(&id, self.progress_extension);
        self.end_listening(&id);
    }

    fn flush_changes(&mut self) {
        for event in self.changes.drain(..) {
            (self.notification_sink)(event);
        }
    }

    fn on_progress(&self, params: Option<Bytes>) {
        let Some(progress) = params.as_ref().and_then(ProgressParams::parse) else { return };
        if let Some(voice) = self.multiplexer.extend_deadline(progress.token, self.progress_extension) {
            voice.on_progress(&progress);
        }
    }

    fn allow_notification(&mut self) -> bool {
        let may = self.rate_limit.try_acquire(Instant::now().into_std());
        if !may {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
        may
    }

    fn skip(&self) {
        self.counters.skipped.fetch_add(1, Ordering::Relaxed);
    }
}
