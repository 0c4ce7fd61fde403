//! POST: one message, whose era is told here, and what comes first of its answer.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use ostler_wire::{MODERN_VERSION, Malformed, Message, Params, code};

use super::request::{self, is_json};
use super::response::{PROTOCOL_VERSION, Response, SESSION_ID, empty, json, refuse};
use super::{Ask, Visit, authenticate, batch, legacy, modern};
use crate::answer;
use crate::exchange::Reply;

pub(super) async fn post<B>(visit: Visit, body: B) -> Response
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let body = match read(&visit, body).await {
        Ok(body) => body,
        Err(refusal) => return visit.unless_unfound(*refusal),
    };
    let message = Message::parse(body.clone());
    if !matches!(message, Ok(Message::Request { .. }))
        && let Err(unfound) = visit.check_server()
    {
        return *unfound;
    }
    match message {
        Ok(Message::Request { id, method, params }) => {
            match params.map_or(Ok(Params::empty()), Params::parse) {
                Ok(params) => ask(visit, Ask { id, method, params }).await,
                Err(why) => visit.unless_unfound(legacy::bad_params(&id, &why)),
            }
        }
        Ok(Message::Notification { method, params }) => notification(&visit, &method, params),
        Ok(Message::Response { id, outcome }) => match visit.session() {
            Ok(session) => legacy::answered(&session, id.as_ref(), outcome),
            Err(refusal) => *refusal,
        },
        Err(Malformed::Batch) => Box::pin(batch::post(visit, body)).await,
        Err(why) => malformed(&why),
    }
}

/// Reads the body of a message.
async fn read<B>(visit: &Visit, body: B) -> Result<Bytes, Box<Response>>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    if !is_json(&visit.headers) {
        let why = "the Content-Type must be application/json";
        return Err(Box::new(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, why)));
    }
    if !visit.accepts.json && !visit.accepts.events {
        let why = "answers are application/json or text/event-stream; the Accept header must name them";
        return Err(Box::new(refuse(StatusCode::NOT_ACCEPTABLE, why)));
    }
    let options = &visit.gateway.0.options;
    let reading = request::read(body, options.max_body, options.body_timeout);
    let Some(pass) = &visit.pass else { return reading.await };
    tokio::select! {
        biased;
        read = reading => read,
        () = pass.revoked() => Err(Box::new(authenticate::taken_back())),
    }
}

/// The era is told before the method is looked at: whoever names a modern
/// version in `_meta` is modern, also when it says `initialize`.
async fn ask(visit: Visit, ask: Ask) -> Response {
    if !answer::is_judged(&ask.method)
        && let Err(unfound) = visit.check_server()
    {
        return *unfound;
    }
    if ask.params.has_modern_meta() {
        return modern::request(visit, ask).await;
    }
    if claims_modern(&visit) {
        let refusal = json(StatusCode::BAD_REQUEST, &crate::modern::lacks_meta(), Some(&ask.id));
        return visit.unless_unfound(refusal);
    }
    if ask.method == "initialize" {
        return Box::pin(legacy::initialize(visit, ask)).await;
    }
    match visit.session() {
        Ok(session) => legacy::request(visit, session, ask).await,
        Err(refusal) => *refusal,
    }
}

fn notification(visit: &Visit, method: &str, params: Option<Bytes>) -> Response {
    let is_modern = || {
        params.clone().and_then(|raw| Params::parse(raw).ok()).is_some_and(|params| params.has_modern_meta())
    };
    let taken = match claims_modern(visit) || is_modern() {
        true => answer::notified(&visit.gateway, &visit.caller, &visit.scope, method, params.as_ref()),
        false => match visit.session() {
            Ok(session) => legacy::notified(visit, &session, method, params.as_ref()),
            Err(refusal) => return *refusal,
        },
    };
    match taken {
        Ok(()) => empty(StatusCode::ACCEPTED),
        Err(refusal) => json(StatusCode::BAD_REQUEST, &refusal, None),
    }
}

/// Whether the headers say that the message is a modern one.
fn claims_modern(visit: &Visit) -> bool {
    visit.header(&PROTOCOL_VERSION) == Some(MODERN_VERSION) && !visit.headers.contains_key(SESSION_ID)
}

fn malformed(why: &Malformed) -> Response {
    let code = match why {
        Malformed::NotUtf8 | Malformed::NotJson { .. } => code::PARSE_ERROR,
        _ => code::INVALID_REQUEST,
    };
    json(StatusCode::BAD_REQUEST, &Reply::refusal(code, &why.to_string()), None)
}

/// A request that is being answered.
pub(super) type Answering = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// What came first.
pub(super) enum First {
    /// Frames may have come with it, which go before it.
    Answer(Reply),
    /// There is something to say before the answer.
    Frame,
    /// Nothing for a while.
    Silence,
}

/// Waits for the answer, for `ready`, or for the time to be over.
pub(super) async fn first(
    answering: &mut Answering,
    mut ready: impl FnMut(&mut Context<'_>) -> Poll<()>,
    patience: Duration,
) -> First {
    let mut silence = pin!(tokio::time::sleep(patience));
    poll_fn(|cx| {
        if let Poll::Ready(reply) = answering.as_mut().poll(cx) {
            return Poll::Ready(First::Answer(reply));
        }
        if ready(cx).is_ready() {
            return Poll::Ready(First::Frame);
        }
        silence.as_mut().poll(cx).map(|()| First::Silence)
    })
    .await
}
