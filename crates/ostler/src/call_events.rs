//! Events of a call under way: progress, warnings of the server's log, and questions to the caller.
//!
//! A host in this process hands them over directly; a daemon sends them as messages of MCP. Every queue is bounded: notes that find no room are lost, questions that find none are refused.

use std::sync::Arc;

use bytes::Bytes;
use ostler_host::upstream::{CallObserver, ServerRequest};
use ostler_host::{LogLevel, Request};
use ostler_wire::{ClientInfo, MODERN_VERSION, ProgressParams, SessionMeta};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

/// Events that may wait.
const QUEUE_CAPACITY: usize = 64;
/// The longest note that is passed on; questions may be as long as messages.
const MAX_NOTE_BYTES: usize = 16 << 10;
/// The least severe line of a server's log that is shown.
const MIN_LOG_LEVEL: LogLevel = LogLevel::Warning;
/// What modern servers are told that the caller can do.
const CAPABILITIES: &str = r#"{"elicitation":{"form":{},"url":{}}}"#;

/// The one request of servers that can be answered.
pub(crate) const ELICITATION: &str = "elicitation/create";

/// What happens between the request and its result.
#[derive(Debug)]
pub(crate) enum CallEvent {
    /// The parameters of a progress notification.
    Progress(Bytes),
    /// The parameters of a log notification.
    Log(Bytes),
    /// A question, which the server waits for.
    ServerRequest(ServerRequest),
}

/// Events as they come.
pub(crate) type CallEvents = mpsc::Receiver<CallEvent>;

/// The caller's end of a call: passes events on.
#[derive(Debug, Clone)]
pub(crate) struct CallEventSender {
    events: mpsc::Sender<CallEvent>,
    /// Whether somebody can be asked.
    pub(crate) can_answer: bool,
}

impl CallEventSender {
    pub(crate) fn new(can_answer: bool) -> (Self, CallEvents) {
        let (events, received) = mpsc::channel(QUEUE_CAPACITY);
        (Self { events, can_answer }, received)
    }

    /// Has a request observed, and its server told what the caller can do.
    pub(crate) fn observe<'a>(&self, request: Request<'a>) -> Request<'a> {
        let identity = ClientInfo { name: "ostler".into(), version: env!("CARGO_PKG_VERSION").into() };
        let capabilities = if self.can_answer { CAPABILITIES } else { "{}" };
        let meta = SessionMeta::modern(MODERN_VERSION, capabilities, &identity)
            .with_log_level(MIN_LOG_LEVEL.as_str());
        request.with_call_observer(Arc::new(self.clone())).from_session(Arc::new(meta))
    }

    /// Passes a line of a server's log on, if it is severe enough.
    pub(crate) fn send_log(&self, params: &Bytes) {
        let level = ostler_wire::text_member(params, "level");
        if level.and_then(|level| LogLevel::parse(&level)).is_some_and(|level| level >= MIN_LOG_LEVEL) {
            self.send(CallEvent::Log(params.clone()));
        }
    }

    /// Passes an event on, if there is room.
    pub(crate) fn send(&self, event: CallEvent) {
        let is_long = match &event {
            CallEvent::Progress(note) | CallEvent::Log(note) => note.len() > MAX_NOTE_BYTES,
            CallEvent::ServerRequest(_) => false,
        };
        if !is_long {
            let _ = self.events.try_send(event);
        }
    }
}

impl CallObserver for CallEventSender {
    fn wants_progress(&self) -> bool {
        true
    }

    fn on_progress(&self, progress: &ProgressParams) {
        self.send(CallEvent::Progress(progress.raw.clone()));
    }

    fn on_notification(&self, method: &str, params: Option<&Bytes>) {
        if let Some(params) = params.filter(|_| method == "notifications/message") {
            self.send_log(params);
        }
    }

    fn can_answer(&self, method: &str) -> bool {
        self.can_answer && method == ELICITATION
    }

    fn on_request(&self, question: ServerRequest) {
        self.send(CallEvent::ServerRequest(question));
    }
}

/// Ends a line of JSON. Breaks between the tokens of what somebody else wrote become spaces.
pub(crate) fn finish_json_line(line: &mut Vec<u8>) {
    for byte in &mut *line {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line.push(b'\n');
}

/// Returns the text of a server as JSON; `None` if it is no JSON.
pub(crate) fn parse_raw(text: &[u8]) -> Option<Box<RawValue>> {
    serde_json::from_slice(text).ok()
}
