//! Finding out how an endpoint wants to be spoken to.
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
use ostler_wire::{ClientIdentity, Era, Handshake, Hello, MODERN_VERSION, Message, Step};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;

use super::road::{Reply, Road, header};
use super::stream::{EventStream, Place};
use super::turn_down;

/// What a legacy server is told that its client can do. Whether the caller of
/// the moment can is seen when the server asks.
const LEGACY_CAPABILITIES: &str =
    r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}}}"#;

/// How an endpoint is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Modern,
    Legacy,
    Wire,
}

/// A handshake that is over.
pub(crate) enum Opened {
    Modern(Hello),
    /// With the headers of every further request.
    Legacy(Hello, HeaderMap),
    /// With the way for messages and the stream on which answers come.
    Wire(Hello, Road, Box<EventStream>),
}

/// Opens a session in the manner remembered, else in the first that works.
pub(crate) async fn open(
    road: &Road,
    identity: &ClientIdentity,
    remembered: Option<Manner>,
) -> Result<Opened, Fault> {
    if !matches!(remembered, Some(Manner::Legacy | Manner::Wire))
        && let Some(hello) = discover(road, identity).await?
    {
        return Ok(Opened::Modern(hello));
    }
    if remembered != Some(Manner::Wire)
        && let Some((hello, headers)) = initialize(road, identity).await?
    {
        return Ok(Opened::Legacy(hello, headers));
    }
    attach(road, identity).await
}

/// Asks a modern server what it is; `None` if it is none.
async fn discover(road: &Road, identity: &ClientIdentity) -> Result<Option<Hello>, Fault> {
    let mut handshake = Handshake::new(identity.clone(), None, "{}");
    let mut headers = HeaderMap::new();
    headers.insert(header(PROTOCOL_VERSION), HeaderValue::from_static(MODERN_VERSION));
    headers.insert(header(METHOD), HeaderValue::from_static("server/discover"));
    let mut step = handshake.begin();
    loop {
        match step {
            Step::Done(hello) => return Ok(Some(hello)),
            Step::Fail(error) => return Err(failed(error.to_string())),
            Step::Send(body) if handshake.awaits_probe() => {
                let reply = road.post(body, headers.clone()).await?;
                let Some(message) = answer_of(reply).await? else { return Ok(None) };
                step = handshake.on_message(&message);
            }
            _ => return Ok(None),
        }
    }
}

/// Opens a legacy session; `None` if the endpoint takes no such message.
pub(crate) async fn initialize(
    road: &Road,
    identity: &ClientIdentity,
) -> Result<Option<(Hello, HeaderMap)>, Fault> {
    let mut handshake = Handshake::new(identity.clone(), Some(Era::Legacy), LEGACY_CAPABILITIES);
    let Step::Send(body) = handshake.begin() else { return Ok(None) };
    let (reply, session) = road.open(body, HeaderMap::new()).await?;
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
async fn attach(road: &Road, identity: &ClientIdentity) -> Result<Opened, Fault> {
    let mut stream = match road.get(HeaderMap::new(), Place::default()).await? {
        Reply::Events(stream) => stream,
        Reply::Refused(status, body) => return Err(turn_down::refusal(status, &body)),
        Reply::Json(_) | Reply::Accepted => {
            let kind = FaultKind::Malformed("it opens no event stream".into());
            return Err(Fault { delivery: Delivery::Answered, kind });
        }
    };
    let out = loop {
        let event = stream.next().await.map_err(turn_down::while_reading)?;
        let Some(event) = event else { return Err(failed("the endpoint's stream ended".into())) };
        if event.name == "endpoint" {
            break endpoint(road, &event.data)?;
        }
    };
    let mut handshake = Handshake::new(identity.clone(), Some(Era::Legacy), LEGACY_CAPABILITIES);
    let Step::Send(body) = handshake.begin() else { return Err(failed("no handshake".into())) };
    if let Reply::Refused(status, body) = out.post(body, HeaderMap::new()).await? {
        return Err(turn_down::refusal(status, &body));
    }
    let Some(message) = next_response(&mut stream).await? else {
        return Err(failed("the endpoint's stream ended".into()));
    };
    let (hello, initialized) = finish(&mut handshake, &message)?;
    out.post(initialized, HeaderMap::new()).await?;
    Ok(Opened::Wire(hello, out, stream))
}

/// Where messages go, which the server says on its stream. Another origin
/// would get the configured credentials.
fn endpoint(road: &Road, data: &[u8]) -> Result<Road, Fault> {
    let url = std::str::from_utf8(data).ok().and_then(|path| road.url.join(path.trim()).ok());
    match url {
        Some(url) if url.origin() == road.url.origin() => Ok(road.to(url)),
        _ => Err(failed("the endpoint wants messages to be sent to another host".into())),
    }
}

fn finish(handshake: &mut Handshake, message: &Message) -> Result<(Hello, Vec<u8>), Fault> {
    match handshake.on_message(message) {
        Step::DoneAfter(hello, bytes) => Ok((hello, bytes)),
        Step::Fail(error) => Err(failed(error.to_string())),
        // It refuses in the way of a modern server, which the next start looks for.
        _ => Err(failed("the server does not take `initialize`".into())),
    }
}

/// The headers that every legacy request has from now on.
fn version_header(hello: &Hello) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(version) = HeaderValue::from_str(&hello.version) {
        headers.insert(header(PROTOCOL_VERSION), version);
    }
    headers
}

/// The answer in a reply; `None` if the endpoint does not take the message.
async fn answer_of(reply: Reply) -> Result<Option<Message>, Fault> {
    match reply {
        Reply::Json(body) => match Message::parse(body) {
            Ok(message) => Ok(Some(message)),
            Err(error) => {
                Err(Fault { delivery: Delivery::Answered, kind: FaultKind::Malformed(error.to_string()) })
            }
        },
        Reply::Events(mut stream) => next_response(&mut stream).await,
        Reply::Accepted => Ok(None),
        Reply::Refused(status, body) => match Message::parse(body.clone()) {
            Ok(message @ Message::Response { .. }) => Ok(Some(message)),
            _ if is_unwanted(status) => Ok(None),
            _ => Err(turn_down::refusal(status, &body)),
        },
    }
}

/// Statuses with which servers turn down what they do not know.
fn is_unwanted(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 404 | 405 | 406 | 410 | 415 | 422 | 501)
}

async fn next_response(stream: &mut EventStream) -> Result<Option<Message>, Fault> {
    while let Some(event) = stream.next().await.map_err(turn_down::while_reading)? {
        if let Ok(message @ Message::Response { .. }) = Message::parse(event.data) {
            return Ok(Some(message));
        }
    }
    Ok(None)
}

fn failed(why: String) -> Fault {
    Fault { delivery: Delivery::Answered, kind: FaultKind::Handshake(why) }
}
