//! Events of a call in flight: progress, warnings of the server's log, and server requests to the caller.
//!
//! A host in this process hands them over directly; a daemon sends them as MCP messages. Every queue is bounded:
//! notifications without room are dropped, requests without room are refused.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use ostler_host::upstream::{CallObserver, ServerRequest};
use ostler_host::{LogLevel, Request};
use ostler_wire::{
    ClientInfo, METHOD_NOT_FOUND, MODERN_VERSION, ProgressParams, RpcError, RpcOutcome, SessionMeta,
};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::output::escape_line;
use crate::text_table::truncate;

/// Upper bound on queued events.
const QUEUE_CAPACITY: usize = 64;
/// Upper bound on a forwarded notification; requests may be as long as messages.
const MAX_NOTE_BYTES: usize = 16 << 10;
/// Least severe level of a server's log that is shown.
const MIN_LOG_LEVEL: LogLevel = LogLevel::Warning;
/// Client capabilities that modern servers are told.
const CAPABILITIES: &str = r#"{"elicitation":{"form":{},"url":{}}}"#;

/// Upper bound on quoted characters of a question.
const MAX_QUESTION_CHARS: usize = 200;

/// The only method of servers that can be answered.
pub(crate) const ELICITATION: &str = "elicitation/create";

/// Event between a request and its result.
#[derive(Debug)]
pub(crate) enum CallEvent {
    /// Parameters of a progress notification.
    Progress(Bytes),
    /// Parameters of a log notification.
    Log(Bytes),
    /// Request of the server, which waits for the response.
    ServerRequest(ServerRequest),
}

/// Receiver of a call's events.
pub(crate) type CallEvents = mpsc::Receiver<CallEvent>;

/// Sender of a call's events.
#[derive(Debug, Clone)]
pub(crate) struct CallEventSender {
    events: mpsc::Sender<CallEvent>,
    pub(crate) audience: Audience,
    /// First question of the server that could not be answered.
    unanswered: Arc<OnceLock<String>>,
}

/// Audience of a call's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// A person at a terminal, who can be asked.
    Terminal,
    /// Lines on stderr.
    Log,
    /// No person. Questions of the server are recorded.
    None,
}

impl CallEventSender {
    pub(crate) fn new(audience: Audience) -> (Self, CallEvents) {
        let (events, received) = mpsc::channel(QUEUE_CAPACITY);
        (Self { events, audience, unanswered: Arc::default() }, received)
    }

    /// Returns whether a person can be asked.
    pub(crate) fn can_answer(&self) -> bool {
        self.audience == Audience::Terminal
    }

    /// Returns the server's question that was not answered.
    pub(crate) fn unanswered(&self) -> Option<String> {
        self.unanswered.get().cloned()
    }

    /// Returns a request with this observer and the caller's capabilities.
    pub(crate) fn observe<'a>(&self, request: Request<'a>) -> Request<'a> {
        if self.audience == Audience::None {
            return request.with_call_observer(Arc::new(self.clone()));
        }
        let identity = ClientInfo { name: "ostler".into(), version: env!("CARGO_PKG_VERSION").into() };
        let capabilities = if self.can_answer() { CAPABILITIES } else { "{}" };
        let meta = SessionMeta::modern(MODERN_VERSION, capabilities, &identity)
            .with_log_level(MIN_LOG_LEVEL.as_str());
        request.with_call_observer(Arc::new(self.clone())).from_session(Arc::new(meta))
    }

    /// Passes on a line of a server's log, if it is severe enough.
    pub(crate) fn send_log(&self, params: &Bytes) {
        let level = ostler_wire::text_member(params, "level");
        if level.and_then(|level| LogLevel::parse(&level)).is_some_and(|level| level >= MIN_LOG_LEVEL) {
            self.send(CallEvent::Log(params.clone()));
        }
    }

    /// Passes on an event, if there is room.
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
        self.audience != Audience::None
    }

    fn wants_notifications(&self) -> bool {
        self.audience != Audience::None
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
        // Unanswerable questions are received too, so that the command can report them.
        method == ELICITATION
    }

    fn on_request(&self, question: ServerRequest) {
        if self.can_answer() {
            return self.send(CallEvent::ServerRequest(question));
        }
        let params = question.params.as_deref().unwrap_or(b"{}");
        let _ = self.unanswered.set(quote_question(params));
        let why = format!("the client of this call does not offer `{ELICITATION}`");
        question.answer(RpcOutcome::Error(RpcError::new(METHOD_NOT_FOUND, &why)));
    }
}

/// Quotes the message of a question, as far as it fits a line.
pub(crate) fn quote_question(params: &[u8]) -> String {
    let message = ostler_wire::text_member(params, "message").unwrap_or_default();
    format!("\"{}\"", truncate(&escape_line(&message), Some(MAX_QUESTION_CHARS)))
}

/// Ends a line of JSON. Line breaks between tokens of foreign JSON become spaces.
pub(crate) fn finish_json_line(line: &mut Vec<u8>) {
    for byte in &mut *line {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line.push(b'\n');
}

/// Parses the text of a server as JSON; `None` if it is none.
pub(crate) fn parse_raw(text: &[u8]) -> Option<Box<RawValue>> {
    serde_json::from_slice(text).ok()
}
