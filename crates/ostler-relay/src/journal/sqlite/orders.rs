//! What waits for the thread that writes.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::super::{Claim, Unclaimed};
use crate::call_id::CallId;

/// Claims that wait at most: several times what a host has in flight.
const MOST_CLAIMS: usize = 8_192;
/// Ends of calls that wait at most. One that is dropped costs nothing but that
/// its call counts as unknown should it be asked for again after a restart.
pub(super) const MOST_SETTLED: usize = 65_536;
/// How long ends of calls are gathered while nobody claims.
const GATHER: Duration = Duration::from_millis(100);
/// Ends that are not gathered any longer.
const ENOUGH: usize = 1_024;

/// Where a claim is answered.
pub(super) type Reply = oneshot::Sender<Result<Claim, Unclaimed>>;

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Orders {
    state: Mutex<Batch>,
    /// Rung for the first order, for every one that somebody waits for, when
    /// there are enough, and at the end.
    bell: Condvar,
}

/// What is written together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// At most [`MOST_CLAIMS`].
    pub(super) claims: Vec<(CallId, Reply)>,
    /// At most [`MOST_SETTLED`].
    pub(super) settled: Vec<CallId>,
    /// Who waits until all before is written.
    pub(super) flushes: Vec<oneshot::Sender<()>>,
    /// Nothing will come any more.
    pub(super) is_last: bool,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.settled.is_empty() && self.flushes.is_empty()
    }

    /// Somebody waits for it, or it is large.
    fn is_pressing(&self) -> bool {
        !self.claims.is_empty() || !self.flushes.is_empty() || self.settled.len() >= ENOUGH
    }
}

impl Orders {
    pub(super) fn claim(&self, call: CallId, reply: Reply) -> Result<(), Unclaimed> {
        let mut state = self.state();
        if state.claims.len() >= MOST_CLAIMS {
            return Err(Unclaimed(format!("{MOST_CLAIMS} claims wait for the disk")));
        }
        state.claims.push((call, reply));
        let is_first = state.claims.len() == 1;
        drop(state);
        if is_first {
            self.bell.notify_one();
        }
        Ok(())
    }

    pub(super) fn settle(&self, call: CallId) {
        let mut state = self.state();
        if state.settled.len() >= MOST_SETTLED {
            return;
        }
        state.settled.push(call);
        let settled = state.settled.len();
        drop(state);
        if settled == 1 || settled == ENOUGH {
            self.bell.notify_one();
        }
    }

    pub(super) fn flush(&self, reply: oneshot::Sender<()>) {
        self.state().flushes.push(reply);
        self.bell.notify_one();
    }

    /// Nothing is ordered from now on.
    pub(super) fn end(&self) {
        self.state().is_last = true;
        self.bell.notify_one();
    }

    /// Waits for orders, at most for `patience`, and takes all there are.
    pub(super) fn take(&self, patience: Duration) -> Batch {
        let end = Instant::now() + patience;
        let state = self.wait_while(self.state(), end, Batch::is_empty);
        let gathered = end.min(Instant::now() + GATHER);
        let mut state = self.wait_while(state, gathered, |batch| !batch.is_pressing());
        let is_last = state.is_last;
        Batch { is_last, ..std::mem::take(&mut *state) }
    }

    fn wait_while<'o>(
        &'o self,
        mut state: MutexGuard<'o, Batch>,
        end: Instant,
        is_early: impl Fn(&Batch) -> bool,
    ) -> MutexGuard<'o, Batch> {
        while !state.is_last && is_early(&state) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.bell.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    fn state(&self) -> MutexGuard<'_, Batch> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
