//! Turns that workers wait for: N in all, M for each worker.
//!
//! A [`KeyedLimit`](ostler_core::keyed_limit::KeyedLimit) refuses at once what finds no room; this one lets it wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::name::Name;

/// Turns, of which each worker has a share at most.
#[derive(Debug)]
pub(super) struct Shares {
    all: Arc<Semaphore>,
    each: usize,
    /// Of those that have a turn, or wait for one.
    of_worker: Mutex<HashMap<Name, Arc<Semaphore>>>,
}

/// One turn. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Turn {
    shares: Arc<Shares>,
    worker: Name,
    own: Option<OwnedSemaphorePermit>,
    _all: OwnedSemaphorePermit,
}

impl Shares {
    /// So many turns at once, and so many of them for one worker.
    pub(super) fn new(all: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { all: Arc::new(Semaphore::new(all)), each, of_worker: Mutex::default() })
    }

    /// Waits for a turn.
    pub(super) async fn take(self: &Arc<Self>, worker: &Name) -> Option<Turn> {
        // Its own first: who waits for that must not hold what is everybody's.
        // Neither is ever closed.
        let own = self.own(worker).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(self.turn(worker, own, all))
    }

    fn turn(self: &Arc<Self>, worker: &Name, own: OwnedSemaphorePermit, all: OwnedSemaphorePermit) -> Turn {
        Turn { shares: Arc::clone(self), worker: worker.clone(), own: Some(own), _all: all }
    }

    fn own(&self, worker: &Name) -> Arc<Semaphore> {
        let mut of_worker = self.of_worker();
        let own = of_worker.entry(worker.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.each)));
        Arc::clone(own)
    }

    fn of_worker(&self) -> MutexGuard<'_, HashMap<Name, Arc<Semaphore>>> {
        self.of_worker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut of_worker = self.shares.of_worker();
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

    fn name(text: &str) -> Name {
        Name::new(text).unwrap_or_else(|error| panic!("{error}"))
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
        let (shares, a, b) = (Shares::new(3, 2), name("a"), name("b"));
        let take = |worker: &Name| now(shares.take(worker));
        let mut turns: Vec<_> = [&a, &a, &b].map(take).into();
        assert!(turns.iter().all(Option::is_some));
        assert!(take(&b).is_none(), "there are three");
        turns.remove(2);
        assert!(take(&a).is_none(), "it has two");
        assert!(take(&b).is_some());
        turns.clear();
        assert!(shares.of_worker().is_empty(), "nobody is remembered who has none");
    }

    #[tokio::test]
    async fn who_waits_for_its_own_share_holds_nothing_of_others() {
        let (shares, a, b) = (Shares::new(2, 1), name("a"), name("b"));
        let held = shares.take(&a).await;
        let waiting = tokio::spawn({
            let (shares, a) = (Arc::clone(&shares), a.clone());
            async move { shares.take(&a).await.is_some() }
        });
        tokio::task::yield_now().await;
        assert!(now(shares.take(&b)).is_some());
        drop(held);
        assert!(waiting.await.is_ok_and(|is_there| is_there));
        assert!(shares.of_worker().is_empty());
    }
}
