//! Events of a call under way: progress, warnings of the server's log, and questions to the caller.
//!
//! A host in this process hands them over directly; a daemon sends them as messages of MCP. Every queue is bounded: notes that find no room are lost, questions that find none are refused.

use std::sync::Arc;

use bytes::Bytes;
use ostler_host::upstream::{Question, Voice};
use ostler_host::{LogLevel, Request};
use ostler_wire::{ClientIdentity, MODERN_VERSION, Progress, SessionMeta};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

/// Events that may wait.
const WAITING: usize = 64;
/// The longest note that is passed on; questions may be as long as messages.
const LONGEST_NOTE: usize = 16 << 10;
/// The least severe line of a server's log that is shown.
const LEVEL: LogLevel = LogLevel::Warning;
/// What modern servers are told that the caller can do.
const CAPABILITIES: &str = r#"{"elicitation":{"form":{},"url":{}}}"#;

/// The one request of servers that can be answered.
pub(crate) const ELICITATION: &str = "elicitation/create";

/// What happens between the request and its result.
#[derive(Debug)]
pub(crate) enum Event {
    /// The parameters of a progress notification.
    Progress(Bytes),
    /// The parameters of a log notification.
    Log(Bytes),
    /// A question, which the server waits for.
    Question(Question),
}

/// Events as they come.
pub(crate) type Events = mpsc::Receiver<Event>;

/// The caller's end of a call: passes events on.
#[derive(Debug, Clone)]
pub(crate) struct Observer {
    events: mpsc::Sender<Event>,
    /// Whether somebody can be asked.
    pub(crate) can_answer: bool,
}

impl Observer {
    pub(crate) fn new(can_answer: bool) -> (Self, Events) {
        let (events, received) = mpsc::channel(WAITING);
        (Self { events, can_answer }, received)
    }

    /// Has a request observed, and its server told what the caller can do.
    pub(crate) fn observe<'a>(&self, request: Request<'a>) -> Request<'a> {
        let identity = ClientIdentity { name: "ostler".into(), version: env!("CARGO_PKG_VERSION").into() };
        let capabilities = if self.can_answer { CAPABILITIES } else { "{}" };
        let meta =
            SessionMeta::modern(MODERN_VERSION, capabilities, &identity).with_log_level(LEVEL.as_str());
        request.with_voice(Arc::new(self.clone())).from_session(Arc::new(meta))
    }

    /// Passes a line of a server's log on, if it is severe enough.
    pub(crate) fn pass_log(&self, params: &Bytes) {
        let level = ostler_wire::text_member(params, "level");
        if level.and_then(|level| LogLevel::parse(&level)).is_some_and(|level| level >= LEVEL) {
            self.pass(Event::Log(params.clone()));
        }
    }

    /// Passes an event on, if there is room.
    pub(crate) fn pass(&self, event: Event) {
        let is_long = match &event {
            Event::Progress(note) | Event::Log(note) => note.len() > LONGEST_NOTE,
            Event::Question(_) => false,
        };
        if !is_long {
            let _ = self.events.try_send(event);
        }
    }
}

impl Voice for Observer {
    fn wants_progress(&self) -> bool {
        true
    }

    fn progress(&self, progress: &Progress) {
        self.pass(Event::Progress(progress.raw.clone()));
    }

    fn notice(&self, method: &str, params: Option<&Bytes>) {
        if let Some(params) = params.filter(|_| method == "notifications/message") {
            self.pass_log(params);
        }
    }

    fn can_answer(&self, method: &str) -> bool {
        self.can_answer && method == ELICITATION
    }

    fn ask(&self, question: Question) {
        self.pass(Event::Question(question));
    }
}

/// Ends a line of JSON. Breaks between the tokens of what somebody else wrote become spaces.
pub(crate) fn one_line(line: &mut Vec<u8>) {
    for byte in &mut *line {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line.push(b'\n');
}

/// Returns the text of a server as JSON; `None` if it is no JSON.
pub(crate) fn raw(text: &[u8]) -> Option<Box<RawValue>> {
    serde_json::from_slice(text).ok()
}
