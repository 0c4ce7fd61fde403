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
    state: Mutex<State>,
    /// Told when a round has had its share.
    shut: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    /// Requests that have begun in this round.
    begun: usize,
    /// Those that wait: at most one for each connection, and those who have
    /// left since the last round.
    waiting: VecDeque<Turn>,
}

/// A request that waits for its turn.
#[derive(Debug)]
struct Turn(oneshot::Sender<()>);

impl Throttle {
    /// Makes a throttle with the task that opens it, which ends when the throttle is dropped.
    pub(super) fn new() -> Arc<Self> {
        let throttle = Arc::new(Self::default());
        tokio::spawn(open(Arc::downgrade(&throttle)));
        throttle
    }

    /// Waits until a request may begin. A request whose client leaves is passed over.
    pub(super) async fn pass(&self) {
        let Some(turn) = self.enter() else { return };
        // A throttle that is gone holds nothing back.
        let _ = turn.await;
    }

    /// Begins a request in this round, or joins those who wait for the next.
    fn enter(&self) -> Option<oneshot::Receiver<()>> {
        let mut state = self.state();
        if state.begun < PER_ROUND {
            state.begun += 1;
            if state.begun == PER_ROUND {
                self.shut.notify_one();
            }
            return None;
        }
        let (turn, waiting) = oneshot::channel();
        state.waiting.push_back(Turn(turn));
        Some(waiting)
    }

    /// Begins a round; true if it has had its share with those who waited.
    fn begin_round(&self) -> bool {
        let mut state = self.state();
        state.begun = 0;
        while state.begun < PER_ROUND
            && let Some(Turn(turn)) = state.waiting.pop_front()
        {
            // A client that has left takes no place.
            state.begun += usize::from(turn.send(()).is_ok());
        }
        state.begun == PER_ROUND
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the throttle once in every round, as long as requests come in.
async fn open(throttle: Weak<Throttle>) {
    loop {
        let Some(shut) = throttle.upgrade().map(|throttle| Arc::clone(&throttle.shut)) else { return };
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
        self.shut.notify_one();
    }
}
