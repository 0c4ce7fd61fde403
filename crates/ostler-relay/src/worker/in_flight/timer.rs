//! The time of calls: one timer serves all of them.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{RelayedCalls, RelayedCallsState};

/// A look that comes so much later than it was meant to shows that this
/// process, or its machine, has slept.
const LATE: Duration = Duration::from_millis(500);

/// How long what was said meanwhile may take to be read.
const CATCH_UP: Duration = Duration::from_millis(50);

impl RelayedCalls {
    /// Makes sure that the clock looks no later than this.
    pub(super) fn wake_by(&self, state: &mut RelayedCallsState, wake: Instant) {
        if state.next_wake.is_none_or(|next| wake < next) {
            state.next_wake = Some(wake);
            self.timer_wake.notify_one();
        }
    }

    /// Ends every call whose time is over; until the table is closed.
    pub(in crate::worker) async fn run_timer(&self) {
        loop {
            let (next, is_closed) = {
                let state = self.lock();
                (state.next_wake, state.is_closed)
            };
            match next {
                _ if is_closed => return,
                None => self.timer_wake.notified().await,
                Some(next) => tokio::select! {
                    () = sleep_until(next) => {
                        if Instant::now() > next + LATE {
                            // We were not there ourselves: what was said meanwhile is heard first.
                            tokio::time::sleep(CATCH_UP).await;
                        }
                        self.fail_expired();
                    }
                    () = self.timer_wake.notified() => {}
                },
            }
        }
    }

    fn fail_expired(&self) {
        let now = Instant::now();
        self.fail_matching(|_, pending, _| pending.on_time_passed(now));
        let mut state = self.lock();
        let out = state.calls.values().filter(|waiting| waiting.outcome_sender.is_some());
        state.next_wake = out.map(|waiting| waiting.pending.next_wake()).min();
    }
}
