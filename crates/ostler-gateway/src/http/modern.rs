//! Modern requests over HTTP: everything in one exchange.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};
use http_body::Frame;
use ostler_core::caller::Caller;
use ostler_host::Host;
use ostler_wire::{Id, LISTEN, Params, code, headers};

use super::post::{Answering, First, first};
use super::response::{METHOD, NAME, PROTOCOL_VERSION, Response, json, modern_status, no_randomness};
use super::sse::{self, KeepAlive, LongPlace, LongStream, long_place};
use super::{Ask, Visit, authenticate, no_server};
use crate::answer::answer;
use crate::exchange::{Client, Exchange, Reply};
use crate::gateway::Gateway;
use crate::modern;
use crate::outlet::{Frames, Outlet};
use crate::pass::Over;
use crate::sessions;

/// Answers a modern request. Dropping the future, or the body of the response
/// it comes to, cancels the request: that is how modern clients cancel.
pub(super) async fn request(visit: Visit, ask: Ask) -> Response {
    let Ask { id, method, params } = ask;
    if let Err(why) = check_headers(&visit.headers, &method, &params) {
        let refusal = Reply::refusal(code::HEADER_MISMATCH, &why);
        return visit.unless_unfound(json(StatusCode::BAD_REQUEST, &refusal, Some(&id)));
    }
    if let Err(refusal) = modern::check(&method, &params) {
        let status = match modern_status(&refusal) {
            StatusCode::OK => StatusCode::BAD_REQUEST,
            status => status,
        };
        return visit.unless_unfound(json(status, &refusal, Some(&id)));
    }
    let place = match method == LISTEN {
        false => None,
        true => match long_place(&visit.gateway, &visit.caller, Some(&id)) {
            Ok(place) => Some(place),
            Err(refusal) => return *refusal,
        },
    };
    let (outlet, mut frames) = Outlet::new();
    let Visit { gateway, connection, caller, pass, scope, names_server, headers, accepts, .. } = visit;
    let Some(caller) = ClientConnection::session_of(connection.as_ref(), &gateway, caller) else {
        return no_randomness();
    };
    let keep_alive = gateway.0.options.keep_alive;
    let mut exchange = Exchange {
        caller,
        scope,
        client: Client::Modern,
        id: id.clone(),
        method,
        params,
        headers: Some(headers),
        outlet,
        commands: None,
    };
    // Boxed because it may have to move into the body of the response.
    let revocable = pass.clone();
    let mut answering: Answering =
        Box::pin(
            async move { authenticate::unless_revoked(revocable, answer(&gateway, &mut exchange)).await },
        );
    if !accepts.events {
        drop(frames);
        return respond(&answering.await, &id, names_server);
    }
    let answering = match first(&mut answering, |cx| frames.poll_ready(cx), keep_alive).await {
        First::Answer(Reply::NoServer(_)) if names_server => return no_server(),
        First::Answer(reply) if accepts.json && frames.is_empty() => {
            return respond(&reply, &id, names_server);
        }
        First::Answer(reply) => Box::pin(std::future::ready(reply)),
        First::Frame | First::Silence => answering,
    };
    let over = if place.is_some() { Over::of_long(pass) } else { Over::default() };
    let keep_alive = KeepAlive::new(keep_alive);
    Stream { answering: Some(answering), frames, id, keep_alive, place, over }.respond()
}

fn respond(reply: &Reply, id: &Id, names_server: bool) -> Response {
    match reply {
        Reply::NoServer(_) if names_server => no_server(),
        _ => json(modern_status(reply), reply, Some(id)),
    }
}

/// The headers repeat what the body says, so that proxies can route without
/// reading it; who contradicts itself is refused.
fn check_headers(said: &HeaderMap, method: &str, params: &Params) -> Result<(), String> {
    let is_ours = modern::speaks_ours(params);
    let version = if is_ours { Some(ostler_wire::MODERN_VERSION.into()) } else { modern::version(params) };
    // A version that is no text is refused later, by what it lacks.
    if let Some(version) = version {
        check_header(said, &PROTOCOL_VERSION, &version)?;
    }
    check_header(said, &METHOD, method)?;
    match headers::name_of(method, params) {
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

/// The body of a modern response that streams: frames, then the answer.
struct Stream {
    /// `None` once the answer is out.
    answering: Option<Answering>,
    frames: Frames,
    id: Id,
    keep_alive: KeepAlive,
    /// The place of a listen among the long streams.
    place: Option<LongPlace>,
    /// The end of the caller's credential, and then of the stream.
    over: Over,
}

impl Stream {
    fn respond(self) -> Response {
        let is_long = self.place.is_some();
        let mut response = sse::respond(self);
        if is_long {
            response.extensions_mut().insert(LongStream);
        }
        response
    }

    fn last_event(&self, reply: &Reply) -> Vec<u8> {
        let mut out = Vec::new();
        sse::begin_event(&mut out);
        reply.write(&mut out, Some(&self.id));
        out.push(b'\n');
        out
    }
}

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let Some(answering) = &mut this.answering else { return Poll::Ready(None) };
        if this.over.has_come(cx) {
            // Dropped now, so that the request is cancelled even if nobody drops the body.
            this.answering = None;
            // A listen has no answer to wait for; its end says enough.
            return Poll::Ready(None);
        }
        let reply = answering.as_mut().poll(cx);
        let mut out = Vec::new();
        while let Some(frame) = this.frames.try_recv() {
            sse::push_event(&mut out, &frame);
        }
        if let Poll::Ready(reply) = reply {
            this.answering = None;
            out.extend(this.last_event(&reply));
        }
        if !out.is_empty() {
            this.keep_alive.spoke();
            return Poll::Ready(Some(Ok(Frame::data(out.into()))));
        }
        if this.frames.poll_ready(cx).is_ready() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.keep_alive.poll_comment(cx).map(|comment| Some(Ok(Frame::data(comment))))
    }

    fn is_end_stream(&self) -> bool {
        self.answering.is_none()
    }
}

/// A connection as the session of modern requests without a credential. Dropped when it has ended, which ends the session.
#[derive(Debug, Default)]
pub(crate) struct ClientConnection {
    /// Begun by the first request that needs it.
    session: OnceLock<(Host, Caller)>,
}

impl ClientConnection {
    /// Puts the caller of a modern request into a session. A credential is one client's, over how many connections its
    /// requests may come, and its principal tells it from others. Callers without one are all `local`: those are told apart
    /// by their connections, which nobody can choose.
    /// `None` on a machine without randomness.
    pub(super) fn session_of(
        connection: Option<&Arc<Self>>,
        gateway: &Gateway,
        caller: Caller,
    ) -> Option<Caller> {
        let Some(connection) = connection.filter(|_| caller.is_local()) else { return Some(caller) };
        let known = match connection.session.get() {
            Some(known) => known,
            None => {
                let id = sessions::fresh_id()?;
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
