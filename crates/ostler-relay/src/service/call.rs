//! One call, top to bottom. Order is meaning here.
//!
//! ```text
//! enter      under way already? answered already?      then that is said again, and nothing begins
//! admit      is the role known, is there time and room?
//! open       is the body a request that names one thing?
//! claim      remembered before it begins, so that it never begins twice
//! accept     the worker learns that it has begun
//! perform    the walk of the host: rules, budgets, server
//! answer     kept, noted as settled, sent
//! ```
//!
//! Whatever happens in between, a panic included, there is an answer.

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

/// How long a worker gives a call to begin, and so the longest wait for a claim.
const BEGIN: Duration = Duration::from_secs(2);

/// When trying again makes sense for who was turned away.
const RETRY: Duration = Duration::from_secs(1);

/// How far a call has come.
#[derive(Default)]
struct RelayCallState {
    /// Under which it is answered.
    id: Option<RequestId>,
    /// Whether it is ours to settle.
    is_claimed: bool,
}

/// Answers a call that nobody has heard of before.
pub(super) async fn run(
    service: Arc<ServiceCore>,
    order: RelayRequest,
    place: RegisteredCallGuard,
    cancelled: RelayCancelSignal,
) {
    let (service, order) = (&*service, &order);
    let mut begun = RelayCallState::default();
    let said = {
        // Futures are pinned where they are made: one that is passed on takes
        // its room twice, and there are as many of them as calls.
        let under_way = pin!(execute(service, order, &place, &mut begun));
        tokio::select! {
            // An answer that is there is worth keeping, even if nobody waits.
            biased;
            said = catch_panic(under_way) => said,
            // Dropping what is under way cancels it at the server. Nobody waits
            // for an answer, and what has come of it nobody knows.
            () = cancelled.wait() => return,
        }
    };
    let said = said.unwrap_or_else(|| AnswerBody::from(&panic_error(order, begun.is_claimed)));
    let id = begun.id.take().or_else(|| order.find_id());
    let text = said.to_response(id.as_ref());
    let to = place.finish(text.clone());
    if begun.is_claimed {
        service.journal.mark_answered(order.claim_id());
    }
    service.count_answer();
    if let Some(to) = to {
        answer::send(service, &to, text).await;
    }
}

async fn execute(
    service: &ServiceCore,
    order: &RelayRequest,
    place: &RegisteredCallGuard,
    begun: &mut RelayCallState,
) -> AnswerBody {
    let asked = match prepare(service, order, place, begun).await {
        Ok(asked) => asked,
        Err(error) => {
            record_refusal(service, order, &error);
            service.count_refusal();
            return AnswerBody::from(&error);
        }
    };
    let result = match list_kind(asked.method.as_str()) {
        Some(kind) => answer_list(service, order, kind).await,
        None => send_to_host(service, order, place, asked).await,
    };
    match result {
        Ok(result) => AnswerBody::Result(result),
        Err(error) => AnswerBody::from(&error),
    }
}

/// Everything that must be so before the host is asked.
async fn prepare(
    service: &ServiceCore,
    order: &RelayRequest,
    place: &RegisteredCallGuard,
    begun: &mut RelayCallState,
) -> Result<RelayRequestBody, CallError> {
    admit(service, order, place.capacity)?;
    let asked = order.parse_body()?;
    begun.id = Some(asked.id.clone());
    // Asking what there is can't do harm twice.
    if list_kind(asked.method.as_str()).is_none() {
        claim(service, order, begun).await?;
    }
    send_accepted(service, order, place).await?;
    Ok(asked)
}

/// Tells the worker that it begins. Where that can't be told, or not in time,
/// it does not begin: a refusal that is asked for later is better than a doubt.
async fn send_accepted(
    service: &ServiceCore,
    order: &RelayRequest,
    place: &RegisteredCallGuard,
) -> Result<(), CallError> {
    place.set_accepted();
    if !service.send_accepted(&order.reply_address.key).await {
        let what = "the connection to the broker was lost before the call began".into();
        return Err(CallError::Overloaded { what, retry_after: RETRY });
    }
    if is_expired(service, order) { Err(expired_error(order)) } else { Ok(()) }
}

fn admit(service: &ServiceCore, order: &RelayRequest, room: CallCapacity) -> Result<(), CallError> {
    if !service.host.has_role(order.caller.role()) {
        return Err(order.unknown_server());
    }
    if is_expired(service, order) {
        return Err(expired_error(order));
    }
    let what = match room {
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

/// Claims the call, or says why nothing may begin.
async fn claim(
    service: &ServiceCore,
    order: &RelayRequest,
    begun: &mut RelayCallState,
) -> Result<(), CallError> {
    let left = service.clock.until(order.head.begin_by).unwrap_or_default().min(BEGIN);
    let claiming = service.journal.claim(order.claim_id(), &order.worker_instance.worker);
    match timeout(left, claiming).await {
        Ok(Ok(ClaimOutcome::Ours)) => {
            service.is_journal_broken.store(false, Ordering::Relaxed);
            begun.is_claimed = true;
        }
        Ok(Ok(ClaimOutcome::Taken { .. })) => {
            let cause = "it was begun before, and its answer is not kept any more";
            return Err(order.outcome_unknown(cause));
        }
        Ok(Err(error)) => {
            // Where the journal is and what ails it concerns only whoever runs the host.
            if !service.is_journal_broken.swap(true, Ordering::Relaxed) {
                tracing::error!(%error, "no relayed call is taken");
            }
            return Err(claim_failed_error("the journal of calls can't be written"));
        }
        Err(_) => return Err(claim_failed_error("the journal of calls did not answer in time")),
    }
    // The worker has stopped believing that it begins.
    if is_expired(service, order) { Err(expired_error(order)) } else { Ok(()) }
}

/// Sends it through the host's gates, and tells the worker what happens meanwhile.
async fn send_to_host(
    service: &ServiceCore,
    order: &RelayRequest,
    place: &RegisteredCallGuard,
    asked: RelayRequestBody,
) -> Result<Bytes, CallError> {
    let RelayRequestBody { method, params, .. } = asked;
    let left = service.clock.until(order.head.deadline).unwrap_or_default();
    let (voice, notes) = WorkerObserver::for_request(&params).unzip();
    let mut request =
        Request::new(&order.caller, method.as_str(), params).from_modern_client().with_timeout(left);
    if let Some(voice) = voice {
        place.set_observer(Arc::clone(&voice));
        request = request.with_call_observer(voice);
    }
    let answer = pin!(service.host.send_to(order.head.server.as_str(), request));
    let answer = match notes {
        None => answer.await?,
        Some(notes) => forward_until_answered(service, order, answer, notes).await?,
    };
    if answer.body.len() > MAX_ANSWER {
        let detail = format!("the answer is longer than {} MiB, which the relay carries", MAX_ANSWER >> 20);
        return Err(CallError::UpstreamProtocol { server: answer.server, detail });
    }
    Ok(answer.body_with_remaining_ttl())
}

/// Waits for the answer and carries what is said before it, in order.
async fn forward_until_answered(
    service: &ServiceCore,
    order: &RelayRequest,
    answer: Pin<&mut impl Future<Output = Result<Answer, CallError>>>,
    mut notes: ProgressReceiver,
) -> Result<Answer, CallError> {
    let (done, is_done) = oneshot::channel::<()>();
    let waiting = async {
        let answer = answer.await;
        drop(done);
        answer
    };
    let telling = async {
        let mut is_done = pin!(is_done);
        loop {
            tokio::select! {
                biased;
                Some(note) = notes.recv() => drop(service.send_progress(&order.reply_address.key, note).await),
                _ = &mut is_done => return,
            }
        }
    };
    // Side by side: a broker that takes no notes must not keep the call from its end.
    tokio::join!(waiting, telling).0
}

/// Answers a list, whole and in one page.
async fn answer_list(service: &ServiceCore, order: &RelayRequest, kind: Kind) -> Result<Bytes, CallError> {
    let left = service.clock.until(order.head.deadline).unwrap_or_default();
    let mut listings =
        service.host.list(&order.caller, &Scope::Server(order.head.server.clone()), kind, left).await;
    let listing = listings.pop().ok_or_else(|| order.unknown_server())?.require_known()?;
    Ok(write_list(kind, &listing).into())
}

/// What is shown depends on the role, so it is nobody else's.
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

fn is_expired(service: &ServiceCore, order: &RelayRequest) -> bool {
    let by = order.head.begin_by.min(order.head.deadline);
    service.clock.until(by).is_none()
}

fn expired_error(order: &RelayRequest) -> CallError {
    let server = order.head.server.clone();
    CallError::TimedOut { server, after: BEGIN, delivery: Delivery::NotSent }
}

/// Nothing is wrong with the call; it must not begin.
fn claim_failed_error(why: &str) -> CallError {
    CallError::Overloaded { what: format!("the host can't take calls: {why}"), retry_after: RETRY }
}

/// What is said of a call in which we failed ourselves.
fn panic_error(order: &RelayRequest, is_claimed: bool) -> CallError {
    let cause = "the host failed while it carried it out";
    match is_claimed {
        true => order.outcome_unknown(cause),
        false => CallError::Overloaded { what: "the host failed before it began".into(), retry_after: RETRY },
    }
}

/// Records a refusal that the walk never sees. What a rule hides is recorded as that.
fn record_refusal(service: &ServiceCore, order: &RelayRequest, error: &CallError) {
    // What was refused unread is read now, as far as it can be.
    let (method, tool) =
        (order.find_method().unwrap_or_default(), order.parse_body().ok().and_then(|asked| asked.tool()));
    let (server, method) = (order.head.server.as_str(), method.as_str());
    let subject = tool.as_deref().unwrap_or_default();
    let is_hidden = matches!(error, CallError::UnknownServer { .. })
        && service.host.record_if_denied(&order.caller, DeniedRequest { server, method, item: None });
    if !is_hidden {
        let unknown = UnresolvedRequest { server, method, subject, outcome: error.code() };
        service.host.record_unresolved(&order.caller, unknown);
    }
}

/// What a future comes to; `None` if it panics. The panic was reported where
/// it happened, and what it has left half done goes with the future.
async fn catch_panic<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(value)) => Poll::Ready(Some(value)),
        Err(_) => Poll::Ready(None),
    })
    .await
}
