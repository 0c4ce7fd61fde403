//! Throttle: bounds the requests that begin in one round of the runtime.
//!
//! The runtime runs its tasks in turn. A call that is under way needs several
//! turns: to reach its server, to be answered, to make room for the next. If
//! every connection of a crowd begins a request in each round, be it only to be
//! turned down, each of these turns takes as long as the whole crowd, and little
//! is done while much is refused. So only some begin in each round, in the order
//! of their arrival, and what has begun goes on in between.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{Notify, oneshot};

/// Requests that begin in one round. Turning one down takes some 30 µs, so what
/// is under way waits half a millisecond for its turn.
const PER_ROUND: usize = 16;

/// Lets requests begin, some in each round.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    state: Mutex<ThrottleState>,
    /// Told when a round has had its share.
    round_full: Arc<Notify>,
}

#[derive(Debug, Default)]
struct ThrottleState {
    /// Requests that have begun in this round.
    started: usize,
    /// Those that wait: at most one for each connection, and those who have
    /// left since the last round.
    waiting: VecDeque<ThrottledRequest>,
}

/// A request that waits for its turn.
#[derive(Debug)]
struct ThrottledRequest(oneshot::Sender<()>);

impl Throttle {
    /// Makes a throttle with the task that opens it, which ends when the throttle is dropped.
    pub(super) fn new() -> Arc<Self> {
        let throttle = Arc::new(Self::default());
        tokio::spawn(run_rounds(Arc::downgrade(&throttle)));
        throttle
    }

    /// Waits until a request may begin. A request whose client leaves is passed over.
    pub(super) async fn wait_for_turn(&self) {
        let Some(turn) = self.try_begin() else { return };
        // A throttle that is gone holds nothing back.
        let _ = turn.await;
    }

    /// Begins a request in this round, or joins those who wait for the next.
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

    /// Begins a round; true if it has had its share with those who waited.
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

/// Opens the throttle once in every round, as long as requests come in.
async fn run_rounds(throttle: Weak<Throttle>) {
    loop {
        let Some(shut) = throttle.upgrade().map(|throttle| Arc::clone(&throttle.round_full)) else { return };
        shut.notified().await;
        loop {
            // Yielding lets everything else run that can, and looks for what has arrived.
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
