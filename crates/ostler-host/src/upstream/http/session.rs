//! A session with a remote endpoint.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ostler_core::fault::{Fault, FaultKind};
use ostler_core::supervisor::ServerFailure;
use ostler_wire::{ClientInfo, RpcOutcome, ServerInfo};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use super::endpoint_client::EndpointClient;
use super::handshake::HttpHandshake;
use super::legacy_session::{self, LegacySession};
use super::listen::ListenStreams;
use super::param_headers::ParamHeaderCache;
use super::pending_calls::{HttpPendingCalls, PendingCallHandle};
use super::server_messages::ServerMessageHandler;
use super::sse_transport;
use crate::lists::Kind;
use crate::redact::Redactor;
use crate::upstream::{BoxFuture, CloseMode, ConnectContext, ServerSession, SessionStats, UpstreamRequest};

/// Timeout of the request that ends a session.
const DELETE_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of a message without a waiter.
const DETACHED_SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Upper bound on messages without a waiter that are in flight; more are dropped.
const MAX_DETACHED_SENDS: usize = 32;

/// State shared by all parts of a session.
pub(crate) struct HttpSessionState {
    pub(crate) client: EndpointClient,
    /// Redacts secrets from the session's faults.
    redactor: Arc<Redactor>,
    pub(crate) pending_calls: HttpPendingCalls,
    pub(crate) server_messages: ServerMessageHandler,
    /// Permits for messages without a waiter.
    send_permits: Arc<Semaphore>,
    /// The failure that ended the session, if any.
    failure: watch::Sender<Option<ServerFailure>>,
    /// True once the host has closed the session.
    closed: watch::Sender<bool>,
}

/// Transport of the session and its state.
pub(crate) enum TransportState {
    Modern {
        param_headers: ParamHeaderCache,
        listen_streams: ListenStreams,
    },
    Legacy(Arc<LegacySession>),
    /// Messages leave through this client, and come in on a stream that a task reads.
    Sse(EndpointClient),
}

/// A session with a remote endpoint.
pub(crate) struct HttpSession {
    pub(crate) server_info: ServerInfo,
    pub(crate) state: Arc<HttpSessionState>,
    pub(crate) transport: TransportState,
}

/// Parts of a session.
pub(crate) struct HttpSessionParts {
    pub(crate) client: EndpointClient,
    pub(crate) context: ConnectContext,
    pub(crate) identity: ClientInfo,
    /// Time that a call gets from a progress notification on.
    pub(crate) progress_extension: Duration,
    /// Set once a server request could not be attributed.
    pub(crate) has_ambiguous_requests: Arc<AtomicBool>,
    pub(crate) redactor: Arc<Redactor>,
}

impl HttpSessionState {
    /// Waits until the host has closed the session or the endpoint is lost.
    pub(crate) async fn until_ended(&self) {
        let (mut lost, mut closed) = (self.failure.subscribe(), self.closed.subscribe());
        tokio::select! {
            _ = lost.wait_for(Option::is_some) => {}
            _ = closed.wait_for(|closed| *closed) => {}
        }
    }

    /// Returns the fault for which nothing can be sent any more, if any.
    fn end_reason(&self) -> Option<FaultKind> {
        if *self.closed.borrow() {
            return Some(FaultKind::Retired);
        }
        self.failure.borrow().is_some().then_some(FaultKind::Closed)
    }

    /// Ends the session with a failure for the supervisor. The first one counts.
    pub(crate) fn fail(&self, kind: &FaultKind) {
        self.failure.send_if_modified(|lost| {
            let is_first = lost.is_none();
            lost.get_or_insert_with(|| {
                ServerFailure::new(self.redactor.redact_kind(kind.clone()), Instant::now().into_std())
            });
            is_first
        });
    }

    /// Ends the session if a fault shows that the endpoint is lost.
    pub(crate) fn fail_if_endpoint_lost(&self, fault: &Fault) {
        if matches!(fault.kind, FaultKind::Connect(_) | FaultKind::Permanent(_) | FaultKind::NeedsAuth { .. })
        {
            self.fail(&fault.kind);
        }
    }

    /// Runs a task without a waiter, unless the session ends first.
    pub(crate) fn spawn(self: &Arc<Self>, errand: impl Future<Output = ()> + Send + 'static) {
        let link = Arc::clone(self);
        tokio::spawn(async move {
            tokio::select! {
                () = errand => {}
                () = link.until_ended() => {}
            }
        });
    }
}

impl HttpSession {
    pub(crate) fn start(opened: HttpHandshake, beginning: HttpSessionParts) -> Arc<dyn ServerSession> {
        let HttpSessionParts {
            client: road,
            context: plan,
            identity,
            progress_extension: patience,
            has_ambiguous_requests: is_confused,
            redactor: veil,
        } = beginning;
        let link = Arc::new(HttpSessionState {
            client: road,
            redactor: veil,
            pending_calls: HttpPendingCalls::default(),
            server_messages: ServerMessageHandler::new(plan.notification_sink, patience, is_confused),
            send_permits: Arc::new(Semaphore::new(MAX_DETACHED_SENDS)),
            failure: watch::Sender::new(None),
            closed: watch::Sender::new(false),
        });
        let (hello, way) = match opened {
            HttpHandshake::Modern(hello) => {
                let marks = ParamHeaderCache::new(plan.tool_definitions);
                (
                    hello,
                    TransportState::Modern { param_headers: marks, listen_streams: ListenStreams::default() },
                )
            }
            HttpHandshake::Legacy(hello, headers) => {
                let agreed = Arc::new(LegacySession::new(headers, (identity, plan.on_lists_stale), &hello));
                link.spawn(legacy_session::resync_on_reset(&agreed, plan.on_session_reset));
                link.spawn(legacy_session::follow(Arc::clone(&link), Arc::clone(&agreed)));
                (hello, TransportState::Legacy(agreed))
            }
            HttpHandshake::Sse(hello, out, stream) => {
                link.spawn(sse_transport::read(Arc::clone(&link), out.clone(), stream));
                (hello, TransportState::Sse(out))
            }
        };
        Arc::new(Self { server_info: hello, state: link, transport: way })
    }

    async fn run_request(&self, ask: UpstreamRequest<'_>) -> Result<RpcOutcome, Fault> {
        let (ticket, answer) = self.state.pending_calls.register(&ask);
        // Checked after the call is added: a session that ends now ends all added calls.
        if let Some(kind) = self.state.end_reason() {
            return Err(Fault::not_sent(kind));
        }
        let mut errand = HttpCancelOnDrop { session: self, id: Some(ticket.id) };
        let conversation = async {
            match &self.transport {
                TransportState::Modern { param_headers: marks, .. } => {
                    self.send_modern(&ask, ticket.id, marks).await
                }
                TransportState::Legacy(agreed) => self.send_legacy(&ask, ticket.id, agreed).await,
                TransportState::Sse(out) => {
                    sse_transport::send_request(
                        (&self.state, out),
                        self.encode_request(&ask, ticket.id),
                        answer,
                    )
                    .await
                }
            }
        };
        let result = tokio::select! {
            result = conversation => result,
            fault = self.timed_out_or_closed(&ticket) => Err(fault),
        };
        if !matches!(&result, Err(Fault { kind: FaultKind::TimedOut(_), .. })) {
            errand.id = None;
        }
        if let Err(fault) = &result {
            self.state.fail_if_endpoint_lost(fault);
        }
        result.map_err(|fault| self.state.redactor.redact_fault(fault))
    }

    /// Waits until the call's deadline or the end of the session. The delivery is unknown: the library below makes
    /// and uses connections.
    async fn timed_out_or_closed(&self, ticket: &PendingCallHandle<'_>) -> Fault {
        let mut closed = self.state.closed.subscribe();
        tokio::select! {
            time = ticket.expired() => Fault::unknown(FaultKind::TimedOut(time)),
            _ = closed.wait_for(|closed| *closed) => Fault::unknown(FaultKind::Retired),
        }
    }

    /// Sends a message without a waiter, unless too many are in flight.
    pub(crate) fn send_detached(&self, body: Vec<u8>) {
        let link = Arc::clone(&self.state);
        let (road, headers) = match &self.transport {
            TransportState::Modern { .. } => return,
            TransportState::Legacy(agreed) => (self.state.client.clone(), agreed.headers()),
            TransportState::Sse(out) => (out.clone(), http::HeaderMap::new()),
        };
        let Ok(place) = Arc::clone(&link.send_permits).try_acquire_owned() else { return };
        link.spawn(async move {
            let _place = place;
            let _ = timeout(DETACHED_SEND_TIMEOUT, road.post(body, headers)).await;
        });
    }
}

impl Drop for HttpSession {
    /// Ends all tasks of the session with it.
    fn drop(&mut self) {
        self.state.closed.send_replace(true);
    }
}

/// Cancels a call at a legacy server if it is dropped with the id still in it. A modern server sees that the request
/// is closed.
struct HttpCancelOnDrop<'a> {
    session: &'a HttpSession,
    id: Option<u64>,
}

impl Drop for HttpCancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut body = Vec::new();
        ostler_wire::write_cancelled(&mut body, id, "the caller does not wait any more");
        self.session.send_detached(body);
    }
}

impl ServerSession for HttpSession {
    fn server_info(&self) -> &ServerInfo {
        &self.server_info
    }

    fn request<'a>(&'a self, ask: UpstreamRequest<'a>) -> BoxFuture<'a, Result<RpcOutcome, Fault>> {
        Box::pin(self.run_request(ask))
    }

    fn notify(&self, method: &str, params: Option<&[u8]>) {
        let mut body = Vec::new();
        ostler_wire::write_notification(&mut body, method, params);
        self.send_detached(body);
    }

    fn listen(&self, resources: &[String]) {
        if let TransportState::Modern { listen_streams: listening, .. } = &self.transport {
            listening.start(&self.state, &self.server_info, resources);
        }
    }

    fn notifies_changes(&self, kind: Kind) -> bool {
        match &self.transport {
            TransportState::Modern { listen_streams: listening, .. } => listening.is_notified_of(kind),
            TransportState::Legacy(agreed) => agreed.is_stream_open(),
            TransportState::Sse(_) => true,
        }
    }

    fn ended(&self) -> BoxFuture<'_, ServerFailure> {
        let mut lost = self.state.failure.subscribe();
        Box::pin(async move {
            match lost.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(failure)) => failure.clone(),
                Ok(None) | Err(_) => ServerFailure::new(FaultKind::Closed, Instant::now().into_std()),
            }
        })
    }

    fn close(&self, force: CloseMode) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.state.closed.send_replace(true);
            self.state.pending_calls.fail_all(&FaultKind::Retired);
            if let (TransportState::Legacy(agreed), CloseMode::Graceful) = (&self.transport, force)
                && self.state.failure.borrow().is_none()
                && agreed.has_id()
            {
                let _ = timeout(DELETE_TIMEOUT, self.state.client.delete(agreed.headers())).await;
            }
        })
    }

    fn stats(&self) -> SessionStats {
        let tally = &self.state.client.counters;
        SessionStats {
            skipped_lines: tally.skipped(),
            dropped_notifications: tally.dropped(),
            ..SessionStats::default()
        }
    }

    /// Reports a session without calls as heard from, so that it is not probed.
    fn activity(&self) -> (Option<Instant>, Option<Instant>) {
        match self.state.pending_calls.oldest() {
            Some(oldest) => (self.state.client.counters.last_heard().max(Some(oldest)), Some(oldest)),
            None => (Some(Instant::now()), None),
        }
    }
}
