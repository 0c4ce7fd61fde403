//! Batches, which only revision 2025-03-26 knows.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use ostler_wire::{Message, Params, error_code};
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use super::response::{Response, body, empty, refuse};
use super::{EndpointRequest, RpcRequest, legacy};
use crate::client_request::{ClientEra, ClientRequest, GatewayReply};
use crate::client_session::ActiveSession;
use crate::credential_lifetime::unless_revoked;
use crate::dispatch::dispatch_request;
use crate::notification_sink::NotificationSink;

/// The revision that knows batches.
pub(crate) const BATCH_VERSION: &str = "2025-03-26";

/// Messages in one batch.
const MAX_BATCH: usize = 64;

/// Answers a batch with a batch, in the same order. Requests of a batch share
/// one response, so nothing can be said before their answers.
pub(super) async fn post(visit: EndpointRequest, text: Bytes) -> Response {
    let no_batch = "a batch; one message at a time is expected";
    let session = match visit.session() {
        Ok(session) if session.version() == BATCH_VERSION => session,
        Ok(_) => return refuse(StatusCode::BAD_REQUEST, no_batch),
        Err(refusal) if refusal.status() == StatusCode::BAD_REQUEST => {
            return refuse(StatusCode::BAD_REQUEST, no_batch);
        }
        Err(refusal) => return *refusal,
    };
    let batch = match split_batch(&text) {
        Ok(batch) => batch,
        Err(why) => return refuse(StatusCode::BAD_REQUEST, &why),
    };
    let answers = answer_all(&visit, &session, batch).await;
    if answers.is_empty() {
        return empty(StatusCode::ACCEPTED);
    }
    body(StatusCode::OK, join_batch(&answers))
}

/// Returns the messages of a batch.
pub(crate) fn split_batch(text: &Bytes) -> Result<Vec<Bytes>, String> {
    let messages: Vec<&RawValue> = serde_json::from_slice(text).unwrap_or_default();
    if messages.is_empty() || messages.len() > MAX_BATCH {
        return Err(format!("a batch has between 1 and {MAX_BATCH} messages"));
    }
    Ok(messages.into_iter().map(|message| text.slice_ref(message.get().as_bytes())).collect())
}

/// Returns a batch of answers.
pub(crate) fn join_batch(answers: &[Vec<u8>]) -> Vec<u8> {
    let mut text = b"[".to_vec();
    text.extend_from_slice(&answers.join(&b','));
    text.push(b']');
    text
}

/// The answers of a batch, in its order. All requests run at once.
async fn answer_all(visit: &EndpointRequest, session: &ActiveSession, batch: Vec<Bytes>) -> Vec<Vec<u8>> {
    let mut answers: Vec<Option<Vec<u8>>> = vec![None; batch.len()];
    let mut running = JoinSet::new();
    for (at, message) in batch.into_iter().enumerate() {
        match Message::parse(message) {
            Ok(Message::Request { id, method, params }) => {
                match params.map_or(Ok(Params::empty()), Params::parse) {
                    Ok(_) if method == "ping" => {
                        answers[at] = Some(GatewayReply::empty_result().frame(Some(&id)))
                    }
                    Ok(params) => {
                        let broken = GatewayReply::refusal(error_code::INTERNAL_ERROR, "the request broke");
                        answers[at] = Some(broken.frame(Some(&id)));
                        let gateway = visit.gateway.clone();
                        let mut exchange =
                            client_request(visit, session, RpcRequest { id: id.clone(), method, params });
                        let pass = visit.lifetime.clone();
                        running.spawn(async move {
                            let answering = dispatch_request(&gateway, &mut exchange);
                            (at, unless_revoked(pass, answering).await.frame(Some(&id)))
                        });
                    }
                    Err(why) => {
                        let refusal = GatewayReply::refusal(error_code::INVALID_PARAMS, &why.to_string());
                        answers[at] = Some(refusal.frame(Some(&id)));
                    }
                }
            }
            Ok(Message::Notification { method, params }) => {
                let refusal = legacy::handle_notification(visit, session, &method, params.as_ref()).err();
                answers[at] = refusal.map(|refusal| refusal.frame(None));
            }
            Ok(Message::Response { id, outcome }) => {
                legacy::handle_response(session, id.as_ref(), outcome);
            }
            Err(why) => {
                answers[at] =
                    Some(GatewayReply::refusal(error_code::INVALID_REQUEST, &why.to_string()).frame(None))
            }
        }
    }
    while let Some(answered) = running.join_next().await {
        if let Ok((at, answer)) = answered {
            answers[at] = Some(answer);
        }
    }
    answers.into_iter().flatten().collect()
}

fn client_request(visit: &EndpointRequest, session: &ActiveSession, ask: RpcRequest) -> ClientRequest {
    let (outlet, _) = NotificationSink::new();
    ClientRequest {
        caller: visit.session_caller(session),
        scope: session.scope().clone(),
        client: ClientEra::Legacy(Arc::clone(session)),
        id: ask.id,
        method: ask.method,
        params: ask.params,
        headers: None,
        sink: outlet,
        command_extensions: None,
    }
}
