//! Relay session: a server of a remote host as an upstream session.

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

/// Timeout beyond the host's own: the host's timeout error says more than the worker's.
pub(super) const SLACK: Duration = Duration::from_secs(2);

/// Capabilities announced for every remote server; requests show whether the server has them.
const CAPABILITIES: &[u8] = br#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true},"completions":{}}"#;

/// Connector to a server of a remote host.
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
    /// Succeeds without a connection: sessions are independent of connections.
    fn connect(
        &self,
        context: ConnectContext,
    ) -> BoxFuture<'_, Result<Arc<dyn ServerSession>, ServerFailure>> {
        let (worker, server) = (self.worker.clone(), self.server.clone());
        let session = RelaySession::open(worker, server, relayed_server_info(), context.notification_sink);
        Box::pin(std::future::ready(Ok(session as Arc<dyn ServerSession>)))
    }

    fn containment(&self) -> Containment {
        Containment::None
    }
}

/// Returns the protocol facts of a remote server: relayed requests are modern, whatever protocol
/// the server speaks at its host.
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

/// Session with a server of a remote host. It ends only when it is closed.
pub(super) struct RelaySession {
    worker: Worker,
    server: ServerName,
    number: u64,
    server_info: ServerInfo,
    notification_sink: ServerNotificationSink,
    closed: watch::Sender<bool>,
}

/// Sessions that receive change notifications, as many as the local host has open; the host drops
/// the ones that it has closed.
#[derive(Default)]
pub(super) struct RelaySessions(Mutex<Vec<Weak<RelaySession>>>);

impl RelaySessions {
    pub(super) fn add(&self, session: &Arc<RelaySession>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|session| session.strong_count() > 0);
        all.push(Arc::downgrade(session));
    }

    /// Notifies the sessions whose server matches.
    pub(super) fn notify(&self, event: &ServerNotification, is_changed: impl Fn(&str) -> bool) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sessions = all.iter().filter_map(Weak::upgrade);
        sessions
            .filter(|session| is_changed(session.server.as_str()))
            .for_each(|session| (session.notification_sink)(event.clone()));
    }
}

impl RelaySession {
    pub(super) fn open(
        worker: Worker,
        server: ServerName,
        server_info: ServerInfo,
        notification_sink: ServerNotificationSink,
    ) -> Arc<Self> {
        let number = worker.core().next_request_id();
        let session = Arc::new(Self {
            worker,
            server,
            number,
            server_info,
            notification_sink,
            closed: watch::Sender::new(false),
        });
        session.core().sessions.add(&session);
        session
    }

    fn core(&self) -> &Arc<WorkerCore> {
        self.worker.core()
    }

    async fn handle_request(&self, request: UpstreamRequest<'_>) -> Result<RpcOutcome, Fault> {
        match request.method {
            // The remote host watches the health of its server; only the connection can fail here.
            "server/discover" | "ping" => return Ok(RpcOutcome::Result(self.discover_result())),
            "tools/list" => return self.core().listed_tools(self.server.as_str(), request.deadline).await,
            _ => {}
        }
        let mut closed = self.closed.subscribe();
        tokio::select! {
            biased;
            outcome = self.relay_request(&request) => outcome,
            // `RelayedCalls` fails published calls; this fails one that waits.
            _ = closed.wait_for(|is_closed| *is_closed) => Err(Fault::not_sent(FaultKind::Retired)),
        }
    }

    async fn relay_request(&self, request: &UpstreamRequest<'_>) -> Result<RpcOutcome, Fault> {
        let core = self.core();
        let subject = core.subjects.call(&core.role, &core.name);
        let (call, number) = (core.call_id(request.idempotency_key), core.next_request_id());
        let began = Instant::now();
        let times = CallTimes {
            began,
            deadline: request.deadline,
            hard_deadline: request.hard_deadline,
            progress_extension: self.progress_extension(request, began),
        };
        let info = RelayedCallInfo {
            subject: subject.clone(),
            times,
            session: Some(self.number),
            observer: request.observer.cloned(),
        };
        let handle = core.calls.register(call, info)?;
        let (version, trace) = (core.manifest_version(), traceparent(request));
        let headers = |send_times: SendTimes| {
            CallHead {
                call,
                instance: core.instance,
                server: self.server.clone(),
                begin_by: core.host_time(send_times.begin_by, send_times.clock_offset),
                deadline: core.host_time(request.hard_deadline, send_times.clock_offset),
                manifest: version.clone(),
                trace: trace.clone(),
            }
            .headers()
        };
        let outgoing = OutgoingCall {
            call,
            subject: &subject,
            body: self.encode_body(request, number).into(),
            headers: &headers,
            deadline: request.deadline,
            may_send: request.may_send,
        };
        parse_outcome(core.send_until_answered(&handle, &outgoing).await?)
    }

    /// Returns the extension after progress: the call timeout of the server.
    fn progress_extension(&self, request: &UpstreamRequest<'_>, now: Instant) -> Duration {
        let listed = self.core().manifest.borrow().clone();
        let listed =
            listed.as_deref().and_then(|manifest| manifest::find_server(manifest, self.server.as_str()));
        match listed {
            Some(listed) => Duration::from_millis(listed.call_timeout).saturating_add(SLACK),
            None => request.deadline.saturating_duration_since(now),
        }
    }

    /// Encodes the request with the worker's own request id.
    fn encode_body(&self, request: &UpstreamRequest<'_>, number: u64) -> Vec<u8> {
        let session = match request.client {
            ClientMeta::Host => self.server_info.session_meta.as_ref(),
            ClientMeta::Session(client) => Some(client),
            ClientMeta::Own => None,
        };
        let meta = RequestMeta {
            session,
            idempotency_key: request.idempotency_key,
            progress_token: request.observer.filter(|observer| observer.wants_progress()).map(|_| number),
            is_legacy: false,
        };
        let mut body = Vec::new();
        ostler_wire::write_request(&mut body, number, request.method, request.params, &meta);
        // A message has no line break at its end.
        body.pop();
        body
    }

    /// Returns the result of `server/discover`, as far as the worker knows the server.
    fn discover_result(&self) -> Bytes {
        let mut out = br#"{"resultType":"complete","supportedVersions":[""#.to_vec();
        out.extend_from_slice(self.server_info.version.as_bytes());
        out.extend_from_slice(br#""],"capabilities":"#);
        out.extend_from_slice(&self.server_info.capabilities);
        out.push(b'}');
        out.into()
    }
}

/// Returns the trace context of a call if it is valid in a header.
fn traceparent(request: &UpstreamRequest<'_>) -> Option<String> {
    let raw = request.params.meta_entry(MetaKey::Traceparent)?;
    let text: String = serde_json::from_slice(raw).ok()?;
    (text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_graphic())).then_some(text)
}

/// Parses the outcome of a response.
fn parse_outcome(body: Bytes) -> Result<RpcOutcome, Fault> {
    let unusable = |why: String| Fault { delivery: Delivery::Answered, kind: FaultKind::Malformed(why) };
    match Message::parse(body) {
        // The subject identifies the call. The response may have the id of another attempt, the one
        // that was executed.
        Ok(Message::Response { outcome, .. }) => Ok(outcome),
        Ok(_) => Err(unusable("the answer is no response".into())),
        Err(error) => Err(unusable(error.to_string())),
    }
}

impl ServerSession for RelaySession {
    fn server_info(&self) -> &ServerInfo {
        &self.server_info
    }

    fn request<'a>(&'a self, request: UpstreamRequest<'a>) -> BoxFuture<'a, Result<RpcOutcome, Fault>> {
        Box::pin(self.handle_request(request))
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

    /// Reports activity always: see [`Self::handle_request`].
    fn activity(&self) -> (Option<Instant>, Option<Instant>) {
        (Some(Instant::now()), None)
    }
}
