//! One request: sent, and followed until its answer.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use ostler_core::fault::{Delivery, Fault, FaultKind};
use ostler_wire::headers::{self, METHOD, NAME, PARAM_PREFIX, PROTOCOL_VERSION, ParamHeader};
use ostler_wire::{HEADER_MISMATCH, Message, Meta, MetaKey, Outcome, RpcError};
use reqwest::StatusCode;
use tokio::time::sleep;

use super::answers::Answers;
use super::ear::Asked;
use super::marks::{Marks, without_invalid};
use super::news::Agreed;
use super::road::{Reply, header};
use super::session::{HttpSession, Link};
use super::stream::{EventStream, Place};
use super::turn_down;
use crate::upstream::{Ask, ClientMeta};

/// How often an answer's stream is picked up again; the call's time ends it sooner.
const MAX_RESUMES: usize = 100;

/// A request as it goes out.
struct Letter {
    body: Bytes,
    headers: HeaderMap,
    /// The session's headers, where the server may ask on the answer's stream
    /// and the stream may go on elsewhere: in the legacy era.
    back: Option<HeaderMap>,
}

/// What came back.
enum Said {
    Outcome(Outcome),
    Refused(StatusCode, Bytes),
}

impl HttpSession {
    /// Sends a request to a modern server and waits for its answer, for as long as it takes.
    pub(crate) async fn talk_modern(&self, ask: &Ask<'_>, id: u64, marks: &Marks) -> Result<Outcome, Fault> {
        let tool = (ask.method == "tools/call").then(|| ask.params.name().unwrap_or_default());
        let marked = tool.as_deref().map(|tool| marks.of(tool));
        let outcome = self.say(ask, id, marked.as_deref().unwrap_or_default()).await?;
        match (outcome, tool) {
            // The tool is not what it was known as: look again, once.
            (Outcome::Error(error), Some(tool)) if error.code == HEADER_MISMATCH => {
                match self.look_up(&tool, marks).await {
                    // What it is now may be what nobody has approved.
                    Some(_) if !ask.is_fit() => Err(Fault::rejected(FaultKind::Renewed)),
                    Some(marked) => self.say(ask, id, &marked).await,
                    None => Ok(Outcome::Error(error)),
                }
            }
            (Outcome::Result(list), None) if ask.method == "tools/list" => {
                Ok(Outcome::Result(without_invalid(list)))
            }
            (outcome, _) => Ok(outcome),
        }
    }

    pub(crate) async fn say(&self, ask: &Ask<'_>, id: u64, marked: &[ParamHeader]) -> Result<Outcome, Fault> {
        let headers = self.modern_headers(ask, marked);
        let letter = Letter { body: self.body(ask, id).into(), headers, back: None };
        match converse(&self.link, id, &letter).await? {
            Said::Outcome(outcome) => Ok(outcome),
            Said::Refused(status, body) => settle(status, &body, id),
        }
    }

    /// Sends a request to a legacy server. A session that has expired is opened
    /// anew, and the request sent again where it may be sent to whoever answers now.
    pub(crate) async fn talk_legacy(
        &self,
        ask: &Ask<'_>,
        id: u64,
        agreed: &Agreed,
    ) -> Result<Outcome, Fault> {
        let body: Bytes = self.body(ask, id).into();
        let (headers, epoch) = agreed.current();
        if !ask.is_fit() {
            return Err(Fault::rejected(FaultKind::Renewed));
        }
        let letter = Letter { body, headers: headers.clone(), back: Some(headers) };
        let (status, text) = match converse(&self.link, id, &letter).await? {
            Said::Outcome(outcome) => return Ok(outcome),
            Said::Refused(status, text) => (status, text),
        };
        if !agreed.has_id() || !is_expired(status, &text, id) {
            return settle(status, &text, id);
        }
        agreed.renew(&self.link, epoch).await?;
        let (headers, _) = agreed.current();
        if !ask.is_fit() {
            return Err(Fault::rejected(FaultKind::Renewed));
        }
        let letter = Letter { headers: headers.clone(), back: Some(headers), ..letter };
        match converse(&self.link, id, &letter).await? {
            Said::Outcome(outcome) => Ok(outcome),
            Said::Refused(status, text) => settle(status, &text, id),
        }
    }

    /// The message of a request under its number.
    pub(crate) fn body(&self, ask: &Ask<'_>, id: u64) -> Vec<u8> {
        let own = self.hello.session_meta.as_ref();
        let session = match ask.client {
            ClientMeta::Host => own,
            ClientMeta::Session(client) => own.map(|_| client),
            ClientMeta::Own => None,
        };
        let meta = Meta {
            session,
            idempotency_key: ask.idempotency_key,
            progress_token: ask.voice.filter(|voice| voice.wants_progress()).map(|_| id),
            is_legacy: own.is_none(),
        };
        let mut body = Vec::new();
        ostler_wire::write_request(&mut body, id, ask.method, ask.params, &meta);
        body
    }

    /// What a modern request repeats in headers.
    pub(crate) fn modern_headers(&self, ask: &Ask<'_>, marked: &[ParamHeader]) -> HeaderMap {
        let own_version = match ask.client {
            ClientMeta::Own => ask.params.meta_entry(MetaKey::ProtocolVersion),
            ClientMeta::Host | ClientMeta::Session(_) => None,
        };
        let version = own_version.and_then(|raw| serde_json::from_slice::<String>(raw).ok());
        let version = version.as_deref().unwrap_or(&self.hello.version);
        let mut all = HeaderMap::new();
        let mut put = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(&headers::encode_value(value)) {
                all.insert(name, value);
            }
        };
        put(header(PROTOCOL_VERSION), version);
        put(header(METHOD), ask.method);
        if let Some(name) = headers::name_of(ask.method, ask.params) {
            put(header(NAME), &name);
        }
        for (name, value) in headers::values(marked, ask.params.arguments()) {
            debug_assert!(name.starts_with(PARAM_PREFIX), "no other header can be chosen by a server");
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&value))
            {
                all.insert(name, value);
            }
        }
        self.pass_on(ask.headers, marked, &mut all);
        all
    }

    /// Adds what the client says of arguments that nothing is known of here.
    fn pass_on(&self, said: &[(String, String)], marked: &[ParamHeader], all: &mut HeaderMap) {
        let is_marked = |name: &str| marked.iter().any(|marked| marked.name.eq_ignore_ascii_case(name));
        for (name, value) in said.iter().filter(|(name, _)| !is_marked(name)) {
            let header = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value));
            if let (Ok(name), Ok(value)) = header
                && !self.link.road.has_own(&name)
            {
                all.insert(name, value);
            }
        }
    }
}

/// Whether a refusal means that the session is gone. Servers that keep to the
/// letter say 404; a widespread library says 400, with an error that answers no
/// request. Either way the request was not looked at, unless the body answers it.
fn is_expired(status: StatusCode, body: &Bytes, id: u64) -> bool {
    let answered = || match Message::parse(body.clone()) {
        Ok(Message::Response { id, .. }) => id.and_then(|id| id.number()),
        _ => None,
    };
    match status.as_u16() {
        404 => answered() != Some(id),
        400 => matches!(Message::parse(body.clone()), Ok(Message::Response { id: None, .. })),
        _ => false,
    }
}

/// A refusal that answers the request is an answer; any other is a fault.
fn settle(status: StatusCode, body: &Bytes, id: u64) -> Result<Outcome, Fault> {
    match Message::parse(body.clone()) {
        Ok(Message::Response { id: answered, outcome: Outcome::Error(error) })
            if answered.as_ref().is_none_or(|answered| answered.number() == Some(id)) =>
        {
            Ok(Outcome::Error(error))
        }
        _ => Err(turn_down::refusal(status, body)),
    }
}

async fn converse(link: &Arc<Link>, id: u64, letter: &Letter) -> Result<Said, Fault> {
    match link.road.post(letter.body.clone(), letter.headers.clone()).await? {
        Reply::Json(body) => read(link, id, body),
        Reply::Events(stream) => follow(link, id, letter, *stream).await.map(Said::Outcome),
        Reply::Accepted => Err(unusable("the request was accepted and not answered".into())),
        Reply::Refused(status, body) => Ok(Said::Refused(status, body)),
    }
}

/// The answer in a body.
fn read(link: &Link, id: u64, body: Bytes) -> Result<Said, Fault> {
    match Message::parse(body) {
        Ok(message) => match answer_in(message, id) {
            Ok(outcome) => Ok(Said::Outcome(outcome)),
            Err(_) => {
                link.road.tally.skip();
                Err(unusable("the body does not answer the request".into()))
            }
        },
        Err(error) => Err(unusable(error.to_string())),
    }
}

/// The outcome of our request, or the message if it is something else.
fn answer_in(message: Message, id: u64) -> Result<Outcome, Message> {
    match message {
        Message::Response { id: Some(answered), outcome } if answered.number() == Some(id) => Ok(outcome),
        Message::Response { id: None, outcome: Outcome::Error(error) } => Ok(Outcome::Error(error)),
        other => Err(other),
    }
}

/// Reads events until the answer, and where the server allows it, picks up a
/// stream that has ended too early.
async fn follow(link: &Arc<Link>, id: u64, letter: &Letter, stream: EventStream) -> Result<Outcome, Fault> {
    let mut stream = stream;
    let mut answers = Answers::default();
    let mut resumes = 0;
    loop {
        let why = match stream.next().await {
            Ok(Some(event)) => {
                if let Some(outcome) = take(link, (id, letter), event.data, &mut answers)? {
                    return Ok(outcome);
                }
                continue;
            }
            Ok(None) => "the stream ended before the answer".to_owned(),
            Err(FaultKind::Transfer(why)) => why,
            Err(kind) => return Err(turn_down::while_reading(kind)),
        };
        resumes += 1;
        let lost = Fault::unknown(FaultKind::Transfer(why));
        match &letter.back {
            Some(back) if stream.place.last_id.is_some() && resumes <= MAX_RESUMES => {
                stream = resume(link, back, &stream.place).await.ok_or(lost)?;
            }
            _ => return Err(lost),
        }
    }
}

/// Takes one message of an answer's stream.
fn take(
    link: &Arc<Link>,
    (id, letter): (u64, &Letter),
    data: Bytes,
    answers: &mut Answers,
) -> Result<Option<Outcome>, Fault> {
    let message = match Message::parse(data.clone()) {
        Ok(message) => message,
        Err(error) => {
            link.road.tally.skip();
            let mut is_ours = false;
            ostler_wire::salvage_ids(&data, |answered| is_ours |= answered.number() == Some(id));
            return if is_ours { Err(unusable(error.to_string())) } else { Ok(None) };
        }
    };
    match answer_in(message, id) {
        Ok(outcome) => return Ok(Some(outcome)),
        Err(Message::Notification { method, params }) => {
            link.ear.notice((&link.calls, &link.road.tally), (method, params), Some(id));
        }
        Err(Message::Request { id: asked, method, params }) => match &letter.back {
            Some(back) => {
                let asked = Asked { id: asked.detached(), method, params, call: Some(id) };
                answers.begin(link, asked, (link.road.clone(), back.clone()));
            }
            // A modern server asks in its answers and nowhere else.
            None => link.road.tally.skip(),
        },
        Err(Message::Response { .. }) => link.road.tally.skip(),
    }
    Ok(None)
}

/// Picks up a stream behind its last event, after the wait that the server
/// wishes; `None` if the server does not know it any more.
async fn resume(link: &Link, back: &HeaderMap, place: &Place) -> Option<EventStream> {
    for _ in 0..MAX_RESUMES {
        sleep(place.retry).await;
        match link.road.get(back.clone(), place.clone()).await {
            Ok(Reply::Events(stream)) => return Some(*stream),
            Ok(_) => return None,
            // It may be back the next time, and the call's own time ends this.
            Err(Fault { kind: FaultKind::Connect(_) | FaultKind::Transfer(_), .. }) => {}
            Err(_) => return None,
        }
    }
    None
}

pub(crate) fn unusable(why: String) -> Fault {
    Fault { delivery: Delivery::Answered, kind: FaultKind::Malformed(why) }
}

/// Whether an answer says that there is no such method.
pub(crate) fn is_unknown_method(error: &RpcError) -> bool {
    error.code == ostler_wire::METHOD_NOT_FOUND
}
