//! Session of one MCP client across daemons: decides which messages are repeated when its daemon changes.
//!
//! ```text
//!            farewell                connection lost            new connection
//! Attached ───────────▶ Draining ────────────────▶ Detached ──────────────────▶ Resuming ──all sent──▶ Attached
//!     └──────────────────connection lost──────────────▲                             │
//!                                                     └──────connection lost────────┘
//! ```
//!
//! A request is sent to one daemon. The exceptions are requests that only read, or that set what is set already: those
//! are repeated once. All others that were sent and have no response end with `outcome-unknown`.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use ostler_core::retry::MethodKind;
use ostler_wire::{
    Message, Params, RequestId, RpcOutcome, error_code, text_member, write_error, write_error_object,
    write_notification,
};
use serde_json::{Value, json};

use super::FAREWELL;

/// Upper bound on queued messages of the client, and on their bytes. A single one may be longer.
const MAX_QUEUED: usize = 1_024;
const MAX_QUEUED_BYTES: usize = 4 << 20;
/// Upper bound on requests without a response: more than a daemon accepts of one client.
const MAX_PENDING: usize = 4_096;
/// Upper bound on bytes of requests that are kept for a repeat; longer requests are not repeated.
const MAX_KEPT_BYTES: usize = 1 << 20;
/// Upper bound on resource subscriptions that are restored.
const MAX_SUBSCRIPTIONS: usize = 256;
/// Upper bound on server requests that are cancelled when their daemon is lost.
const MAX_SERVER_REQUESTS: usize = 256;
/// Prefix of the ids of requests that the client has not made.
const OWN_ID: &str = "ostler-resume-";
/// The only revision with batches.
const BATCH_REVISION: &str = "2025-03-26";
/// Upper bound on messages in one batch.
const MAX_BATCH: usize = 64;
/// Upper bound on a tool's name in an error.
const MAX_NAME_CHARS: usize = 128;

/// JSON-RPC code of `outcome-unknown`.
const OUTCOME_UNKNOWN: i64 = -31003;

/// Phase of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionPhase {
    Attached,
    /// The daemon finishes its requests, and gets no new ones.
    Draining,
    Detached,
    /// The state of the session and the queue are being sent to the new daemon.
    Resuming,
}

/// Action for a message of the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientLineAction {
    /// Send it to the daemon now.
    Send,
    /// The session has queued or dropped it.
    Queue,
}

/// Action for a line of the daemon.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DaemonLineAction {
    /// True if the client gets the line.
    pub(super) is_shown: bool,
    /// Further whole lines for the client.
    pub(super) more: Vec<u8>,
    /// Notice for people.
    pub(super) notice: Option<String>,
}

/// Request without a response.
#[derive(Debug)]
struct PendingRequest {
    /// Sequence number of the request.
    number: u64,
    /// Description for people.
    what: String,
    kind: RequestKind,
    /// The whole request, where it may be sent again.
    line: Option<Bytes>,
    /// True if the attached daemon has it.
    is_sent: bool,
    /// True if an earlier daemon has had it.
    is_repeated: bool,
    /// Responses with its id that are due: more than one if the client has used the id again.
    awaited: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum RequestKind {
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

/// Session of a legacy client.
#[derive(Debug)]
struct InitializedSession {
    params: Option<Bytes>,
    /// Negotiated revision; `None` before the response.
    version: Option<String>,
    /// True once the client has sent `notifications/initialized`.
    is_initialized: bool,
}

/// Request that the client has not made.
#[derive(Debug, Clone, PartialEq, Eq)]
enum OwnRequest {
    Initialize,
    LogLevel,
    /// Subscribes to the resource of this URI.
    Subscribe(String),
}

#[derive(Debug)]
pub(super) struct StdioClientSession {
    phase: SessionPhase,
    session: Option<InitializedSession>,
    /// Parameters of the last `logging/setLevel`.
    log_level: Option<Bytes>,
    /// Parameters of `resources/subscribe`, by URI.
    subscriptions: BTreeMap<String, Bytes>,
    pending: std::collections::HashMap<RequestId, PendingRequest>,
    requests: u64,
    kept_bytes: usize,
    /// Own requests, in the order of their numbers.
    own: BTreeMap<u64, OwnRequest>,
    next_own: u64,
    /// Requests of the daemon that the client has not answered.
    server_requests: Vec<RequestId>,
    /// Messages to send before any message of the client.
    replay: VecDeque<Bytes>,
    queued: VecDeque<Bytes>,
    queued_bytes: usize,
    /// True once the client has closed its input.
    is_client_done: bool,
}

impl StdioClientSession {
    /// Returns a session with an attached daemon.
    pub(super) fn new() -> Self {
        Self {
            phase: SessionPhase::Attached,
            session: None,
            log_level: None,
            subscriptions: BTreeMap::new(),
            pending: std::collections::HashMap::new(),
            requests: 0,
            kept_bytes: 0,
            own: BTreeMap::new(),
            next_own: 1,
            server_requests: Vec::new(),
            replay: VecDeque::new(),
            queued: VecDeque::new(),
            queued_bytes: 0,
            is_client_done: false,
        }
    }

    /// Returns whether one more message can be kept; if not, none may be read.
    pub(super) fn has_room(&self) -> bool {
        let is_full = self.queued.len() >= MAX_QUEUED || self.queued_bytes >= MAX_QUEUED_BYTES;
        !is_full && self.pending.len() < MAX_PENDING
    }

    /// Handles a line of the client.
    pub(super) fn handle_client_line(&mut self, line: &Bytes) -> ClientLineAction {
        match (self.phase, Message::parse(line.clone())) {
            (SessionPhase::Attached, message) => {
                self.note_sent(line, message);
                ClientLineAction::Send
            }
            // The draining daemon still waits for these.
            (SessionPhase::Draining, Ok(message)) if self.is_for_draining(&message) => {
                self.note_sent(line, Ok(message));
                ClientLineAction::Send
            }
            // The lost daemon made the request.
            (SessionPhase::Detached, Ok(Message::Response { .. })) => ClientLineAction::Queue,
            // No daemon has the request, so none needs the cancellation.
            (_, Ok(Message::Notification { method, params }))
                if method == "notifications/cancelled" && self.cancel_unsent(params.as_ref()) =>
            {
                ClientLineAction::Queue
            }
            _ => {
                self.queued_bytes += line.len();
                self.queued.push_back(Bytes::copy_from_slice(line));
                ClientLineAction::Queue
            }
        }
    }

    /// Drops the cancelled request if it waits for a daemon. Returns false if it does not: the cancellation has to be
    /// sent then.
    fn cancel_unsent(&mut self, params: Option<&Bytes>) -> bool {
        let Some(id) = cancelled(params) else { return false };
        let is_it = |line: &Bytes| {
            matches!(Message::parse(line.clone()), Ok(Message::Request { id: held, method, .. })
                if held == id && method != "initialize")
        };
        if let Some(at) = self.queued.iter().position(is_it) {
            let line = self.queued.remove(at);
            self.queued_bytes -= line.map_or(0, |line| line.len());
            return true;
        }
        let is_unsent =
            |pending: &PendingRequest| !pending.is_sent && pending.kind != RequestKind::Initialize;
        let is_dropped = self.pending.get(&id).is_some_and(is_unsent);
        if is_dropped {
            self.forget(&id);
        }
        is_dropped
    }

    fn is_for_draining(&self, message: &Message) -> bool {
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

    /// Records that the client has closed its input. Returns whether the daemon has to be told now.
    pub(super) fn finish_client(&mut self) -> bool {
        self.is_client_done = true;
        self.phase == SessionPhase::Attached
    }

    /// Records a message that is about to be sent.
    fn note_sent(&mut self, line: &Bytes, message: Result<Message, ostler_wire::MessageError>) {
        match message {
            Ok(Message::Request { id, method, params }) => self.note_request(&id, &method, params, line),
            Ok(Message::Notification { method, params }) => match method.as_str() {
                "notifications/initialized" => {
                    if let Some(opening) = &mut self.session {
                        opening.is_initialized = true;
                    }
                }
                // The daemon does not answer cancelled requests.
                "notifications/cancelled" => {
                    if let Some(id) = cancelled(params.as_ref()) {
                        self.forget(&id);
                    }
                }
                _ => {}
            },
            Ok(Message::Response { id: Some(id), .. }) => {
                self.server_requests.retain(|question| *question != id)
            }
            // A longer one is refused as a whole, without an id.
            Err(ostler_wire::MessageError::Batch)
                if self.knows_batches() && batch(line).len() <= MAX_BATCH =>
            {
                for message in batch(line) {
                    let parsed = Message::parse(message.clone());
                    self.note_sent(&message, parsed);
                }
            }
            Ok(Message::Response { id: None, .. }) | Err(_) => {}
        }
    }

    fn knows_batches(&self) -> bool {
        self.session.as_ref().and_then(|opening| opening.version.as_deref()) == Some(BATCH_REVISION)
    }

    fn note_request(&mut self, id: &RequestId, method: &str, params: Option<Bytes>, line: &Bytes) {
        let text = |name: &str| params.as_deref().and_then(|params| text_member(params, name));
        let kind = match method {
            "initialize" => RequestKind::Initialize,
            "subscriptions/listen" => RequestKind::Listen,
            "resources/subscribe" => {
                text("uri").map_or(RequestKind::Repeatable, |uri| RequestKind::Subscribe(uri.into()))
            }
            "ping" | "logging/setLevel" => RequestKind::Repeatable,
            _ if MethodKind::from_method(method) == MethodKind::Read && !is_continuation(params.as_ref()) => {
                RequestKind::Repeatable
            }
            _ => RequestKind::Once,
        };
        let what = match text("name") {
            Some(name) if method == "tools/call" => {
                format!("the call of `{}`", name.chars().take(MAX_NAME_CHARS).collect::<String>())
            }
            _ => format!("`{}`", method.chars().take(MAX_NAME_CHARS).collect::<String>()),
        };
        let owned = params.as_ref().map(|params| Bytes::copy_from_slice(params));
        match (&kind, method) {
            (RequestKind::Initialize, _) if self.session.is_none() => {
                self.session =
                    Some(InitializedSession { params: owned, version: None, is_initialized: false });
            }
            (RequestKind::Subscribe(uri), _) if self.subscriptions.len() < MAX_SUBSCRIPTIONS => {
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
        // Responses to requests of one id look alike, so the outcome of a call is known when all of them have come.
        let mut awaited = 1;
        match self.pending.get_mut(id) {
            Some(earlier) if earlier.kind == RequestKind::Once => {
                earlier.awaited += 1;
                return;
            }
            Some(earlier) if kind == RequestKind::Once && earlier.kind == RequestKind::Repeatable => {
                awaited += earlier.awaited;
            }
            _ => {}
        }
        let is_kept = kind != RequestKind::Once && self.kept_bytes + line.len() <= MAX_KEPT_BYTES;
        let line = is_kept.then(|| Bytes::copy_from_slice(line));
        self.forget(id);
        self.kept_bytes += line.as_ref().map_or(0, Bytes::len);
        self.requests += 1;
        let number = self.requests;
        let pending = PendingRequest { number, what, kind, line, is_sent: true, is_repeated: false, awaited };
        self.pending.insert(id.detached(), pending);
    }

    /// Records a response; returns the request if it is complete.
    fn complete_one(&mut self, id: &RequestId) -> Option<PendingRequest> {
        let pending = self.pending.get_mut(id)?;
        pending.awaited -= 1;
        if pending.awaited == 0 { self.forget(id) } else { None }
    }

    fn forget(&mut self, id: &RequestId) -> Option<PendingRequest> {
        let pending = self.pending.remove(id)?;
        self.kept_bytes -= pending.line.as_ref().map_or(0, Bytes::len);
        Some(pending)
    }

    /// Handles a line of the daemon.
    pub(super) fn handle_daemon_line(&mut self, line: &Bytes) -> DaemonLineAction {
        if **line == *FAREWELL.as_bytes() {
            if matches!(self.phase, SessionPhase::Attached | SessionPhase::Resuming) {
                self.phase = SessionPhase::Draining;
            }
            return DaemonLineAction::default();
        }
        let shown = DaemonLineAction { is_shown: true, ..DaemonLineAction::default() };
        match Message::parse(line.clone()) {
            Ok(Message::Response { id: Some(id), outcome }) => self.handle_response(&id, &outcome),
            Ok(Message::Request { id, .. }) => {
                if self.server_requests.len() < MAX_SERVER_REQUESTS {
                    self.server_requests.push(id.detached());
                }
                shown
            }
            Ok(Message::Notification { method, params }) => match method.as_str() {
                "notifications/cancelled" => {
                    if let Some(id) = cancelled(params.as_ref()) {
                        self.server_requests.retain(|question| *question != id);
                    }
                    shown
                }
                "notifications/subscriptions/acknowledged" => {
                    self.handle_listen_ack(params.as_ref()).unwrap_or(shown)
                }
                _ => shown,
            },
            Err(ostler_wire::MessageError::Batch) => {
                for message in batch(line) {
                    if let Ok(Message::Response { id: Some(id), .. }) = Message::parse(message) {
                        self.complete_one(&id);
                    }
                }
                shown
            }
            Ok(Message::Response { id: None, .. }) | Err(_) => shown,
        }
    }

    fn handle_response(&mut self, id: &RequestId, outcome: &RpcOutcome) -> DaemonLineAction {
        let shown = DaemonLineAction { is_shown: true, ..DaemonLineAction::default() };
        if let Some(own) = own_number(id).and_then(|number| self.own.remove(&number)) {
            return match own {
                OwnRequest::Initialize => self.handle_reinitialized(outcome),
                OwnRequest::LogLevel => DaemonLineAction::default(),
                OwnRequest::Subscribe(uri) => self.handle_resubscribed(&uri, outcome),
            };
        }
        // The daemon's end ends long-lived requests, and the next daemon continues them.
        let is_listen = self.pending.get(id).is_some_and(|pending| pending.kind == RequestKind::Listen);
        if is_listen && self.phase == SessionPhase::Draining && !self.is_client_done {
            return DaemonLineAction::default();
        }
        let Some(pending) = self.complete_one(id) else { return shown };
        match (pending.kind, outcome) {
            (RequestKind::Initialize, RpcOutcome::Result(result)) => {
                let version = text_member(result, "protocolVersion").map(|version| version.to_string());
                if let Some(opening) = self.session.as_mut().filter(|opening| opening.version.is_none()) {
                    opening.version = Some(version.unwrap_or_default());
                }
            }
            (RequestKind::Initialize, RpcOutcome::Error(_)) => {
                self.session.take_if(|opening| opening.version.is_none());
            }
            (RequestKind::Subscribe(uri), RpcOutcome::Error(_)) => drop(self.subscriptions.remove(&uri)),
            _ => {}
        }
        shown
    }

    /// Handles the response to the repeated `initialize`. The client's lists may be out of date.
    fn handle_reinitialized(&self, outcome: &RpcOutcome) -> DaemonLineAction {
        let Some(opening) = &self.session else { return DaemonLineAction::default() };
        let result = match outcome {
            RpcOutcome::Result(result) => result,
            RpcOutcome::Error(error) => {
                let notice = format!("the daemon does not take up the session: {}", error.message);
                return DaemonLineAction { notice: Some(notice), ..DaemonLineAction::default() };
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
        DaemonLineAction { is_shown: false, more, notice }
    }

    /// Handles the response to a repeated resource subscription. The resource may have changed meanwhile.
    fn handle_resubscribed(&mut self, uri: &str, outcome: &RpcOutcome) -> DaemonLineAction {
        let mut more = Vec::new();
        match outcome {
            RpcOutcome::Result(_) => {
                let params = json!({ "uri": uri }).to_string();
                write_notification(&mut more, "notifications/resources/updated", Some(params.as_bytes()));
            }
            RpcOutcome::Error(_) => drop(self.subscriptions.remove(uri)),
        }
        DaemonLineAction { more, ..DaemonLineAction::default() }
    }

    /// Handles the acknowledgement of a listen request. If an earlier daemon has sent one, the client has it, and its
    /// lists may be out of date.
    fn handle_listen_ack(&self, params: Option<&Bytes>) -> Option<DaemonLineAction> {
        let params: Value = serde_json::from_slice(params?).ok()?;
        let listen = &params["_meta"]["io.modelcontextprotocol/subscriptionId"];
        let id = RequestId::parse(Bytes::from(listen.to_string())).ok()?;
        self.pending.get(&id).filter(|pending| pending.is_repeated)?;
        let mut more = Vec::new();
        let stamp = json!({ "_meta": { "io.modelcontextprotocol/subscriptionId": listen } }).to_string();
        for kind in ["tools", "prompts", "resources"] {
            if params["notifications"][format!("{kind}ListChanged")] == true {
                let method = format!("notifications/{kind}/list_changed");
                write_notification(&mut more, &method, Some(stamp.as_bytes()));
            }
        }
        Some(DaemonLineAction { is_shown: false, more, notice: None })
    }

    /// Returns whether the daemon has announced its end.
    pub(super) fn is_draining(&self) -> bool {
        self.phase == SessionPhase::Draining
    }

    /// Returns whether the draining daemon has answered everything, so that it can be left.
    pub(super) fn may_detach(&self) -> bool {
        let is_awaited = |pending: &PendingRequest| pending.is_sent && pending.kind != RequestKind::Listen;
        self.phase == SessionPhase::Draining && !self.pending.values().any(is_awaited)
    }

    /// Handles the loss of the connection. Returns whole lines for the client: `outcome-unknown` for each request that
    /// may have been executed, and a cancellation for each server request.
    pub(super) fn handle_connection_lost(&mut self, cause: &str) -> Vec<u8> {
        self.phase = SessionPhase::Detached;
        self.replay.clear();
        self.own.clear();
        let mut lines = Vec::new();
        for question in std::mem::take(&mut self.server_requests) {
            let mut params = b"{\"requestId\":".to_vec();
            params.extend_from_slice(question.raw());
            params.extend_from_slice(b",\"reason\":\"the daemon that asked has ended\"}");
            write_notification(&mut lines, "notifications/cancelled", Some(&params));
        }
        // A read that loses a second daemon may be the cause.
        let is_spent = |pending: &PendingRequest| pending.is_repeated && pending.kind != RequestKind::Listen;
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

    /// Returns the requests that match, in the order in which they came.
    fn ordered(&self, is_such: impl Fn(&PendingRequest) -> bool) -> Vec<RequestId> {
        let mut found: Vec<(u64, &RequestId)> = self
            .pending
            .iter()
            .filter(|(_, pending)| is_such(pending))
            .map(|(id, pending)| (pending.number, id))
            .collect();
        found.sort_unstable_by_key(|(number, _)| *number);
        found.into_iter().map(|(_, id)| id.clone()).collect()
    }

    /// Returns whether a message waits for a daemon. Long-lived requests do not count.
    pub(super) fn wants_daemon(&self) -> bool {
        !self.queued.is_empty() || self.pending.values().any(|pending| pending.kind != RequestKind::Listen)
    }

    /// Returns whether nothing is left to send or to receive.
    pub(super) fn is_finished(&self) -> bool {
        self.is_client_done && !self.wants_daemon()
    }

    /// Starts to resume with a new daemon: the state of the session comes first, then the queue.
    pub(super) fn resume(&mut self) {
        self.phase = SessionPhase::Resuming;
        if let Some(opening) = self.session.as_ref().filter(|opening| opening.version.is_some()) {
            let (params, is_initialized) = (opening.params.clone(), opening.is_initialized);
            self.replay_request("initialize", params.as_ref(), OwnRequest::Initialize);
            if is_initialized {
                let mut line = Vec::new();
                write_notification(&mut line, "notifications/initialized", None);
                line.pop();
                self.replay.push_back(line.into());
            }
            if let Some(level) = self.log_level.clone() {
                self.replay_request("logging/setLevel", Some(&level), OwnRequest::LogLevel);
            }
            for (uri, params) in self.subscriptions.clone() {
                self.replay_request("resources/subscribe", Some(&params), OwnRequest::Subscribe(uri));
            }
        }
    }

    fn replay_request(&mut self, method: &str, params: Option<&Bytes>, own: OwnRequest) {
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

    /// Returns the next line for a resuming daemon; `None` when everything is sent, or the daemon is draining already.
    pub(super) fn next_to_send(&mut self) -> Option<Bytes> {
        if self.phase != SessionPhase::Resuming {
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
        match self.queued.pop_front() {
            Some(line) => {
                self.queued_bytes -= line.len();
                let message = Message::parse(line.clone());
                self.note_sent(&line, message);
                Some(line)
            }
            None => {
                self.phase = SessionPhase::Attached;
                None
            }
        }
    }

    /// Returns whether the daemon has to be told that the client has closed its input, now that everything is sent.
    pub(super) fn must_finish_daemon(&self) -> bool {
        self.phase == SessionPhase::Attached && self.is_client_done
    }

    /// Fails all pending requests with this error object, because no daemon can be reached. Returns whole lines for the
    /// client.
    pub(super) fn fail_pending(&mut self, error: &[u8]) -> Vec<u8> {
        let mut lines = Vec::new();
        for id in self.ordered(|pending| pending.kind != RequestKind::Listen) {
            self.forget(&id);
            write_error_object(&mut lines, &id, error);
        }
        self.queued_bytes = 0;
        let held = std::mem::take(&mut self.queued).into_iter();
        for line in held.flat_map(|line| if line.starts_with(b"[") { batch(&line) } else { vec![line] }) {
            match Message::parse(line) {
                Ok(Message::Request { id, .. }) => {
                    write_error_object(&mut lines, &id, error);
                }
                Ok(Message::Notification { method, .. }) if method == "notifications/initialized" => {
                    if let Some(opening) = &mut self.session {
                        opening.is_initialized = true;
                    }
                }
                _ => {}
            }
        }
        lines
    }
}

/// Returns the error for a message that is longer than the daemon accepts. Without a request's id it is `null`.
pub(super) fn refuse_oversize(request: Option<RequestId>, longest: usize) -> Vec<u8> {
    let id = request.as_ref().map_or(&b"null"[..], RequestId::raw);
    let why = format!("a message has at most {longest} bytes; `gateway.max_body` in the config raises that");
    let error = ostler_wire::error_object(error_code::INVALID_REQUEST, &why, None);
    [b"{\"jsonrpc\":\"2.0\",\"id\":", id, b",\"error\":", &error, b"}\n"].concat()
}

/// Returns the request that `notifications/cancelled` names.
fn cancelled(params: Option<&Bytes>) -> Option<RequestId> {
    let id = ostler_wire::member(params?, "requestId")?;
    RequestId::parse(Bytes::copy_from_slice(id)).ok()
}

/// Returns whether a request continues an earlier one: its daemon has consumed the state that it carries.
fn is_continuation(params: Option<&Bytes>) -> bool {
    params.is_some_and(|params| Params::parse(params.clone()).map_or(true, |params| params.is_continuation()))
}

/// Returns the number of an own request.
fn own_number(id: &RequestId) -> Option<u64> {
    let text = std::str::from_utf8(id.raw()).ok()?;
    text.strip_prefix('"')?.strip_prefix(OWN_ID)?.strip_suffix('"')?.parse().ok()
}

/// Returns the messages of a batch.
fn batch(line: &Bytes) -> Vec<Bytes> {
    let messages: Vec<&serde_json::value::RawValue> = serde_json::from_slice(line).unwrap_or_default();
    messages.into_iter().map(|message| line.slice_ref(message.get().as_bytes())).collect()
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
