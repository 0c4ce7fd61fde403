//! The requests of one session that wait for their answers.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use ostler_core::fault::{Fault, FaultKind};
use ostler_wire::{FIRST_REQUEST_ID, RpcOutcome};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::upstream::attribution::{self, CallCandidate};
use crate::upstream::{SharedCallObserver, UpstreamRequest};

/// The answer to one call.
pub(crate) type HttpCallReply = Result<RpcOutcome, Fault>;

/// The calls of one session. How many there can be is bounded by the leases.
#[derive(Default)]
pub(crate) struct HttpPendingCalls {
    state: Mutex<HttpPendingState>,
    /// Tells calls that their deadline may have moved.
    deadline_changed: Notify,
    /// Tells that some call is over.
    ended: Notify,
}

#[derive(Default)]
struct HttpPendingState {
    pending: HashMap<u64, HttpPendingCall>,
    /// How many numbers have been given out.
    given: u64,
}

struct HttpPendingCall {
    since: Instant,
    /// Moved by progress and questions, up to `at_most`.
    deadline: Instant,
    hard_deadline: Instant,
    /// Questions of the server that the caller has not answered.
    open_requests: usize,
    observer: Option<SharedCallObserver>,
    /// Set once a notice that names no call may be another caller's.
    has_other_callers: Option<Arc<AtomicBool>>,
    /// Whether it can make the server ask or tell something.
    can_trigger_messages: bool,
    /// For answers that come on another stream than the call's own.
    reply: oneshot::Sender<HttpCallReply>,
}

/// A call that waits. Dropping it ends the waiting.
pub(crate) struct PendingCallHandle<'a> {
    calls: &'a HttpPendingCalls,
    pub(crate) id: u64,
}

impl HttpPendingCalls {
    fn lock(&self) -> MutexGuard<'_, HttpPendingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call; beside its ticket, what comes on another stream than its own.
    pub(crate) fn register(
        &self,
        ask: &UpstreamRequest<'_>,
    ) -> (PendingCallHandle<'_>, oneshot::Receiver<HttpCallReply>) {
        let (reply, answer) = oneshot::channel();
        let waiting = HttpPendingCall {
            since: Instant::now(),
            deadline: ask.deadline,
            hard_deadline: ask.hard_deadline,
            open_requests: 0,
            observer: ask.observer.cloned(),
            has_other_callers: ask.has_other_callers.cloned(),
            can_trigger_messages: attribution::can_trigger_messages(ask.method),
            reply,
        };
        let mut state = self.lock();
        let id = FIRST_REQUEST_ID + state.given;
        state.given += 1;
        state.pending.insert(id, waiting);
        (PendingCallHandle { calls: self, id }, answer)
    }

    /// A number for a request that nobody waits for.
    pub(crate) fn next_id(&self) -> u64 {
        let mut state = self.lock();
        state.given += 1;
        FIRST_REQUEST_ID + state.given - 1
    }

    /// Hands over an answer that came on a stream of the whole session.
    pub(crate) fn complete(&self, id: u64, answer: HttpCallReply) -> bool {
        let waiting = self.lock().pending.remove(&id);
        self.ended.notify_waiters();
        waiting.is_some_and(|waiting| waiting.reply.send(answer).is_ok())
    }

    /// Ends every call in the same way.
    pub(crate) fn fail_all(&self, kind: &FaultKind) {
        let all = std::mem::take(&mut self.lock().pending);
        self.ended.notify_waiters();
        for waiting in all.into_values() {
            let _ = waiting.reply.send(Err(Fault::unknown(kind.clone())));
        }
    }

    /// Notes progress: the call gets `patience` from now on, and its voice is
    /// returned to be told.
    pub(crate) fn extend_deadline(&self, token: u64, patience: Duration) -> Option<SharedCallObserver> {
        let mut state = self.lock();
        let waiting = state.pending.get_mut(&token)?;
        waiting.deadline = waiting.deadline.max(Instant::now() + patience).min(waiting.hard_deadline);
        waiting.observer.clone()
    }

    /// A question is open: the call's time stands still. False if the call is
    /// over or has too many of them.
    pub(crate) fn open_server_request(&self, id: u64, limit: usize) -> bool {
        let mut state = self.lock();
        let Some(waiting) = state.pending.get_mut(&id).filter(|waiting| waiting.open_requests < limit) else {
            return false;
        };
        waiting.open_requests += 1;
        waiting.deadline = waiting.hard_deadline;
        true
    }

    /// A question is closed; with the last one the call's time runs again.
    pub(crate) fn close_server_request(&self, id: u64, patience: Duration) {
        let mut state = self.lock();
        let Some(waiting) = state.pending.get_mut(&id) else { return };
        waiting.open_requests = waiting.open_requests.saturating_sub(1);
        if waiting.open_requests == 0 {
            waiting.deadline = waiting.hard_deadline.min(Instant::now() + patience);
        }
        drop(state);
        self.deadline_changed.notify_waiters();
    }

    pub(crate) fn observer(&self, id: u64) -> Option<SharedCallObserver> {
        self.lock().pending.get(&id).and_then(|waiting| waiting.observer.clone())
    }

    /// Waits until a call is over.
    pub(crate) async fn until_ended(&self, id: u64) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if !self.lock().pending.contains_key(&id) {
                return;
            }
            ended.await;
        }
    }

    /// The calls that can have caused what the server says.
    pub(crate) fn candidates(&self) -> Vec<CallCandidate> {
        let state = self.lock();
        let able = state.pending.iter().filter(|(_, waiting)| waiting.can_trigger_messages);
        able.map(|(id, waiting)| CallCandidate {
            call: *id,
            observer: waiting.observer.clone(),
            has_open_request: waiting.open_requests > 0,
            accepts_unattributed: attribution::accepts_unattributed(waiting.has_other_callers.as_deref()),
        })
        .collect()
    }

    /// When the oldest call that waits was made.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.lock().pending.values().map(|waiting| waiting.since).min()
    }

    fn times(&self, id: u64) -> Option<(Instant, Instant)> {
        self.lock().pending.get(&id).map(|waiting| (waiting.since, waiting.deadline))
    }
}

impl PendingCallHandle<'_> {
    /// Waits until the call's time is over, and says how much it was.
    pub(crate) async fn expired(&self) -> Duration {
        loop {
            let moved = self.calls.deadline_changed.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let Some((since, until)) = self.calls.times(self.id) else { return std::future::pending().await };
            if Instant::now() >= until {
                return until.saturating_duration_since(since);
            }
            tokio::select! {
                () = sleep_until(until) => {}
                () = moved => {}
            }
        }
    }
}

impl Drop for PendingCallHandle<'_> {
    fn drop(&mut self) {
        self.calls.lock().pending.remove(&self.id);
        self.calls.ended.notify_waiters();
    }
}
