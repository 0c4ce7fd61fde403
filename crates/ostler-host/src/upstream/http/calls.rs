//! The requests of one session that wait for their answers.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use ostler_core::fault::{Fault, FaultKind};
use ostler_wire::{FIRST_SESSION_ID, Outcome};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::upstream::whose::{self, Candidate};
use crate::upstream::{Ask, SharedVoice};

/// The answer to one call.
pub(crate) type Answer = Result<Outcome, Fault>;

/// The calls of one session. How many there can be is bounded by the leases.
#[derive(Default)]
pub(crate) struct Calls {
    state: Mutex<State>,
    /// Tells calls that their deadline may have moved.
    moved: Notify,
    /// Tells that some call is over.
    ended: Notify,
}

#[derive(Default)]
struct State {
    waiting: HashMap<u64, Waiting>,
    /// How many numbers have been given out.
    given: u64,
}

struct Waiting {
    since: Instant,
    /// Moved by progress and questions, up to `at_most`.
    until: Instant,
    at_most: Instant,
    /// Questions of the server that the caller has not answered.
    questions: usize,
    voice: Option<SharedVoice>,
    /// Set once a notice that names no call may be another caller's.
    has_others: Option<Arc<AtomicBool>>,
    /// Whether it can make the server ask or tell something.
    can_cause: bool,
    /// For answers that come on another stream than the call's own.
    reply: oneshot::Sender<Answer>,
}

/// A call that waits. Dropping it ends the waiting.
pub(crate) struct Ticket<'a> {
    calls: &'a Calls,
    pub(crate) id: u64,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call; beside its ticket, what comes on another stream than its own.
    pub(crate) fn begin(&self, ask: &Ask<'_>) -> (Ticket<'_>, oneshot::Receiver<Answer>) {
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting {
            since: Instant::now(),
            until: ask.until,
            at_most: ask.at_most,
            questions: 0,
            voice: ask.voice.cloned(),
            has_others: ask.has_others.cloned(),
            can_cause: whose::can_cause(ask.method),
            reply,
        };
        let mut state = self.lock();
        let id = FIRST_SESSION_ID + state.given;
        state.given += 1;
        state.waiting.insert(id, waiting);
        (Ticket { calls: self, id }, answer)
    }

    /// A number for a request that nobody waits for.
    pub(crate) fn number(&self) -> u64 {
        let mut state = self.lock();
        state.given += 1;
        FIRST_SESSION_ID + state.given - 1
    }

    /// Hands over an answer that came on a stream of the whole session.
    pub(crate) fn answer(&self, id: u64, answer: Answer) -> bool {
        let waiting = self.lock().waiting.remove(&id);
        self.ended.notify_waiters();
        waiting.is_some_and(|waiting| waiting.reply.send(answer).is_ok())
    }

    /// Ends every call in the same way.
    pub(crate) fn fail_all(&self, kind: &FaultKind) {
        let all = std::mem::take(&mut self.lock().waiting);
        self.ended.notify_waiters();
        for waiting in all.into_values() {
            let _ = waiting.reply.send(Err(Fault::unknown(kind.clone())));
        }
    }

    /// Notes progress: the call gets `patience` from now on, and its voice is
    /// returned to be told.
    pub(crate) fn progress(&self, token: u64, patience: Duration) -> Option<SharedVoice> {
        let mut state = self.lock();
        let waiting = state.waiting.get_mut(&token)?;
        waiting.until = waiting.until.max(Instant::now() + patience).min(waiting.at_most);
        waiting.voice.clone()
    }

    /// A question is open: the call's time stands still. False if the call is
    /// over or has too many of them.
    pub(crate) fn open_question(&self, id: u64, limit: usize) -> bool {
        let mut state = self.lock();
        let Some(waiting) = state.waiting.get_mut(&id).filter(|waiting| waiting.questions < limit) else {
            return false;
        };
        waiting.questions += 1;
        waiting.until = waiting.at_most;
        true
    }

    /// A question is closed; with the last one the call's time runs again.
    pub(crate) fn close_question(&self, id: u64, patience: Duration) {
        let mut state = self.lock();
        let Some(waiting) = state.waiting.get_mut(&id) else { return };
        waiting.questions = waiting.questions.saturating_sub(1);
        if waiting.questions == 0 {
            waiting.until = waiting.at_most.min(Instant::now() + patience);
        }
        drop(state);
        self.moved.notify_waiters();
    }

    pub(crate) fn voice(&self, id: u64) -> Option<SharedVoice> {
        self.lock().waiting.get(&id).and_then(|waiting| waiting.voice.clone())
    }

    /// Waits until a call is over.
    pub(crate) async fn over(&self, id: u64) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if !self.lock().waiting.contains_key(&id) {
                return;
            }
            ended.await;
        }
    }

    /// The calls that can have caused what the server says.
    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        let state = self.lock();
        let able = state.waiting.iter().filter(|(_, waiting)| waiting.can_cause);
        able.map(|(id, waiting)| Candidate {
            call: *id,
            voice: waiting.voice.clone(),
            is_asked: waiting.questions > 0,
            takes_unattributed: whose::takes_unattributed(waiting.has_others.as_deref()),
        })
        .collect()
    }

    /// When the oldest call that waits was made.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.lock().waiting.values().map(|waiting| waiting.since).min()
    }

    fn times(&self, id: u64) -> Option<(Instant, Instant)> {
        self.lock().waiting.get(&id).map(|waiting| (waiting.since, waiting.until))
    }
}

impl Ticket<'_> {
    /// Waits until the call's time is over, and says how much it was.
    pub(crate) async fn expired(&self) -> Duration {
        loop {
            let moved = self.calls.moved.notified();
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

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.calls.lock().waiting.remove(&self.id);
        self.calls.ended.notify_waiters();
    }
}
