//! POST: parses one message, tells its era, and waits for the first event of its answer.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use ostler_wire::{MODERN_VERSION, Message, MessageError, Params, error_code};

use super::request_body::{self, is_json};
use super::response::{PROTOCOL_VERSION, Response, SESSION_ID, empty, json, refuse};
use super::{EndpointRequest, RpcRequest, authenticate, batch, legacy, modern};
use crate::client_request::GatewayReply;
use crate::dispatch;

pub(super) async fn post<B>(visit: EndpointRequest, body: B) -> Response
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let body = match read_body(&visit, body).await {
        Ok(body) => body,
        Err(refusal) => return visit.refusal_unless_hidden(*refusal),
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
                Ok(params) => handle_request(visit, RpcRequest { id, method, params }).await,
                Err(why) => visit.refusal_unless_hidden(legacy::invalid_params(&id, &why)),
            }
        }
        Ok(Message::Notification { method, params }) => handle_notification(&visit, &method, params),
        Ok(Message::Response { id, outcome }) => match visit.session() {
            Ok(session) => legacy::handle_response(&session, id.as_ref(), outcome),
            Err(refusal) => *refusal,
        },
        Err(MessageError::Batch) => Box::pin(batch::post(visit, body)).await,
        Err(why) => malformed(&why),
    }
}

/// Reads the body of a message.
async fn read_body<B>(visit: &EndpointRequest, body: B) -> Result<Bytes, Box<Response>>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    if !is_json(&visit.headers) {
        let why = "the Content-Type must be application/json";
        return Err(Box::new(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, why)));
    }
    if !visit.accepts.json && !visit.accepts.event_stream {
        let why = "answers are application/json or text/event-stream; the Accept header must name them";
        return Err(Box::new(refuse(StatusCode::NOT_ACCEPTABLE, why)));
    }
    let options = &visit.gateway.0.options;
    let reading = request_body::read_body(body, options.max_body, options.body_timeout);
    let Some(pass) = &visit.lifetime else { return reading.await };
    tokio::select! {
        biased;
        read = reading => read,
        () = pass.revoked() => Err(Box::new(authenticate::revoked_response())),
    }
}

/// Tells the era before the method is looked at: a request that names a modern version in `_meta` is modern, even if it
/// is `initialize`.
async fn handle_request(visit: EndpointRequest, ask: RpcRequest) -> Response {
    if !dispatch::is_policy_checked(&ask.method)
        && let Err(unfound) = visit.check_server()
    {
        return *unfound;
    }
    if ask.params.has_modern_meta() {
        return modern::handle_request(visit, ask).await;
    }
    if claims_modern(&visit) {
        let refusal = json(StatusCode::BAD_REQUEST, &crate::modern_meta::missing_version(), Some(&ask.id));
        return visit.refusal_unless_hidden(refusal);
    }
    if ask.method == "initialize" {
        return Box::pin(legacy::initialize(visit, ask)).await;
    }
    match visit.session() {
        Ok(session) => legacy::handle_request(visit, session, ask).await,
        Err(refusal) => *refusal,
    }
}

fn handle_notification(visit: &EndpointRequest, method: &str, params: Option<Bytes>) -> Response {
    let is_modern = || {
        params.clone().and_then(|raw| Params::parse(raw).ok()).is_some_and(|params| params.has_modern_meta())
    };
    let taken = match claims_modern(visit) || is_modern() {
        true => dispatch::handle_notification(
            &visit.gateway,
            &visit.caller,
            &visit.scope,
            method,
            params.as_ref(),
        ),
        false => match visit.session() {
            Ok(session) => legacy::handle_notification(visit, &session, method, params.as_ref()),
            Err(refusal) => return *refusal,
        },
    };
    match taken {
        Ok(()) => empty(StatusCode::ACCEPTED),
        Err(refusal) => json(StatusCode::BAD_REQUEST, &refusal, None),
    }
}

/// Returns whether the headers declare the message a modern one.
fn claims_modern(visit: &EndpointRequest) -> bool {
    visit.header(&PROTOCOL_VERSION) == Some(MODERN_VERSION) && !visit.headers.contains_key(SESSION_ID)
}

fn malformed(why: &MessageError) -> Response {
    let code = match why {
        MessageError::NotUtf8 | MessageError::NotJson { .. } => error_code::PARSE_ERROR,
        _ => error_code::INVALID_REQUEST,
    };
    json(StatusCode::BAD_REQUEST, &GatewayReply::refusal(code, &why.to_string()), None)
}

/// Future of the reply to a request in flight.
pub(super) type PendingReply = Pin<Box<dyn Future<Output = GatewayReply> + Send>>;

/// First event of an answer.
pub(super) enum FirstEvent {
    /// The reply. Frames that arrived with it are sent before it.
    Reply(GatewayReply),
    /// A frame to send before the reply.
    Frame,
    /// No event within the time.
    Timeout,
}

/// Waits for the reply, for `ready`, or for the timeout.
pub(super) async fn first_event(
    answering: &mut PendingReply,
    mut ready: impl FnMut(&mut Context<'_>) -> Poll<()>,
    patience: Duration,
) -> FirstEvent {
    let mut silence = pin!(tokio::time::sleep(patience));
    poll_fn(|cx| {
        if let Poll::Ready(reply) = answering.as_mut().poll(cx) {
            return Poll::Ready(FirstEvent::Reply(reply));
        }
        if ready(cx).is_ready() {
            return Poll::Ready(FirstEvent::Frame);
        }
        silence.as_mut().poll(cx).map(|()| FirstEvent::Timeout)
    })
    .await
}
