//! Call queue of one server: bounds calls in flight and shares permits fairly among callers.
//!
//! ```text
//!   try_acquire ── free, share left ──▶ CallPermit ── dropped ──▶ free, or granted to the next in the queue
//!   acquire ────── queued ── turn ────▶ CallPermit
//!                    └─ evicted for a caller with fewer queued calls ──▶ Displaced
//!   CallPermit ── a server request is open ──▶ suspended ── answered ──▶ CallPermit
//! ```
//!
//! One caller has at most half of the permits. A permit that becomes free goes to the caller whose turn it is, not to
//! one that arrives at that moment: while a call that may have a permit waits, no permit is free to take.
//!
//! A call that waits for its caller is suspended: its permit is granted to another call, and it counts against its
//! caller alone, which may have as many suspended calls as permits. Further ones keep their permits. A call that
//! resumes takes a permit at once, if necessary one more than the limit, because its server has begun it already.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hashbrown::HashTable;
use ostler_core::fair_queue::{EnqueueOutcome, FairQueue, QueueTicket};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// The call permits of one server.
pub(crate) struct CallQueue {
    /// Limit per caller on permits, and on suspended calls beside them. At least one.
    share: usize,
    hasher: RandomState,
    state: Mutex<CallQueueState>,
}

struct CallQueueState {
    /// Zero while a call waits whose caller is below its share.
    free_permits: usize,
    /// Permits that resumed calls took although none was free; repaid by the next ones that become free.
    overcommitted: usize,
    /// Keyed by the keyed hash of the principal: two principals with one hash share their limits and nothing else. No
    /// entry is without a call, so there are never more entries than permits and suspended calls.
    callers: HashTable<CallerCount>,
    /// Waiting calls by the same hash. Bounded by the server's `max_queued`.
    queue: FairQueue<u64, oneshot::Sender<Result<CallPermit, QueueRefusal>>>,
}

#[derive(Clone, Copy)]
struct CallerCount {
    caller: u64,
    /// At most the share, except for calls that were suspended.
    permits: usize,
    /// At most the share.
    suspended: usize,
}

/// Permit for one call to the server; dropping it grants it to the next waiter.
pub(crate) struct CallPermit {
    /// `None` only while the permit is dropped.
    queue: Option<Arc<CallQueue>>,
    caller: u64,
    /// Set for a call whose caller can answer server requests.
    suspend_handle: OnceLock<Arc<SuspendHandle>>,
}

/// The right of one call to release its permit while a server request is open.
pub(crate) struct SuspendHandle {
    queue: Arc<CallQueue>,
    caller: u64,
    state: Mutex<SuspendState>,
}

#[derive(Default)]
struct SuspendState {
    /// Open server requests.
    open_requests: usize,
    /// True while the permit is released.
    is_suspended: bool,
    /// True once the call has ended.
    is_over: bool,
}

/// An open server request; the call takes its permit back when the last one is dropped.
pub(crate) struct SuspendedPermit(Arc<SuspendHandle>);

/// Reason for which a caller gets no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueRefusal {
    /// The queue is full.
    Full,
    /// The queue was full, and a caller with fewer queued calls arrived.
    Displaced,
    /// The caller's deadline passed.
    TimedOut,
}

impl CallQueueState {
    fn count(&self, caller: u64) -> CallerCount {
        let known = self.callers.find(caller, |count| count.caller == caller);
        known.copied().unwrap_or(CallerCount { caller, permits: 0, suspended: 0 })
    }

    fn set_count(&mut self, count: CallerCount) {
        let entry = self.callers.entry(count.caller, |it| it.caller == count.caller, |it| it.caller);
        match entry {
            hashbrown::hash_table::Entry::Occupied(entry) if count.permits + count.suspended == 0 => {
                entry.remove();
            }
            hashbrown::hash_table::Entry::Occupied(mut entry) => *entry.get_mut() = count,
            hashbrown::hash_table::Entry::Vacant(entry) => {
                entry.insert(count);
            }
        }
    }

    /// Takes a free permit if the caller is below its share.
    fn take_permit(&mut self, caller: u64, share: usize) -> bool {
        let mut count = self.count(caller);
        if self.free_permits == 0 || count.permits >= share {
            return false;
        }
        self.free_permits -= 1;
        count.permits += 1;
        self.set_count(count);
        true
    }

    /// Releases a permit, unless it is owed.
    fn release_permit(&mut self) {
        match self.overcommitted.checked_sub(1) {
            Some(left) => self.overcommitted = left,
            None => self.free_permits += 1,
        }
    }
}

impl CallQueue {
    /// Makes a queue with `places` permits, of which one caller may have `share`, and at most `max_waiting` waiters.
    pub(crate) fn new(places: usize, share: usize, max_waiting: usize) -> Arc<Self> {
        let (callers, line) = (HashTable::new(), FairQueue::new(max_waiting));
        let floor =
            Mutex::new(CallQueueState { free_permits: places, overcommitted: 0, callers, queue: line });
        Arc::new(Self { share: share.max(1), hasher: RandomState::new(), state: floor })
    }

    /// Takes a permit if one is free and the caller is below its share.
    pub(crate) fn try_acquire(self: &Arc<Self>, principal: &str) -> Option<CallPermit> {
        let caller = self.hasher.hash_one(principal);
        self.state().take_permit(caller, self.share).then(|| self.new_permit(caller))
    }

    fn new_permit(self: &Arc<Self>, caller: u64) -> CallPermit {
        CallPermit { queue: Some(Arc::clone(self)), caller, suspend_handle: OnceLock::new() }
    }

    /// Waits for a permit, in turn with the other principals that wait. Dropping the future leaves the queue; a
    /// permit that was granted at that moment goes to the next waiter.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        principal: &str,
        until: Instant,
    ) -> Result<CallPermit, QueueRefusal> {
        let (waiting, given) = match self.enqueue(self.hasher.hash_one(principal))? {
            QueueEntry::Permit(place) => return Ok(place),
            QueueEntry::Queued(waiting, given) => (waiting, given),
        };
        let answer = timeout_at(until, given).await;
        drop(waiting);
        match answer {
            Ok(Ok(answer)) => answer,
            // Every waiter is answered before it is dropped; if one is not, the call is refused.
            Ok(Err(_)) | Err(_) => Err(QueueRefusal::TimedOut),
        }
    }

    fn enqueue(self: &Arc<Self>, caller: u64) -> Result<QueueEntry<'_>, QueueRefusal> {
        let (waiter, given) = oneshot::channel();
        let mut floor = self.state();
        // A permit may have become free since the first attempt.
        if floor.take_permit(caller, self.share) {
            return Ok(QueueEntry::Permit(self.new_permit(caller)));
        }
        let (ticket, displaced) = match floor.queue.enqueue(caller, waiter) {
            EnqueueOutcome::Queued(ticket) => (ticket, None),
            EnqueueOutcome::Displaced(ticket, displaced) => (ticket, Some(displaced)),
            EnqueueOutcome::Full => return Err(QueueRefusal::Full),
        };
        drop(floor);
        if let Some(displaced) = displaced {
            // A waiter that has left needs no answer.
            let _ = displaced.send(Err(QueueRefusal::Displaced));
        }
        Ok(QueueEntry::Queued(QueueWaiter { queue: self, caller, ticket }, given))
    }

    /// Grants free permits to the callers whose turn it is.
    fn grant_free_permits(self: &Arc<Self>) {
        loop {
            let mut floor = self.state();
            if floor.free_permits == 0 || floor.queue.is_empty() {
                return;
            }
            let CallQueueState { queue: line, callers, .. } = &mut *floor;
            let may_have_one = |caller: &u64| {
                callers.find(*caller, |it| it.caller == *caller).is_none_or(|it| it.permits < self.share)
            };
            let Some((caller, waiter)) = line.dequeue(may_have_one) else { return };
            floor.take_permit(caller, self.share);
            drop(floor);
            // A caller that has just left drops the permit, which grants it to the next.
            if let Err(Ok(unwanted)) = waiter.send(Ok(self.new_permit(caller))) {
                self.reclaim_permit(unwanted);
            }
        }
    }

    /// Takes a permit back without granting it, which the loop above does.
    fn reclaim_permit(&self, mut place: CallPermit) {
        place.queue = None;
        let mut floor = self.state();
        let mut count = floor.count(place.caller);
        count.permits -= 1;
        floor.set_count(count);
        floor.release_permit();
    }

    /// Returns the permits that are taken, counting the owed ones.
    pub(crate) fn permits_in_use(&self) -> usize {
        self.state().callers.iter().map(|count| count.permits).sum()
    }

    /// Returns the number of queued calls.
    pub(crate) fn waiting(&self) -> usize {
        self.state().queue.len()
    }

    fn state(&self) -> MutexGuard<'_, CallQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallPermit {
    /// Returns the right to release the permit for a while.
    pub(crate) fn suspend_handle(&self) -> Option<Arc<SuspendHandle>> {
        let places = self.queue.as_ref()?;
        let parking = || {
            let (places, caller) = (Arc::clone(places), self.caller);
            Arc::new(SuspendHandle { queue: places, caller, state: Mutex::default() })
        };
        Some(Arc::clone(self.suspend_handle.get_or_init(parking)))
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let Some(places) = self.queue.take() else { return };
        let mut is_parked = false;
        if let Some(parking) = self.suspend_handle.get() {
            let mut stay = parking.state();
            stay.is_over = true;
            is_parked = stay.is_suspended;
        }
        let mut floor = places.state();
        let mut count = floor.count(self.caller);
        match is_parked {
            true => count.suspended -= 1,
            false => {
                count.permits -= 1;
                floor.release_permit();
            }
        }
        floor.set_count(count);
        drop(floor);
        places.grant_free_permits();
    }
}

impl SuspendHandle {
    /// Releases the permit while a server request is open, unless the caller has too many suspended calls.
    pub(crate) fn suspend(self: &Arc<Self>) -> SuspendedPermit {
        let mut stay = self.state();
        stay.open_requests += 1;
        let mut floor = self.queue.state();
        let mut count = floor.count(self.caller);
        let is_parked = !stay.is_suspended && !stay.is_over && count.suspended < self.queue.share;
        if is_parked {
            stay.is_suspended = true;
            count.permits -= 1;
            count.suspended += 1;
            floor.set_count(count);
            floor.release_permit();
        }
        drop(floor);
        drop(stay);
        if is_parked {
            self.queue.grant_free_permits();
        }
        SuspendedPermit(Arc::clone(self))
    }

    fn state(&self) -> MutexGuard<'_, SuspendState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SuspendedPermit {
    fn drop(&mut self) {
        let parking = &self.0;
        let mut stay = parking.state();
        stay.open_requests -= 1;
        if stay.open_requests > 0 || !stay.is_suspended || stay.is_over {
            return;
        }
        stay.is_suspended = false;
        let mut floor = parking.queue.state();
        let mut count = floor.count(parking.caller);
        count.suspended -= 1;
        count.permits += 1;
        floor.set_count(count);
        match floor.free_permits.checked_sub(1) {
            Some(left) => floor.free_permits = left,
            None => floor.overcommitted += 1,
        }
    }
}

/// A permit at once, or a position in the queue.
enum QueueEntry<'a> {
    Permit(CallPermit),
    Queued(QueueWaiter<'a>, oneshot::Receiver<Result<CallPermit, QueueRefusal>>),
}

/// A queued call; dropping it leaves the queue.
struct QueueWaiter<'a> {
    queue: &'a CallQueue,
    caller: u64,
    ticket: QueueTicket,
}

impl Drop for QueueWaiter<'_> {
    fn drop(&mut self) {
        drop(self.queue.state().queue.remove(&self.caller, self.ticket));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn forever() -> Instant {
        Instant::now() + Duration::from_secs(3_600)
    }

    /// Waits in a task, and is queued when this returns.
    async fn queue(
        places: &Arc<CallQueue>,
        principal: &'static str,
    ) -> tokio::task::JoinHandle<Result<CallPermit, QueueRefusal>> {
        let (before, places) = (places.waiting(), Arc::clone(places));
        let waiting = Arc::clone(&places);
        let task = tokio::spawn(async move { waiting.acquire(principal, forever()).await });
        while places.waiting() == before && !task.is_finished() {
            tokio::task::yield_now().await;
        }
        task
    }

    #[tokio::test]
    async fn a_place_that_comes_free_goes_to_whose_turn_it_is_and_to_nobody_else() {
        let places = CallQueue::new(1, 1, 10);
        let held = places.try_acquire("ada").unwrap();
        let (first, second) = (queue(&places, "ada").await, queue(&places, "ada").await);
        let other = queue(&places, "bob").await;
        drop(held);
        assert!(places.try_acquire("cyd").is_none(), "it was given away");
        drop(first.await.unwrap().unwrap());
        drop(other.await.unwrap().unwrap());
        drop(second.await.unwrap().unwrap());
        assert_eq!((places.permits_in_use(), places.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn a_place_given_to_one_that_leaves_at_that_moment_goes_to_the_next() {
        let places = CallQueue::new(1, 1, 10);
        let held = places.try_acquire("ada").unwrap();
        let mut leaving = Box::pin(places.acquire("ada", forever()));
        assert!(poll_once(&mut leaving).await.is_none());
        let next = queue(&places, "bob").await;
        drop(held);
        // The permit was granted, and the waiter has not been polled yet.
        drop(leaving);
        drop(next.await.unwrap().unwrap());
        assert_eq!((places.permits_in_use(), places.waiting()), (0, 0));
    }

    /// Polls once.
    async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = std::future::ready(()) => None,
        }
    }

    #[tokio::test]
    async fn one_caller_has_at_most_its_share_and_the_others_the_rest() {
        let places = CallQueue::new(4, 2, 10);
        let (first, _second) = (places.try_acquire("ada").unwrap(), places.try_acquire("ada").unwrap());
        assert!(places.try_acquire("ada").is_none(), "it has its share");
        let third = queue(&places, "ada").await;
        let (bob, cyd) = (places.try_acquire("bob").unwrap(), places.try_acquire("cyd").unwrap());
        let next = queue(&places, "cyd").await;
        drop(bob);
        drop(next.await.unwrap().unwrap());
        assert_eq!(places.waiting(), 1, "a place came free that was not for the one before it");
        drop((first, cyd));
        drop(third.await.unwrap().unwrap());
    }

    #[tokio::test]
    async fn a_parked_call_gives_its_place_on_and_takes_it_back() {
        let places = CallQueue::new(1, 1, 10);
        let parked = places.try_acquire("ada").unwrap();
        let parking = parked.suspend_handle().unwrap();
        let next = queue(&places, "bob").await;
        let (question, another) = (parking.suspend(), parking.suspend());
        let bob = next.await.unwrap().unwrap();
        drop(question);
        assert_eq!(places.permits_in_use(), 1, "one question is open");
        drop(another);
        assert_eq!(places.permits_in_use(), 2, "it goes on beside the other");
        drop(bob);
        assert!(places.try_acquire("cyd").is_none(), "there is one place, and it is taken");
        drop(parked);
        assert!(places.try_acquire("cyd").is_some());
    }

    #[tokio::test]
    async fn a_caller_parks_as_many_calls_as_it_may_have_places_and_keeps_the_places_of_the_rest() {
        let places = CallQueue::new(4, 2, 0);
        let ask = || {
            let place = places.try_acquire("ada")?;
            let question = place.suspend_handle()?.suspend();
            Some((place, question))
        };
        let parked: Vec<_> = std::iter::from_fn(ask).collect();
        assert_eq!((parked.len(), places.permits_in_use()), (4, 2), "two parked, two in their places");
        let _others = [(); 2].map(|()| places.try_acquire("bob").unwrap());
        let (calls, questions): (Vec<_>, Vec<_>) = parked.into_iter().unzip();
        drop(calls);
        assert_eq!(places.permits_in_use(), 2, "a question that outlives its call gives nothing back");
        drop(questions);
        assert_eq!((places.permits_in_use(), places.state().callers.len()), (2, 1));
    }

    #[tokio::test]
    async fn one_that_waits_no_longer_is_not_in_line() {
        let places = CallQueue::new(1, 1, 1);
        let _held = places.try_acquire("ada").unwrap();
        let gone = queue(&places, "ada").await;
        gone.abort();
        assert!(gone.await.is_err());
        assert_eq!(places.waiting(), 0);
        let late = places.acquire("ada", Instant::now()).await;
        assert_eq!((late.err(), places.waiting()), (Some(QueueRefusal::TimedOut), 0));
    }

    #[tokio::test]
    async fn a_full_line_makes_room_for_who_has_fewer_in_it() {
        let places = CallQueue::new(1, 1, 3);
        let held = places.try_acquire("ada").unwrap();
        let (first, second) = (queue(&places, "ada").await, queue(&places, "ada").await);
        let third = queue(&places, "ada").await;
        assert_eq!(places.acquire("ada", forever()).await.err(), Some(QueueRefusal::Full));
        let other = tokio::spawn({
            let places = Arc::clone(&places);
            async move { places.acquire("bob", forever()).await }
        });
        assert_eq!(third.await.unwrap().err(), Some(QueueRefusal::Displaced));
        drop(held);
        drop(first.await.unwrap().unwrap());
        drop(other.await.unwrap().unwrap());
        drop(second.await.unwrap().unwrap());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_place_is_lost_or_taken_twice_while_callers_come_and_go() {
        let (places, at_once) = (CallQueue::new(4, 2, 64), Arc::new(std::sync::atomic::AtomicUsize::new(0)));
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..64u64 {
            let (places, at_once) = (Arc::clone(&places), Arc::clone(&at_once));
            tasks.spawn(async move {
                for round in 0..200 {
                    // Some waiters cancel at once, some after a moment, most wait.
                    let until = match (n + round) % 5 {
                        0 => Instant::now(),
                        1 => Instant::now() + Duration::from_micros(50),
                        _ => forever(),
                    };
                    let caller = (n % 3).to_string();
                    let place = match places.try_acquire(&caller) {
                        Some(place) => Ok(place),
                        None => places.acquire(&caller, until).await,
                    };
                    let Ok(place) = place else { continue };
                    if round % 7 == 0 {
                        // Releases its permit and takes it back, which may be one more than the limit.
                        drop(place.suspend_handle().unwrap().suspend());
                        continue;
                    }
                    assert!(at_once.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 4 + 64);
                    tokio::task::yield_now().await;
                    at_once.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    drop(place);
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        assert_eq!((places.permits_in_use(), places.waiting()), (0, 0));
    }
}
