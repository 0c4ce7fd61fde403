//! The places for calls at one server, and the line before them.
//!
//! ```text
//!   try_take ── free, nobody waits ──▶ Place ── dropped ──▶ free, or the next one's in line
//!   wait ────── in line ── turn ─────▶ Place
//!                  └─ shed for somebody with fewer in line ──▶ Shed
//! ```
//!
//! A place that comes free goes to whose turn it is and not to whoever comes
//! at that moment: as long as anybody waits, there is no free place to take.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_core::fair::{Joined, Line, Ticket};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// The places for calls at one server.
pub(crate) struct Places {
    /// All of them, taken or not.
    all: usize,
    floor: Mutex<Floor>,
}

struct Floor {
    /// Zero as long as anybody waits.
    free: usize,
    /// By principal. Bounded by the server's `max_queued`.
    line: Line<Arc<str>, oneshot::Sender<Result<Place, Shed>>>,
}

/// A place at the server; dropping it passes it on. Empty only while it is dropped.
pub(crate) struct Place(Option<Arc<Places>>);

/// Why there is no place for a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shed {
    /// The line is full.
    Full,
    /// The line was full, and somebody who had fewer in it came.
    Displaced,
    /// The caller's time ran out.
    Late,
}

impl Places {
    pub(crate) fn new(places: usize, max_waiting: usize) -> Arc<Self> {
        let floor = Floor { free: places, line: Line::new(max_waiting) };
        Arc::new(Self { all: places, floor: Mutex::new(floor) })
    }

    /// Takes a place if one is free, which none is while anybody waits.
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<Place> {
        let mut floor = self.floor();
        floor.free = floor.free.checked_sub(1)?;
        drop(floor);
        Some(Place(Some(Arc::clone(self))))
    }

    /// Waits for a place, in turn with the other principals that wait. Dropping
    /// the future leaves the line; a place that was given at that moment is
    /// passed on.
    pub(crate) async fn wait(self: &Arc<Self>, principal: &str, until: Instant) -> Result<Place, Shed> {
        let (waiting, given) = match self.join(principal)? {
            Entry::Place(place) => return Ok(place),
            Entry::Line(waiting, given) => (waiting, given),
        };
        let answer = timeout_at(until, given).await;
        drop(waiting);
        match answer {
            Ok(Ok(answer)) => answer,
            // Nobody drops a waiter without an answer; should it be, it is not served.
            Ok(Err(_)) | Err(_) => Err(Shed::Late),
        }
    }

    fn join(self: &Arc<Self>, principal: &str) -> Result<Entry<'_>, Shed> {
        let principal: Arc<str> = principal.into();
        let (waiter, given) = oneshot::channel();
        let mut floor = self.floor();
        // One may have come free since it was looked for.
        if let Some(left) = floor.free.checked_sub(1) {
            floor.free = left;
            return Ok(Entry::Place(Place(Some(Arc::clone(self)))));
        }
        let (ticket, displaced) = match floor.line.join(Arc::clone(&principal), waiter) {
            Joined::Waits(ticket) => (ticket, None),
            Joined::Instead(ticket, displaced) => (ticket, Some(displaced)),
            Joined::Full => return Err(Shed::Full),
        };
        drop(floor);
        if let Some(displaced) = displaced {
            // One that has left meanwhile need not be told.
            let _ = displaced.send(Err(Shed::Displaced));
        }
        Ok(Entry::Line(Waiting { places: self, principal, ticket }, given))
    }

    /// Gives a place to whose turn it is, or leaves it free.
    fn pass_on(mut self: Arc<Self>) {
        loop {
            let mut floor = self.floor();
            let Some(waiter) = floor.line.take_next() else {
                floor.free += 1;
                return;
            };
            drop(floor);
            let Err(Ok(mut unwanted)) = waiter.send(Ok(Place(Some(self)))) else { return };
            // Who waited has just left, so the place is the next one's.
            let Some(places) = unwanted.0.take() else { return };
            self = places;
        }
    }

    /// Places that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.all - self.floor().free
    }

    /// Callers in line.
    pub(crate) fn waiting(&self) -> usize {
        self.floor().line.len()
    }

    fn floor(&self) -> MutexGuard<'_, Floor> {
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(places) = self.0.take() {
            places.pass_on();
        }
    }
}

/// What somebody who wants a place has: one, or a place in line.
enum Entry<'a> {
    Place(Place),
    Line(Waiting<'a>, oneshot::Receiver<Result<Place, Shed>>),
}

/// Somebody in line; dropping it leaves the line.
struct Waiting<'a> {
    places: &'a Places,
    principal: Arc<str>,
    ticket: Ticket,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        drop(self.places.floor().line.leave(&self.principal, self.ticket));
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
        let places = Places::new(1, 10);
        let held = places.try_take().unwrap();
        let (first, second) = (queue(&places, "ada").await, queue(&places, "ada").await);
        let other = queue(&places, "bob").await;
        drop(held);
        assert!(places.try_take().is_none(), "it was given away");
        drop(first.await.unwrap().unwrap());
        drop(other.await.unwrap().unwrap());
        drop(second.await.unwrap().unwrap());
        assert_eq!((places.taken(), places.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn a_place_given_to_one_that_leaves_at_that_moment_goes_to_the_next() {
        let places = Places::new(1, 10);
        let held = places.try_take().unwrap();
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
    async fn one_that_waits_no_longer_is_not_in_line() {
        let places = Places::new(1, 1);
        let _held = places.try_take().unwrap();
        let gone = queue(&places, "ada").await;
        gone.abort();
        assert!(gone.await.is_err());
        assert_eq!(places.waiting(), 0);
        let late = places.wait("ada", Instant::now()).await;
        assert_eq!((late.err(), places.waiting()), (Some(Shed::Late), 0));
    }

    #[tokio::test]
    async fn a_full_line_makes_room_for_who_has_fewer_in_it() {
        let places = Places::new(1, 3);
        let held = places.try_take().unwrap();
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
        let (places, at_once) = (Places::new(4, 64), Arc::new(std::sync::atomic::AtomicUsize::new(0)));
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
                    let place = match places.try_take() {
                        Some(place) => Ok(place),
                        None => places.wait(&(n % 3).to_string(), until).await,
                    };
                    let Ok(place) = place else { continue };
                    assert!(at_once.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 4);
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
