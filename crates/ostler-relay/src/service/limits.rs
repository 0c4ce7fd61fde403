//! Load: whether one more call fits in, half of all calls at most for one worker.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use ostler_core::keyed_limit::{KeyedLimit, KeyedPermit, LimitReached};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::name::RelayName;

/// The calls that are there: those that run, and those that wait for their
/// refusal. A call that is refused takes no room from others.
#[derive(Debug)]
pub(super) struct ServiceCallLimits {
    running: Arc<KeyedLimit>,
    refused: Arc<KeyedLimit>,
}

/// Whether a call fits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallCapacity {
    Free,
    /// Nothing of it may begin.
    Full {
        limit: usize,
        /// Whether it is its worker that has too much under way.
        is_worker_limit: bool,
    },
}

impl ServiceCallLimits {
    /// Makes room for `max` calls, half of them for one worker.
    pub(super) fn new(max: usize) -> Self {
        let limit = || KeyedLimit::new(max, max.div_ceil(2));
        Self { running: limit(), refused: limit() }
    }

    /// Counts one more call of a worker, until its permit is dropped. As many as may run may wait for their refusal;
    /// beyond that it is `None`.
    pub(super) fn acquire(&self, worker: &RelayName) -> Option<(CallCapacity, KeyedPermit)> {
        let full = match self.running.acquire(worker.as_str()) {
            Ok(permit) => return Some((CallCapacity::Free, permit)),
            Err(full) => full,
        };
        let room = match full {
            LimitReached::All => CallCapacity::Full { limit: self.running.max(), is_worker_limit: false },
            _ => CallCapacity::Full { limit: self.running.max_per_key(), is_worker_limit: true },
        };
        Some((room, self.refused.acquire(worker.as_str()).ok()?))
    }
}

/// Turns, of which each worker has a share at most.
#[derive(Debug)]
pub(super) struct WorkerSemaphore {
    all: Arc<Semaphore>,
    per_worker: usize,
    /// Of those that have a turn, or wait for one.
    by_worker: Mutex<HashMap<RelayName, Arc<Semaphore>>>,
}

/// One turn. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct WorkerPermit {
    semaphore: Arc<WorkerSemaphore>,
    worker: RelayName,
    own: Option<OwnedSemaphorePermit>,
    _all: OwnedSemaphorePermit,
}

impl WorkerSemaphore {
    /// So many turns at once, and so many of them for one worker.
    pub(super) fn new(all: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { all: Arc::new(Semaphore::new(all)), per_worker: each, by_worker: Mutex::default() })
    }

    /// Waits for a turn.
    pub(super) async fn acquire(self: &Arc<Self>, worker: &RelayName) -> Option<WorkerPermit> {
        // Its own first: who waits for that must not hold what is everybody's.
        // Neither is ever closed.
        let own = self.for_worker(worker).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(self.permit(worker, own, all))
    }

    fn permit(
        self: &Arc<Self>,
        worker: &RelayName,
        own: OwnedSemaphorePermit,
        all: OwnedSemaphorePermit,
    ) -> WorkerPermit {
        WorkerPermit { semaphore: Arc::clone(self), worker: worker.clone(), own: Some(own), _all: all }
    }

    fn for_worker(&self, worker: &RelayName) -> Arc<Semaphore> {
        let mut of_worker = self.lock_by_worker();
        let own =
            of_worker.entry(worker.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.per_worker)));
        Arc::clone(own)
    }

    fn lock_by_worker(&self) -> MutexGuard<'_, HashMap<RelayName, Arc<Semaphore>>> {
        self.by_worker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WorkerPermit {
    fn drop(&mut self) {
        let mut of_worker = self.semaphore.lock_by_worker();
        drop(self.own.take());
        if of_worker.get(&self.worker).is_some_and(|own| Arc::strong_count(own) == 1) {
            of_worker.remove(&self.worker);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn name(text: &str) -> RelayName {
        RelayName::new(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn who_is_refused_takes_no_room_from_others() {
        let (load, loud, other, third) =
            (ServiceCallLimits::new(4), name("loud"), name("other"), name("third"));
        let room = |entered: &Option<(CallCapacity, KeyedPermit)>| entered.as_ref().map(|(room, _)| *room);
        let own = Some(CallCapacity::Full { limit: 2, is_worker_limit: true });
        let mut hers = [(); 6].map(|()| load.acquire(&loud));
        let rooms = hers.each_ref().map(room);
        assert_eq!(rooms, [Some(CallCapacity::Free), Some(CallCapacity::Free), own, own, None, None]);
        let his = [(); 2].map(|()| load.acquire(&other));
        assert_eq!(his.each_ref().map(room), [Some(CallCapacity::Free); 2]);
        let refused = load.acquire(&third);
        assert_eq!(room(&refused), Some(CallCapacity::Full { limit: 4, is_worker_limit: false }));
        hers[0] = None;
        assert_eq!(room(&load.acquire(&third)), Some(CallCapacity::Free));
    }

    /// What there is without waiting.
    fn now<T>(future: impl Future<Output = Option<T>>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => found,
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_worker_has_its_share_and_others_have_the_rest() {
        let (shares, a, b) = (WorkerSemaphore::new(3, 2), name("a"), name("b"));
        let take = |worker: &RelayName| now(shares.acquire(worker));
        let mut turns: Vec<_> = [&a, &a, &b].map(take).into();
        assert!(turns.iter().all(Option::is_some));
        assert!(take(&b).is_none(), "there are three");
        turns.remove(2);
        assert!(take(&a).is_none(), "it has two");
        assert!(take(&b).is_some());
        turns.clear();
        assert!(shares.lock_by_worker().is_empty(), "nobody is remembered who has none");
    }

    #[tokio::test]
    async fn who_waits_for_its_own_share_holds_nothing_of_others() {
        let (shares, a, b) = (WorkerSemaphore::new(2, 1), name("a"), name("b"));
        let held = shares.acquire(&a).await;
        let waiting = tokio::spawn({
            let (shares, a) = (Arc::clone(&shares), a.clone());
            async move { shares.acquire(&a).await.is_some() }
        });
        tokio::task::yield_now().await;
        assert!(now(shares.acquire(&b)).is_some());
        drop(held);
        assert!(waiting.await.is_ok_and(|is_there| is_there));
        assert!(shares.lock_by_worker().is_empty());
    }
}
