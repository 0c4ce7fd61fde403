//! The reading half: lines become answers, requests to us, and events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::fault::{Delivery, Fault, FaultKind};
use ostler_core::meter::Meter;
use ostler_wire::{Frame, Id, LineSplitter, Message, Notice, Progress, Text};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::ask::{self, Desk};
use super::line::Line;
use super::session::Beginning;
use crate::upstream::heard::ACKNOWLEDGED;
use crate::upstream::{Event, Events};

/// Notifications a server may send per second, and in one burst.
const NOTIFICATIONS: (u32, u32) = (200, 1_000);

/// A read of this size, a whole pipe, comes from a server that writes as fast
/// as it can.
const FLOOD: usize = 64 << 10;

/// After so many lines without a pause others get a turn: a read may hold
/// thousands of tiny ones.
const MANY: usize = 1_000;

/// What the reader counts; read by status.
#[derive(Debug)]
pub(crate) struct Tally {
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

impl Tally {
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

    fn hear(&self, bytes: usize) {
        let ms = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.heard.store(ms + 1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Lines that were no messages.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed) + self.blank.load(Ordering::Relaxed)
    }

    /// When the server was last heard.
    pub(crate) fn last_heard(&self) -> Option<Instant> {
        let ms = self.heard.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.born + Duration::from_millis(ms))
    }
}

/// Reads one connection.
pub(crate) struct Reader {
    line: Arc<Line>,
    pub(crate) tally: Arc<Tally>,
    events: Events,
    splitter: LineSplitter,
    /// The longest line, for the words of an error.
    cap: usize,
    /// How much time a progress notification gives a call.
    patience: Duration,
    desk: Desk,
    meter: Meter,
    /// Changes that were announced and not told yet, each once.
    changes: Vec<Event>,
}

impl Reader {
    pub(crate) fn new(line: Arc<Line>, tally: Arc<Tally>, beginning: Beginning) -> Self {
        let Beginning { events, splitter, cap, patience, is_confused, .. } = beginning;
        Self {
            desk: Desk { line: Arc::clone(&line), patience, is_confused },
            line,
            tally,
            events,
            splitter,
            cap,
            patience,
            meter: Meter::new(NOTIFICATIONS.0, NOTIFICATIONS.1),
            changes: Vec::new(),
        }
    }

    /// Reads until the server closes its output.
    pub(crate) async fn run(mut self, mut stdout: pipe::Receiver) {
        loop {
            // What came with the handshake's last read is looked at first.
            let mut frames = 0;
            while let Some(frame) = self.splitter.next_frame() {
                self.take(frame);
                frames += 1;
                if frames % MANY == 0 {
                    self.tell_changes();
                    yield_now().await;
                }
            }
            self.tell_changes();
            self.tally.blank.store(self.splitter.blank_lines(), Ordering::Relaxed);
            match stdout.read_buf(self.splitter.buffer()).await {
                Ok(0) | Err(_) => break,
                Ok(n) => {
                    self.tally.hear(n);
                    if n >= FLOOD {
                        // The pipe is full again before this read is through:
                        // without a break the reader would keep the thread for
                        // as many reads as the runtime's patience allows.
                        yield_now().await;
                    }
                }
            }
        }
        self.take_last_words();
    }

    /// What stands behind the last newline: a server may leave the newline out
    /// at its end, but half an answer is none, and nobody knows what it was
    /// going to say.
    fn take_last_words(&mut self) {
        while let Some(frame) = self.splitter.finish() {
            match frame {
                Frame::Line(line) => match Message::parse(line) {
                    Ok(message) => self.dispatch(message),
                    Err(_) => self.skip(),
                },
                Frame::Oversize(_) => self.skip(),
            }
        }
        self.tell_changes();
    }

    fn take(&mut self, frame: Frame) {
        match frame {
            Frame::Line(line) => match Message::parse(line.clone()) {
                Ok(message) => self.dispatch(message),
                Err(error) => self.take_malformed(&line, &error),
            },
            Frame::Oversize(oversize) => {
                self.skip();
                self.fail(oversize.id.as_ref(), FaultKind::Oversize(self.cap));
            }
        }
    }

    fn dispatch(&mut self, message: Message) {
        match message {
            Message::Response { id: Some(id), outcome } => {
                // Who gets an answer must not find what had changed before it.
                self.tell_changes();
                if !self.line.answer(&id, Ok(outcome)) && !self.end_listening(&id) {
                    self.skip();
                }
            }
            Message::Response { id: None, .. } => self.skip(),
            Message::Request { id, method, params } => self.desk.take(&id, method, params),
            Message::Notification { method, params } => self.notice(method, params),
        }
    }

    /// A line that is no message fails the calls it names, if it names any;
    /// log lines and blank lines name none.
    fn take_malformed(&mut self, line: &Bytes, error: &ostler_wire::Malformed) {
        self.skip();
        let kind = FaultKind::Malformed(error.to_string());
        ostler_wire::salvage_ids(line, |id| self.fail(Some(&id), kind.clone()));
    }

    fn fail(&mut self, id: Option<&Id>, kind: FaultKind) {
        let Some(id) = id else { return };
        // The server has answered, if not in a way that can be used.
        if !self.line.answer(id, Err(Fault { delivery: Delivery::Answered, kind })) {
            self.end_listening(id);
        }
    }

    /// Whether it is a request for news that ends. What may change from now on
    /// goes unheard, so it is taken for changed once more.
    fn end_listening(&mut self, id: &Id) -> bool {
        let Some(heard) = id.number().and_then(|number| self.line.end_listening(number)) else {
            return false;
        };
        heard.missed().for_each(|event| self.note_change(event));
        true
    }

    fn notice(&mut self, method: Text, params: Option<Bytes>) {
        let event = match Notice::of(method.as_str()) {
            Notice::ToolsChanged => Event::ToolsChanged,
            Notice::ResourcesChanged => Event::ResourcesChanged,
            Notice::ResourceUpdated => Event::ResourceUpdated(params.unwrap_or_default()),
            Notice::PromptsChanged => Event::PromptsChanged,
            Notice::Progress if self.may_speak() => return self.progress(params),
            Notice::Log if self.may_speak() => {
                return self.pass_on(method, params, |_, params| Event::Log(params.unwrap_or_default()));
            }
            Notice::Cancelled if self.may_speak() => return self.take_back(params.as_deref()),
            Notice::Other if method == ACKNOWLEDGED => {
                return self.line.acknowledge(params.as_deref().unwrap_or(b"{}"));
            }
            Notice::Other if self.may_speak() => {
                return self.pass_on(method, params, |method, params| Event::Other { method, params });
            }
            // A call under way says nothing about whose task it is; clients ask for its state.
            Notice::Task => return,
            Notice::Progress | Notice::Log | Notice::Cancelled | Notice::Other => return,
        };
        self.note_change(event);
    }

    /// Never dropped, for nothing else would tell; but a thousand of them in
    /// one read are one.
    fn note_change(&mut self, event: Event) {
        if !self.changes.contains(&event) {
            self.changes.push(event);
        }
    }

    /// Hands a notice to the one call that it can be about, or to everybody.
    fn pass_on(
        &mut self,
        method: Text,
        params: Option<Bytes>,
        event: impl FnOnce(Text, Option<Bytes>) -> Event,
    ) {
        match self.line.sole_voice() {
            Some(voice) => voice.notice(method.as_str(), params.as_ref()),
            None => {
                // In the order in which the server said it.
                self.tell_changes();
                (self.events)(event(method, params));
            }
        }
    }

    /// The server takes a question back, or ends what it was asked to tell of.
    fn take_back(&mut self, params: Option<&[u8]>) {
        let Some(id) = params.and_then(ask::cancelled_id) else { return };
        self.line.withdraw_question(&id, self.patience);
        self.end_listening(&id);
    }

    fn tell_changes(&mut self) {
        for event in self.changes.drain(..) {
            (self.events)(event);
        }
    }

    fn progress(&self, params: Option<Bytes>) {
        let Some(progress) = params.as_ref().and_then(Progress::parse) else { return };
        if let Some(voice) = self.line.progress(progress.token, self.patience) {
            voice.progress(&progress);
        }
    }

    fn may_speak(&mut self) -> bool {
        let may = self.meter.take(Instant::now().into_std());
        if !may {
            self.tally.dropped.fetch_add(1, Ordering::Relaxed);
        }
        may
    }

    fn skip(&self) {
        self.tally.skipped.fetch_add(1, Ordering::Relaxed);
    }
}
