//! Handshake: finds the transport and the era of an endpoint.
//!
//! ```text
//! POST server/discover ──DiscoverResult──▶ modern
//!        │ anything else, or a status of the 400s
//!        ▼
//! POST initialize ──InitializeResult──▶ legacy
//!        │ a status of the 400s
//!        ▼
//! GET ──event: endpoint──▶ HTTP+SSE, the transport of 2024-11-05
//! ```

use http::HeaderValue;
use ostler_core::fault::{Delivery, Fault, FaultKind};
use ostler_wire::headers::{METHOD, PROTOCOL_VERSION, SESSION_ID};
use ostler_wire::{ClientInfo, Era, Handshake, HandshakeStep, MODERN_VERSION, Message, ServerInfo};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;

use super::endpoint_client::{EndpointClient, HttpReply, header};
use super::event_stream::{EventStream, StreamPosition};
use super::faults;

/// Client capabilities declared to a legacy server. The capabilities of the present caller are checked when the
/// server sends a request.
const LEGACY_CAPABILITIES: &str =
    r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}}}"#;

/// Transport of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpTransport {
    Modern,
    Legacy,
    Sse,
}

/// A completed handshake.
pub(crate) enum HttpHandshake {
    Modern(ServerInfo),
    /// With the headers of every further request.
    Legacy(ServerInfo, HeaderMap),
    /// With the client for messages and the stream of responses.
    Sse(ServerInfo, EndpointClient, Box<EventStream>),
}

/// Opens a session over the remembered transport, or else over the first that works.
pub(crate) async fn open(
    road: &EndpointClient,
    identity: &ClientInfo,
    remembered: Option<HttpTransport>,
) -> Result<HttpHandshake, Fault> {
    if !matches!(remembered, Some(HttpTransport::Legacy | HttpTransport::Sse))
        && let Some(hello) = discover(road, identity).await?
    {
        return Ok(HttpHandshake::Modern(hello));
    }
    if remembered != Some(HttpTransport::Sse)
        && let Some((hello, headers)) = initialize(road, identity).await?
    {
        return Ok(HttpHandshake::Legacy(hello, headers));
    }
    connect_sse(road, identity).await
}

/// Sends `server/discover`; `None` if the server is not modern.
async fn discover(road: &EndpointClient, identity: &ClientInfo) -> Result<Option<ServerInfo>, Fault> {
    let mut handshake = Handshake::new(identity.clone(), None, "{}");
    let mut headers = HeaderMap::new();
    headers.insert(header(PROTOCOL_VERSION), HeaderValue::from_static(MODERN_VERSION));
    headers.insert(header(METHOD), HeaderValue::from_static("server/discover"));
    let mut step = handshake.begin();
    loop {
        match step {
            HandshakeStep::Done(hello) => return Ok(Some(hello)),
            HandshakeStep::Fail(error) => return Err(failed(error.to_string())),
            HandshakeStep::Send(body) if handshake.is_awaiting_probe() => {
                let reply = road.post(body, headers.clone()).await?;
                let Some(message) = answer_of(reply).await? else { return Ok(None) };
                step = handshake.on_message(&message);
            }
            _ => return Ok(None),
        }
    }
}

/// Opens a legacy session; `None` if the endpoint does not accept the message.
pub(crate) async fn initialize(
    road: &EndpointClient,
    identity: &ClientInfo,
) -> Result<Option<(ServerInfo, HeaderMap)>, Fault> {
    let mut handshake = Handshake::new(identity.clone(), Some(Era::Legacy), LEGACY_CAPABILITIES);
    let HandshakeStep::Send(body) = handshake.begin() else { return Ok(None) };
    let (reply, session) = road.post_opening_session(body, HeaderMap::new()).await?;
    let Some(message) = answer_of(reply).await? else { return Ok(None) };
    let (hello, initialized) = finish(&mut handshake, &message)?;
    let mut headers = version_header(&hello);
    if let Some(session) = session {
        headers.insert(header(SESSION_ID), session);
    }
    road.post(initialized, headers.clone()).await?;
    Ok(Some((hello, headers)))
}

/// Opens a session over HTTP+SSE.
async fn connect_sse(road: &EndpointClient, identity: &ClientInfo) -> Result<HttpHandshake, Fault> {
    let mut stream = match road.get(HeaderMap::new(), StreamPosition::default()).await? {
        HttpReply::Events(stream) => stream,
        HttpReply::Refused(status, body) => return Err(faults::status_fault(status, &body)),
        HttpReply::Json(_) | HttpReply::Accepted => {
            let kind = FaultKind::Malformed("it opens no event stream".into());
            return Err(Fault { delivery: Delivery::Answered, kind });
        }
    };
    let out = loop {
        let event = stream.next().await.map_err(faults::reading_fault)?;
        let Some(event) = event else { return Err(failed("the endpoint's stream ended".into())) };
        if event.name == "endpoint" {
            break endpoint(road, &event.data)?;
        }
    };
    let mut handshake = Handshake::new(identity.clone(), Some(Era::Legacy), LEGACY_CAPABILITIES);
    let HandshakeStep::Send(body) = handshake.begin() else { return Err(failed("no handshake".into())) };
    if let HttpReply::Refused(status, body) = out.post(body, HeaderMap::new()).await? {
        return Err(faults::status_fault(status, &body));
    }
    let Some(message) = next_response(&mut stream).await? else {
        return Err(failed("the endpoint's stream ended".into()));
    };
    let (hello, initialized) = finish(&mut handshake, &message)?;
    out.post(initialized, HeaderMap::new()).await?;
    Ok(HttpHandshake::Sse(hello, out, stream))
}

/// Returns the address for messages, which the server sends on its stream. Another origin would get the configured
/// credentials.
fn endpoint(road: &EndpointClient, data: &[u8]) -> Result<EndpointClient, Fault> {
    let url = std::str::from_utf8(data).ok().and_then(|path| road.url.join(path.trim()).ok());
    match url {
        Some(url) if url.origin() == road.url.origin() => Ok(road.with_url(url)),
        _ => Err(failed("the endpoint wants messages to be sent to another host".into())),
    }
}

fn finish(handshake: &mut Handshake, message: &Message) -> Result<(ServerInfo, Vec<u8>), Fault> {
    match handshake.on_message(message) {
        HandshakeStep::SendThenDone(hello, bytes) => Ok((hello, bytes)),
        HandshakeStep::Fail(error) => Err(failed(error.to_string())),
        // The refusal is that of a modern server, which the next start probes for.
        _ => Err(failed("the server does not take `initialize`".into())),
    }
}

/// Returns the headers of every further legacy request.
fn version_header(hello: &ServerInfo) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(version) = HeaderValue::from_str(&hello.version) {
        headers.insert(header(PROTOCOL_VERSION), version);
    }
    headers
}

/// Returns the response in a reply; `None` if the endpoint does not accept the message.
async fn answer_of(reply: HttpReply) -> Result<Option<Message>, Fault> {
    match reply {
        HttpReply::Json(body) => match Message::parse(body) {
            Ok(message) => Ok(Some(message)),
            Err(error) => {
                Err(Fault { delivery: Delivery::Answered, kind: FaultKind::Malformed(error.to_string()) })
            }
        },
        HttpReply::Events(mut stream) => next_response(&mut stream).await,
        HttpReply::Accepted => Ok(None),
        HttpReply::Refused(status, body) => match Message::parse(body.clone()) {
            Ok(message @ Message::Response { .. }) => Ok(Some(message)),
            _ if is_unwanted(status) => Ok(None),
            _ => Err(faults::status_fault(status, &body)),
        },
    }
}

/// Returns whether servers reject unknown requests with this status.
fn is_unwanted(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 404 | 405 | 406 | 410 | 415 | 422 | 501)
}

async fn next_response(stream: &mut EventStream) -> Result<Option<Message>, Fault> {
    while let Some(event) = stream.next().await.map_err(faults::reading_fault)? {
        if let Ok(message @ Message::Response { .. }) = Message::parse(event.data) {
            return Ok(Some(message));
        }
    }
    Ok(None)
}

fn failed(why: String) -> Fault {
    Fault { delivery: Delivery::Answered, kind: FaultKind::Handshake(why) }
}
