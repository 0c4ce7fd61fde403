//! Session of a legacy client: keeps its `initialize` parameters for every request.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use hashbrown::HashMap;
use ostler_core::caller::Caller;
use ostler_wire::{MODERN_VERSION, RequestId, RpcOutcome, SessionMeta, error_code};
use tokio::sync::{OnceCell, mpsc, oneshot};
use tokio::time::Instant;

use crate::initialize_params::InitializeParams;
use crate::notification_sink::NotificationSink;
use crate::resumable_streams::SessionStreams;
use crate::session_requests::SessionRequests;
use ostler_host::Scope;

/// Log level for a legacy client of a modern server until the client sets one. Modern servers send no log without a
/// level; legacy servers do, and their clients expect it.
const DEFAULT_LOG_LEVEL: &str = "info";

/// Session of a legacy client. Thousands may be abandoned, so rarely used fields are boxed.
#[derive(Debug)]
pub(crate) struct ClientSession {
    /// Contains the id of the session.
    caller: Caller,
    scope: Scope,
    /// Parameters of the client's `initialize`.
    initialize_params: Arc<InitializeParams>,
    /// True if the client declared a capability to answer requests.
    answers_requests: bool,
    /// `_meta` for modern servers; made on first use, since an abandoned session never needs it.
    meta: ArcSwapOption<SessionMeta>,
    state: Mutex<ClientSessionState>,
    /// Workspace named by the client's first root; set once the client was asked for its roots.
    first_root: ArcSwapOption<FirstRoot>,
    next_request_id: AtomicU64,
    /// Requests in flight, cancellable by their ids.
    pub(crate) requests: SessionRequests,
    /// Destination of frames that belong to no request, and streams that can be resumed.
    pub(crate) streams: SessionStreams,
    /// Last use, in milliseconds of the clock of all sessions.
    last_used: AtomicU64,
    /// Requests and streams that use it now; a session in use does not expire.
    active_uses: AtomicU32,
}

/// Answer of a client to `roots/list`.
pub(crate) type FirstRoot = OnceCell<Option<Arc<str>>>;

#[derive(Debug, Default)]
struct ClientSessionState {
    log_level: Option<Box<str>>,
    /// Server requests that wait for the client's answer.
    pending_requests: HashMap<u64, oneshot::Sender<RpcOutcome>>,
    /// True once no server request can be answered.
    has_ended: bool,
}

/// Parameters of a new session.
#[derive(Debug)]
pub(crate) struct NewSession {
    /// Already in the session that is opened.
    pub(crate) caller: Caller,
    pub(crate) scope: Scope,
    pub(crate) initialize_params: Arc<InitializeParams>,
}

impl ClientSession {
    pub(crate) fn new(opening: NewSession) -> Arc<Self> {
        Self::with_streams(opening, SessionStreams::default())
    }

    /// Makes a session that sends all frames to the queue of one connection.
    ///
    /// A client may move from one daemon to the next and answer a request of the first after the second has sent some:
    /// the ids of their requests differ.
    pub(crate) fn on_connection(opening: NewSession, line: mpsc::Sender<Bytes>) -> Arc<Self> {
        let session = Self::with_streams(opening, SessionStreams::on_connection(line));
        session.next_request_id.store(first_request_id(session.id()), Ordering::Relaxed);
        session
    }

    fn with_streams(opening: NewSession, streams: SessionStreams) -> Arc<Self> {
        let NewSession { caller, scope, initialize_params: said } = opening;
        let can_be_asked = ostler_wire::may_receive_requests(said.capabilities.as_bytes());
        Arc::new(Self {
            caller,
            scope,
            initialize_params: said,
            answers_requests: can_be_asked,
            meta: ArcSwapOption::empty(),
            state: Mutex::default(),
            first_root: ArcSwapOption::empty(),
            next_request_id: AtomicU64::new(1),
            requests: SessionRequests::default(),
            streams,
            last_used: AtomicU64::new(0),
            active_uses: AtomicU32::new(0),
        })
    }

    pub(crate) fn id(&self) -> &str {
        // Its caller is put into a session before the session is made.
        self.caller.session().unwrap_or_default()
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(crate) fn version(&self) -> &'static str {
        self.initialize_params.version
    }

    /// Returns the `_meta` that a modern server reads of this client.
    pub(crate) fn meta(&self) -> Arc<SessionMeta> {
        if let Some(meta) = self.meta.load_full() {
            return meta;
        }
        let meta = Arc::new(self.build_meta(DEFAULT_LOG_LEVEL));
        // A level that is set concurrently wins.
        let before = self.meta.compare_and_swap(&None::<Arc<SessionMeta>>, Some(Arc::clone(&meta)));
        Option::clone(&before).unwrap_or(meta)
    }

    /// Returns the same for a request during which the server can't send requests to the client.
    pub(crate) fn meta_without_capabilities(&self) -> Arc<SessionMeta> {
        let meta = SessionMeta::modern(MODERN_VERSION, "{}", &self.initialize_params.identity);
        Arc::new(meta.with_log_level(DEFAULT_LOG_LEVEL))
    }

    fn build_meta(&self, level: &str) -> SessionMeta {
        SessionMeta::modern(
            MODERN_VERSION,
            &self.initialize_params.capabilities,
            &self.initialize_params.identity,
        )
        .with_log_level(level)
    }

    /// Returns whether the client declared that it answers requests of this method.
    pub(crate) fn can_answer(&self, method: &str) -> bool {
        let capabilities = self.initialize_params.capabilities.as_bytes();
        ostler_wire::required_client_capability(method)
            .is_some_and(|capability| ostler_wire::has_capability(capabilities, capability))
    }

    /// Returns the workspace named by the client's first root; the client is asked once.
    pub(crate) fn first_root(&self) -> Arc<FirstRoot> {
        if let Some(known) = self.first_root.load_full() {
            return known;
        }
        let unasked = Arc::new(FirstRoot::new());
        let before = self.first_root.compare_and_swap(&None::<Arc<FirstRoot>>, Some(Arc::clone(&unasked)));
        Option::clone(&before).unwrap_or(unasked)
    }

    /// Clears the first root after `roots/list_changed`, so that the client is asked again.
    pub(crate) fn clear_first_root(&self) {
        self.first_root.store(None);
    }

    /// Returns whether the client declared that it answers any request.
    pub(crate) fn answers_requests(&self) -> bool {
        self.answers_requests
    }

    pub(crate) fn set_log_level(&self, level: &str) {
        self.meta.store(Some(Arc::new(self.build_meta(level))));
        self.state().log_level = Some(level.into());
    }

    pub(crate) fn log_level(&self) -> Option<Box<str>> {
        self.state().log_level.clone()
    }

    /// Sends a request to the client on the stream of one of its own requests. Dropping the future cancels the request.
    pub(crate) async fn send_request(
        &self,
        outlet: &NotificationSink,
        method: &str,
        params: Option<&[u8]>,
    ) -> RpcOutcome {
        let number = self.next_request_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        {
            let mut state = self.state();
            if state.has_ended {
                return internal_error("the session has ended");
            }
            state.pending_requests.insert(number, sender);
        }
        let mut asking = PendingServerRequest { session: self, outlet, number: Some(number) };
        if !outlet.send(request_frame(number, method, params)) {
            return internal_error("the client is gone");
        }
        let outcome = answer.await;
        asking.number = None;
        outcome.unwrap_or_else(|_| internal_error("the session has ended"))
    }

    /// Takes the client's answer to a server request; false if no server request waits for it.
    pub(crate) fn handle_response(&self, id: &RequestId, outcome: RpcOutcome) -> bool {
        let waiting = id.number().and_then(|number| self.state().pending_requests.remove(&number));
        waiting.is_some_and(|waiting| waiting.send(outcome).is_ok())
    }

    /// Ends the session: cancels its calls, ends its streams, and leaves its server requests unanswered.
    pub(crate) fn end(&self) {
        self.requests.cancel_all();
        self.streams.end();
        let mut state = self.state();
        state.has_ended = true;
        let asked = std::mem::take(&mut state.pending_requests);
        drop(state);
        drop(asked);
    }

    /// Records a use at `now` and keeps the session from expiring until the returned value is dropped.
    pub(crate) fn touch(self: &Arc<Self>, now: u64) -> ActiveSession {
        self.last_used.store(now, Ordering::Relaxed);
        self.active_uses.fetch_add(1, Ordering::Relaxed);
        ActiveSession { session: Arc::clone(self), now, began: Instant::now() }
    }

    /// Returns the time of the last use; `None` while it is in use.
    pub(crate) fn idle_since(&self) -> Option<u64> {
        (self.active_uses.load(Ordering::Relaxed) == 0).then(|| self.last_used.load(Ordering::Relaxed))
    }

    /// Records a use at `now` that is already over.
    pub(crate) fn mark_used(&self, now: u64) {
        self.last_used.store(now, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, ClientSessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the id of the first server request of a session: derived from the random session id, and exact in every JSON
/// reader.
fn first_request_id(id: &str) -> u64 {
    let digits = id.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    (u64::from(digits.unwrap_or(0)) << 16) + 1
}

/// Use of a session: keeps the session from expiring until it is dropped.
#[derive(Debug)]
pub(crate) struct ActiveSession {
    session: Arc<ClientSession>,
    /// Start of the use, on the clock of all sessions and on the machine's.
    now: u64,
    began: Instant,
}

impl std::ops::Deref for ActiveSession {
    type Target = Arc<ClientSession>;
    fn deref(&self) -> &Arc<ClientSession> {
        &self.session
    }
}

impl Drop for ActiveSession {
    fn drop(&mut self) {
        let took = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.session.mark_used(self.now.saturating_add(took));
        self.session.active_uses.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Server request in flight; dropped with its id set, it is cancelled.
struct PendingServerRequest<'a> {
    session: &'a ClientSession,
    outlet: &'a NotificationSink,
    number: Option<u64>,
}

impl Drop for PendingServerRequest<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        if self.session.state().pending_requests.remove(&number).is_some() {
            let mut frame = Vec::new();
            ostler_wire::write_cancelled(&mut frame, number, "the request is over");
            frame.pop();
            self.outlet.send(frame);
        }
    }
}

fn request_frame(number: u64, method: &str, params: Option<&[u8]>) -> Vec<u8> {
    let mut frame = Vec::new();
    ostler_wire::write_raw_request(&mut frame, number, method, params);
    frame.pop();
    frame
}

fn internal_error(why: &str) -> RpcOutcome {
    RpcOutcome::Error(ostler_wire::RpcError::new(error_code::INTERNAL_ERROR, why))
}

#[cfg(test)]
mod tests {
    use ostler_wire::ClientInfo;

    use super::*;

    fn session() -> Arc<ClientSession> {
        ClientSession::new(NewSession {
            caller: Caller::local().in_session("id"),
            scope: Scope::All,
            initialize_params: Arc::new(InitializeParams {
                version: "2025-11-25",
                capabilities: r#"{"elicitation":{}}"#.into(),
                identity: ClientInfo { name: "test".into(), version: "1".into() },
            }),
        })
    }

    fn id(raw: &'static str) -> RequestId {
        RequestId::parse(Bytes::from_static(raw.as_bytes())).unwrap()
    }

    #[tokio::test]
    async fn a_question_goes_out_on_the_stream_of_its_request_and_is_answered_once() {
        let session = session();
        let (outlet, mut frames) = NotificationSink::new();
        let asking = Arc::clone(&session);
        let asked =
            tokio::spawn(
                async move { asking.send_request(&outlet, "elicitation/create", Some(b"{}")).await },
            );
        std::future::poll_fn(|cx| frames.poll_ready(cx)).await;
        let question = frames.try_recv().unwrap();
        assert_eq!(question, r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}"#);
        let answer = RpcOutcome::Result(Bytes::from_static(b"{}"));
        assert!(!session.handle_response(&id("2"), answer.clone()));
        assert!(session.handle_response(&id("1"), answer.clone()));
        assert!(!session.handle_response(&id("1"), answer.clone()));
        assert_eq!(asked.await.unwrap(), answer);
    }

    #[tokio::test]
    async fn a_question_ends_with_its_session_and_with_its_client() {
        let session = session();
        let (outlet, mut frames) = NotificationSink::new();
        let asking = Arc::clone(&session);
        let asked = tokio::spawn(async move {
            let first = asking.send_request(&outlet, "roots/list", None).await;
            (first, asking.send_request(&outlet, "roots/list", None).await)
        });
        std::future::poll_fn(|cx| frames.poll_ready(cx)).await;
        drop(frames);
        session.end();
        assert!(matches!(asked.await.unwrap(), (RpcOutcome::Error(_), RpcOutcome::Error(_))));
    }

    #[test]
    fn a_legacy_client_hears_the_log_until_it_says_how_much_it_wants() {
        let session = session();
        let said = |session: &ClientSession| format!("{:?}", session.meta());
        let unsaid = said(&session);
        session.set_log_level("info");
        assert_eq!(said(&session), unsaid);
        session.set_log_level("error");
        assert_ne!(said(&session), unsaid);
    }
}
