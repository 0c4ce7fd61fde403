//! Places for calls at one server, and the line before them.
//!
//! ```text
//!   try_take ── free, share left ───────▶ Place ── dropped ──▶ free, or the next one's in line
//!   wait ────── in line ── turn ────────▶ Place
//!                  └─ shed for a caller with fewer in line ──▶ Shed
//!   Place ── a question is open ──▶ parked ── answered ──▶ Place
//! ```
//!
//! One caller has at most half of the places. A place that comes free goes to the caller whose turn it is and not to
//! one that comes at that moment: as long as anyone waits that may have one, there is no free place to take.
//!
//! A call that waits for its caller is parked: its place is given on, and it counts against its caller alone, of
//! whom as many calls may be parked as may have places. Further ones keep their places. A call that goes on takes a
//! place back at once, if need be one more than there are, for its server has begun it already.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hashbrown::HashTable;
use ostler_core::fair::{Joined, Line, Ticket};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// The places for calls at one server.
pub(crate) struct Places {
    /// Of one caller: places, and parked calls beside them. At least one.
    share: usize,
    hasher: RandomState,
    floor: Mutex<Floor>,
}

struct Floor {
    /// Zero as long as anyone waits that has not its share.
    free: usize,
    /// Places that parked calls have taken back though none was free; the next ones to come free.
    owed: usize,
    /// By the keyed hash of the principal: two of one hash would share their bounds and nothing else. None is
    /// without a call, so there are never more than places and parked calls.
    callers: HashTable<Count>,
    /// By the same hash. Bounded by the server's `max_queued`.
    line: Line<u64, oneshot::Sender<Result<Place, Shed>>>,
}

#[derive(Clone, Copy)]
struct Count {
    caller: u64,
    /// At most the share, but for calls that were parked.
    places: usize,
    /// At most the share.
    parked: usize,
}

/// A place at the server; dropping it passes it on.
pub(crate) struct Place {
    /// `None` only while it is dropped.
    places: Option<Arc<Places>>,
    caller: u64,
    /// Made for a call whose caller can be asked.
    parking: OnceLock<Arc<Parking>>,
}

/// The right of one call to leave its place while a question is open.
pub(crate) struct Parking {
    places: Arc<Places>,
    caller: u64,
    stay: Mutex<Stay>,
}

#[derive(Default)]
struct Stay {
    /// Questions that are open.
    open: usize,
    /// Whether the place is given on.
    is_parked: bool,
    /// The call has ended.
    is_over: bool,
}

/// An open question; the call is back in its place when the last one is dropped.
pub(crate) struct Parked(Arc<Parking>);

/// Why there is no place for a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shed {
    /// The line is full.
    Full,
    /// The line was full, and a caller that had fewer in it came.
    Displaced,
    /// The caller's time ran out.
    Late,
}

impl Floor {
    fn count(&self, caller: u64) -> Count {
        let known = self.callers.find(caller, |count| count.caller == caller);
        known.copied().unwrap_or(Count { caller, places: 0, parked: 0 })
    }

    fn set(&mut self, count: Count) {
        let entry = self.callers.entry(count.caller, |it| it.caller == count.caller, |it| it.caller);
        match entry {
            hashbrown::hash_table::Entry::Occupied(entry) if count.places + count.parked == 0 => {
                entry.remove();
            }
            hashbrown::hash_table::Entry::Occupied(mut entry) => *entry.get_mut() = count,
            hashbrown::hash_table::Entry::Vacant(entry) => {
                entry.insert(count);
            }
        }
    }

    /// Takes a free place, if the caller may have one.
    fn take(&mut self, caller: u64, share: usize) -> bool {
        let mut count = self.count(caller);
        if self.free == 0 || count.places >= share {
            return false;
        }
        self.free -= 1;
        count.places += 1;
        self.set(count);
        true
    }

    /// Frees a place, unless it is owed.
    fn free_one(&mut self) {
        match self.owed.checked_sub(1) {
            Some(left) => self.owed = left,
            None => self.free += 1,
        }
    }
}

impl Places {
    /// Opens `places` of which one caller may have `share`, with a line of `max_waiting`.
    pub(crate) fn new(places: usize, share: usize, max_waiting: usize) -> Arc<Self> {
        let (callers, line) = (HashTable::new(), Line::new(max_waiting));
        let floor = Mutex::new(Floor { free: places, owed: 0, callers, line });
        Arc::new(Self { share: share.max(1), hasher: RandomState::new(), floor })
    }

    /// Takes a place if one is free and the caller has not its share.
    pub(crate) fn try_take(self: &Arc<Self>, principal: &str) -> Option<Place> {
        let caller = self.hasher.hash_one(principal);
        self.floor().take(caller, self.share).then(|| self.place(caller))
    }

    fn place(self: &Arc<Self>, caller: u64) -> Place {
        Place { places: Some(Arc::clone(self)), caller, parking: OnceLock::new() }
    }

    /// Waits for a place, in turn with the other principals that wait. Dropping
    /// the future leaves the line; a place that was given at that moment is
    /// passed on.
    pub(crate) async fn wait(self: &Arc<Self>, principal: &str, until: Instant) -> Result<Place, Shed> {
        let (waiting, given) = match self.join(self.hasher.hash_one(principal))? {
            Entry::Place(place) => return Ok(place),
            Entry::Line(waiting, given) => (waiting, given),
        };
        let answer = timeout_at(until, given).await;
        drop(waiting);
        match answer {
            Ok(Ok(answer)) => answer,
            // No waiter is dropped without an answer; should it be, it is not served.
            Ok(Err(_)) | Err(_) => Err(Shed::Late),
        }
    }

    fn join(self: &Arc<Self>, caller: u64) -> Result<Entry<'_>, Shed> {
        let (waiter, given) = oneshot::channel();
        let mut floor = self.floor();
        // One may have come free since it was looked for.
        if floor.take(caller, self.share) {
            return Ok(Entry::Place(self.place(caller)));
        }
        let (ticket, displaced) = match floor.line.join(caller, waiter) {
            Joined::Waits(ticket) => (ticket, None),
            Joined::Instead(ticket, displaced) => (ticket, Some(displaced)),
            Joined::Full => return Err(Shed::Full),
        };
        drop(floor);
        if let Some(displaced) = displaced {
            // One that has left meanwhile need not be told.
            let _ = displaced.send(Err(Shed::Displaced));
        }
        Ok(Entry::Line(Waiting { places: self, caller, ticket }, given))
    }

    /// Gives free places to the callers whose turn it is.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let mut floor = self.floor();
            if floor.free == 0 || floor.line.is_empty() {
                return;
            }
            let Floor { line, callers, .. } = &mut *floor;
            let may_have_one = |caller: &u64| {
                callers.find(*caller, |it| it.caller == *caller).is_none_or(|it| it.places < self.share)
            };
            let Some((caller, waiter)) = line.take_next(may_have_one) else { return };
            floor.take(caller, self.share);
            drop(floor);
            // A caller that has just left drops the place, which passes it on.
            if let Err(Ok(unwanted)) = waiter.send(Ok(self.place(caller))) {
                self.give_back(unwanted);
            }
        }
    }

    /// Takes a place back without passing it on, which the loop above does.
    fn give_back(&self, mut place: Place) {
        place.places = None;
        let mut floor = self.floor();
        let mut count = floor.count(place.caller);
        count.places -= 1;
        floor.set(count);
        floor.free_one();
    }

    /// Places that are taken, one more for each that is owed.
    pub(crate) fn taken(&self) -> usize {
        self.floor().callers.iter().map(|count| count.places).sum()
    }

    /// Calls in line.
    pub(crate) fn waiting(&self) -> usize {
        self.floor().line.len()
    }

    fn floor(&self) -> MutexGuard<'_, Floor> {
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The right to leave the place for a while.
    pub(crate) fn parking(&self) -> Option<Arc<Parking>> {
        let places = self.places.as_ref()?;
        let parking = || {
            let (places, caller) = (Arc::clone(places), self.caller);
            Arc::new(Parking { places, caller, stay: Mutex::default() })
        };
        Some(Arc::clone(self.parking.get_or_init(parking)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(places) = self.places.take() else { return };
        let mut is_parked = false;
        if let Some(parking) = self.parking.get() {
            let mut stay = parking.stay();
            stay.is_over = true;
            is_parked = stay.is_parked;
        }
        let mut floor = places.floor();
        let mut count = floor.count(self.caller);
        match is_parked {
            true => count.parked -= 1,
            false => {
                count.places -= 1;
                floor.free_one();
            }
        }
        floor.set(count);
        drop(floor);
        places.pass_on();
    }
}

impl Parking {
    /// Gives the place on while a question is open, unless the caller has too many calls parked.
    pub(crate) fn park(self: &Arc<Self>) -> Parked {
        let mut stay = self.stay();
        stay.open += 1;
        let mut floor = self.places.floor();
        let mut count = floor.count(self.caller);
        let is_parked = !stay.is_parked && !stay.is_over && count.parked < self.places.share;
        if is_parked {
            stay.is_parked = true;
            count.places -= 1;
            count.parked += 1;
            floor.set(count);
            floor.free_one();
        }
        drop(floor);
        drop(stay);
        if is_parked {
            self.places.pass_on();
        }
        Parked(Arc::clone(self))
    }

    fn stay(&self) -> MutexGuard<'_, Stay> {
        self.stay.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let parking = &self.0;
        let mut stay = parking.stay();
        stay.open -= 1;
        if stay.open > 0 || !stay.is_parked || stay.is_over {
            return;
        }
        stay.is_parked = false;
        let mut floor = parking.places.floor();
        let mut count = floor.count(parking.caller);
        count.parked -= 1;
        count.places += 1;
        floor.set(count);
        match floor.free.checked_sub(1) {
            Some(left) => floor.free = left,
            None => floor.owed += 1,
        }
    }
}

/// A place at once, or one in line.
enum Entry<'a> {
    Place(Place),
    Line(Waiting<'a>, oneshot::Receiver<Result<Place, Shed>>),
}

/// A call in line; dropping it leaves the line.
struct Waiting<'a> {
    places: &'a Places,
    caller: u64,
    ticket: Ticket,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        drop(self.places.floor().line.leave(&self.caller, self.ticket));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn forever() -> Instant {
        Instant::now() + Duration::from_secs(3_600)
    }

    /// Waits in a task, and is in line when this returns.
    async fn queue(
        places: &Arc<Places>,
        principal: &'static str,
    ) -> tokio::task::JoinHandle<Result<Place, Shed>> {
        let (before, places) = (places.waiting(), Arc::clone(places));
        let waiting = Arc::clone(&places);
        let task = tokio::spawn(async move { waiting.wait(principal, forever()).await });
        while places.waiting() == before && !task.is_finished() {
            tokio::task::yield_now().await;
        }
        task
    }

    #[tokio::test]
    async fn a_place_that_comes_free_goes_to_whose_turn_it_is_and_to_nobody_else() {
        let places = Places::new(1, 1, 10);
        let held = places.try_take("ada").unwrap();
        let (first, second) = (queue(&places, "ada").await, queue(&places, "ada").await);
        let other = queue(&places, "bob").await;
        drop(held);
        assert!(places.try_take("cyd").is_none(), "it was given away");
        drop(first.await.unwrap().unwrap());
        drop(other.await.unwrap().unwrap());
        drop(second.await.unwrap().unwrap());
        assert_eq!((places.taken(), places.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn a_place_given_to_one_that_leaves_at_that_moment_goes_to_the_next() {
        let places = Places::new(1, 1, 10);
        let held = places.try_take("ada").unwrap();
        let mut leaving = Box::pin(places.wait("ada", forever()));
        assert!(poll_once(&mut leaving).await.is_none());
        let next = queue(&places, "bob").await;
        drop(held);
        // It has been given the place and has not looked yet.
        drop(leaving);
        drop(next.await.unwrap().unwrap());
        assert_eq!((places.taken(), places.waiting()), (0, 0));
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
        let places = Places::new(4, 2, 10);
        let (first, _second) = (places.try_take("ada").unwrap(), places.try_take("ada").unwrap());
        assert!(places.try_take("ada").is_none(), "it has its share");
        let third = queue(&places, "ada").await;
        let (bob, cyd) = (places.try_take("bob").unwrap(), places.try_take("cyd").unwrap());
        let next = queue(&places, "cyd").await;
        drop(bob);
        drop(next.await.unwrap().unwrap());
        assert_eq!(places.waiting(), 1, "a place came free that was not for the one before it");
        drop((first, cyd));
        drop(third.await.unwrap().unwrap());
    }

    #[tokio::test]
    async fn a_parked_call_gives_its_place_on_and_takes_it_back() {
        let places = Places::new(1, 1, 10);
        let parked = places.try_take("ada").unwrap();
        let parking = parked.parking().unwrap();
        let next = queue(&places, "bob").await;
        let (question, another) = (parking.park(), parking.park());
        let bob = next.await.unwrap().unwrap();
        drop(question);
        assert_eq!(places.taken(), 1, "one question is open");
        drop(another);
        assert_eq!(places.taken(), 2, "it goes on beside the other");
        drop(bob);
        assert!(places.try_take("cyd").is_none(), "there is one place, and it is taken");
        drop(parked);
        assert!(places.try_take("cyd").is_some());
    }

    #[tokio::test]
    async fn a_caller_parks_as_many_calls_as_it_may_have_places_and_keeps_the_places_of_the_rest() {
        let places = Places::new(4, 2, 0);
        let ask = || {
            let place = places.try_take("ada")?;
            let question = place.parking()?.park();
            Some((place, question))
        };
        let parked: Vec<_> = std::iter::from_fn(ask).collect();
        assert_eq!((parked.len(), places.taken()), (4, 2), "two parked, two in their places");
        let _others = [(); 2].map(|()| places.try_take("bob").unwrap());
        let (calls, questions): (Vec<_>, Vec<_>) = parked.into_iter().unzip();
        drop(calls);
        assert_eq!(places.taken(), 2, "a question that outlives its call gives nothing back");
        drop(questions);
        assert_eq!((places.taken(), places.floor().callers.len()), (2, 1));
    }

    #[tokio::test]
    async fn one_that_waits_no_longer_is_not_in_line() {
        let places = Places::new(1, 1, 1);
        let _held = places.try_take("ada").unwrap();
        let gone = queue(&places, "ada").await;
        gone.abort();
        assert!(gone.await.is_err());
        assert_eq!(places.waiting(), 0);
        let late = places.wait("ada", Instant::now()).await;
        assert_eq!((late.err(), places.waiting()), (Some(Shed::Late), 0));
    }

    #[tokio::test]
    async fn a_full_line_makes_room_for_who_has_fewer_in_it() {
        let places = Places::new(1, 1, 3);
        let held = places.try_take("ada").unwrap();
        let (first, second) = (queue(&places, "ada").await, queue(&places, "ada").await);
        let third = queue(&places, "ada").await;
        assert_eq!(places.wait("ada", forever()).await.err(), Some(Shed::Full));
        let other = tokio::spawn({
            let places = Arc::clone(&places);
            async move { places.wait("bob", forever()).await }
        });
        assert_eq!(third.await.unwrap().err(), Some(Shed::Displaced));
        drop(held);
        drop(first.await.unwrap().unwrap());
        drop(other.await.unwrap().unwrap());
        drop(second.await.unwrap().unwrap());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_place_is_lost_or_taken_twice_while_callers_come_and_go() {
        let (places, at_once) = (Places::new(4, 2, 64), Arc::new(std::sync::atomic::AtomicUsize::new(0)));
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..64u64 {
            let (places, at_once) = (Arc::clone(&places), Arc::clone(&at_once));
            tasks.spawn(async move {
                for round in 0..200 {
                    // Some give up at once, some after a moment, most wait.
                    let until = match (n + round) % 5 {
                        0 => Instant::now(),
                        1 => Instant::now() + Duration::from_micros(50),
                        _ => forever(),
                    };
                    let caller = (n % 3).to_string();
                    let place = match places.try_take(&caller) {
                        Some(place) => Ok(place),
                        None => places.wait(&caller, until).await,
                    };
                    let Ok(place) = place else { continue };
                    if round % 7 == 0 {
                        // Gives its place on and takes it back, which may be one more than there are.
                        drop(place.parking().unwrap().park());
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
        assert_eq!((places.taken(), places.waiting()), (0, 0));
    }
}
