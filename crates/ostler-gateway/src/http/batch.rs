//! Batches, which only revision 2025-03-26 has.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use ostler_core::caller::{Caller, CredentialState};
use ostler_core::error::CallError;
use ostler_core::keyed_limit::{KeyedPermit, PermitRequest};
use ostler_wire::{Message, Params, error_code};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::response::{Response, body, empty, refuse};
use super::{EndpointRequest, RpcRequest, legacy};
use crate::client_request::{ClientEra, ClientRequest, GatewayReply};
use crate::client_session::ActiveSession;
use crate::credential_lifetime::{CredentialLifetime, unless_revoked};
use crate::dispatch::{self, dispatch_request};
use crate::gateway::Gateway;
use crate::notification_sink::NotificationSink;

/// Revision with batches.
pub(crate) const BATCH_VERSION: &str = "2025-03-26";

/// Messages in one batch; bounds the requests that one POST can start.
const MAX_BATCH: usize = 64;

/// Bytes of the answers of one batch above which no further request of it starts. The answers are sent together, so all
/// of them are in memory at once.
const MAX_BATCH_ANSWERS: usize = 16 << 20;

/// Lists of one batch that are answered at once: as many as there are kinds. Each may be a page of some MiB.
const MAX_LISTS: usize = 4;

/// Delay after which a request refused for overload may be retried.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Answers a batch with a batch, in the same order. Requests of a batch share one response, so no notification precedes
/// their answers.
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
    match answer_all(&visit, &session, batch).await {
        None => empty(StatusCode::ACCEPTED),
        Some(answers) => body(StatusCode::OK, answers),
    }
}

/// Returns the messages of a batch.
pub(crate) fn split_batch(text: &Bytes) -> Result<Vec<Bytes>, String> {
    let messages: Vec<&RawValue> = serde_json::from_slice(text).unwrap_or_default();
    if messages.is_empty() || messages.len() > MAX_BATCH {
        return Err(format!("a batch has between 1 and {MAX_BATCH} messages"));
    }
    Ok(messages.into_iter().map(|message| text.slice_ref(message.get().as_bytes())).collect())
}

/// Requests of a batch in flight, and the answers in the batch's order.
///
/// All requests run at once, except lists and requests above their caller's limit: [a few](MAX_LISTS) of these run at
/// once. Once the answers of this batch or of all batches reach their limit, no further request starts.
pub(crate) struct BatchRun {
    shared: Arc<BatchShared>,
    answers: Vec<Option<BatchAnswer>>,
    running: JoinSet<(usize, BatchAnswer)>,
}

/// State shared by the requests of one batch.
struct BatchShared {
    gateway: Gateway,
    /// True if requests count towards their caller's limit over HTTP.
    is_counted: bool,
    turns: Semaphore,
    /// Bytes of the answers.
    size: AtomicUsize,
}

/// Answer, and its share of the byte limit of all batches.
struct BatchAnswer {
    text: Vec<u8>,
    _permit: Option<KeyedPermit>,
}

impl BatchRun {
    /// Makes a batch of that many messages.
    pub(crate) fn new(gateway: Gateway, messages: usize, is_counted: bool) -> Self {
        let (turns, size) = (Semaphore::new(MAX_LISTS), AtomicUsize::new(0));
        let shared = Arc::new(BatchShared { gateway, is_counted, turns, size });
        let answers = std::iter::repeat_with(|| None).take(messages).collect();
        Self { shared, answers, running: JoinSet::new() }
    }

    /// Adds the answer to a message that needs no request.
    pub(crate) fn answer(&mut self, at: usize, text: Vec<u8>) {
        self.answers[at] = Some(BatchAnswer { text, _permit: None });
    }

    /// Starts a request, which ends with the credential.
    pub(crate) fn spawn(&mut self, at: usize, request: ClientRequest, lifetime: Option<CredentialLifetime>) {
        let broken = GatewayReply::refusal(error_code::INTERNAL_ERROR, "the request broke");
        self.answer(at, broken.frame(Some(&request.id)));
        let shared = Arc::clone(&self.shared);
        self.running.spawn(async move { (at, shared.answer_request(request, lifetime).await) });
    }

    /// Returns whether no request is in flight.
    pub(crate) fn is_done(&self) -> bool {
        self.running.is_empty()
    }

    /// Waits for all answers and joins them; `None` if no message needs an answer.
    pub(crate) async fn finish(mut self) -> Option<Vec<u8>> {
        while let Some(answered) = self.running.join_next().await {
            if let Ok((at, answer)) = answered {
                self.answers[at] = Some(answer);
            }
        }
        self.join()
    }

    /// Joins the answers that have arrived. Each is dropped once it is copied.
    pub(crate) fn join(self) -> Option<Vec<u8>> {
        let answers: Vec<BatchAnswer> = self.answers.into_iter().flatten().collect();
        let size: usize = answers.iter().map(|answer| answer.text.len() + 1).sum();
        let mut text = Vec::with_capacity(size + 1);
        for answer in answers {
            text.push(if text.is_empty() { b'[' } else { b',' });
            text.extend_from_slice(&answer.text);
        }
        if text.is_empty() {
            return None;
        }
        text.push(b']');
        Some(text)
    }
}

impl BatchShared {
    async fn answer_request(
        &self,
        mut request: ClientRequest,
        lifetime: Option<CredentialLifetime>,
    ) -> BatchAnswer {
        let (id, caller) = (request.id.clone(), request.caller.clone());
        let is_list = dispatch::is_list(&request.method);
        // The permit of the batch itself covers the requests that run in turns.
        let permit =
            (self.is_counted && !is_list).then(|| self.gateway.0.per_caller.acquire(caller.principal()).ok());
        let is_in_turn = is_list || matches!(permit, Some(None));
        let _turn = if is_in_turn { self.turns.acquire().await.ok() } else { None };
        let reserved = if is_list { self.hold(&caller, self.gateway.0.options.page_bytes) } else { None };
        if self.size.load(Ordering::Relaxed) >= MAX_BATCH_ANSWERS || is_list && reserved.is_none() {
            let what = "the answers of batches take too much room; send requests one by one".into();
            let error = CallError::Overloaded { what, retry_after: RETRY_AFTER };
            let text = GatewayReply::from_own_error(&error).frame(Some(&id));
            return BatchAnswer { text, _permit: None };
        }
        // No request starts with a credential that was revoked while the request waited.
        if lifetime.as_ref().is_some_and(|lifetime| lifetime.state() == CredentialState::Revoked) {
            let text = GatewayReply::credential_revoked().frame(Some(&id));
            return BatchAnswer { text, _permit: None };
        }
        let answering = dispatch_request(&self.gateway, &mut request);
        let text = unless_revoked(lifetime, answering).await.frame(Some(&id));
        self.size.fetch_add(text.len(), Ordering::Relaxed);
        let held = self.hold(&caller, text.len());
        BatchAnswer { text, _permit: held.or(reserved) }
    }

    /// Acquires a permit for that many bytes of answers.
    fn hold(&self, caller: &Caller, bytes: usize) -> Option<KeyedPermit> {
        let wanted = PermitRequest::many(bytes);
        self.gateway.0.batch_bytes.acquire_many(caller.principal(), wanted).ok()
    }
}

/// Answers a batch, in its order; `None` if no message needs an answer.
async fn answer_all(visit: &EndpointRequest, session: &ActiveSession, batch: Vec<Bytes>) -> Option<Vec<u8>> {
    let mut run = BatchRun::new(visit.gateway.clone(), batch.len(), true);
    for (at, message) in batch.into_iter().enumerate() {
        match Message::parse(message) {
            Ok(Message::Request { id, method, params }) => {
                match params.map_or(Ok(Params::empty()), Params::parse) {
                    Ok(_) if method == "ping" => {
                        run.answer(at, GatewayReply::empty_result().frame(Some(&id)))
                    }
                    Ok(params) => {
                        let request = client_request(visit, session, RpcRequest { id, method, params });
                        run.spawn(at, request, visit.lifetime.clone());
                    }
                    Err(why) => {
                        let refusal = GatewayReply::refusal(error_code::INVALID_PARAMS, &why.to_string());
                        run.answer(at, refusal.frame(Some(&id)));
                    }
                }
            }
            Ok(Message::Notification { method, params }) => {
                if let Err(refusal) = legacy::handle_notification(visit, session, &method, params.as_ref()) {
                    run.answer(at, refusal.frame(None));
                }
            }
            Ok(Message::Response { id, outcome }) => {
                legacy::handle_response(session, id.as_ref(), outcome);
            }
            Err(why) => {
                let refusal = GatewayReply::refusal(error_code::INVALID_REQUEST, &why.to_string());
                run.answer(at, refusal.frame(None));
            }
        }
    }
    run.finish().await
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
