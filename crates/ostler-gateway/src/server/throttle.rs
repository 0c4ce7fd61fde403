//! Throttle: bounds the requests that start in one round of the runtime.
//!
//! The runtime polls its tasks in turn. A call in flight needs several turns: to reach its server, to be answered, to
//! free its permit. If each of many connections starts a request in each round, even one that is refused, every turn
//! takes as long as the whole burst, and most work is refusals. So only some requests start in each round, in the order
//! of their arrival, and requests in flight continue in between.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{Notify, oneshot};

/// Requests that start in one round. A refusal takes some 30 µs, so a request in flight waits half a millisecond for
/// its turn.
const PER_ROUND: usize = 16;

/// Throttle: lets a bounded number of requests start in each round.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    state: Mutex<ThrottleState>,
    /// Notified when a round is full.
    round_full: Arc<Notify>,
}

#[derive(Debug, Default)]
struct ThrottleState {
    /// Requests that have started in this round.
    started: usize,
    /// Requests that wait: at most one for each connection, and those of clients that have left since the last round.
    waiting: VecDeque<ThrottledRequest>,
}

/// Request that waits for its turn.
#[derive(Debug)]
struct ThrottledRequest(oneshot::Sender<()>);

impl Throttle {
    /// Makes a throttle and the task that runs its rounds, which ends when the throttle is dropped.
    pub(super) fn new() -> Arc<Self> {
        let throttle = Arc::new(Self::default());
        tokio::spawn(run_rounds(Arc::downgrade(&throttle)));
        throttle
    }

    /// Waits until a request may start. A request whose client leaves is skipped.
    pub(super) async fn wait_for_turn(&self) {
        let Some(turn) = self.try_begin() else { return };
        // A dropped throttle holds no request back.
        let _ = turn.await;
    }

    /// Starts a request in this round, or queues it for the next.
    fn try_begin(&self) -> Option<oneshot::Receiver<()>> {
        let mut state = self.state();
        if state.started < PER_ROUND {
            state.started += 1;
            if state.started == PER_ROUND {
                self.round_full.notify_one();
            }
            return None;
        }
        let (turn, waiting) = oneshot::channel();
        state.waiting.push_back(ThrottledRequest(turn));
        Some(waiting)
    }

    /// Begins a round; true if the waiting requests have filled it.
    fn begin_round(&self) -> bool {
        let mut state = self.state();
        state.started = 0;
        while state.started < PER_ROUND
            && let Some(ThrottledRequest(turn)) = state.waiting.pop_front()
        {
            // A client that has left takes no place.
            state.started += usize::from(turn.send(()).is_ok());
        }
        state.started == PER_ROUND
    }

    fn state(&self) -> MutexGuard<'_, ThrottleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs one round after the other, as long as requests arrive.
async fn run_rounds(throttle: Weak<Throttle>) {
    loop {
        let Some(shut) = throttle.upgrade().map(|throttle| Arc::clone(&throttle.round_full)) else { return };
        shut.notified().await;
        loop {
            // Yielding lets every other ready task run, and polls for new events.
            tokio::task::yield_now().await;
            let Some(throttle) = throttle.upgrade() else { return };
            if !throttle.begin_round() {
                break;
            }
        }
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        self.round_full.notify_one();
    }
}
