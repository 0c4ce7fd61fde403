//! Scripted server: makes sessions that follow a script, and records what happens.

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

/// A request as the server received it.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// Its number among all requests that reached the server, from 1.
    pub number: usize,
    /// Its number among those of the same tool, or of the same method, from 1.
    pub nth: usize,
    /// The generation of the session it came through.
    pub generation: u64,
    /// The MCP method.
    pub method: String,
    /// The tool or prompt it names, or the URI.
    pub name: Option<String>,
    /// The raw arguments.
    pub arguments: Option<String>,
    /// The cursor of a list.
    pub cursor: Option<String>,
    /// The idempotency key: the same for every attempt of one call.
    pub key: Option<String>,
    /// The raw parameters.
    pub params: String,
    /// True for a client's request, false for the host's own.
    pub is_for_client: bool,
}

/// Everything that has happened so far.
#[derive(Default)]
pub(crate) struct ServerHistory {
    connects: u64,
    requests: Vec<ReceivedRequest>,
    /// The number of arrivals of each call of a tool, by tool and key.
    executions: BTreeMap<(String, String), usize>,
    pub(crate) answered: usize,
    pub(crate) cancelled: usize,
    pub(crate) closed: Vec<u64>,
    pub(crate) in_flight: usize,
    most_in_flight: usize,
    pub(crate) listen_requests: Vec<Vec<String>>,
    pub(crate) notifications: Vec<String>,
    /// The answers of callers to requests of the server; `None` is a refusal.
    pub(crate) client_answers: Vec<Option<RpcOutcome>>,
    sessions_made: usize,
    newest: Weak<ScriptedSession>,
}

/// A scripted server: the connector of its sessions, and the record of what the host does with
/// them. Clones share one history.
#[derive(Clone)]
pub struct ScriptedServer {
    pub(crate) script: Arc<Script>,
    history: Arc<Mutex<ServerHistory>>,
}

impl ScriptedServer {
    /// Makes a server with an empty history.
    pub fn new(script: Script) -> Self {
        Self { script: Arc::new(script), history: Arc::default() }
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, ServerHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of attempted starts.
    pub fn connects(&self) -> u64 {
        self.history().connects
    }

    /// Returns the number of sessions that were made and are not closed, crashed ones included.
    pub fn open_sessions(&self) -> usize {
        let history = self.history();
        history.sessions_made - history.closed.len()
    }

    /// Returns the generations of closed sessions, in the order of closing.
    pub fn closed(&self) -> Vec<u64> {
        self.history().closed.clone()
    }

    /// Returns every request that reached the server, in order.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.history().requests.clone()
    }

    /// Returns the requests for one tool or of one method.
    pub fn requests_for(&self, tool_or_method: &str) -> Vec<ReceivedRequest> {
        self.requests().into_iter().filter(|request| request.is_for(tool_or_method)).collect()
    }

    /// Returns how often one tool or method reached the server.
    pub fn count(&self, tool_or_method: &str) -> usize {
        self.history().requests.iter().filter(|request| request.is_for(tool_or_method)).count()
    }

    /// Returns the most often that any one call of a tool may have been executed.
    pub fn most_executions(&self, tool: &str) -> usize {
        let history = self.history();
        let of_tool = history.executions.iter().filter(|((name, _), _)| name == tool);
        of_tool.map(|(_, times)| *times).max().unwrap_or(0)
    }

    /// Records that a request has left the host: from now on it may be executed.
    pub(crate) fn record_execution(&self, request: &ReceivedRequest) {
        if request.method == "tools/call" {
            let call = (request.name.clone().unwrap_or_default(), request.key.clone().unwrap_or_default());
            *self.history().executions.entry(call).or_default() += 1;
        }
    }

    /// Returns the number of answered requests.
    pub fn answered(&self) -> usize {
        self.history().answered
    }

    /// Returns the number of requests that timed out or whose caller left.
    pub fn cancelled(&self) -> usize {
        self.history().cancelled
    }

    /// Returns the resources that each request to listen named, in order.
    pub fn listen_requests(&self) -> Vec<Vec<String>> {
        self.history().listen_requests.clone()
    }

    /// Returns the methods of the notifications that reached the server, in order.
    pub fn notifications(&self) -> Vec<String> {
        self.history().notifications.clone()
    }

    /// Returns the answers of callers to the server's requests, in order: the text of the result,
    /// or `None` for a refusal.
    pub fn client_answers(&self) -> Vec<Option<String>> {
        let text = |outcome: &Option<RpcOutcome>| match outcome {
            Some(RpcOutcome::Result(text)) => Some(String::from_utf8_lossy(text).into_owned()),
            Some(RpcOutcome::Error(_)) | None => None,
        };
        self.history().client_answers.iter().map(text).collect()
    }

    /// Returns the number of requests at the server now.
    pub fn in_flight(&self) -> usize {
        self.history().in_flight
    }

    /// Returns the most requests that were ever at the server together.
    pub fn most_in_flight(&self) -> usize {
        self.history().most_in_flight
    }

    /// Returns the newest session, if it has not ended.
    pub(crate) fn current(&self) -> Option<Arc<ScriptedSession>> {
        let newest = self.history().newest.upgrade();
        newest.filter(|session| session.is_alive())
    }

    /// Ends the newest session as a crash does. Does nothing if none is alive.
    pub fn crash(&self) {
        if let Some(session) = self.current() {
            session.crash();
        }
    }

    /// Stops all answers, those to liveness probes included, until the server is started afresh.
    pub fn hang(&self) {
        if let Some(session) = self.current() {
            session.hang();
        }
    }

    /// Sends a notification that belongs to no request.
    pub fn emit(&self, event: ServerNotification) {
        if let Some(session) = self.current() {
            session.announce(event);
        }
    }

    /// Records a request as it reaches the server.
    pub(crate) fn record_request(&self, generation: u64, sent: &UpstreamRequest<'_>) -> ReceivedRequest {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let named = sent.params.name().or_else(|| sent.params.uri());
        let mut request = ReceivedRequest {
            number: 0,
            nth: 0,
            generation,
            method: sent.method.to_owned(),
            name: named.map(|name| name.into_owned()),
            arguments: sent.params.arguments().map(text),
            cursor: sent.params.cursor().map(|cursor| cursor.into_owned()),
            key: sent.idempotency_key.map(str::to_owned),
            params: text(sent.params.raw()),
            is_for_client: !matches!(sent.client, ClientMeta::Host),
        };
        let mut history = self.history();
        request.number = history.requests.len() + 1;
        let is_alike =
            |other: &&ReceivedRequest| (&other.method, &other.name) == (&request.method, &request.name);
        request.nth = history.requests.iter().filter(is_alike).count() + 1;
        history.requests.push(request.clone());
        history.in_flight += 1;
        history.most_in_flight = history.most_in_flight.max(history.in_flight);
        request
    }
}

impl ReceivedRequest {
    fn is_for(&self, tool_or_method: &str) -> bool {
        self.method == tool_or_method || self.name.as_deref() == Some(tool_or_method)
    }
}

impl Connector for ScriptedServer {
    fn connect(
        &self,
        context: ConnectContext,
    ) -> BoxFuture<'_, Result<Arc<dyn ServerSession>, ServerFailure>> {
        Box::pin(async move {
            let nth = {
                let mut history = self.history();
                history.connects += 1;
                history.connects
            };
            tokio::time::sleep(self.script.start_after).await;
            if (self.script.fails_to_start)(nth) {
                let kind = FaultKind::Start("the script says so".into());
                return Err(ServerFailure::new(kind, Instant::now().into_std()));
            }
            let session = Arc::new(ScriptedSession::new(self.clone(), context));
            let mut history = self.history();
            history.sessions_made += 1;
            history.newest = Arc::downgrade(&session);
            drop(history);
            Ok(session as Arc<dyn ServerSession>)
        })
    }

    fn containment(&self) -> Containment {
        self.script.containment
    }
}

impl fmt::Debug for ScriptedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ScriptedServer");
        debug.field("connects", &self.connects()).field("requests", &self.history().requests.len());
        debug.finish_non_exhaustive()
    }
}
