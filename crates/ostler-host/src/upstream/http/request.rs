//! One request: sent, and followed until its response.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use ostler_core::fault::{Delivery, Fault, FaultKind};
use ostler_wire::headers::{self, METHOD, NAME, PARAM_PREFIX, PROTOCOL_VERSION, ParamHeader};
use ostler_wire::{HEADER_MISMATCH, Message, MetaKey, RequestMeta, RpcError, RpcOutcome};
use reqwest::StatusCode;
use tokio::time::sleep;

use super::endpoint_client::{HttpReply, header};
use super::event_stream::{EventStream, StreamPosition};
use super::faults;
use super::legacy_session::LegacySession;
use super::param_headers::{ParamHeaderCache, without_invalid};
use super::reply_tasks::ReplyTasks;
use super::server_messages::IncomingServerRequest;
use super::session::{HttpSession, HttpSessionState};
use crate::upstream::{ClientMeta, UpstreamRequest};

/// Upper bound on resumes of a response stream; the call's deadline ends it sooner.
const MAX_RESUMES: usize = 100;

/// An outgoing request.
struct OutgoingRequest {
    body: Bytes,
    headers: HeaderMap,
    /// The session's headers in the legacy era, where the server may send requests on the response stream and the
    /// stream may be resumed elsewhere.
    reply_headers: Option<HeaderMap>,
}

/// Outcome of a request.
enum HttpOutcome {
    Outcome(RpcOutcome),
    Refused(StatusCode, Bytes),
}

impl HttpSession {
    /// Sends a request to a modern server and waits for its response, without a timeout.
    pub(crate) async fn send_modern(
        &self,
        ask: &UpstreamRequest<'_>,
        id: u64,
        marks: &ParamHeaderCache,
    ) -> Result<RpcOutcome, Fault> {
        let tool = (ask.method == "tools/call").then(|| ask.params.name().unwrap_or_default());
        let marked = tool.as_deref().map(|tool| marks.headers_of(tool));
        let outcome = self.send_once(ask, id, marked.as_deref().unwrap_or_default()).await?;
        match (outcome, tool) {
            // The tool has changed: look it up again, once.
            (RpcOutcome::Error(error), Some(tool)) if error.code == HEADER_MISMATCH => {
                match self.refresh_tool_headers(&tool, marks).await {
                    // The new definition may not be approved.
                    Some(_) if !ask.may_send() => Err(Fault::rejected(FaultKind::StaleSession)),
                    Some(marked) => self.send_once(ask, id, &marked).await,
                    None => Ok(RpcOutcome::Error(error)),
                }
            }
            (RpcOutcome::Result(list), None) if ask.method == "tools/list" => {
                Ok(RpcOutcome::Result(without_invalid(list)))
            }
            (outcome, _) => Ok(outcome),
        }
    }

    pub(crate) async fn send_once(
        &self,
        ask: &UpstreamRequest<'_>,
        id: u64,
        marked: &[ParamHeader],
    ) -> Result<RpcOutcome, Fault> {
        let headers = self.modern_headers(ask, marked);
        let letter =
            OutgoingRequest { body: self.encode_request(ask, id).into(), headers, reply_headers: None };
        match post_and_read(&self.state, id, &letter).await? {
            HttpOutcome::Outcome(outcome) => Ok(outcome),
            HttpOutcome::Refused(status, body) => refusal_outcome(status, &body, id),
        }
    }

    /// Sends a request to a legacy server. An expired session is reopened, and the request sent again if it may go to
    /// any server that answers now.
    pub(crate) async fn send_legacy(
        &self,
        ask: &UpstreamRequest<'_>,
        id: u64,
        agreed: &LegacySession,
    ) -> Result<RpcOutcome, Fault> {
        let body: Bytes = self.encode_request(ask, id).into();
        let (headers, epoch) = agreed.current();
        if !ask.may_send() {
            return Err(Fault::rejected(FaultKind::StaleSession));
        }
        let letter = OutgoingRequest { body, headers: headers.clone(), reply_headers: Some(headers) };
        let (status, text) = match post_and_read(&self.state, id, &letter).await? {
            HttpOutcome::Outcome(outcome) => return Ok(outcome),
            HttpOutcome::Refused(status, text) => (status, text),
        };
        if !agreed.has_id() || !is_expired(status, &text, id) {
            return refusal_outcome(status, &text, id);
        }
        agreed.reinitialize(&self.state, epoch).await?;
        let (headers, _) = agreed.current();
        if !ask.may_send() {
            return Err(Fault::rejected(FaultKind::StaleSession));
        }
        let letter = OutgoingRequest { headers: headers.clone(), reply_headers: Some(headers), ..letter };
        match post_and_read(&self.state, id, &letter).await? {
            HttpOutcome::Outcome(outcome) => Ok(outcome),
            HttpOutcome::Refused(status, text) => refusal_outcome(status, &text, id),
        }
    }

    /// Makes the message of a request with its id.
    pub(crate) fn encode_request(&self, ask: &UpstreamRequest<'_>, id: u64) -> Vec<u8> {
        let own = self.server_info.session_meta.as_ref();
        let session = match ask.client {
            ClientMeta::Host => own,
            ClientMeta::Session(client) => own.map(|_| client),
            ClientMeta::Own => None,
        };
        let meta = RequestMeta {
            session,
            idempotency_key: ask.idempotency_key,
            progress_token: ask.observer.filter(|voice| voice.wants_progress()).map(|_| id),
            is_legacy: own.is_none(),
        };
        let mut body = Vec::new();
        ostler_wire::write_request(&mut body, id, ask.method, ask.params, &meta);
        body
    }

    /// Returns the headers that repeat parts of a modern request.
    pub(crate) fn modern_headers(&self, ask: &UpstreamRequest<'_>, marked: &[ParamHeader]) -> HeaderMap {
        let own_version = match ask.client {
            ClientMeta::Own => ask.params.meta_entry(MetaKey::ProtocolVersion),
            ClientMeta::Host | ClientMeta::Session(_) => None,
        };
        let version = own_version.and_then(|raw| serde_json::from_slice::<String>(raw).ok());
        let version = version.as_deref().unwrap_or(&self.server_info.version);
        let mut all = HeaderMap::new();
        let mut put = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(&headers::encode_value(value)) {
                all.insert(name, value);
            }
        };
        put(header(PROTOCOL_VERSION), version);
        put(header(METHOD), ask.method);
        if let Some(name) = headers::mcp_name(ask.method, ask.params) {
            put(header(NAME), &name);
        }
        for (name, value) in headers::param_header_values(marked, ask.params.arguments()) {
            debug_assert!(name.starts_with(PARAM_PREFIX), "no other header can be chosen by a server");
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&value))
            {
                all.insert(name, value);
            }
        }
        self.forward_client_headers(ask.headers, marked, &mut all);
        all
    }

    /// Adds the client's headers for arguments of tools unknown to the host.
    fn forward_client_headers(&self, said: &[(String, String)], marked: &[ParamHeader], all: &mut HeaderMap) {
        let is_marked = |name: &str| marked.iter().any(|marked| marked.name.eq_ignore_ascii_case(name));
        for (name, value) in said.iter().filter(|(name, _)| !is_marked(name)) {
            let header = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value));
            if let (Ok(name), Ok(value)) = header
                && !self.state.client.has_configured_header(&name)
            {
                all.insert(name, value);
            }
        }
    }
}

/// Returns whether a refusal means that the session has expired. Servers that conform say 404; a widespread library
/// says 400, with an error that answers no request. Either way the request was not executed, unless the body answers
/// it.
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

/// Turns a refusal into a response if it answers the request, else into a fault.
fn refusal_outcome(status: StatusCode, body: &Bytes, id: u64) -> Result<RpcOutcome, Fault> {
    match Message::parse(body.clone()) {
        Ok(Message::Response { id: answered, outcome: RpcOutcome::Error(error) })
            if answered.as_ref().is_none_or(|answered| answered.number() == Some(id)) =>
        {
            Ok(RpcOutcome::Error(error))
        }
        _ => Err(faults::status_fault(status, body)),
    }
}

async fn post_and_read(
    link: &Arc<HttpSessionState>,
    id: u64,
    letter: &OutgoingRequest,
) -> Result<HttpOutcome, Fault> {
    match link.client.post(letter.body.clone(), letter.headers.clone()).await? {
        HttpReply::Json(body) => read(link, id, body),
        HttpReply::Events(stream) => {
            read_until_answer(link, id, letter, *stream).await.map(HttpOutcome::Outcome)
        }
        HttpReply::Accepted => Err(malformed_answer("the request was accepted and not answered".into())),
        HttpReply::Refused(status, body) => Ok(HttpOutcome::Refused(status, body)),
    }
}

/// Returns the response in a body.
fn read(link: &HttpSessionState, id: u64, body: Bytes) -> Result<HttpOutcome, Fault> {
    match Message::parse(body) {
        Ok(message) => match answer_to(message, id) {
            Ok(outcome) => Ok(HttpOutcome::Outcome(outcome)),
            Err(_) => {
                link.client.counters.skip();
                Err(malformed_answer("the body does not answer the request".into()))
            }
        },
        Err(error) => Err(malformed_answer(error.to_string())),
    }
}

/// Returns the outcome of the request, or the message if it is something else.
fn answer_to(message: Message, id: u64) -> Result<RpcOutcome, Message> {
    match message {
        Message::Response { id: Some(answered), outcome } if answered.number() == Some(id) => Ok(outcome),
        Message::Response { id: None, outcome: RpcOutcome::Error(error) } => Ok(RpcOutcome::Error(error)),
        other => Err(other),
    }
}

/// Reads events until the response. Resumes a stream that has ended too early, if the server allows it.
async fn read_until_answer(
    link: &Arc<HttpSessionState>,
    id: u64,
    letter: &OutgoingRequest,
    stream: EventStream,
) -> Result<RpcOutcome, Fault> {
    let mut stream = stream;
    let mut answers = ReplyTasks::default();
    let mut resumes = 0;
    loop {
        let why = match stream.next().await {
            Ok(Some(event)) => {
                if let Some(outcome) = handle_message(link, (id, letter), event.data, &mut answers)? {
                    return Ok(outcome);
                }
                continue;
            }
            Ok(None) => "the stream ended before the answer".to_owned(),
            Err(FaultKind::Transfer(why)) => why,
            Err(kind) => return Err(faults::reading_fault(kind)),
        };
        resumes += 1;
        let lost = Fault::unknown(FaultKind::Transfer(why));
        match &letter.reply_headers {
            Some(back) if stream.position.last_id.is_some() && resumes <= MAX_RESUMES => {
                stream = resume(link, back, &stream.position).await.ok_or(lost)?;
            }
            _ => return Err(lost),
        }
    }
}

/// Handles one message of a response stream.
fn handle_message(
    link: &Arc<HttpSessionState>,
    (id, letter): (u64, &OutgoingRequest),
    data: Bytes,
    answers: &mut ReplyTasks,
) -> Result<Option<RpcOutcome>, Fault> {
    let message = match Message::parse(data.clone()) {
        Ok(message) => message,
        Err(error) => {
            link.client.counters.skip();
            let mut is_ours = false;
            ostler_wire::extract_response_ids(&data, |answered| is_ours |= answered.number() == Some(id));
            return if is_ours { Err(malformed_answer(error.to_string())) } else { Ok(None) };
        }
    };
    match answer_to(message, id) {
        Ok(outcome) => return Ok(Some(outcome)),
        Err(Message::Notification { method, params }) => {
            link.server_messages.on_notification(
                (&link.pending_calls, &link.client.counters),
                (method, params),
                Some(id),
            );
        }
        Err(Message::Request { id: asked, method, params }) => match &letter.reply_headers {
            Some(back) => {
                let asked = IncomingServerRequest { id: asked.detached(), method, params, call: Some(id) };
                answers.begin(link, asked, (link.client.clone(), back.clone()));
            }
            // A modern server sends its requests in responses only.
            None => link.client.counters.skip(),
        },
        Err(Message::Response { .. }) => link.client.counters.skip(),
    }
    Ok(None)
}

/// Resumes a stream after its last event, with the delay that the server sets; `None` if the server does not know the
/// stream any more.
async fn resume(link: &HttpSessionState, back: &HeaderMap, place: &StreamPosition) -> Option<EventStream> {
    for _ in 0..MAX_RESUMES {
        sleep(place.retry).await;
        match link.client.get(back.clone(), place.clone()).await {
            Ok(HttpReply::Events(stream)) => return Some(*stream),
            Ok(_) => return None,
            // The endpoint may be back at the next attempt; the call's deadline ends this.
            Err(Fault { kind: FaultKind::Connect(_) | FaultKind::Transfer(_), .. }) => {}
            Err(_) => return None,
        }
    }
    None
}

pub(crate) fn malformed_answer(why: String) -> Fault {
    Fault { delivery: Delivery::Answered, kind: FaultKind::Malformed(why) }
}

/// Returns whether a response says that there is no such method.
pub(crate) fn is_unknown_method(error: &RpcError) -> bool {
    error.code == ostler_wire::METHOD_NOT_FOUND
}
