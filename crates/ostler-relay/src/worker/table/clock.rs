//! The time of calls: one timer serves all of them.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{State, Table};

/// A look that comes so much later than it was meant to shows that this
/// process, or its machine, has slept.
const LATE: Duration = Duration::from_millis(500);

/// How long what was said meanwhile may take to be read.
const CATCH_UP: Duration = Duration::from_millis(50);

impl Table {
    /// Makes sure that the clock looks no later than this.
    pub(super) fn look_by(&self, state: &mut State, wake: Instant) {
        if state.next_look.is_none_or(|next| wake < next) {
            state.next_look = Some(wake);
            self.alarm.notify_one();
        }
    }

    /// Ends every call whose time is over; until the table is closed.
    pub(in crate::worker) async fn keep_time(&self) {
        loop {
            let (next, is_closed) = {
                let state = self.lock();
                (state.next_look, state.is_closed)
            };
            match next {
                _ if is_closed => return,
                None => self.alarm.notified().await,
                Some(next) => tokio::select! {
                    () = sleep_until(next) => {
                        if Instant::now() > next + LATE {
                            // We were not there ourselves: what was said meanwhile is heard first.
                            tokio::time::sleep(CATCH_UP).await;
                        }
                        self.look();
                    }
                    () = self.alarm.notified() => {}
                },
            }
        }
    }

    fn look(&self) {
        let now = Instant::now();
        self.sweep(|_, pending, _| pending.on_time(now));
        let mut state = self.lock();
        let out = state.waiting.values().filter(|waiting| waiting.tell.is_some());
        state.next_look = out.map(|waiting| waiting.pending.next_wake()).min();
    }
}
