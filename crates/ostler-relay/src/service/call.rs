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
use ostler_host::{Answer, Kind, Refused, Request, Unknown};
use ostler_wire::Id;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::desk::{Cancelled, Place};
use super::load::Room;
use super::order::{Asked, Order};
use super::said::Said;
use super::voice::{Notes, WorkerVoice};
use super::{Shared, lists, send};
use crate::chunk::MAX_ANSWER;
use crate::journal::Claim;

/// How long a worker gives a call to begin, and so the longest wait for a claim.
const BEGIN: Duration = Duration::from_secs(2);

/// When trying again makes sense for who was turned away.
const RETRY: Duration = Duration::from_secs(1);

/// How far a call has come.
#[derive(Default)]
struct Begun {
    /// Under which it is answered.
    id: Option<Id>,
    /// Whether it is ours to settle.
    is_claimed: bool,
}

/// Answers a call that nobody has heard of before.
pub(super) async fn begin(service: Arc<Shared>, order: Order, place: Place, cancelled: Cancelled) {
    let (service, order) = (&*service, &order);
    let mut begun = Begun::default();
    let said = {
        // Futures are pinned where they are made: one that is passed on takes
        // its room twice, and there are as many of them as calls.
        let under_way = pin!(carry_out(service, order, &place, &mut begun));
        tokio::select! {
            // An answer that is there is worth keeping, even if nobody waits.
            biased;
            said = caught(under_way) => said,
            // Dropping what is under way cancels it at the server. Nobody waits
            // for an answer, and what has come of it nobody knows.
            () = cancelled.wait() => return,
        }
    };
    let said = said.unwrap_or_else(|| Said::from(&broken(order, begun.is_claimed)));
    let id = begun.id.take().or_else(|| order.find_id());
    let text = said.frame(id.as_ref());
    let to = place.answered(text.clone());
    if begun.is_claimed {
        service.journal.settle(order.claim_id());
    }
    service.count_answer();
    if let Some(to) = to {
        send::send(service, &to, text).await;
    }
}

async fn carry_out(service: &Shared, order: &Order, place: &Place, begun: &mut Begun) -> Said {
    let asked = match prepare(service, order, place, begun).await {
        Ok(asked) => asked,
        Err(error) => {
            record(service, order, &error);
            service.count_refusal();
            return Said::from(&error);
        }
    };
    let result = match list_of(asked.method.as_str()) {
        Some(kind) => lists::answer(service, order, kind).await,
        None => perform(service, order, place, asked).await,
    };
    match result {
        Ok(result) => Said::Result(result),
        Err(error) => Said::from(&error),
    }
}

/// Everything that must be so before the host is asked.
async fn prepare(
    service: &Shared,
    order: &Order,
    place: &Place,
    begun: &mut Begun,
) -> Result<Asked, CallError> {
    admit(service, order, place.room)?;
    let asked = order.open()?;
    begun.id = Some(asked.id.clone());
    // Asking what there is can't do harm twice.
    if list_of(asked.method.as_str()).is_none() {
        claim(service, order, begun).await?;
    }
    accept(service, order, place).await?;
    Ok(asked)
}

/// Tells the worker that it begins. Where that can't be told, or not in time,
/// it does not begin: a refusal that is asked for later is better than a doubt.
async fn accept(service: &Shared, order: &Order, place: &Place) -> Result<(), CallError> {
    place.set_accepted();
    if !service.accept(&order.to.key).await {
        let what = "the connection to the broker was lost before the call began".into();
        return Err(CallError::Overloaded { what, retry_after: RETRY });
    }
    if is_late(service, order) { Err(late(order)) } else { Ok(()) }
}

fn admit(service: &Shared, order: &Order, room: Room) -> Result<(), CallError> {
    if !service.host.has_role(order.caller.role()) {
        return Err(order.unknown_server());
    }
    if is_late(service, order) {
        return Err(late(order));
    }
    let what = match room {
        Room::Free => return Ok(()),
        Room::Full { limit, is_own: true } => format!("this worker has {limit} calls under way"),
        Room::Full { limit, is_own: false } => format!("the host has {limit} relayed calls under way"),
    };
    Err(CallError::Overloaded { what, retry_after: RETRY })
}

/// Claims the call, or says why nothing may begin.
async fn claim(service: &Shared, order: &Order, begun: &mut Begun) -> Result<(), CallError> {
    let left = service.clock.until(order.head.begin_by).unwrap_or_default().min(BEGIN);
    let claiming = service.journal.claim(order.claim_id(), &order.life.worker);
    match timeout(left, claiming).await {
        Ok(Ok(Claim::Ours)) => {
            service.is_journal_broken.store(false, Ordering::Relaxed);
            begun.is_claimed = true;
        }
        Ok(Ok(Claim::Taken { .. })) => {
            let cause = "it was begun before, and its answer is not kept any more";
            return Err(order.outcome_unknown(cause));
        }
        Ok(Err(error)) => {
            // Where the journal is and what ails it concerns only whoever runs the host.
            if !service.is_journal_broken.swap(true, Ordering::Relaxed) {
                tracing::error!(%error, "no relayed call is taken");
            }
            return Err(unclaimed("the journal of calls can't be written"));
        }
        Err(_) => return Err(unclaimed("the journal of calls did not answer in time")),
    }
    // The worker has stopped believing that it begins.
    if is_late(service, order) { Err(late(order)) } else { Ok(()) }
}

/// Sends it through the host's gates, and tells the worker what happens meanwhile.
async fn perform(service: &Shared, order: &Order, place: &Place, asked: Asked) -> Result<Bytes, CallError> {
    let Asked { method, params, .. } = asked;
    let left = service.clock.until(order.head.deadline).unwrap_or_default();
    let (voice, notes) = WorkerVoice::of(&params).unzip();
    let mut request = Request::new(&order.caller, method.as_str(), params).from_modern_client().within(left);
    if let Some(voice) = voice {
        place.set_voice(Arc::clone(&voice));
        request = request.with_voice(voice);
    }
    let answer = pin!(service.host.ask(order.head.server.as_str(), request));
    let answer = match notes {
        None => answer.await?,
        Some(notes) => heard(service, order, answer, notes).await?,
    };
    if answer.body.len() > MAX_ANSWER {
        let detail = format!("the answer is longer than {} MiB, which the relay carries", MAX_ANSWER >> 20);
        return Err(CallError::UpstreamProtocol { server: answer.server, detail });
    }
    Ok(answer.as_of_now())
}

/// Waits for the answer and carries what is said before it, in order.
async fn heard(
    service: &Shared,
    order: &Order,
    answer: Pin<&mut impl Future<Output = Result<Answer, CallError>>>,
    mut notes: Notes,
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
                Some(note) = notes.recv() => drop(service.note(&order.to.key, note).await),
                _ = &mut is_done => return,
            }
        }
    };
    // Side by side: a broker that takes no notes must not keep the call from its end.
    tokio::join!(waiting, telling).0
}

fn list_of(method: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kind.method() == method)
}

fn is_late(service: &Shared, order: &Order) -> bool {
    let by = order.head.begin_by.min(order.head.deadline);
    service.clock.until(by).is_none()
}

fn late(order: &Order) -> CallError {
    let server = order.head.server.clone();
    CallError::TimedOut { server, after: BEGIN, delivery: Delivery::NotSent }
}

/// Nothing is wrong with the call; it must not begin.
fn unclaimed(why: &str) -> CallError {
    CallError::Overloaded { what: format!("the host can't take calls: {why}"), retry_after: RETRY }
}

/// What is said of a call in which we failed ourselves.
fn broken(order: &Order, is_claimed: bool) -> CallError {
    let cause = "the host failed while it carried it out";
    match is_claimed {
        true => order.outcome_unknown(cause),
        false => CallError::Overloaded { what: "the host failed before it began".into(), retry_after: RETRY },
    }
}

/// Records a refusal that the walk never sees. What a rule hides is recorded as that.
fn record(service: &Shared, order: &Order, error: &CallError) {
    // What was refused unread is read now, as far as it can be.
    let (method, tool) =
        (order.find_method().unwrap_or_default(), order.open().ok().and_then(|asked| asked.tool()));
    let (server, method) = (order.head.server.as_str(), method.as_str());
    let subject = tool.as_deref().unwrap_or_default();
    let is_hidden = matches!(error, CallError::UnknownServer { .. })
        && service.host.record_refusal(&order.caller, Refused { server, method, item: None });
    if !is_hidden {
        let unknown = Unknown { server, method, subject, outcome: error.code() };
        service.host.record_unknown(&order.caller, unknown);
    }
}

/// What a future comes to; `None` if it panics. The panic was reported where
/// it happened, and what it has left half done goes with the future.
async fn caught<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(value)) => Poll::Ready(Some(value)),
        Err(_) => Poll::Ready(None),
    })
    .await
}
