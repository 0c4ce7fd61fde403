//! One relayed call, from request to answer. The order of the steps carries the guarantees.
//!
//! ```text
//! register   in flight or answered before?     then that state is sent again, and nothing begins
//! admit      is the role known, is there time and capacity?
//! parse      is the body a request for one server?
//! claim      journaled before it begins, so that it never begins twice
//! accept     the worker learns that the call has begun
//! send       the host: policy, budgets, server
//! answer     cached, marked in the journal, sent
//! ```
//!
//! Every call that is not cancelled gets an answer, even if a step panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use ostler_core::error::CallError;
use ostler_core::fault::Delivery;
use ostler_host::{Answer, DeniedRequest, Kind, Request, Scope, ServerListing, UnresolvedRequest};
use ostler_wire::RequestId;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::answer::AnswerBody;
use super::call_registry::{RegisteredCallGuard, RelayCancelSignal};
use super::limits::CallCapacity;
use super::observer::{ProgressReceiver, WorkerObserver};
use super::request::{RelayRequest, RelayRequestBody};
use super::{ServiceCore, answer};
use crate::chunk::MAX_ANSWER;
use crate::journal::ClaimOutcome;

/// Time within which a worker expects its call to begin, and so the timeout of a claim.
const BEGIN: Duration = Duration::from_secs(2);

/// Retry hint for refused calls.
const RETRY: Duration = Duration::from_secs(1);

/// State of one call.
#[derive(Default)]
struct RelayCallState {
    /// Id of the request, for the answer.
    id: Option<RequestId>,
    /// `true` once this host has claimed the call in the journal.
    is_claimed: bool,
}

/// Executes a new call and answers it.
pub(super) async fn run(
    service: Arc<ServiceCore>,
    request: RelayRequest,
    guard: RegisteredCallGuard,
    cancelled: RelayCancelSignal,
) {
    let (service, request) = (&*service, &request);
    let mut state = RelayCallState::default();
    let answer_body = {
        // Pinned in place: a moved future occupies its size twice, for each call in flight.
        let execution = pin!(execute(service, request, &guard, &mut state));
        tokio::select! {
            // A finished answer is worth caching even after a cancellation.
            biased;
            answer_body = catch_panic(execution) => answer_body,
            // Dropping the future cancels the request at the server. The worker no longer waits,
            // and the outcome is unknown.
            () = cancelled.wait() => return,
        }
    };
    let answer_body =
        answer_body.unwrap_or_else(|| AnswerBody::from(&panic_error(request, state.is_claimed)));
    let id = state.id.take().or_else(|| request.find_id());
    let response = answer_body.to_response(id.as_ref());
    let reply_address = guard.finish(response.clone());
    if state.is_claimed {
        service.journal.mark_answered(request.claim_id());
    }
    service.count_answer();
    if let Some(reply_address) = reply_address {
        answer::send(service, &reply_address, response).await;
    }
}

async fn execute(
    service: &ServiceCore,
    request: &RelayRequest,
    guard: &RegisteredCallGuard,
    state: &mut RelayCallState,
) -> AnswerBody {
    let body = match prepare(service, request, guard, state).await {
        Ok(body) => body,
        Err(error) => {
            record_refusal(service, request, &error);
            service.count_refusal();
            return AnswerBody::from(&error);
        }
    };
    let result = match list_kind(body.method.as_str()) {
        Some(kind) => answer_list(service, request, kind).await,
        None => send_to_host(service, request, guard, body).await,
    };
    match result {
        Ok(result) => AnswerBody::Result(result),
        Err(error) => AnswerBody::from(&error),
    }
}

/// Checks, claims and accepts a call before the host is asked.
async fn prepare(
    service: &ServiceCore,
    request: &RelayRequest,
    guard: &RegisteredCallGuard,
    state: &mut RelayCallState,
) -> Result<RelayRequestBody, CallError> {
    admit(service, request, guard.capacity)?;
    let body = request.parse_body()?;
    state.id = Some(body.id.clone());
    // A list has no side effects and needs no claim.
    if list_kind(body.method.as_str()).is_none() {
        claim(service, request, state).await?;
    }
    send_accepted(service, request, guard).await?;
    Ok(body)
}

/// Tells the worker that its call begins. If the message can't leave in time the call does not
/// begin: a refusal that the worker fetches later is better than an unknown outcome.
async fn send_accepted(
    service: &ServiceCore,
    request: &RelayRequest,
    guard: &RegisteredCallGuard,
) -> Result<(), CallError> {
    guard.set_accepted();
    if !service.send_accepted(&request.reply_address.key).await {
        let what = "the connection to the broker was lost before the call began".into();
        return Err(CallError::Overloaded { what, retry_after: RETRY });
    }
    if is_expired(service, request) { Err(expired_error(request)) } else { Ok(()) }
}

fn admit(service: &ServiceCore, request: &RelayRequest, capacity: CallCapacity) -> Result<(), CallError> {
    if !service.host.has_role(request.caller.role()) {
        return Err(request.unknown_server());
    }
    if is_expired(service, request) {
        return Err(expired_error(request));
    }
    let what = match capacity {
        CallCapacity::Free => return Ok(()),
        CallCapacity::Full { limit, is_worker_limit: true } => {
            format!("this worker has {limit} calls under way")
        }
        CallCapacity::Full { limit, is_worker_limit: false } => {
            format!("the host has {limit} relayed calls under way")
        }
    };
    Err(CallError::Overloaded { what, retry_after: RETRY })
}

/// Claims the call in the journal.
async fn claim(
    service: &ServiceCore,
    request: &RelayRequest,
    state: &mut RelayCallState,
) -> Result<(), CallError> {
    let left = service.clock.until(request.head.begin_by).unwrap_or_default().min(BEGIN);
    let claiming = service.journal.claim(request.claim_id(), &request.worker_instance.worker);
    match timeout(left, claiming).await {
        Ok(Ok(ClaimOutcome::Ours)) => {
            service.is_journal_broken.store(false, Ordering::Relaxed);
            state.is_claimed = true;
        }
        Ok(Ok(ClaimOutcome::Taken { .. })) => {
            let cause = "it was begun before, and its answer is not kept any more";
            return Err(request.outcome_unknown(cause));
        }
        Ok(Err(error)) => {
            // The journal's error concerns the operator and not the worker.
            if !service.is_journal_broken.swap(true, Ordering::Relaxed) {
                tracing::error!(%error, "no relayed call is taken");
            }
            return Err(claim_failed_error("the journal of calls can't be written"));
        }
        Err(_) => return Err(claim_failed_error("the journal of calls did not answer in time")),
    }
    // The worker no longer expects the call to begin.
    if is_expired(service, request) { Err(expired_error(request)) } else { Ok(()) }
}

/// Sends the request through the host and forwards its notifications meanwhile.
async fn send_to_host(
    service: &ServiceCore,
    request: &RelayRequest,
    guard: &RegisteredCallGuard,
    body: RelayRequestBody,
) -> Result<Bytes, CallError> {
    let RelayRequestBody { method, params, .. } = body;
    let left = service.clock.until(request.head.deadline).unwrap_or_default();
    let (observer, progress) = WorkerObserver::for_request(&params).unzip();
    let mut host_request =
        Request::new(&request.caller, method.as_str(), params).from_modern_client().with_timeout(left);
    if let Some(observer) = observer {
        guard.set_observer(Arc::clone(&observer));
        host_request = host_request.with_call_observer(observer);
    }
    let answer = pin!(service.host.send_to(request.head.server.as_str(), host_request));
    let answer = match progress {
        None => answer.await?,
        Some(progress) => forward_until_answered(service, request, answer, progress).await?,
    };
    if answer.body.len() > MAX_ANSWER {
        let detail = format!("the answer is longer than {} MiB, which the relay carries", MAX_ANSWER >> 20);
        return Err(CallError::UpstreamProtocol { server: answer.server, detail });
    }
    Ok(answer.body_with_remaining_ttl())
}

/// Waits for the answer and forwards progress messages that precede it, in order.
async fn forward_until_answered(
    service: &ServiceCore,
    request: &RelayRequest,
    answer: Pin<&mut impl Future<Output = Result<Answer, CallError>>>,
    mut progress: ProgressReceiver,
) -> Result<Answer, CallError> {
    let (answered, is_answered) = oneshot::channel::<()>();
    let wait_for_answer = async {
        let answer = answer.await;
        drop(answered);
        answer
    };
    let forward_progress = async {
        let mut is_answered = pin!(is_answered);
        loop {
            tokio::select! {
                biased;
                Some(message) = progress.recv() => drop(service.send_progress(&request.reply_address.key, message).await),
                _ = &mut is_answered => return,
            }
        }
    };
    // Concurrently: a broker that takes no progress messages must not delay the end of the call.
    tokio::join!(wait_for_answer, forward_progress).0
}

/// Answers a list request, whole and in one page.
async fn answer_list(service: &ServiceCore, request: &RelayRequest, kind: Kind) -> Result<Bytes, CallError> {
    let left = service.clock.until(request.head.deadline).unwrap_or_default();
    let mut listings =
        service.host.list(&request.caller, &Scope::Server(request.head.server.clone()), kind, left).await;
    let listing = listings.pop().ok_or_else(|| request.unknown_server())?.require_known()?;
    Ok(write_list(kind, &listing).into())
}

/// Writes a list result. Its content depends on the role, so its cache scope is private.
fn write_list(kind: Kind, listing: &ServerListing) -> Vec<u8> {
    let size: usize = listing.items.iter().map(|listed| listed.item.definition.len() + 1).sum();
    let mut out = Vec::with_capacity(size + 96);
    out.push(b'{');
    let definitions = listing.items.iter().map(|listed| &listed.item.definition[..]);
    ostler_wire::push_array_member(&mut out, kind.member(), definitions);
    out.extend_from_slice(b",\"resultType\":\"complete\",\"ttlMs\":");
    out.extend_from_slice(listing.ttl.as_millis().to_string().as_bytes());
    out.extend_from_slice(b",\"cacheScope\":\"private\"}");
    out
}

fn list_kind(method: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kind.method() == method)
}

fn is_expired(service: &ServiceCore, request: &RelayRequest) -> bool {
    let by = request.head.begin_by.min(request.head.deadline);
    service.clock.until(by).is_none()
}

fn expired_error(request: &RelayRequest) -> CallError {
    let server = request.head.server.clone();
    CallError::TimedOut { server, after: BEGIN, delivery: Delivery::NotSent }
}

/// Returns the error for a call that must not begin although nothing is wrong with it.
fn claim_failed_error(why: &str) -> CallError {
    CallError::Overloaded { what: format!("the host can't take calls: {why}"), retry_after: RETRY }
}

/// Returns the error for a call whose execution panicked.
fn panic_error(request: &RelayRequest, is_claimed: bool) -> CallError {
    let cause = "the host failed while it carried it out";
    match is_claimed {
        true => request.outcome_unknown(cause),
        false => CallError::Overloaded { what: "the host failed before it began".into(), retry_after: RETRY },
    }
}

/// Records a refusal that never reaches the host. A server hidden by a rule is recorded as such.
fn record_refusal(service: &ServiceCore, request: &RelayRequest, error: &CallError) {
    // A call refused before parsing is parsed now, as far as possible.
    let (method, tool) =
        (request.find_method().unwrap_or_default(), request.parse_body().ok().and_then(|body| body.tool()));
    let (server, method) = (request.head.server.as_str(), method.as_str());
    let subject = tool.as_deref().unwrap_or_default();
    let is_hidden = matches!(error, CallError::UnknownServer { .. })
        && service.host.record_if_denied(&request.caller, DeniedRequest { server, method, item: None });
    if !is_hidden {
        let unknown = UnresolvedRequest { server, method, subject, outcome: error.code() };
        service.host.record_unresolved(&request.caller, unknown);
    }
}

/// Returns the output of a future, or `None` if it panics. The panic hook has reported it, and the
/// state it left half done is dropped with the future.
async fn catch_panic<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(value)) => Poll::Ready(Some(value)),
        Err(_) => Poll::Ready(None),
    })
    .await
}
