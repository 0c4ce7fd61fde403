//! Legacy requests over HTTP, which belong to a session: POST asks, GET streams, DELETE ends it.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use http_body::Frame;
use ostler_wire::{Id, Outcome, code};

use super::post::{Answering, First, first};
use super::response::{
    PROTOCOL_VERSION, Response, SESSION_ID, empty, json, no_randomness, overloaded, refuse,
};
use super::sse::{self, KeepAlive, LongPlace, LongStream, long_place};
use super::{Ask, Visit, authenticate, no_server, not_allowed};
use crate::answer::{self, answer};
use crate::exchange::{Client, Exchange, Reply};
use crate::gateway::Gateway;
use crate::opening::{Introduction, cancelled_id};
use crate::outlet::Outlet;
use crate::pass::Over;
use crate::queue::{Queue, Reader};
use crate::session::{InUse, Opening, Session};
use crate::sessions;

/// An answer that takes longer than this becomes a stream, so that a client
/// whose connection breaks can come back for it. Most answers are quicker and
/// then cost no stream.
const STREAM_AFTER: Duration = Duration::from_millis(25);

/// The first revision whose clients understand an event without a message.
const PRIMES_SINCE: &str = "2025-11-25";

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Answers `initialize` and opens a session.
pub(super) async fn initialize(visit: Visit, ask: Ask) -> Response {
    let Ask { id, params, .. } = ask;
    let introduction = match Introduction::read(&params) {
        Ok(introduction) => introduction,
        Err(refusal) => return json(StatusCode::BAD_REQUEST, &refusal, Some(&id)),
    };
    let Visit { gateway, caller, scope, .. } = visit;
    let reply = answer::initialize(&gateway, &caller, &scope, introduction.version).await;
    if !matches!(reply, Reply::Result(_)) {
        return json(StatusCode::OK, &reply, Some(&id));
    }
    let Some(session_id) = sessions::fresh_id() else {
        return no_randomness();
    };
    let Ok(header) = HeaderValue::from_str(&session_id) else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "the session id is no header");
    };
    let said = gateway.0.sessions.share(introduction);
    let session = Session::new(Opening { caller: caller.in_session(session_id), scope, said });
    if gateway.0.sessions.add(&gateway, &session).is_err() {
        return overloaded("too many sessions are in use", Some(&id));
    }
    let mut response = json(StatusCode::OK, &reply, Some(&id));
    response.headers_mut().insert(SESSION_ID, header);
    response
}

/// Takes a notification of a session; the refusal of what is none.
pub(super) fn notified(
    visit: &Visit,
    session: &Session,
    method: &str,
    params: Option<&Bytes>,
) -> Result<(), Reply> {
    answer::notified(&visit.gateway, &visit.caller_of(session), session.scope(), method, params)?;
    if method == "notifications/cancelled"
        && let Some(id) = cancelled_id(params)
    {
        session.calls.cancel(&id);
    }
    Ok(())
}

/// Takes an answer to a question of ours.
pub(super) fn answered(session: &Session, id: Option<&Id>, outcome: Outcome) -> Response {
    if let Some(id) = id {
        // Nobody may wait any more, which is no fault of the client.
        session.answered(id, outcome);
    }
    empty(StatusCode::ACCEPTED)
}

/// Answers a request of a session. A client that goes away has not cancelled
/// it: the request runs on, and its stream can be resumed.
pub(super) async fn request(visit: Visit, session: InUse, ask: Ask) -> Response {
    let id = ask.id.clone();
    if ask.method == "ping" {
        return json(StatusCode::OK, &Reply::nothing(), Some(&id));
    }
    let Some(queue) = session.calls.enter(&id) else {
        return json(StatusCode::OK, &Reply::overloaded(), Some(&id));
    };
    let (accepts, names_server) = (visit.accepts, visit.names_server);
    if !accepts.events {
        queue.mute();
    }
    let mut run = Detached(Some(Run::new(&visit, session, ask, queue)));
    let Some(under_way) = run.0.as_mut() else { return empty(StatusCode::ACCEPTED) };
    match under_way.first(accepts.events).await {
        First::Answer(Reply::NoServer(_)) if names_server => {
            drop(run.0.take());
            no_server()
        }
        First::Answer(reply) if accepts.json && under_way.queue.is_empty() => {
            drop(run.0.take());
            json(StatusCode::OK, &reply, Some(&id))
        }
        First::Answer(reply) => {
            under_way.answering = Box::pin(std::future::ready(reply));
            run.stream(visit.gateway)
        }
        First::Frame => run.stream(visit.gateway),
        // Cancelled by the client, which therefore expects no answer.
        First::Silence => {
            drop(run.0.take());
            empty(StatusCode::ACCEPTED)
        }
    }
}

/// A request that is being answered, counted among those of its session.
struct Run {
    answering: Answering,
    session: InUse,
    queue: Arc<Queue>,
    id: Id,
}

impl Run {
    fn new(visit: &Visit, session: InUse, ask: Ask, queue: Arc<Queue>) -> Self {
        let mut exchange = Exchange {
            caller: visit.caller_of(&session),
            scope: session.scope().clone(),
            client: Client::Legacy(Arc::clone(&session)),
            id: ask.id.clone(),
            method: ask.method,
            params: ask.params,
            headers: None,
            outlet: Outlet::into_queue(Arc::clone(&queue)),
            commands: None,
        };
        let gateway: Gateway = visit.gateway.clone();
        // Boxed because it may have to move into a task of its own.
        let pass = visit.pass.clone();
        let answering =
            Box::pin(
                async move { authenticate::unless_revoked(pass, answer(&gateway, &mut exchange)).await },
            );
        Self { answering, session, queue, id: ask.id }
    }

    /// What comes first. `Silence` means that the client has cancelled.
    async fn first(&mut self, may_stream: bool) -> First {
        let Self { answering, queue, .. } = self;
        let mut cancelled = false;
        let patience = if may_stream { STREAM_AFTER } else { Duration::MAX };
        let came = first(
            answering,
            |cx| {
                cancelled = queue.poll_cancelled(cx).is_ready();
                if cancelled { Poll::Ready(()) } else { queue.poll_ready(cx) }
            },
            patience,
        )
        .await;
        match came {
            _ if cancelled => First::Silence,
            First::Silence => First::Frame,
            came => came,
        }
    }

    /// Runs to the end. The answer goes into the queue, where somebody may
    /// come for it.
    async fn conclude(mut self) {
        let reply = poll_fn(|cx| match self.queue.poll_cancelled(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => self.answering.as_mut().poll(cx).map(Some),
        })
        .await;
        self.queue.finish(reply.map(|reply| reply.frame(Some(&self.id)).into()));
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.session.calls.leave(&self.queue);
        // One that broke leaves a stream that nothing would end.
        self.queue.finish(None);
    }
}

/// Lets a run go on when its HTTP request is dropped.
struct Detached(Option<Run>);

impl Detached {
    /// Turns the response into a stream. The run gets a task of its own, so
    /// that it goes on without a reader.
    fn stream(mut self, gateway: Gateway) -> Response {
        let Some(run) = self.0.take() else { return empty(StatusCode::ACCEPTED) };
        let keep_alive = gateway.0.options.keep_alive;
        let (session, queue) = (Arc::clone(&run.session), Arc::clone(&run.queue));
        let number = session.streams.keep(&queue);
        let reader = queue.attach(None);
        let kept_for = Arc::clone(&session);
        tokio::spawn(async move {
            run.conclude().await;
            gateway.0.sessions.keep_answer(&kept_for, &queue);
        });
        Events::of_request(session, reader, number, keep_alive).respond()
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        // Without a runtime there is nobody to run it; then it is cancelled.
        if let (Some(run), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(run.conclude());
        }
    }
}

/// What is said when parameters can't be read.
pub(super) fn bad_params(id: &Id, why: &dyn std::fmt::Display) -> Response {
    json(StatusCode::BAD_REQUEST, &Reply::refusal(code::INVALID_PARAMS, &why.to_string()), Some(id))
}

/// Opens a stream for frames that belong to no request, or reads the stream
/// of a request on.
pub(super) fn get(visit: Visit) -> Response {
    if visit.header(&PROTOCOL_VERSION) == Some(ostler_wire::MODERN_VERSION) {
        return not_allowed();
    }
    if !visit.accepts.events {
        return refuse(
            StatusCode::NOT_ACCEPTABLE,
            "a GET stream is text/event-stream; the Accept header must name it",
        );
    }
    let session = match visit.session() {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    let place = match long_place(&visit.gateway, &visit.caller, None) {
        Ok(place) => place,
        Err(refusal) => return *refusal,
    };
    let keep_alive = visit.gateway.0.options.keep_alive;
    let last = visit.header(&LAST_EVENT_ID).and_then(sse::parse_id);
    let (number, reader) = match last {
        Some((0, last)) => (0, session.streams.listen(Some(last))),
        Some((number, last)) => match session.streams.resume(number, last) {
            Some(reader) => (number, reader),
            // The stream is over and was read, or its client came too late.
            None => return refuse(StatusCode::NOT_FOUND, "this stream can't be resumed any more"),
        },
        None => (0, session.streams.listen(None)),
    };
    let over = Over::of_long(visit.pass);
    Events::opened(session, place, reader, Resumed { number, keep_alive, over }).respond()
}

/// Ends a session.
pub(super) fn delete(visit: &Visit) -> Response {
    let session = match visit.session() {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    visit.gateway.0.sessions.remove(&visit.gateway, session.id());
    empty(StatusCode::NO_CONTENT)
}

/// The body of a stream of a legacy session.
pub(super) struct Events {
    session: Arc<Session>,
    reader: Reader,
    /// Under which number a client can resume it.
    number: Option<u64>,
    keep_alive: KeepAlive,
    /// What is said before anything else.
    opening: Option<Bytes>,
    /// Kept by streams that last: their place, and the session in use.
    _held: Option<(LongPlace, InUse)>,
    is_long: bool,
    /// The end of the credential it was opened with, and then of the stream.
    over: Over,
}

impl Events {
    /// The stream of one request.
    pub(super) fn of_request(
        session: Arc<Session>,
        reader: Reader,
        number: Option<u64>,
        keep_alive: Duration,
    ) -> Self {
        let opening = priming(&session, &reader, number);
        let keep_alive = KeepAlive::new(keep_alive);
        Self {
            session,
            reader,
            number,
            keep_alive,
            opening,
            _held: None,
            is_long: false,
            over: Over::default(),
        }
    }

    /// A stream that a client has opened by itself.
    pub(super) fn opened(session: InUse, place: LongPlace, reader: Reader, resumed: Resumed) -> Self {
        let Resumed { number, keep_alive, over } = resumed;
        Self {
            session: Arc::clone(&session),
            opening: priming(&session, &reader, Some(number)),
            reader,
            number: Some(number),
            keep_alive: KeepAlive::new(keep_alive),
            _held: Some((place, session)),
            is_long: number == 0,
            over,
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

/// What lets a client come back before it has got a message.
fn priming(session: &Session, reader: &Reader, number: Option<u64>) -> Option<Bytes> {
    let number = number.filter(|_| session.version() >= PRIMES_SINCE)?;
    let mut out = Vec::new();
    sse::push_priming(&mut out, number, reader.position());
    Some(out.into())
}

/// Which stream is read on.
pub(super) struct Resumed {
    pub(super) number: u64,
    pub(super) keep_alive: Duration,
    pub(super) over: Over,
}

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        if this.over.has_come(cx) {
            return Poll::Ready(None);
        }
        if let Some(opening) = this.opening.take() {
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
                        this.session.streams.forget(this.reader.queue());
                    }
                    return Poll::Ready(None);
                }
                _ if !out.is_empty() => {
                    this.keep_alive.spoke();
                    return Poll::Ready(Some(Ok(Frame::data(out.into()))));
                }
                _ => return this.keep_alive.poll_comment(cx).map(|comment| Some(Ok(Frame::data(comment)))),
            }
        }
    }
}
