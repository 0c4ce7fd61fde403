//! Turns that workers wait for: N in all, M for each worker.
//!
//! A [`KeyedLimit`](ostler_core::keyed_limit::KeyedLimit) refuses at once what finds no room; this one lets it wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::name::RelayName;

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
