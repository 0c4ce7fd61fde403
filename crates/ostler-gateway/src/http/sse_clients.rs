//! Clients of the HTTP+SSE transport of revision 2024-11-05: one stream for all answers, and a POST for each message.
//!
//! ```text
//! GET  /sse              ─ SseStream: endpoint event, then frames ◀── forward_frames ◀── StreamConnection
//! POST /sse?sessionId=ID ─ SseInbox (bounded) ─────────────────────────────────────────▶ StreamConnection
//! ```
//!
//! A session lasts as long as its stream: it can't be resumed, and its requests in flight are cancelled.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, Uri, header};
use http_body::Frame;
use ostler_core::caller::Caller;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::request_body::{self, is_json};
use super::response::{Payload, Response, no_randomness, overloaded, refuse};
use super::route::EndpointTransport;
use super::sse::{self, KeepAlive, LongStreamPermit, acquire_long_stream};
use super::{EndpointRequest, Peer, authenticate, check_head};
use crate::credential_lifetime::CredentialEnd;
use crate::gateway::{Gateway, GatewayShared};
use crate::server::StreamBacklog;
use crate::session_table;
use crate::stdio::StreamConnection;
use ostler_host::Scope;

/// Frames that wait for a client that reads slowly. Answers wait until there is space, notifications are dropped.
const MAX_QUEUED_SSE_FRAMES: usize = 64;

/// Frames between the frame channel and the response; small, since each is held in addition to the queue.
const PIPE_CAPACITY: usize = 4;

/// Time after which the stream of a client that reads nothing is ended.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout for the last answers to be sent when no further message can come.
const SSE_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Messages of one client that wait to be handled, which they do while its `initialize` is answered.
const INBOX_CAPACITY: usize = 64;

/// Parameter of the query that names the session.
const SESSION_PARAM: &str = "sessionId";

/// Connected clients, by the random ids of their sessions.
#[derive(Debug, Default)]
pub(crate) struct SseClients(Mutex<HashMap<Box<str>, Arc<SseInbox>>>);

/// Inbox: messages of one client on their way to its connection.
#[derive(Debug)]
struct SseInbox {
    /// Caller of the connection: only its requests are accepted.
    caller: Caller,
    scope: Scope,
    messages: mpsc::Sender<Bytes>,
    /// Bytes of the messages that wait.
    waiting_bytes: Arc<AtomicUsize>,
}

impl SseClients {
    /// Returns the number of connected clients.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn find(&self, id: &str) -> Option<Arc<SseInbox>> {
        self.lock().get(id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<SseInbox>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Registration of a connected client; removed when dropped.
struct ConnectedSseClient {
    gateway: Arc<GatewayShared>,
    id: Box<str>,
}

impl Drop for ConnectedSseClient {
    fn drop(&mut self) {
        let inbox = self.gateway.sse_clients.lock().remove(&self.id);
        drop(inbox);
    }
}

/// Answers one request of a client of 2024-11-05. `named` is the path that the client requested.
pub(super) async fn respond<B>(
    gateway: Gateway,
    (server, named): (Option<&str>, &Uri),
    peer: Peer,
    (parts, body): (Parts, B),
) -> Response
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let (visit, permit) = match check_head(gateway, (server, EndpointTransport::Sse), peer, parts).await {
        Ok(begun) => begun,
        Err(refusal) => return *refusal,
    };
    let response = match visit.method.clone() {
        Method::POST => match visit.lifetime.clone() {
            None => post(visit, named.query(), body).await,
            Some(pass) => tokio::select! {
                biased;
                response = post(visit, named.query(), body) => response,
                () = pass.revoked() => authenticate::revoked_response(),
            },
        },
        Method::GET => open_stream(visit, named.path()),
        _ => method_not_allowed(),
    };
    response.map(|payload| payload.with_permit(permit))
}

/// Opens the stream of a client. Its first event names the path for the client's messages.
fn open_stream(visit: EndpointRequest, path: &str) -> Response {
    if !visit.accepts.event_stream {
        let why = "this endpoint streams text/event-stream; the Accept header must name it";
        return refuse(StatusCode::NOT_ACCEPTABLE, why);
    }
    let place = match acquire_long_stream(&visit.gateway, &visit.caller, None) {
        Ok(place) => place,
        Err(refusal) => return *refusal,
    };
    let Some(id) = session_table::random_session_id() else {
        return no_randomness();
    };
    let EndpointRequest { gateway, connection, caller, scope, lifetime: pass, .. } = visit;
    let backlog = connection.and_then(|connection| connection.backlog.clone());
    let (messages, inbox) = mpsc::channel(INBOX_CAPACITY);
    let waiting = Arc::<AtomicUsize>::default();
    let known = SseInbox {
        caller: caller.clone(),
        scope: scope.clone(),
        messages,
        waiting_bytes: Arc::clone(&waiting),
    };
    gateway.0.sse_clients.lock().insert(id.clone(), Arc::new(known));
    let opening = format!("event: endpoint\ndata: {path}?{SESSION_PARAM}={id}\n\n");
    let connected = ConnectedSseClient { gateway: Arc::clone(&gateway.0), id };
    let keep_alive = KeepAlive::new(gateway.0.options.keep_alive);
    let (pipe, frames) = mpsc::channel(PIPE_CAPACITY);
    let mut running = JoinSet::new();
    running.spawn(serve_client(
        gateway,
        (caller, scope),
        SseMessages { inbox, waiting_bytes: waiting },
        (pipe, backlog),
    ));
    sse::respond(SseStream {
        endpoint_event: Some(opening.into()),
        frames,
        keep_alive,
        credential_end: CredentialEnd::for_long_stream(pass),
        _running: running,
        _connected: connected,
        _permit: place,
    })
}

/// Takes one message of a client whose stream is open.
async fn post<B>(visit: EndpointRequest, query: Option<&str>, body: B) -> Response
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let Some(id) = query_session_id(query.unwrap_or_default()) else { return method_not_allowed() };
    let found = visit.gateway.0.sse_clients.find(id);
    // A changed role is another caller: the rights were decided when the stream was opened.
    let is_ours = |inbox: &Arc<SseInbox>| {
        inbox.caller.principal() == visit.caller.principal()
            && inbox.caller.role() == visit.caller.role()
            && inbox.scope == visit.scope
    };
    let Some(inbox) = found.filter(is_ours) else {
        visit.record_unknown_session();
        let why =
            "there is no such session: its stream has ended, or was not read for 60 s; open another with GET";
        return refuse(StatusCode::NOT_FOUND, why);
    };
    if !is_json(&visit.headers) {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the Content-Type must be application/json");
    }
    let options = &visit.gateway.0.options;
    let message = match request_body::read_body(body, options.max_body, options.body_timeout).await {
        Ok(message) => message,
        Err(refusal) => return *refusal,
    };
    match inbox.put(message, options.max_body) {
        true => accepted(),
        false => overloaded("too many messages of this client wait for its session", None),
    }
}

impl SseInbox {
    /// Adds a message; false if too many bytes wait or the connection is ending. A message always fits into an empty
    /// inbox.
    fn put(&self, message: Bytes, most: usize) -> bool {
        let size = message.len();
        let before = self.waiting_bytes.fetch_add(size, Ordering::Relaxed);
        let is_put = (before == 0 || before + size <= most) && self.messages.try_send(message).is_ok();
        if !is_put {
            self.waiting_bytes.fetch_sub(size, Ordering::Relaxed);
        }
        is_put
    }
}

/// Returns the session that a query names.
fn query_session_id(query: &str) -> Option<&str> {
    let member = |part: &&str| part.strip_prefix(SESSION_PARAM).is_some_and(|rest| rest.starts_with('='));
    query.split('&').find(member).map(|part| &part[SESSION_PARAM.len() + 1..])
}

/// Returns the 405 for a POST without a session. Clients of later revisions try POST first, and GET after a 405.
fn method_not_allowed() -> Response {
    let why =
        "open a stream with GET and POST to the path that it names; clients of 2025-03-26 and later use /mcp";
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, why);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
    response
}

fn accepted() -> Response {
    let mut response = Response::new(Payload::whole("Accepted"));
    *response.status_mut() = StatusCode::ACCEPTED;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// Receiving end of an inbox.
struct SseMessages {
    inbox: mpsc::Receiver<Bytes>,
    waiting_bytes: Arc<AtomicUsize>,
}

impl SseMessages {
    async fn next(&mut self) -> Option<Bytes> {
        let message = self.inbox.recv().await?;
        self.waiting_bytes.fetch_sub(message.len(), Ordering::Relaxed);
        Some(message)
    }
}

/// Serves a client until the gateway drains or the client does not read. Dropped with the stream.
async fn serve_client(
    gateway: Gateway,
    (caller, scope): (Caller, Scope),
    received: SseMessages,
    (pipe, backlog): (mpsc::Sender<Bytes>, Option<StreamBacklog>),
) {
    let winding_up = gateway.0.is_draining.subscribe();
    let (line, frames) = mpsc::channel(MAX_QUEUED_SSE_FRAMES);
    let principal = caller.principal().to_owned();
    let link = StreamConnection::for_http(gateway, (caller, scope), line, backlog);
    let Some(mut link) = link else { return };
    let mut pumping = JoinSet::new();
    pumping.spawn(forward_frames(frames, pipe));
    tokio::select! {
        () = handle_messages(&mut link, received, winding_up) => {}
        _ = pumping.join_next() => {
            tracing::warn!(principal, "an SSE client has not read its stream for a minute, so it was ended");
        }
    }
    link.end().await;
    let _ = tokio::time::timeout(SSE_FLUSH_TIMEOUT, pumping.join_next()).await;
}

/// Handles messages as they arrive. When the gateway drains, requests in flight are answered first.
async fn handle_messages(
    link: &mut StreamConnection,
    mut received: SseMessages,
    mut winding_up: watch::Receiver<bool>,
) {
    let mut is_ending = false;
    while !is_ending || link.is_busy() {
        let may_take = !link.is_initializing() && !is_ending;
        tokio::select! {
            message = received.next(), if may_take => {
                let Some(message) = message else { return };
                if !link.handle_line(message).await {
                    return;
                }
            }
            () = link.join_next(), if link.is_busy() => {}
            () = draining_started(&mut winding_up), if !is_ending => {
                is_ending = true;
                link.close_input();
            }
        }
    }
}

/// Waits until the gateway drains. The guard of the watched value must not be held across another await.
async fn draining_started(winding_up: &mut watch::Receiver<bool>) {
    let _ = winding_up.wait_for(|is_so| *is_so).await;
}

/// Forwards frames to the response until the client stops reading them.
async fn forward_frames(mut frames: mpsc::Receiver<Bytes>, pipe: mpsc::Sender<Bytes>) {
    while let Some(frame) = frames.recv().await {
        if !matches!(tokio::time::timeout(UNREAD_TIMEOUT, pipe.send(frame)).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// Body of a client's stream.
struct SseStream {
    /// Event that names the path for messages.
    endpoint_event: Option<Bytes>,
    frames: mpsc::Receiver<Bytes>,
    keep_alive: KeepAlive,
    /// End of the credential that opened the stream; the stream ends with it.
    credential_end: CredentialEnd,
    _running: JoinSet<()>,
    _connected: ConnectedSseClient,
    _permit: LongStreamPermit,
}

impl http_body::Body for SseStream {
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
        if let Some(opening) = this.endpoint_event.take() {
            return Poll::Ready(Some(Ok(Frame::data(opening))));
        }
        match this.frames.poll_recv(cx) {
            Poll::Ready(Some(frame)) => {
                let mut out = Vec::new();
                sse::push_event(&mut out, &frame);
                while let Ok(frame) = this.frames.try_recv() {
                    sse::push_event(&mut out, &frame);
                }
                this.keep_alive.reset();
                Poll::Ready(Some(Ok(Frame::data(out.into()))))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => this.keep_alive.poll_comment(cx).map(|comment| Some(Ok(Frame::data(comment)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_everything_unread_for_a_minute_is_cut_off() {
        let (line, frames) = mpsc::channel(MAX_QUEUED_SSE_FRAMES);
        let (pipe, mut unread) = mpsc::channel(1);
        let began = tokio::time::Instant::now();
        let pumping = tokio::spawn(forward_frames(frames, pipe));
        for frame in ["1", "2", "3"] {
            line.send(frame.into()).await.unwrap();
        }
        tokio::time::sleep(UNREAD_TIMEOUT / 2).await;
        assert_eq!(unread.recv().await.unwrap(), "1", "a slow one is waited for");
        pumping.await.unwrap();
        assert_eq!(began.elapsed(), UNREAD_TIMEOUT / 2 + UNREAD_TIMEOUT);
        assert_eq!(unread.recv().await.unwrap(), "2");
        assert!(unread.recv().await.is_none(), "the stream ends");
    }

    #[test]
    fn a_query_names_its_session_wherever_it_stands() {
        assert_eq!(query_session_id("sessionId=ab12"), Some("ab12"));
        assert_eq!(query_session_id("x=1&sessionId=ab12&y"), Some("ab12"));
        for query in ["", "sessionId", "sessionIdx=1", "xsessionId=1"] {
            assert_eq!(query_session_id(query), None, "{query}");
        }
    }

    #[test]
    fn an_inbox_takes_one_message_of_any_size_and_then_so_many_bytes() {
        let (messages, mut inbox) = mpsc::channel(2);
        let waiting = Arc::<AtomicUsize>::default();
        let put = SseInbox {
            caller: Caller::local(),
            scope: Scope::All,
            messages,
            waiting_bytes: Arc::clone(&waiting),
        };
        assert!(put.put(Bytes::from_static(b"123456789"), 8));
        assert!(!put.put(Bytes::from_static(b"1"), 8), "too many bytes");
        let taken = inbox.try_recv().unwrap();
        waiting.fetch_sub(taken.len(), Ordering::Relaxed);
        assert!(put.put(Bytes::from_static(b"1"), 8) && put.put(Bytes::from_static(b"2"), 8));
        assert!(!put.put(Bytes::from_static(b"3"), 8), "too many messages");
        assert_eq!(waiting.load(Ordering::Relaxed), 2);
    }
}
