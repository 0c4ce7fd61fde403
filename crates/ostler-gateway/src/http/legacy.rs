//! Legacy requests over HTTP, which belong to a session: POST sends a message, GET opens a stream, DELETE ends the
//! session.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use http_body::Frame;
use ostler_wire::{RequestId, RpcOutcome, error_code};

use super::post::{FirstEvent, PendingReply, first_event};
use super::response::{
    PROTOCOL_VERSION, Response, SESSION_ID, empty, json, no_randomness, overloaded, refuse,
};
use super::sse::{self, KeepAlive, LongStream, LongStreamPermit, acquire_long_stream};
use super::{EndpointRequest, RpcRequest, method_not_allowed, server_not_found};
use crate::client_request::{ClientEra, ClientRequest, GatewayReply};
use crate::client_session::{ActiveSession, ClientSession, NewSession};
use crate::credential_lifetime::{CredentialEnd, unless_revoked};
use crate::dispatch::{self, dispatch_request};
use crate::frame_queue::{FrameQueue, FrameReader};
use crate::gateway::Gateway;
use crate::initialize_params::{InitializeParams, cancelled_request_id};
use crate::notification_sink::NotificationSink;
use crate::session_table;

/// Delay after which an answer becomes a stream, so that a client whose connection breaks can resume it. Most answers
/// are quicker and need no stream.
const STREAM_AFTER: Duration = Duration::from_millis(25);

/// First revision whose clients accept an event without a message.
const PRIMING_EVENT_SINCE: &str = "2025-11-25";

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Answers `initialize` and opens a session.
pub(super) async fn initialize(visit: EndpointRequest, ask: RpcRequest) -> Response {
    let RpcRequest { id, params, .. } = ask;
    let introduction = match InitializeParams::parse(&params) {
        Ok(introduction) => introduction,
        Err(refusal) => return json(StatusCode::BAD_REQUEST, &refusal, Some(&id)),
    };
    let EndpointRequest { gateway, caller, scope, .. } = visit;
    let reply = dispatch::initialize(&gateway, &caller, &scope, introduction.version).await;
    if !matches!(reply, GatewayReply::Result(_)) {
        return json(StatusCode::OK, &reply, Some(&id));
    }
    let Some(session_id) = session_table::random_session_id() else {
        return no_randomness();
    };
    let Ok(header) = HeaderValue::from_str(&session_id) else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "the session id is no header");
    };
    let said = gateway.0.sessions.intern(introduction);
    let session = ClientSession::new(NewSession {
        caller: caller.in_session(session_id),
        scope,
        initialize_params: said,
    });
    if gateway.0.sessions.add(&gateway, &session).is_err() {
        return overloaded("too many sessions are in use", Some(&id));
    }
    let mut response = json(StatusCode::OK, &reply, Some(&id));
    response.headers_mut().insert(SESSION_ID, header);
    response
}

/// Takes a notification of a session; returns a refusal if the message is not a valid notification.
pub(super) fn handle_notification(
    visit: &EndpointRequest,
    session: &ClientSession,
    method: &str,
    params: Option<&Bytes>,
) -> Result<(), GatewayReply> {
    dispatch::handle_notification(
        &visit.gateway,
        &visit.session_caller(session),
        session.scope(),
        method,
        params,
    )?;
    if method == "notifications/cancelled"
        && let Some(id) = cancelled_request_id(params)
    {
        session.requests.cancel(&id);
    }
    Ok(())
}

/// Takes the client's answer to a server request.
pub(super) fn handle_response(
    session: &ClientSession,
    id: Option<&RequestId>,
    outcome: RpcOutcome,
) -> Response {
    if let Some(id) = id {
        // The server request may be over, which is no error of the client.
        session.handle_response(id, outcome);
    }
    empty(StatusCode::ACCEPTED)
}

/// Answers a request of a session. A client that disconnects has not cancelled the request: it runs on, and its stream
/// can be resumed.
pub(super) async fn handle_request(
    visit: EndpointRequest,
    session: ActiveSession,
    ask: RpcRequest,
) -> Response {
    let id = ask.id.clone();
    if ask.method == "ping" {
        return json(StatusCode::OK, &GatewayReply::empty_result(), Some(&id));
    }
    let Some(queue) = session.requests.register(&id) else {
        return json(StatusCode::OK, &GatewayReply::overloaded(), Some(&id));
    };
    let (accepts, names_server) = (visit.accepts, visit.names_server);
    if !accepts.event_stream {
        queue.accept_only_answer();
    }
    let mut run = DetachOnDrop(Some(SessionRequestRun::new(&visit, session, ask, queue)));
    let Some(under_way) = run.0.as_mut() else { return empty(StatusCode::ACCEPTED) };
    match under_way.first_event(accepts.event_stream).await {
        FirstEvent::Reply(GatewayReply::UnknownServer(_)) if names_server => {
            drop(run.0.take());
            server_not_found()
        }
        FirstEvent::Reply(reply) if accepts.json && under_way.queue.is_empty() => {
            drop(run.0.take());
            json(StatusCode::OK, &reply, Some(&id))
        }
        FirstEvent::Reply(reply) => {
            under_way.pending = Box::pin(std::future::ready(reply));
            run.into_stream(visit.gateway)
        }
        FirstEvent::Frame => run.into_stream(visit.gateway),
        // Cancelled by the client, which therefore expects no answer.
        FirstEvent::Timeout => {
            drop(run.0.take());
            empty(StatusCode::ACCEPTED)
        }
    }
}

/// Request in flight, counted among those of its session.
struct SessionRequestRun {
    pending: PendingReply,
    session: ActiveSession,
    queue: Arc<FrameQueue>,
    id: RequestId,
}

impl SessionRequestRun {
    fn new(visit: &EndpointRequest, session: ActiveSession, ask: RpcRequest, queue: Arc<FrameQueue>) -> Self {
        let mut exchange = ClientRequest {
            caller: visit.session_caller(&session),
            scope: session.scope().clone(),
            client: ClientEra::Legacy(Arc::clone(&session)),
            id: ask.id.clone(),
            method: ask.method,
            params: ask.params,
            headers: None,
            sink: NotificationSink::for_queue(Arc::clone(&queue)),
            command_extensions: None,
        };
        let gateway: Gateway = visit.gateway.clone();
        // Boxed because it may have to move into a task of its own.
        let pass = visit.lifetime.clone();
        let pending =
            Box::pin(async move { unless_revoked(pass, dispatch_request(&gateway, &mut exchange)).await });
        Self { pending, session, queue, id: ask.id }
    }

    /// Returns the first event. `Timeout` means that the client has cancelled.
    async fn first_event(&mut self, may_stream: bool) -> FirstEvent {
        let Self { pending: answering, queue, .. } = self;
        let mut cancelled = false;
        let patience = if may_stream { STREAM_AFTER } else { Duration::MAX };
        let came = first_event(
            answering,
            |cx| {
                cancelled = queue.poll_cancelled(cx).is_ready();
                if cancelled { Poll::Ready(()) } else { queue.poll_ready(cx) }
            },
            patience,
        )
        .await;
        match came {
            _ if cancelled => FirstEvent::Timeout,
            FirstEvent::Timeout => FirstEvent::Frame,
            came => came,
        }
    }

    /// Runs to the end. The answer goes into the queue, from which the client may resume it.
    async fn run_to_end(mut self) {
        let reply = poll_fn(|cx| match self.queue.poll_cancelled(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => self.pending.as_mut().poll(cx).map(Some),
        })
        .await;
        self.queue.finish(reply.map(|reply| reply.frame(Some(&self.id)).into()));
    }
}

impl Drop for SessionRequestRun {
    fn drop(&mut self) {
        self.session.requests.unregister(&self.queue);
        // A request that panicked would leave a stream without an end.
        self.queue.finish(None);
    }
}

/// Guard that lets a run continue when its HTTP request is dropped.
struct DetachOnDrop(Option<SessionRequestRun>);

impl DetachOnDrop {
    /// Turns the response into a stream. The run gets a task of its own, so that it continues without a reader.
    fn into_stream(mut self, gateway: Gateway) -> Response {
        let Some(run) = self.0.take() else { return empty(StatusCode::ACCEPTED) };
        let keep_alive = gateway.0.options.keep_alive;
        let (session, queue) = (Arc::clone(&run.session), Arc::clone(&run.queue));
        let number = session.streams.make_resumable(&queue);
        let reader = queue.attach(None);
        let kept_for = Arc::clone(&session);
        tokio::spawn(async move {
            run.run_to_end().await;
            gateway.0.sessions.retain_answer(&kept_for, &queue);
        });
        SessionEventStream::for_request(session, reader, number, keep_alive).respond()
    }
}

impl Drop for DetachOnDrop {
    fn drop(&mut self) {
        // Without a runtime no task can run it; then it is cancelled.
        if let (Some(run), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(run.run_to_end());
        }
    }
}

/// Returns the error for parameters that can't be parsed.
pub(super) fn invalid_params(id: &RequestId, why: &dyn std::fmt::Display) -> Response {
    json(
        StatusCode::BAD_REQUEST,
        &GatewayReply::refusal(error_code::INVALID_PARAMS, &why.to_string()),
        Some(id),
    )
}

/// Opens a stream for frames that belong to no request, or resumes the stream of a request.
pub(super) fn open_stream(visit: EndpointRequest) -> Response {
    if visit.header(&PROTOCOL_VERSION) == Some(ostler_wire::MODERN_VERSION) {
        return method_not_allowed();
    }
    if !visit.accepts.event_stream {
        return refuse(
            StatusCode::NOT_ACCEPTABLE,
            "a GET stream is text/event-stream; the Accept header must name it",
        );
    }
    let session = match visit.session() {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    let place = match acquire_long_stream(&visit.gateway, &visit.caller, None) {
        Ok(place) => place,
        Err(refusal) => return *refusal,
    };
    let keep_alive = visit.gateway.0.options.keep_alive;
    let last = visit.header(&LAST_EVENT_ID).and_then(sse::parse_id);
    let (number, reader) = match last {
        Some((0, last)) => (0, session.streams.attach_general(Some(last))),
        Some((number, last)) => match session.streams.resume(number, last) {
            Some(reader) => (number, reader),
            // The stream was read to its end, or its client came too late.
            None => return refuse(StatusCode::NOT_FOUND, "this stream can't be resumed any more"),
        },
        None => (0, session.streams.attach_general(None)),
    };
    let over = CredentialEnd::for_long_stream(visit.lifetime);
    SessionEventStream::for_client(
        session,
        place,
        reader,
        ResumePoint { number, keep_alive, credential_end: over },
    )
    .respond()
}

/// Ends a session.
pub(super) fn end_session(visit: &EndpointRequest) -> Response {
    let session = match visit.session() {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    visit.gateway.0.sessions.remove(&visit.gateway, session.id());
    empty(StatusCode::NO_CONTENT)
}

/// Body of a stream of a legacy session.
pub(super) struct SessionEventStream {
    session: Arc<ClientSession>,
    reader: FrameReader,
    /// Number under which a client can resume the stream.
    number: Option<u64>,
    keep_alive: KeepAlive,
    /// Priming event, sent first.
    priming: Option<Bytes>,
    /// Held by streams that last: their permit, and the session in use.
    _held: Option<(LongStreamPermit, ActiveSession)>,
    is_long: bool,
    /// End of the credential that opened the stream; the stream ends with it.
    credential_end: CredentialEnd,
}

impl SessionEventStream {
    /// Makes the stream of one request.
    pub(super) fn for_request(
        session: Arc<ClientSession>,
        reader: FrameReader,
        number: Option<u64>,
        keep_alive: Duration,
    ) -> Self {
        let priming = priming_event(&session, &reader, number);
        let keep_alive = KeepAlive::new(keep_alive);
        Self {
            session,
            reader,
            number,
            keep_alive,
            priming,
            _held: None,
            is_long: false,
            credential_end: CredentialEnd::default(),
        }
    }

    /// Makes a stream that a client has opened with GET.
    pub(super) fn for_client(
        session: ActiveSession,
        place: LongStreamPermit,
        reader: FrameReader,
        resumed: ResumePoint,
    ) -> Self {
        let ResumePoint { number, keep_alive, credential_end } = resumed;
        Self {
            session: Arc::clone(&session),
            priming: priming_event(&session, &reader, Some(number)),
            reader,
            number: Some(number),
            keep_alive: KeepAlive::new(keep_alive),
            _held: Some((place, session)),
            is_long: number == 0,
            credential_end,
        }
    }

    pub(super) fn respond(self) -> Response {
        let is_long = self.is_long;
        let mut response = sse::respond(self);
        if is_long {
            response.extensions_mut().insert(LongStream);
        }
        response
    }
}

/// Returns the event with which a client can resume before its first message.
fn priming_event(session: &ClientSession, reader: &FrameReader, number: Option<u64>) -> Option<Bytes> {
    let number = number.filter(|_| session.version() >= PRIMING_EVENT_SINCE)?;
    let mut out = Vec::new();
    sse::push_priming(&mut out, number, reader.position());
    Some(out.into())
}

/// Position at which a stream is resumed.
pub(super) struct ResumePoint {
    pub(super) number: u64,
    pub(super) keep_alive: Duration,
    pub(super) credential_end: CredentialEnd,
}

impl http_body::Body for SessionEventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        if this.credential_end.has_ended(cx) {
            return Poll::Ready(None);
        }
        if let Some(opening) = this.priming.take() {
            return Poll::Ready(Some(Ok(Frame::data(opening))));
        }
        let mut out = Vec::new();
        loop {
            match this.reader.poll_next(cx) {
                Poll::Ready(Some((at, frame))) => match this.number {
                    Some(number) => sse::push_numbered(&mut out, number, at, &frame),
                    None => sse::push_event(&mut out, &frame),
                },
                Poll::Ready(None) if out.is_empty() => {
                    if this.reader.is_done() {
                        this.session.streams.discard(this.reader.queue());
                    }
                    return Poll::Ready(None);
                }
                _ if !out.is_empty() => {
                    this.keep_alive.reset();
                    return Poll::Ready(Some(Ok(Frame::data(out.into()))));
                }
                _ => return this.keep_alive.poll_comment(cx).map(|comment| Some(Ok(Frame::data(comment)))),
            }
        }
    }
}
