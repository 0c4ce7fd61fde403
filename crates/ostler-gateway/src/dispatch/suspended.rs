//! Suspended calls: a legacy server sends a request during the call of a modern client. The call is suspended, and the
//! client gets `input_required` with a sealed ticket. The client's retry answers the server's request and waits for the
//! original reply.
//!
//! ```text
//! running ──answer──▶ done
//!    │ server request               ticket expired, lost, client gone
//!    ▼                                            │
//! suspended ──ticket with answers──▶ running      └──▶ cancelled at the server
//! ```
//!
//! A ticket is valid once. A call that is lost is never started again: its client gets an error that its outcome is
//! unknown.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::keyed_limit::{KeyedLimit, KeyedPermit};
use ostler_core::server_name::ServerName;
use ostler_host::upstream::ServerRequest;
use ostler_host::{Answer, REQUEST_STATE_TTL, Target, request_digest};
use ostler_wire::{Era, Params, RpcOutcome};
use tokio::task::JoinHandle;

use super::forward::modern_reply;
use super::observer::ServerRequests;
use crate::client_request::{ClientRequest, GatewayReply};
use crate::gateway::{Gateway, GatewayShared};

/// Calls that wait for an answer of their client.
#[derive(Debug)]
pub(crate) struct SuspendedCalls {
    calls: Mutex<HashMap<[u8; 16], SuspendedClientCall>>,
    /// One permit for every call that may be suspended, acquired before it is sent, so that a call in flight can always
    /// be suspended. One caller holds half of them at most.
    permits: Arc<KeyedLimit>,
}

#[derive(Debug)]
struct SuspendedClientCall {
    /// Only this caller may resume the call.
    caller: Caller,
    call: RunningCall,
    /// Server requests, under the names that the client was given.
    pending_requests: Vec<(String, ServerRequest)>,
    /// Digest of the parameters that must be the same in the retry.
    digest: [u8; 32],
    _expiry: ExpiryTask,
}

/// Expiry timer of a call; aborted when the call is dropped.
#[derive(Debug)]
struct ExpiryTask(JoinHandle<()>);

impl Drop for ExpiryTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Call in flight with a receiver for its end. Dropping it cancels the call.
#[derive(Debug)]
struct RunningCall {
    task: JoinHandle<Result<Answer, CallError>>,
    requests: ServerRequests,
    /// Number of the call's next server request.
    request_count: u32,
    _permit: KeyedPermit,
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SuspendedCalls {
    pub(crate) fn new(max: usize) -> Self {
        let most = (max / 2).max(1);
        Self { calls: Mutex::default(), permits: KeyedLimit::new(max, most) }
    }

    /// Acquires a permit for a call that may be suspended.
    fn acquire(&self, caller: &Caller) -> Option<KeyedPermit> {
        self.permits.acquire(caller.principal()).ok()
    }

    /// Cancels the calls of callers that have ended: no client can resume them.
    pub(crate) fn cancel_calls_of(&self, is_over: impl Fn(&Caller) -> bool) {
        let ended: Vec<SuspendedClientCall> = {
            let mut calls = self.calls();
            calls.extract_if(|_, parked| is_over(&parked.caller)).map(|(_, parked)| parked).collect()
        };
        // Dropped outside the lock: the drop cancels them at their servers.
        drop(ended);
    }

    /// Returns the number of suspended calls.
    pub(crate) fn len(&self) -> usize {
        self.calls().len()
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<[u8; 16], SuspendedClientCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Identity of a call: the same before and after it is suspended.
struct CallIdentity {
    server: ServerName,
    tool: Option<String>,
    digest: [u8; 32],
}

impl CallIdentity {
    fn from_target(target: &Target<'_>) -> Self {
        let params = target.params();
        let tool = params.name().map(|name| name.into_owned());
        Self { server: target.server().clone(), tool, digest: request_digest(params) }
    }
}

/// Sends a request whose server may send requests to the client.
pub(crate) async fn send_suspendable(
    gateway: &Gateway,
    exchange: &ClientRequest,
    target: Target<'_>,
    mut questions: ServerRequests,
) -> GatewayReply {
    let Some(place) = gateway.0.suspended.acquire(&exchange.caller) else {
        let what = "too many calls are under way whose servers may ask their clients".into();
        let error = CallError::Overloaded { what, retry_after: Duration::from_secs(10) };
        return GatewayReply::from_call_error(&error, Era::Modern);
    };
    let host = gateway.0.host.clone();
    let asked = CallIdentity::from_target(&target);
    let target = target.into_owned();
    let mut work = Box::pin(async move { host.send(target).await });
    // A call without server requests needs no task of its own.
    let question = tokio::select! {
        biased;
        result = &mut work => return modern_reply(gateway, exchange, result),
        Some(question) = questions.recv() => question,
    };
    let call =
        RunningCall { task: tokio::spawn(work), requests: questions, request_count: 0, _permit: place };
    suspend(gateway, exchange, asked, call, vec![question])
}

/// Resumes a suspended call.
pub(crate) async fn resume(
    gateway: &Gateway,
    exchange: &ClientRequest,
    (target, params): (Target<'_>, &Params),
    ticket: [u8; 16],
) -> GatewayReply {
    let Some(responses) = params.input_responses().and_then(ostler_wire::all_members) else {
        return GatewayReply::invalid_params("`inputResponses` is missing");
    };
    let asked = CallIdentity::from_target(&target);
    let parked = {
        let mut calls = gateway.0.suspended.calls();
        match calls.get(&ticket) {
            None => return outcome_unknown_reply(&asked),
            Some(parked) if parked.digest != asked.digest => {
                return GatewayReply::invalid_params(
                    "the request is not the one that `requestState` was given for",
                );
            }
            Some(_) => calls.remove(&ticket),
        }
    };
    let Some(SuspendedClientCall { mut call, pending_requests: open, .. }) = parked else {
        return outcome_unknown_reply(&asked);
    };
    let mut unanswered = Vec::new();
    for (key, question) in open {
        match responses.iter().find(|(name, _)| *name == key) {
            Some((_, raw)) => {
                question.answer(RpcOutcome::Result(Bytes::copy_from_slice(raw)));
            }
            None => unanswered.push(question),
        }
    }
    if !unanswered.is_empty() {
        return suspend(gateway, exchange, asked, call, unanswered);
    }
    let question = tokio::select! {
        biased;
        result = &mut call.task => {
            let result = result.unwrap_or_else(|_| Err(outcome_unknown(&asked)));
            return modern_reply(gateway, exchange, result);
        }
        Some(question) = call.requests.recv() => question,
    };
    suspend(gateway, exchange, asked, call, vec![question])
}

/// Suspends a call until its client retries with answers.
fn suspend(
    gateway: &Gateway,
    exchange: &ClientRequest,
    asked: CallIdentity,
    mut call: RunningCall,
    mut questions: Vec<ServerRequest>,
) -> GatewayReply {
    while let Ok(question) = call.requests.try_recv() {
        questions.push(question);
    }
    let mut open = Vec::new();
    for question in questions {
        call.request_count += 1;
        open.push((format!("q{}", call.request_count), question));
    }
    let mut ticket = [0; 16];
    if getrandom::fill(&mut ticket).is_err() {
        return GatewayReply::error(ostler_wire::INTERNAL_ERROR, "no source of chance", None);
    }
    let (caller, method) = (&exchange.caller, exchange.method.as_str());
    let state = gateway.0.host.seal_suspended(caller, method, &asked.server, ticket);
    let body = input_required(&open, &state);
    {
        let mut calls = gateway.0.suspended.calls();
        let expiry = expire_later(Arc::downgrade(&gateway.0), ticket);
        let (caller, digest) = (exchange.caller.clone(), asked.digest);
        calls.insert(
            ticket,
            SuspendedClientCall { caller, call, pending_requests: open, digest, _expiry: expiry },
        );
    }
    GatewayReply::Result(body.into())
}

/// Ends a call whose ticket is not used in time; the call's hard deadline may end it earlier.
fn expire_later(gateway: Weak<GatewayShared>, ticket: [u8; 16]) -> ExpiryTask {
    ExpiryTask(tokio::spawn(async move {
        tokio::time::sleep(REQUEST_STATE_TTL).await;
        if let Some(gateway) = gateway.upgrade() {
            let late = gateway.suspended.calls().remove(&ticket);
            drop(late);
        }
    }))
}

fn input_required(open: &[(String, ServerRequest)], state: &str) -> Vec<u8> {
    let mut body = b"{\"resultType\":\"input_required\",\"inputRequests\":{".to_vec();
    for (at, (key, question)) in open.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        ostler_wire::push_json_string(&mut body, key);
        body.extend_from_slice(b":{\"method\":");
        ostler_wire::push_json_string(&mut body, question.method.as_str());
        if let Some(params) = &question.params {
            body.extend_from_slice(b",\"params\":");
            body.extend_from_slice(params);
        }
        body.push(b'}');
    }
    body.extend_from_slice(b"},\"requestState\":");
    ostler_wire::push_json_string(&mut body, state);
    body.push(b'}');
    body
}

fn outcome_unknown(asked: &CallIdentity) -> CallError {
    CallError::OutcomeUnknown {
        server: asked.server.clone(),
        tool: asked.tool.clone(),
        cause: "the call that waited for this answer is gone: it took too long, or the gateway was restarted"
            .into(),
    }
}

fn outcome_unknown_reply(asked: &CallIdentity) -> GatewayReply {
    GatewayReply::from_call_error(&outcome_unknown(asked), Era::Modern)
}
