//! The time of calls: one timer serves all calls of a connection.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{Line, State, Waiting};
use crate::upstream::SharedVoice;

impl Line {
    /// Ends every call whose time is over: the server is told, and the caller
    /// learns whether it had left. Until the line is closed. One timer serves
    /// all calls of a connection.
    pub(crate) async fn keep_time(&self) {
        loop {
            let (next_deadline, is_closed) = {
                let state = self.lock();
                (state.next_deadline, state.closed.is_some() && state.waiting.is_empty())
            };
            if is_closed {
                return;
            }
            match next_deadline {
                None => self.alarm.notified().await,
                Some(next) => tokio::select! {
                    () = sleep_until(next) => self.expire(Instant::now()),
                    () = self.alarm.notified() => {}
                },
            }
        }
    }

    fn expire(&self, now: Instant) {
        let over: Vec<u64> = {
            let mut state = self.lock();
            let is_over = |waiting: &Waiting| waiting.until <= now;
            let over =
                state.waiting.iter().filter(|(_, waiting)| is_over(waiting)).map(|(id, _)| *id).collect();
            let left = state.waiting.values().filter(|waiting| !is_over(waiting));
            state.next_deadline = left.map(|waiting| waiting.until).min();
            over
        };
        for id in over {
            self.give_up(id, "timed out");
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
}

impl State {
    /// Makes sure that the clock looks no later than this; true if it has to be told.
    pub(super) fn look_by(&mut self, until: Instant) -> bool {
        let is_sooner = self.next_deadline.is_none_or(|next| until < next);
        if is_sooner {
            self.next_deadline = Some(until);
        }
        is_sooner
    }
}
