//! Deadlines of calls: one timer serves all calls of a connection.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{Multiplexer, MultiplexerState, StdioPendingCall};
use crate::upstream::SharedCallObserver;

impl Multiplexer {
    /// Ends every call whose deadline has passed, until the connection is closed: the server is notified, and the
    /// caller learns whether the call had left. One timer serves all calls of a connection.
    pub(crate) async fn run_deadlines(&self) {
        loop {
            let (next_deadline, is_closed) = {
                let state = self.lock();
                (state.next_deadline, state.closed.is_some() && state.pending.is_empty())
            };
            if is_closed {
                return;
            }
            match next_deadline {
                None => self.deadline_changed.notified().await,
                Some(next) => tokio::select! {
                    () = sleep_until(next) => self.expire(Instant::now()),
                    () = self.deadline_changed.notified() => {}
                },
            }
        }
    }

    fn expire(&self, now: Instant) {
        let over: Vec<u64> = {
            let mut state = self.lock();
            let is_over = |waiting: &StdioPendingCall| waiting.deadline <= now;
            let over =
                state.pending.iter().filter(|(_, waiting)| is_over(waiting)).map(|(id, _)| *id).collect();
            let left = state.pending.values().filter(|waiting| !is_over(waiting));
            state.next_deadline = left.map(|waiting| waiting.deadline).min();
            over
        };
        for id in over {
            self.cancel_call(id, "timed out");
        }
    }

    /// Records progress: the call gets `patience` from now on. Returns its observer.
    pub(crate) fn extend_deadline(&self, token: u64, patience: Duration) -> Option<SharedCallObserver> {
        let mut state = self.lock();
        let waiting = state.pending.get_mut(&token)?;
        waiting.deadline = waiting.deadline.max(Instant::now() + patience).min(waiting.hard_deadline);
        waiting.observer.clone()
    }
}

impl MultiplexerState {
    /// Ensures that the timer fires no later than this. Returns whether it must be woken.
    pub(super) fn schedule_deadline(&mut self, until: Instant) -> bool {
        let is_sooner = self.next_deadline.is_none_or(|next| until < next);
        if is_sooner {
            self.next_deadline = Some(until);
        }
        is_sooner
    }
}
