//! Modern requests over HTTP: one request and its response, without a session.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};
use http_body::Frame;
use ostler_core::caller::Caller;
use ostler_host::Host;
use ostler_wire::{Params, RequestId, SUBSCRIPTIONS_LISTEN, error_code, headers};

use super::post::{FirstEvent, PendingReply, first_event};
use super::response::{METHOD, NAME, PROTOCOL_VERSION, Response, json, modern_status, no_randomness};
use super::sse::{self, KeepAlive, LongStream, LongStreamPermit, acquire_long_stream};
use super::{EndpointRequest, RpcRequest, server_not_found};
use crate::client_request::{ClientEra, ClientRequest, GatewayReply};
use crate::credential_lifetime::{CredentialEnd, unless_revoked};
use crate::dispatch::dispatch_request;
use crate::gateway::Gateway;
use crate::modern_meta;
use crate::notification_sink::{FrameReceiver, NotificationSink};
use crate::server::StreamBacklog;
use crate::session_table;

/// Answers a modern request. Dropping the future, or the body of its response, cancels the request: that is the
/// cancellation of modern clients.
pub(super) async fn handle_request(visit: EndpointRequest, ask: RpcRequest) -> Response {
    let RpcRequest { id, method, params } = ask;
    if let Err(why) = check_headers(&visit.headers, &method, &params) {
        let refusal = GatewayReply::refusal(error_code::HEADER_MISMATCH, &why);
        return visit.refusal_unless_hidden(json(StatusCode::BAD_REQUEST, &refusal, Some(&id)));
    }
    if let Err(refusal) = modern_meta::check(&method, &params) {
        let status = match modern_status(&refusal) {
            StatusCode::OK => StatusCode::BAD_REQUEST,
            status => status,
        };
        return visit.refusal_unless_hidden(json(status, &refusal, Some(&id)));
    }
    let place = match method == SUBSCRIPTIONS_LISTEN {
        false => None,
        true => match acquire_long_stream(&visit.gateway, &visit.caller, Some(&id)) {
            Ok(place) => Some(place),
            Err(refusal) => return *refusal,
        },
    };
    let (outlet, mut frames) = NotificationSink::new();
    let EndpointRequest {
        gateway,
        connection,
        caller,
        lifetime: pass,
        scope,
        names_server,
        headers,
        accepts,
        ..
    } = visit;
    let Some(caller) = ClientConnection::caller_in_session(connection.as_ref(), &gateway, caller) else {
        return no_randomness();
    };
    let keep_alive = gateway.0.options.keep_alive;
    let mut exchange = ClientRequest {
        caller,
        scope,
        client: ClientEra::Modern,
        id: id.clone(),
        method,
        params,
        headers: Some(headers),
        sink: outlet,
        command_extensions: None,
    };
    // Boxed because it may have to move into the body of the response.
    let revocable = pass.clone();
    let mut answering: PendingReply =
        Box::pin(async move { unless_revoked(revocable, dispatch_request(&gateway, &mut exchange)).await });
    if !accepts.event_stream {
        drop(frames);
        return json_response(&answering.await, &id, names_server);
    }
    let answering = match first_event(&mut answering, |cx| frames.poll_ready(cx), keep_alive).await {
        FirstEvent::Reply(GatewayReply::UnknownServer(_)) if names_server => return server_not_found(),
        FirstEvent::Reply(reply) if accepts.json && frames.is_empty() => {
            return json_response(&reply, &id, names_server);
        }
        FirstEvent::Reply(reply) => Box::pin(std::future::ready(reply)),
        FirstEvent::Frame | FirstEvent::Timeout => answering,
    };
    let over = if place.is_some() { CredentialEnd::for_long_stream(pass) } else { CredentialEnd::default() };
    let keep_alive = KeepAlive::new(keep_alive);
    ModernStream { pending: Some(answering), frames, id, keep_alive, permit: place, credential_end: over }
        .respond()
}

fn json_response(reply: &GatewayReply, id: &RequestId, names_server: bool) -> Response {
    match reply {
        GatewayReply::UnknownServer(_) if names_server => server_not_found(),
        _ => json(modern_status(reply), reply, Some(id)),
    }
}

/// Checks that the headers repeat the body, so that proxies can route without reading it. Refuses a request whose
/// headers and body differ.
fn check_headers(said: &HeaderMap, method: &str, params: &Params) -> Result<(), String> {
    let is_ours = modern_meta::is_current_version(params);
    let version = if is_ours {
        Some(ostler_wire::MODERN_VERSION.into())
    } else {
        modern_meta::protocol_version(params)
    };
    // A version that is not a string is refused later, as missing.
    if let Some(version) = version {
        check_header(said, &PROTOCOL_VERSION, &version)?;
    }
    check_header(said, &METHOD, method)?;
    match headers::mcp_name(method, params) {
        Some(name) => check_header(said, &NAME, &name),
        None => Ok(()),
    }
}

fn check_header(said: &HeaderMap, header: &HeaderName, wanted: &str) -> Result<(), String> {
    let mut values = said.get_all(header).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(format!("the header {header} must be there, once"));
    };
    let value = value.to_str().ok().and_then(|value| headers::decode_value(value.trim()).ok());
    match value {
        Some(value) if value == wanted => Ok(()),
        Some(value) => Err(format!("the header {header} says {value:?}, the body says {wanted:?}")),
        None => Err(format!("the header {header} can't be read")),
    }
}

/// Body of a modern response that streams: frames, then the answer.
struct ModernStream {
    /// `None` once the answer is sent.
    pending: Option<PendingReply>,
    frames: FrameReceiver,
    id: RequestId,
    keep_alive: KeepAlive,
    /// Permit of a listen among the long streams.
    permit: Option<LongStreamPermit>,
    /// End of the caller's credential; the stream ends with it.
    credential_end: CredentialEnd,
}

impl ModernStream {
    fn respond(self) -> Response {
        let is_long = self.permit.is_some();
        let mut response = sse::respond(self);
        if is_long {
            response.extensions_mut().insert(LongStream);
        }
        response
    }

    fn last_event(&self, reply: &GatewayReply) -> Vec<u8> {
        let mut out = Vec::new();
        sse::begin_event(&mut out);
        reply.write(&mut out, Some(&self.id));
        out.push(b'\n');
        out
    }
}

impl http_body::Body for ModernStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let Some(answering) = &mut this.pending else { return Poll::Ready(None) };
        if this.credential_end.has_ended(cx) {
            // Dropped now, so that the request is cancelled even if the body is not dropped.
            this.pending = None;
            // A listen has no answer; the end of its stream says enough.
            return Poll::Ready(None);
        }
        let reply = answering.as_mut().poll(cx);
        let mut out = Vec::new();
        while let Some(frame) = this.frames.try_recv() {
            sse::push_event(&mut out, &frame);
        }
        if let Poll::Ready(reply) = reply {
            this.pending = None;
            out.extend(this.last_event(&reply));
        }
        if !out.is_empty() {
            this.keep_alive.reset();
            return Poll::Ready(Some(Ok(Frame::data(out.into()))));
        }
        if this.frames.poll_ready(cx).is_ready() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.keep_alive.poll_comment(cx).map(|comment| Some(Ok(Frame::data(comment))))
    }

    fn is_end_stream(&self) -> bool {
        self.pending.is_none()
    }
}

/// Connection as the session of modern requests without a credential. The session ends when the connection is dropped.
#[derive(Debug, Default)]
pub(crate) struct ClientConnection {
    /// Opened by the first request that needs it.
    session: OnceLock<(Host, Caller)>,
    /// Counter of bytes that wait for its streams; `None` if another program serves the connection.
    pub(super) backlog: Option<StreamBacklog>,
}

impl ClientConnection {
    pub(crate) fn new(backlog: StreamBacklog) -> Self {
        Self { session: OnceLock::new(), backlog: Some(backlog) }
    }

    /// Puts the caller of a modern request into a session. A credential belongs to one client, whose requests may use
    /// many connections, and its principal identifies it. Callers without a credential are all `local`: they are told
    /// apart by their connections, which a client can't choose. `None` on a machine without randomness.
    pub(super) fn caller_in_session(
        connection: Option<&Arc<Self>>,
        gateway: &Gateway,
        caller: Caller,
    ) -> Option<Caller> {
        let Some(connection) = connection.filter(|_| caller.is_local()) else { return Some(caller) };
        let known = match connection.session.get() {
            Some(known) => known,
            None => {
                let id = session_table::random_session_id()?;
                connection.session.get_or_init(|| (gateway.0.host.clone(), caller.clone().in_session(id)))
            }
        };
        Some(caller.in_session_of(&known.1))
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        if let Some((host, caller)) = self.session.get() {
            host.end_session(caller);
        }
    }
}
