//! Limits of the service: calls in flight, and permits per worker for manifests and chunked
//! answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use ostler_core::keyed_limit::{KeyedLimit, KeyedPermit, LimitReached};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::name::RelayName;

/// Call limits with separate room for refusals: a refused call takes no capacity from others.
#[derive(Debug)]
pub(super) struct ServiceCallLimits {
    running: Arc<KeyedLimit>,
    refused: Arc<KeyedLimit>,
}

/// Capacity found by a new call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallCapacity {
    Free,
    /// The limit is reached; the call must be refused.
    Full {
        limit: usize,
        /// `true` if the worker's own limit is reached, `false` for the limit of all workers.
        is_worker_limit: bool,
    },
}

impl ServiceCallLimits {
    /// Limits calls to `max` in all and half of that per worker.
    pub(super) fn new(max: usize) -> Self {
        let limit = || KeyedLimit::new(max, max.div_ceil(2));
        Self { running: limit(), refused: limit() }
    }

    /// Counts one more call of a worker until the permit is dropped. As many refused calls as
    /// running ones may be pending; beyond that it returns `None`.
    pub(super) fn acquire(&self, worker: &RelayName) -> Option<(CallCapacity, KeyedPermit)> {
        let full = match self.running.acquire(worker.as_str()) {
            Ok(permit) => return Some((CallCapacity::Free, permit)),
            Err(full) => full,
        };
        let capacity = match full {
            LimitReached::All => CallCapacity::Full { limit: self.running.max(), is_worker_limit: false },
            _ => CallCapacity::Full { limit: self.running.max_per_key(), is_worker_limit: true },
        };
        Some((capacity, self.refused.acquire(worker.as_str()).ok()?))
    }
}

/// Semaphore with a limit per worker: N permits in all, M per worker. A [`KeyedLimit`] refuses at
/// once; this one waits.
#[derive(Debug)]
pub(super) struct WorkerSemaphore {
    all: Arc<Semaphore>,
    per_worker: usize,
    /// Only workers that hold or await a permit.
    by_worker: Mutex<HashMap<RelayName, Arc<Semaphore>>>,
}

/// One permit. Dropping it returns it.
#[derive(Debug)]
pub(super) struct WorkerPermit {
    semaphore: Arc<WorkerSemaphore>,
    worker: RelayName,
    own: Option<OwnedSemaphorePermit>,
    _all: OwnedSemaphorePermit,
}

impl WorkerSemaphore {
    /// Creates a semaphore with `all` permits, `per_worker` of them for one worker.
    pub(super) fn new(all: usize, per_worker: usize) -> Arc<Self> {
        Arc::new(Self { all: Arc::new(Semaphore::new(all)), per_worker, by_worker: Mutex::default() })
    }

    /// Waits for a permit.
    pub(super) async fn acquire(self: &Arc<Self>, worker: &RelayName) -> Option<WorkerPermit> {
        // The worker's own permit comes first: a worker that waits for it must not hold a shared
        // one. Neither semaphore is ever closed.
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
        let mut by_worker = self.lock_by_worker();
        let own =
            by_worker.entry(worker.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.per_worker)));
        Arc::clone(own)
    }

    fn lock_by_worker(&self) -> MutexGuard<'_, HashMap<RelayName, Arc<Semaphore>>> {
        self.by_worker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WorkerPermit {
    fn drop(&mut self) {
        let mut by_worker = self.semaphore.lock_by_worker();
        drop(self.own.take());
        if by_worker.get(&self.worker).is_some_and(|own| Arc::strong_count(own) == 1) {
            by_worker.remove(&self.worker);
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
        let (limits, loud, other, third) =
            (ServiceCallLimits::new(4), name("loud"), name("other"), name("third"));
        let capacity =
            |acquired: &Option<(CallCapacity, KeyedPermit)>| acquired.as_ref().map(|(capacity, _)| *capacity);
        let own = Some(CallCapacity::Full { limit: 2, is_worker_limit: true });
        let mut loud_calls = [(); 6].map(|()| limits.acquire(&loud));
        let rooms = loud_calls.each_ref().map(capacity);
        assert_eq!(rooms, [Some(CallCapacity::Free), Some(CallCapacity::Free), own, own, None, None]);
        let other_calls = [(); 2].map(|()| limits.acquire(&other));
        assert_eq!(other_calls.each_ref().map(capacity), [Some(CallCapacity::Free); 2]);
        let refused = limits.acquire(&third);
        assert_eq!(capacity(&refused), Some(CallCapacity::Full { limit: 4, is_worker_limit: false }));
        loud_calls[0] = None;
        assert_eq!(capacity(&limits.acquire(&third)), Some(CallCapacity::Free));
    }

    /// Returns the output of a future that is ready at the first poll.
    fn now<T>(future: impl Future<Output = Option<T>>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => found,
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_worker_has_its_share_and_others_have_the_rest() {
        let (semaphore, a, b) = (WorkerSemaphore::new(3, 2), name("a"), name("b"));
        let take = |worker: &RelayName| now(semaphore.acquire(worker));
        let mut permits: Vec<_> = [&a, &a, &b].map(take).into();
        assert!(permits.iter().all(Option::is_some));
        assert!(take(&b).is_none(), "there are three");
        permits.remove(2);
        assert!(take(&a).is_none(), "it has two");
        assert!(take(&b).is_some());
        permits.clear();
        assert!(semaphore.lock_by_worker().is_empty(), "nobody is remembered who has none");
    }

    #[tokio::test]
    async fn who_waits_for_its_own_share_holds_nothing_of_others() {
        let (semaphore, a, b) = (WorkerSemaphore::new(2, 1), name("a"), name("b"));
        let held = semaphore.acquire(&a).await;
        let waiter = tokio::spawn({
            let (semaphore, a) = (Arc::clone(&semaphore), a.clone());
            async move { semaphore.acquire(&a).await.is_some() }
        });
        tokio::task::yield_now().await;
        assert!(now(semaphore.acquire(&b)).is_some());
        drop(held);
        assert!(waiter.await.is_ok_and(|is_there| is_there));
        assert!(semaphore.lock_by_worker().is_empty());
    }
}
