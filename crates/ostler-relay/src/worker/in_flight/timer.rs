//! Timer of the calls in flight: one task serves all of them.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{RelayedCalls, RelayedCallsState};

/// Lateness of a wake-up that shows that the process or its machine was suspended.
const LATE: Duration = Duration::from_millis(500);

/// Time to read the messages that arrived during a suspension.
const CATCH_UP: Duration = Duration::from_millis(50);

impl RelayedCalls {
    /// Makes the timer run no later than `wake`.
    pub(super) fn wake_by(&self, state: &mut RelayedCallsState, wake: Instant) {
        if state.next_wake.is_none_or(|next| wake < next) {
            state.next_wake = Some(wake);
            self.timer_wake.notify_one();
        }
    }

    /// Fails calls whose deadline has passed, until the table is closed.
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
                            // After a suspension, queued messages are read before calls expire.
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
        let published = state.calls.values().filter(|relayed| relayed.outcome_sender.is_some());
        state.next_wake = published.map(|relayed| relayed.pending.next_wake()).min();
    }
}
