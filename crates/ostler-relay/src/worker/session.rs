//! A session with a server elsewhere.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::fault::{Delivery, Fault, FaultKind};
use ostler_core::server_name::ServerName;
use ostler_core::status::Containment;
use ostler_core::supervisor::ServerFailure;
use ostler_host::Kind;
use ostler_host::upstream::{
    BoxFuture, ClientMeta, CloseMode, ConnectContext, Connector, ServerNotification, ServerNotificationSink,
    ServerSession, SessionStats, UpstreamRequest,
};
use ostler_wire::{
    ClientInfo, Era, MODERN_VERSION, Message, MetaKey, RequestMeta, RpcOutcome, ServerInfo, SessionMeta,
};
use tokio::sync::watch;
use tokio::time::Instant;

use super::in_flight::RelayedCallInfo;
use super::pending::CallTimes;
use super::request::{OutgoingCall, SendTimes};
use super::{Worker, WorkerCore, manifest};
use crate::envelope::CallHead;

/// What a call gets beyond the host's own time: its answer that the time is
/// over says more than ours.
pub(super) const SLACK: Duration = Duration::from_secs(2);

/// What every server elsewhere may have. Whether it has it is found out by asking.
const CAPABILITIES: &[u8] = br#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true},"completions":{}}"#;

/// Makes sessions with a server elsewhere.
pub(super) struct RelayConnector {
    worker: Worker,
    server: ServerName,
}

impl RelayConnector {
    pub(super) fn new(worker: Worker, server: ServerName) -> Self {
        Self { worker, server }
    }
}

impl Connector for RelayConnector {
    /// Whether the way is there or not: the session is not the connection.
    fn connect(&self, plan: ConnectContext) -> BoxFuture<'_, Result<Arc<dyn ServerSession>, ServerFailure>> {
        let (worker, server) = (self.worker.clone(), self.server.clone());
        let session = RelaySession::open(worker, server, relayed_server_info(), plan.notification_sink);
        Box::pin(std::future::ready(Ok(session as Arc<dyn ServerSession>)))
    }

    fn containment(&self) -> Containment {
        Containment::None
    }
}

/// How a server elsewhere is spoken to, whatever it speaks there.
fn relayed_server_info() -> ServerInfo {
    let identity = ClientInfo { name: "ostler-worker".into(), version: env!("CARGO_PKG_VERSION").into() };
    ServerInfo {
        era: Era::Modern,
        version: MODERN_VERSION.into(),
        capabilities: Bytes::from_static(CAPABILITIES),
        implementation: None,
        instructions: None,
        session_meta: Some(SessionMeta::modern(MODERN_VERSION, "{}", &identity)),
    }
}

/// A session with a server elsewhere. It ends when it is closed and never by
/// itself.
pub(super) struct RelaySession {
    worker: Worker,
    server: ServerName,
    number: u64,
    server_info: ServerInfo,
    events: ServerNotificationSink,
    closed: watch::Sender<bool>,
}

/// The sessions that hear of changes. There are as many as the host above has,
/// which forgets those that it has closed.
#[derive(Default)]
pub(super) struct RelaySessions(Mutex<Vec<Weak<RelaySession>>>);

impl RelaySessions {
    pub(super) fn add(&self, session: &Arc<RelaySession>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|session| session.strong_count() > 0);
        all.push(Arc::downgrade(session));
    }

    /// Tells the sessions of servers that something of them has changed.
    pub(super) fn notify(&self, event: &ServerNotification, is_changed: impl Fn(&str) -> bool) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let living = all.iter().filter_map(Weak::upgrade);
        living
            .filter(|session| is_changed(session.server.as_str()))
            .for_each(|session| (session.events)(event.clone()));
    }
}

impl RelaySession {
    pub(super) fn open(
        worker: Worker,
        server: ServerName,
        hello: ServerInfo,
        events: ServerNotificationSink,
    ) -> Arc<Self> {
        let number = worker.core().next_request_id();
        let session = Arc::new(Self {
            worker,
            server,
            number,
            server_info: hello,
            events,
            closed: watch::Sender::new(false),
        });
        session.core().sessions.add(&session);
        session
    }

    fn core(&self) -> &Arc<WorkerCore> {
        self.worker.core()
    }

    async fn handle_request(&self, ask: UpstreamRequest<'_>) -> Result<RpcOutcome, Fault> {
        match ask.method {
            // Whether the server elsewhere is well is for its own host to find
            // out; all that can be missing here is the way to it.
            "server/discover" | "ping" => return Ok(RpcOutcome::Result(self.discover_result())),
            "tools/list" => return self.core().listed_tools(self.server.as_str(), ask.deadline).await,
            _ => {}
        }
        let mut closed = self.closed.subscribe();
        tokio::select! {
            biased;
            outcome = self.relay_request(&ask) => outcome,
            // What has left is ended by the table; this is what has not.
            _ = closed.wait_for(|is_closed| *is_closed) => Err(Fault::not_sent(FaultKind::Retired)),
        }
    }

    async fn relay_request(&self, ask: &UpstreamRequest<'_>) -> Result<RpcOutcome, Fault> {
        let core = self.core();
        let subject = core.subjects.call(&core.role, &core.name);
        let (call, number) = (core.call_id(ask.idempotency_key), core.next_request_id());
        let began = Instant::now();
        let times = CallTimes {
            began,
            deadline: ask.deadline,
            hard_deadline: ask.hard_deadline,
            progress_extension: self.patience(ask, began),
        };
        let entry = RelayedCallInfo {
            subject: subject.clone(),
            times,
            session: Some(self.number),
            observer: ask.observer.cloned(),
        };
        let ticket = core.calls.register(call, entry)?;
        let (version, trace) = (core.manifest_version(), traceparent(ask));
        let headers = |sending: SendTimes| {
            CallHead {
                call,
                instance: core.instance,
                server: self.server.clone(),
                begin_by: core.host_time(sending.begin_by, sending.clock_offset),
                deadline: core.host_time(ask.hard_deadline, sending.clock_offset),
                manifest: version.clone(),
                trace: trace.clone(),
            }
            .headers()
        };
        let letter = OutgoingCall {
            call,
            subject: &subject,
            body: self.encode_body(ask, number).into(),
            headers: &headers,
            deadline: ask.deadline,
            may_send: ask.may_send,
        };
        parse_outcome(core.send_until_answered(&ticket, &letter).await?)
    }

    /// What a call gets after progress: as much as the server gives it.
    fn patience(&self, ask: &UpstreamRequest<'_>, now: Instant) -> Duration {
        let listed = self.core().manifest.borrow().clone();
        let listed =
            listed.as_deref().and_then(|manifest| manifest::find_server(manifest, self.server.as_str()));
        match listed {
            Some(listed) => Duration::from_millis(listed.call_timeout).saturating_add(SLACK),
            None => ask.deadline.saturating_duration_since(now),
        }
    }

    /// The request as it is carried, under our number.
    fn encode_body(&self, ask: &UpstreamRequest<'_>, number: u64) -> Vec<u8> {
        let session = match ask.client {
            ClientMeta::Host => self.server_info.session_meta.as_ref(),
            ClientMeta::Session(client) => Some(client),
            ClientMeta::Own => None,
        };
        let meta = RequestMeta {
            session,
            idempotency_key: ask.idempotency_key,
            progress_token: ask.observer.filter(|voice| voice.wants_progress()).map(|_| number),
            is_legacy: false,
        };
        let mut body = Vec::new();
        ostler_wire::write_request(&mut body, number, ask.method, ask.params, &meta);
        // A message of its own needs no end of line.
        body.pop();
        body
    }

    /// What the server says of itself, as far as anybody here knows.
    fn discover_result(&self) -> Bytes {
        let mut out = br#"{"resultType":"complete","supportedVersions":[""#.to_vec();
        out.extend_from_slice(self.server_info.version.as_bytes());
        out.extend_from_slice(br#""],"capabilities":"#);
        out.extend_from_slice(&self.server_info.capabilities);
        out.push(b'}');
        out.into()
    }
}

/// The trace that a call belongs to, if it can stand in a header.
fn traceparent(ask: &UpstreamRequest<'_>) -> Option<String> {
    let raw = ask.params.meta_entry(MetaKey::Traceparent)?;
    let text: String = serde_json::from_slice(raw).ok()?;
    (text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_graphic())).then_some(text)
}

/// The outcome in a response.
fn parse_outcome(body: Bytes) -> Result<RpcOutcome, Fault> {
    let unusable = |why: String| Fault { delivery: Delivery::Answered, kind: FaultKind::Malformed(why) };
    match Message::parse(body) {
        // The subject says whose answer it is. Its id may be another one: that
        // of the attempt which was carried out.
        Ok(Message::Response { outcome, .. }) => Ok(outcome),
        Ok(_) => Err(unusable("the answer is no response".into())),
        Err(error) => Err(unusable(error.to_string())),
    }
}

impl ServerSession for RelaySession {
    fn server_info(&self) -> &ServerInfo {
        &self.server_info
    }

    fn request<'a>(&'a self, ask: UpstreamRequest<'a>) -> BoxFuture<'a, Result<RpcOutcome, Fault>> {
        Box::pin(self.handle_request(ask))
    }

    fn notifies_changes(&self, _kind: Kind) -> bool {
        true
    }

    fn ended(&self) -> BoxFuture<'_, ServerFailure> {
        Box::pin(std::future::pending())
    }

    fn close(&self, _force: CloseMode) -> BoxFuture<'_, ()> {
        self.core().calls.end_session(self.number);
        self.closed.send_replace(true);
        Box::pin(std::future::ready(()))
    }

    fn stats(&self) -> SessionStats {
        SessionStats::default()
    }

    /// It is always well: see [`Self::exchange`].
    fn activity(&self) -> (Option<Instant>, Option<Instant>) {
        (Some(Instant::now()), None)
    }
}
