//! The conversation of one MCP client: what must be said again, and what must not, when its daemon changes.
//!
//! ```text
//!            farewell                connection lost            new connection
//! Attached ───────────▶ Leaving ─────────────────▶ Detached ──────────────────▶ Resuming ──all sent──▶ Attached
//!     └──────────────────connection lost──────────────▲                             │
//!                                                     └──────connection lost────────┘
//! ```
//!
//! A request is sent to one daemon. The exceptions are requests that only read, or that set what is set already: those
//! are repeated once. Of all others that were sent and have no answer, the client is told that nobody knows what became of
//! them.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use ostler_core::repeat::MethodKind;
use ostler_wire::{
    Id, Message, Outcome, Params, code, text_member, write_error, write_error_object, write_notification,
};
use serde_json::{Value, json};

use super::FAREWELL;

/// Messages of the client that wait for a daemon, and their bytes. A single one may be longer.
const MAX_HELD: usize = 1_024;
const MAX_HELD_BYTES: usize = 4 << 20;
/// Requests without an answer: more than a daemon takes of one client.
const MAX_PENDING: usize = 4_096;
/// Bytes of requests that are kept to be repeated; longer ones count as those that can't be.
const MAX_KEPT_BYTES: usize = 1 << 20;
/// Resource subscriptions that are made again.
const MAX_SUBSCRIPTIONS: usize = 256;
/// Questions to the client that are taken back when their daemon is gone.
const MAX_QUESTIONS: usize = 256;
/// Begins the ids of requests that the client has not made.
const OWN_ID: &str = "ostler-resume-";
/// The revision that knows batches.
const BATCHES_IN: &str = "2025-03-26";
/// Messages in one batch.
const MAX_BATCH: usize = 64;
/// The longest name of a tool in an error.
const LONGEST_NAME: usize = 128;

/// The JSON-RPC code of `outcome-unknown`.
const OUTCOME_UNKNOWN: i64 = -31003;

/// Where the conversation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Attached,
    /// The daemon answers what it was asked, and is asked nothing more.
    Leaving,
    Detached,
    /// What the last daemon knew and what waits is being sent.
    Resuming,
}

/// What becomes of a message of the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FromClient {
    /// It goes to the daemon now.
    Send,
    /// It is kept, or of no use any more.
    Kept,
}

/// What becomes of a line of the daemon.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FromDaemon {
    /// Whether the client is shown the line.
    pub(super) is_shown: bool,
    /// Whole lines for the client, beside it.
    pub(super) more: Vec<u8>,
    /// Something that people should know.
    pub(super) notice: Option<String>,
}

/// A request without an answer.
#[derive(Debug)]
struct Pending {
    /// In which order requests came.
    number: u64,
    /// What it is, for people.
    what: String,
    kind: Kind,
    /// The whole request, where it may be sent again.
    line: Option<Bytes>,
    /// Whether the daemon of now has it.
    is_sent: bool,
    /// Whether a daemon before has had it.
    is_repeated: bool,
    /// Answers with its id that will come: more than one if the client has used the id again.
    awaited: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// May have effects.
    Once,
    /// Only reads.
    Repeatable,
    Initialize,
    /// Makes a resource subscription.
    Subscribe(String),
    /// Lasts until the client or the daemon ends it.
    Listen,
}

/// The session of a legacy client.
#[derive(Debug)]
struct Opening {
    params: Option<Bytes>,
    /// The revision that was agreed on; absent before the answer.
    version: Option<String>,
    /// Whether the client said `notifications/initialized`.
    is_initialized: bool,
}

/// A request that the client has not made.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Own {
    Initialize,
    LogLevel,
    /// Subscribes to the resource of this URI.
    Subscribe(String),
}

#[derive(Debug)]
pub(super) struct Conversation {
    phase: Phase,
    opening: Option<Opening>,
    /// The parameters of the last `logging/setLevel`.
    log_level: Option<Bytes>,
    /// The parameters of `resources/subscribe`, by URI.
    subscriptions: BTreeMap<String, Bytes>,
    pending: std::collections::HashMap<Id, Pending>,
    requests: u64,
    kept_bytes: usize,
    /// Requests of ours, in the order of their numbers.
    own: BTreeMap<u64, Own>,
    next_own: u64,
    /// Requests of the daemon that the client has not answered.
    questions: Vec<Id>,
    /// What is to be sent before anything of the client.
    replay: VecDeque<Bytes>,
    held: VecDeque<Bytes>,
    held_bytes: usize,
    /// The client has said its last word.
    is_client_done: bool,
}

impl Conversation {
    /// A conversation with a daemon that is attached.
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Attached,
            opening: None,
            log_level: None,
            subscriptions: BTreeMap::new(),
            pending: std::collections::HashMap::new(),
            requests: 0,
            kept_bytes: 0,
            own: BTreeMap::new(),
            next_own: 1,
            questions: Vec::new(),
            replay: VecDeque::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            is_client_done: false,
        }
    }

    /// Whether one more message can be kept; if not, none is to be read.
    pub(super) fn has_room(&self) -> bool {
        let is_full = self.held.len() >= MAX_HELD || self.held_bytes >= MAX_HELD_BYTES;
        !is_full && self.pending.len() < MAX_PENDING
    }

    /// Takes a line of the client.
    pub(super) fn client_said(&mut self, line: &Bytes) -> FromClient {
        match (self.phase, Message::parse(line.clone())) {
            (Phase::Attached, message) => {
                self.note(line, message);
                FromClient::Send
            }
            // The daemon that ends still waits for these.
            (Phase::Leaving, Ok(message)) if self.is_for_leaving(&message) => {
                self.note(line, Ok(message));
                FromClient::Send
            }
            // A daemon that is gone asked.
            (Phase::Detached, Ok(Message::Response { .. })) => FromClient::Kept,
            // No daemon has the request, so none has to hear that it is cancelled.
            (_, Ok(Message::Notification { method, params }))
                if method == "notifications/cancelled" && self.cancel_unsent(params.as_ref()) =>
            {
                FromClient::Kept
            }
            _ => {
                self.held_bytes += line.len();
                self.held.push_back(Bytes::copy_from_slice(line));
                FromClient::Kept
            }
        }
    }

    /// Drops the cancelled request if it waits for a daemon. False if it does not: the cancellation has to be sent then.
    fn cancel_unsent(&mut self, params: Option<&Bytes>) -> bool {
        let Some(id) = cancelled(params) else { return false };
        let is_it = |line: &Bytes| {
            matches!(Message::parse(line.clone()), Ok(Message::Request { id: held, method, .. })
                if held == id && method != "initialize")
        };
        if let Some(at) = self.held.iter().position(is_it) {
            let line = self.held.remove(at);
            self.held_bytes -= line.map_or(0, |line| line.len());
            return true;
        }
        let is_unsent = |pending: &Pending| !pending.is_sent && pending.kind != Kind::Initialize;
        let is_dropped = self.pending.get(&id).is_some_and(is_unsent);
        if is_dropped {
            self.forget(&id);
        }
        is_dropped
    }

    fn is_for_leaving(&self, message: &Message) -> bool {
        match message {
            Message::Request { .. } => false,
            Message::Response { .. } => true,
            Message::Notification { method, params } => match method.as_str() {
                "notifications/cancelled" => {
                    cancelled(params.as_ref()).is_some_and(|id| self.pending.contains_key(&id))
                }
                method => method == "notifications/progress",
            },
        }
    }

    /// The client has said its last word. True if the daemon is to hear of it now.
    pub(super) fn client_is_done(&mut self) -> bool {
        self.is_client_done = true;
        self.phase == Phase::Attached
    }

    /// Notes what is about to be sent.
    fn note(&mut self, line: &Bytes, message: Result<Message, ostler_wire::Malformed>) {
        match message {
            Ok(Message::Request { id, method, params }) => self.note_request(&id, &method, params, line),
            Ok(Message::Notification { method, params }) => match method.as_str() {
                "notifications/initialized" => {
                    if let Some(opening) = &mut self.opening {
                        opening.is_initialized = true;
                    }
                }
                // The daemon does not answer what is taken back.
                "notifications/cancelled" => {
                    if let Some(id) = cancelled(params.as_ref()) {
                        self.forget(&id);
                    }
                }
                _ => {}
            },
            Ok(Message::Response { id: Some(id), .. }) => self.questions.retain(|question| *question != id),
            // A longer one is refused as a whole, without an id.
            Err(ostler_wire::Malformed::Batch) if self.knows_batches() && batch(line).len() <= MAX_BATCH => {
                for message in batch(line) {
                    let parsed = Message::parse(message.clone());
                    self.note(&message, parsed);
                }
            }
            Ok(Message::Response { id: None, .. }) | Err(_) => {}
        }
    }

    fn knows_batches(&self) -> bool {
        self.opening.as_ref().and_then(|opening| opening.version.as_deref()) == Some(BATCHES_IN)
    }

    fn note_request(&mut self, id: &Id, method: &str, params: Option<Bytes>, line: &Bytes) {
        let text = |name: &str| params.as_deref().and_then(|params| text_member(params, name));
        let kind = match method {
            "initialize" => Kind::Initialize,
            "subscriptions/listen" => Kind::Listen,
            "resources/subscribe" => text("uri").map_or(Kind::Repeatable, |uri| Kind::Subscribe(uri.into())),
            "ping" | "logging/setLevel" => Kind::Repeatable,
            _ if MethodKind::of(method) == MethodKind::Read && !continues(params.as_ref()) => {
                Kind::Repeatable
            }
            _ => Kind::Once,
        };
        let what = match text("name") {
            Some(name) if method == "tools/call" => {
                format!("the call of `{}`", name.chars().take(LONGEST_NAME).collect::<String>())
            }
            _ => format!("`{}`", method.chars().take(LONGEST_NAME).collect::<String>()),
        };
        let owned = params.as_ref().map(|params| Bytes::copy_from_slice(params));
        match (&kind, method) {
            (Kind::Initialize, _) if self.opening.is_none() => {
                self.opening = Some(Opening { params: owned, version: None, is_initialized: false });
            }
            (Kind::Subscribe(uri), _) if self.subscriptions.len() < MAX_SUBSCRIPTIONS => {
                self.subscriptions.insert(uri.clone(), owned.unwrap_or_default());
            }
            (_, "resources/unsubscribe") => {
                if let Some(uri) = text("uri") {
                    self.subscriptions.remove(&*uri);
                }
            }
            (_, "logging/setLevel") => self.log_level = owned,
            _ => {}
        }
        // Answers to requests of one id look alike, so what became of a call is known when all of them have come.
        let mut awaited = 1;
        match self.pending.get_mut(id) {
            Some(earlier) if earlier.kind == Kind::Once => {
                earlier.awaited += 1;
                return;
            }
            Some(earlier) if kind == Kind::Once && earlier.kind == Kind::Repeatable => {
                awaited += earlier.awaited;
            }
            _ => {}
        }
        let is_kept = kind != Kind::Once && self.kept_bytes + line.len() <= MAX_KEPT_BYTES;
        let line = is_kept.then(|| Bytes::copy_from_slice(line));
        self.forget(id);
        self.kept_bytes += line.as_ref().map_or(0, Bytes::len);
        self.requests += 1;
        let number = self.requests;
        let pending = Pending { number, what, kind, line, is_sent: true, is_repeated: false, awaited };
        self.pending.insert(id.detached(), pending);
    }

    /// Notes an answer; the request, if it is over with it.
    fn settle(&mut self, id: &Id) -> Option<Pending> {
        let pending = self.pending.get_mut(id)?;
        pending.awaited -= 1;
        if pending.awaited == 0 { self.forget(id) } else { None }
    }

    fn forget(&mut self, id: &Id) -> Option<Pending> {
        let pending = self.pending.remove(id)?;
        self.kept_bytes -= pending.line.as_ref().map_or(0, Bytes::len);
        Some(pending)
    }

    /// Takes a line of the daemon.
    pub(super) fn daemon_said(&mut self, line: &Bytes) -> FromDaemon {
        if **line == *FAREWELL.as_bytes() {
            if matches!(self.phase, Phase::Attached | Phase::Resuming) {
                self.phase = Phase::Leaving;
            }
            return FromDaemon::default();
        }
        let shown = FromDaemon { is_shown: true, ..FromDaemon::default() };
        match Message::parse(line.clone()) {
            Ok(Message::Response { id: Some(id), outcome }) => self.answered(&id, &outcome),
            Ok(Message::Request { id, .. }) => {
                if self.questions.len() < MAX_QUESTIONS {
                    self.questions.push(id.detached());
                }
                shown
            }
            Ok(Message::Notification { method, params }) => match method.as_str() {
                "notifications/cancelled" => {
                    if let Some(id) = cancelled(params.as_ref()) {
                        self.questions.retain(|question| *question != id);
                    }
                    shown
                }
                "notifications/subscriptions/acknowledged" => {
                    self.acknowledged(params.as_ref()).unwrap_or(shown)
                }
                _ => shown,
            },
            Err(ostler_wire::Malformed::Batch) => {
                for message in batch(line) {
                    if let Ok(Message::Response { id: Some(id), .. }) = Message::parse(message) {
                        self.settle(&id);
                    }
                }
                shown
            }
            Ok(Message::Response { id: None, .. }) | Err(_) => shown,
        }
    }

    fn answered(&mut self, id: &Id, outcome: &Outcome) -> FromDaemon {
        let shown = FromDaemon { is_shown: true, ..FromDaemon::default() };
        if let Some(own) = own_number(id).and_then(|number| self.own.remove(&number)) {
            return match own {
                Own::Initialize => self.resumed(outcome),
                Own::LogLevel => FromDaemon::default(),
                Own::Subscribe(uri) => self.subscribed(&uri, outcome),
            };
        }
        // The end of the daemon ends what lasts, and the next one goes on with it.
        let is_listen = self.pending.get(id).is_some_and(|pending| pending.kind == Kind::Listen);
        if is_listen && self.phase == Phase::Leaving && !self.is_client_done {
            return FromDaemon::default();
        }
        let Some(pending) = self.settle(id) else { return shown };
        match (pending.kind, outcome) {
            (Kind::Initialize, Outcome::Result(result)) => {
                let version = text_member(result, "protocolVersion").map(|version| version.to_string());
                if let Some(opening) = self.opening.as_mut().filter(|opening| opening.version.is_none()) {
                    opening.version = Some(version.unwrap_or_default());
                }
            }
            (Kind::Initialize, Outcome::Error(_)) => {
                self.opening.take_if(|opening| opening.version.is_none());
            }
            (Kind::Subscribe(uri), Outcome::Error(_)) => drop(self.subscriptions.remove(&uri)),
            _ => {}
        }
        shown
    }

    /// The session was opened again. What the client knows of the daemon's lists may be out of date.
    fn resumed(&self, outcome: &Outcome) -> FromDaemon {
        let Some(opening) = &self.opening else { return FromDaemon::default() };
        let result = match outcome {
            Outcome::Result(result) => result,
            Outcome::Error(error) => {
                let notice = format!("the daemon does not take up the session: {}", error.message);
                return FromDaemon { notice: Some(notice), ..FromDaemon::default() };
            }
        };
        let result: Value = serde_json::from_slice(result).unwrap_or_default();
        let agreed = opening.version.as_deref().unwrap_or_default();
        let version = result["protocolVersion"].as_str().unwrap_or_default();
        let notice = (agreed != version).then(|| {
            format!("the daemon speaks MCP {version} now, and this client agreed on {agreed}; start the client again")
        });
        let mut more = Vec::new();
        for kind in ["tools", "prompts", "resources"] {
            if opening.is_initialized && result["capabilities"][kind]["listChanged"] == true {
                write_notification(&mut more, &format!("notifications/{kind}/list_changed"), None);
            }
        }
        FromDaemon { is_shown: false, more, notice }
    }

    /// A resource subscription was made again. The resource may have changed meanwhile.
    fn subscribed(&mut self, uri: &str, outcome: &Outcome) -> FromDaemon {
        let mut more = Vec::new();
        match outcome {
            Outcome::Result(_) => {
                let params = json!({ "uri": uri }).to_string();
                write_notification(&mut more, "notifications/resources/updated", Some(params.as_bytes()));
            }
            Outcome::Error(_) => drop(self.subscriptions.remove(uri)),
        }
        FromDaemon { more, ..FromDaemon::default() }
    }

    /// A daemon listens for the client. If one before did, the client knows, and its lists may be out of date.
    fn acknowledged(&self, params: Option<&Bytes>) -> Option<FromDaemon> {
        let params: Value = serde_json::from_slice(params?).ok()?;
        let listen = &params["_meta"]["io.modelcontextprotocol/subscriptionId"];
        let id = Id::parse(Bytes::from(listen.to_string())).ok()?;
        self.pending.get(&id).filter(|pending| pending.is_repeated)?;
        let mut more = Vec::new();
        let stamp = json!({ "_meta": { "io.modelcontextprotocol/subscriptionId": listen } }).to_string();
        for kind in ["tools", "prompts", "resources"] {
            if params["notifications"][format!("{kind}ListChanged")] == true {
                let method = format!("notifications/{kind}/list_changed");
                write_notification(&mut more, &method, Some(stamp.as_bytes()));
            }
        }
        Some(FromDaemon { is_shown: false, more, notice: None })
    }

    /// Whether the daemon has said that it ends.
    pub(super) fn is_leaving(&self) -> bool {
        self.phase == Phase::Leaving
    }

    /// Whether the daemon that ends has answered everything, so that it can be left.
    pub(super) fn may_leave(&self) -> bool {
        let is_awaited = |pending: &Pending| pending.is_sent && pending.kind != Kind::Listen;
        self.phase == Phase::Leaving && !self.pending.values().any(is_awaited)
    }

    /// The connection is lost. Returns whole lines for the client: of each request that may have been executed, that
    /// nobody knows; and of each question, that it is taken back.
    pub(super) fn lost(&mut self, cause: &str) -> Vec<u8> {
        self.phase = Phase::Detached;
        self.replay.clear();
        self.own.clear();
        let mut lines = Vec::new();
        for question in std::mem::take(&mut self.questions) {
            let mut params = b"{\"requestId\":".to_vec();
            params.extend_from_slice(question.raw());
            params.extend_from_slice(b",\"reason\":\"the daemon that asked has ended\"}");
            write_notification(&mut lines, "notifications/cancelled", Some(&params));
        }
        // A read whose daemon is lost a second time may be what ends daemons.
        let is_spent = |pending: &Pending| pending.is_repeated && pending.kind != Kind::Listen;
        let gone = self.ordered(|pending| pending.is_sent && (pending.line.is_none() || is_spent(pending)));
        for id in gone {
            let Some(pending) = self.forget(&id) else { continue };
            let message = format!("{cause}; {} may have been executed", pending.what);
            let hint = "check whether it took effect before trying again";
            let data = json!({ "code": "outcome-unknown", "delivery": "unknown", "hint": hint }).to_string();
            write_error(&mut lines, &id, OUTCOME_UNKNOWN, &message, Some(data.as_bytes()));
        }
        for pending in self.pending.values_mut() {
            (pending.is_sent, pending.is_repeated) = (false, true);
        }
        lines
    }

    /// The requests that are such, in the order in which they came.
    fn ordered(&self, is_such: impl Fn(&Pending) -> bool) -> Vec<Id> {
        let mut found: Vec<(u64, &Id)> = self
            .pending
            .iter()
            .filter(|(_, pending)| is_such(pending))
            .map(|(id, pending)| (pending.number, id))
            .collect();
        found.sort_unstable_by_key(|(number, _)| *number);
        found.into_iter().map(|(_, id)| id.clone()).collect()
    }

    /// Whether something waits for a daemon. What lasts until it is ended does not.
    pub(super) fn wants_daemon(&self) -> bool {
        !self.held.is_empty() || self.pending.values().any(|pending| pending.kind != Kind::Listen)
    }

    /// Whether nothing is left to be said or heard.
    pub(super) fn is_over(&self) -> bool {
        self.is_client_done && !self.wants_daemon()
    }

    /// A daemon is attached again. It is told what the last one knew, then what waits.
    pub(super) fn resume(&mut self) {
        self.phase = Phase::Resuming;
        if let Some(opening) = self.opening.as_ref().filter(|opening| opening.version.is_some()) {
            let (params, is_initialized) = (opening.params.clone(), opening.is_initialized);
            self.replay_request("initialize", params.as_ref(), Own::Initialize);
            if is_initialized {
                let mut line = Vec::new();
                write_notification(&mut line, "notifications/initialized", None);
                line.pop();
                self.replay.push_back(line.into());
            }
            if let Some(level) = self.log_level.clone() {
                self.replay_request("logging/setLevel", Some(&level), Own::LogLevel);
            }
            for (uri, params) in self.subscriptions.clone() {
                self.replay_request("resources/subscribe", Some(&params), Own::Subscribe(uri));
            }
        }
    }

    fn replay_request(&mut self, method: &str, params: Option<&Bytes>, own: Own) {
        let number = self.next_own;
        self.next_own += 1;
        self.own.insert(number, own);
        let mut line = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{OWN_ID}{number}\",\"method\":\"{method}\"");
        if let Some(params) = params {
            line.push_str(",\"params\":");
            line.push_str(&String::from_utf8_lossy(params));
        }
        line.push('}');
        self.replay.push_back(line.into());
    }

    /// The next line for a daemon that was attached again; `None` when it knows everything, or is leaving already.
    pub(super) fn next_to_send(&mut self) -> Option<Bytes> {
        if self.phase != Phase::Resuming {
            return None;
        }
        if let Some(line) = self.replay.pop_front() {
            return Some(line);
        }
        if let Some(id) = self.ordered(|pending| !pending.is_sent).into_iter().next()
            && let Some(pending) = self.pending.get_mut(&id)
        {
            pending.is_sent = true;
            return pending.line.clone();
        }
        match self.held.pop_front() {
            Some(line) => {
                self.held_bytes -= line.len();
                let message = Message::parse(line.clone());
                self.note(&line, message);
                Some(line)
            }
            None => {
                self.phase = Phase::Attached;
                None
            }
        }
    }

    /// Whether the daemon is to hear that the client has said its last word, now that it knows everything.
    pub(super) fn is_said(&self) -> bool {
        self.phase == Phase::Attached && self.is_client_done
    }

    /// No daemon can be reached: whoever waits is told so, with this error object. Returns whole lines for the client.
    pub(super) fn give_up(&mut self, error: &[u8]) -> Vec<u8> {
        let mut lines = Vec::new();
        for id in self.ordered(|pending| pending.kind != Kind::Listen) {
            self.forget(&id);
            write_error_object(&mut lines, &id, error);
        }
        self.held_bytes = 0;
        let held = std::mem::take(&mut self.held).into_iter();
        for line in held.flat_map(|line| if line.starts_with(b"[") { batch(&line) } else { vec![line] }) {
            match Message::parse(line) {
                Ok(Message::Request { id, .. }) => {
                    write_error_object(&mut lines, &id, error);
                }
                Ok(Message::Notification { method, .. }) if method == "notifications/initialized" => {
                    if let Some(opening) = &mut self.opening {
                        opening.is_initialized = true;
                    }
                }
                _ => {}
            }
        }
        lines
    }
}

/// Answers a message of the client that is longer than the daemon takes. Without a request's id it is `null`.
pub(super) fn refuse_oversize(request: Option<Id>, longest: usize) -> Vec<u8> {
    let id = request.as_ref().map_or(&b"null"[..], Id::raw);
    let why = format!("a message has at most {longest} bytes; `gateway.max_body` in the config raises that");
    let error = ostler_wire::error_object(code::INVALID_REQUEST, &why, None);
    [b"{\"jsonrpc\":\"2.0\",\"id\":", id, b",\"error\":", &error, b"}\n"].concat()
}

/// The request that `notifications/cancelled` is about.
fn cancelled(params: Option<&Bytes>) -> Option<Id> {
    let id = ostler_wire::member(params?, "requestId")?;
    Id::parse(Bytes::copy_from_slice(id)).ok()
}

/// Whether a request continues an earlier one: its daemon has used up what it carries.
fn continues(params: Option<&Bytes>) -> bool {
    params.is_some_and(|params| Params::parse(params.clone()).map_or(true, |params| params.is_continuation()))
}

/// The number of a request of ours.
fn own_number(id: &Id) -> Option<u64> {
    let text = std::str::from_utf8(id.raw()).ok()?;
    text.strip_prefix('"')?.strip_prefix(OWN_ID)?.strip_suffix('"')?.parse().ok()
}

/// The messages of a batch.
fn batch(line: &Bytes) -> Vec<Bytes> {
    let messages: Vec<&serde_json::value::RawValue> = serde_json::from_slice(line).unwrap_or_default();
    messages.into_iter().map(|message| line.slice_ref(message.get().as_bytes())).collect()
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
