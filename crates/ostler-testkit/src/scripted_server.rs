//! Where a script is played: makes the sessions and writes down what happens.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ostler_core::fault::FaultKind;
use ostler_core::status::Containment;
use ostler_core::supervisor::ServerFailure;
use ostler_host::upstream::{
    BoxFuture, ClientMeta, ConnectContext, Connector, ServerNotification, ServerSession, UpstreamRequest,
};
use ostler_wire::RpcOutcome;
use tokio::time::Instant;

use crate::script::Script;
use crate::scripted_session::ScriptedSession;

/// One request as the server saw it.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// Its number among all requests that reached the server, from 1.
    pub number: usize,
    /// Its number among those of the same tool, or of the same method, from 1.
    pub nth: usize,
    /// The session it came through.
    pub generation: u64,
    /// The MCP method.
    pub method: String,
    /// The tool or prompt it names, or the URI.
    pub name: Option<String>,
    /// The raw arguments.
    pub arguments: Option<String>,
    /// The cursor of a list.
    pub cursor: Option<String>,
    /// The same for every attempt of one call.
    pub key: Option<String>,
    /// The raw parameters.
    pub params: String,
    /// Whether it speaks for a client and not for the host.
    pub is_for_client: bool,
}

/// What has happened so far.
#[derive(Default)]
pub(crate) struct ServerHistory {
    connects: u64,
    requests: Vec<ReceivedRequest>,
    /// How often each call of a tool has reached it, by tool and key.
    executions: BTreeMap<(String, String), usize>,
    pub(crate) answered: usize,
    pub(crate) cancelled: usize,
    pub(crate) closed: Vec<u64>,
    pub(crate) in_flight: usize,
    most_in_flight: usize,
    pub(crate) listen_requests: Vec<Vec<String>>,
    pub(crate) notifications: Vec<String>,
    /// What callers said when they were asked; `None` is a refusal.
    pub(crate) client_answers: Vec<Option<RpcOutcome>>,
    sessions_made: usize,
    newest: Weak<ScriptedSession>,
}

/// A scripted server: the connector of its sessions, and the witness of what
/// the host does with them. Clones are the same stage.
#[derive(Clone)]
pub struct ScriptedServer {
    pub(crate) script: Arc<Script>,
    history: Arc<Mutex<ServerHistory>>,
}

impl ScriptedServer {
    /// A stage on which nothing has happened.
    pub fn new(script: Script) -> Self {
        Self { script: Arc::new(script), history: Arc::default() }
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, ServerHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts that were tried.
    pub fn connects(&self) -> u64 {
        self.history().connects
    }

    /// Sessions that were made and are not closed, crashed ones included.
    pub fn open_sessions(&self) -> usize {
        let book = self.history();
        book.sessions_made - book.closed.len()
    }

    /// The generations of closed sessions, in the order of closing.
    pub fn closed(&self) -> Vec<u64> {
        self.history().closed.clone()
    }

    /// Every request that reached the server, in order.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.history().requests.clone()
    }

    /// The requests for one tool or of one method.
    pub fn requests_for(&self, what: &str) -> Vec<ReceivedRequest> {
        self.requests().into_iter().filter(|asked| asked.is_for(what)).collect()
    }

    /// How often one tool or method reached the server.
    pub fn count(&self, what: &str) -> usize {
        self.history().requests.iter().filter(|asked| asked.is_for(what)).count()
    }

    /// The most often that any one call of a tool may have been executed.
    pub fn most_executions(&self, tool: &str) -> usize {
        let book = self.history();
        let of_tool = book.executions.iter().filter(|((name, _), _)| name == tool);
        of_tool.map(|(_, times)| *times).max().unwrap_or(0)
    }

    /// The request has left the host: from now on it may be executed.
    pub(crate) fn record_execution(&self, asked: &ReceivedRequest) {
        if asked.method == "tools/call" {
            let call = (asked.name.clone().unwrap_or_default(), asked.key.clone().unwrap_or_default());
            *self.history().executions.entry(call).or_default() += 1;
        }
    }

    /// Requests that were answered.
    pub fn answered(&self) -> usize {
        self.history().answered
    }

    /// Requests that were given up: timed out, or their caller left.
    pub fn cancelled(&self) -> usize {
        self.history().cancelled
    }

    /// The resources that each request to listen named, in order.
    pub fn listen_requests(&self) -> Vec<Vec<String>> {
        self.history().listen_requests.clone()
    }

    /// The methods of the notifications that reached the server, in order.
    pub fn notifications(&self) -> Vec<String> {
        self.history().notifications.clone()
    }

    /// What callers said when the server asked them, in order: the text of the
    /// result, or `None` where the question was refused.
    pub fn client_answers(&self) -> Vec<Option<String>> {
        let text = |outcome: &Option<RpcOutcome>| match outcome {
            Some(RpcOutcome::Result(text)) => Some(String::from_utf8_lossy(text).into_owned()),
            Some(RpcOutcome::Error(_)) | None => None,
        };
        self.history().client_answers.iter().map(text).collect()
    }

    /// Requests at the server now.
    pub fn in_flight(&self) -> usize {
        self.history().in_flight
    }

    /// The most requests that were ever at the server together.
    pub fn most_in_flight(&self) -> usize {
        self.history().most_in_flight
    }

    /// The newest session, if it has not ended.
    pub(crate) fn current(&self) -> Option<Arc<ScriptedSession>> {
        let newest = self.history().newest.upgrade();
        newest.filter(|session| session.is_alive())
    }

    /// The server ends by itself. Nothing happens if it is not running.
    pub fn crash(&self) {
        if let Some(session) = self.current() {
            session.crash();
        }
    }

    /// The server stops answering, liveness probes included, until it is started afresh.
    pub fn hang(&self) {
        if let Some(session) = self.current() {
            session.hang();
        }
    }

    /// The server says something without being asked.
    pub fn emit(&self, event: ServerNotification) {
        if let Some(session) = self.current() {
            session.announce(event);
        }
    }

    /// Writes a request down as it reaches the server.
    pub(crate) fn record_request(&self, generation: u64, ask: &UpstreamRequest<'_>) -> ReceivedRequest {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let named = ask.params.name().or_else(|| ask.params.uri());
        let mut asked = ReceivedRequest {
            number: 0,
            nth: 0,
            generation,
            method: ask.method.to_owned(),
            name: named.map(|name| name.into_owned()),
            arguments: ask.params.arguments().map(text),
            cursor: ask.params.cursor().map(|cursor| cursor.into_owned()),
            key: ask.idempotency_key.map(str::to_owned),
            params: text(ask.params.raw()),
            is_for_client: !matches!(ask.client, ClientMeta::Host),
        };
        let mut book = self.history();
        asked.number = book.requests.len() + 1;
        let is_alike =
            |other: &&ReceivedRequest| (&other.method, &other.name) == (&asked.method, &asked.name);
        asked.nth = book.requests.iter().filter(is_alike).count() + 1;
        book.requests.push(asked.clone());
        book.in_flight += 1;
        book.most_in_flight = book.most_in_flight.max(book.in_flight);
        asked
    }
}

impl ReceivedRequest {
    fn is_for(&self, what: &str) -> bool {
        self.method == what || self.name.as_deref() == Some(what)
    }
}

impl Connector for ScriptedServer {
    fn connect(&self, plan: ConnectContext) -> BoxFuture<'_, Result<Arc<dyn ServerSession>, ServerFailure>> {
        Box::pin(async move {
            let nth = {
                let mut book = self.history();
                book.connects += 1;
                book.connects
            };
            tokio::time::sleep(self.script.start_after).await;
            if (self.script.fails_to_start)(nth) {
                let kind = FaultKind::Start("the script says so".into());
                return Err(ServerFailure::new(kind, Instant::now().into_std()));
            }
            let session = Arc::new(ScriptedSession::new(self.clone(), plan));
            let mut book = self.history();
            book.sessions_made += 1;
            book.newest = Arc::downgrade(&session);
            drop(book);
            Ok(session as Arc<dyn ServerSession>)
        })
    }

    fn containment(&self) -> Containment {
        self.script.containment
    }
}

impl fmt::Debug for ScriptedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Stage");
        shown.field("connects", &self.connects()).field("requests", &self.history().requests.len());
        shown.finish_non_exhaustive()
    }
}
