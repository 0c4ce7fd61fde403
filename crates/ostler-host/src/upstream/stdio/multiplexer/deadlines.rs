//! The time of calls: one timer serves all calls of a connection.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{Multiplexer, MultiplexerState, StdioPendingCall};
use crate::upstream::SharedCallObserver;

impl Multiplexer {
    /// Ends every call whose time is over: the server is told, and the caller
    /// learns whether it had left. Until the line is closed. One timer serves
    /// all calls of a connection.
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

    /// Notes progress: the call gets `patience` from now on, and its voice is
    /// returned to be told.
    pub(crate) fn extend_deadline(&self, token: u64, patience: Duration) -> Option<SharedCallObserver> {
        let mut state = self.lock();
        let waiting = state.pending.get_mut(&token)?;
        waiting.deadline = waiting.deadline.max(Instant::now() + patience).min(waiting.hard_deadline);
        waiting.observer.clone()
    }
}

impl MultiplexerState {
    /// Makes sure that the clock looks no later than this; true if it has to be told.
    pub(super) fn schedule_deadline(&mut self, until: Instant) -> bool {
        let is_sooner = self.next_deadline.is_none_or(|next| until < next);
        if is_sooner {
            self.next_deadline = Some(until);
        }
        is_sooner
    }
}
