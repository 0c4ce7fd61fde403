//! Pending calls of one HTTP session.

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

/// The response to one call.
pub(crate) type HttpCallReply = Result<RpcOutcome, Fault>;

/// The pending calls of one session. Bounded by the leases.
#[derive(Default)]
pub(crate) struct HttpPendingCalls {
    state: Mutex<HttpPendingState>,
    /// Notifies calls that their deadline may have moved.
    deadline_changed: Notify,
    /// Notifies waiters that some call has ended.
    ended: Notify,
}

#[derive(Default)]
struct HttpPendingState {
    pending: HashMap<u64, HttpPendingCall>,
    /// Request ids given out so far.
    given: u64,
}

struct HttpPendingCall {
    since: Instant,
    /// Moved by progress and server requests, up to `at_most`.
    deadline: Instant,
    hard_deadline: Instant,
    /// Server requests that the caller has not answered.
    open_requests: usize,
    observer: Option<SharedCallObserver>,
    /// Set once an unattributed notification may be another caller's.
    has_other_callers: Option<Arc<AtomicBool>>,
    /// True if the call can make the server send a request or notification.
    can_trigger_messages: bool,
    /// For responses that come on another stream than the call's own.
    reply: oneshot::Sender<HttpCallReply>,
}

/// A pending call. Dropping it removes the call.
pub(crate) struct PendingCallHandle<'a> {
    calls: &'a HttpPendingCalls,
    pub(crate) id: u64,
}

impl HttpPendingCalls {
    fn lock(&self) -> MutexGuard<'_, HttpPendingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call. Returns its handle and the receiver of messages from other streams.
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

    /// Returns an id for a request without a waiter.
    pub(crate) fn next_id(&self) -> u64 {
        let mut state = self.lock();
        state.given += 1;
        FIRST_REQUEST_ID + state.given - 1
    }

    /// Delivers a response that came on a stream of the whole session.
    pub(crate) fn complete(&self, id: u64, answer: HttpCallReply) -> bool {
        let waiting = self.lock().pending.remove(&id);
        self.ended.notify_waiters();
        waiting.is_some_and(|waiting| waiting.reply.send(answer).is_ok())
    }

    /// Ends every call with the same fault.
    pub(crate) fn fail_all(&self, kind: &FaultKind) {
        let all = std::mem::take(&mut self.lock().pending);
        self.ended.notify_waiters();
        for waiting in all.into_values() {
            let _ = waiting.reply.send(Err(Fault::unknown(kind.clone())));
        }
    }

    /// Records progress: the call gets `patience` from now on. Returns its observer.
    pub(crate) fn extend_deadline(&self, token: u64, patience: Duration) -> Option<SharedCallObserver> {
        let mut state = self.lock();
        let waiting = state.pending.get_mut(&token)?;
        waiting.deadline = waiting.deadline.max(Instant::now() + patience).min(waiting.hard_deadline);
        waiting.observer.clone()
    }

    /// Opens a server request: the call's deadline stands still. Returns false if the call has ended or has too many
    /// open requests.
    pub(crate) fn open_server_request(&self, id: u64, limit: usize) -> bool {
        let mut state = self.lock();
        let Some(waiting) = state.pending.get_mut(&id).filter(|waiting| waiting.open_requests < limit) else {
            return false;
        };
        waiting.open_requests += 1;
        waiting.deadline = waiting.hard_deadline;
        true
    }

    /// Closes a server request; with the last one the call's deadline runs again.
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

    /// Waits until a call has ended.
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

    /// Returns the calls that can have caused a message of the server.
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

    /// Returns the start of the oldest pending call.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.lock().pending.values().map(|waiting| waiting.since).min()
    }

    fn times(&self, id: u64) -> Option<(Instant, Instant)> {
        self.lock().pending.get(&id).map(|waiting| (waiting.since, waiting.deadline))
    }
}

impl PendingCallHandle<'_> {
    /// Waits until the call's deadline, and returns the time that the call had.
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
