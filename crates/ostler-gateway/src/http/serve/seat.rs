//! Who is connected, and who has to leave.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hashbrown::HashMap;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Limits;

/// Connections that are remembered as those that idle longest, so that a crowd
/// of newcomers does not have all of them looked through for each.
const IDLEST: usize = 64;

/// The connections of one listener.
#[derive(Debug)]
pub(super) struct Seats {
    max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    seats: HashMap<u64, Weak<Seat>>,
    last: u64,
    /// Those that idled longest when all were last looked through, and since
    /// when. Whoever else idles does so for less long.
    idlest: VecDeque<(Instant, Weak<Seat>)>,
}

/// One connection. It lives as long as the socket does, also when that has
/// been upgraded.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Weak<Seats>,
    number: u64,
    standing: Mutex<Standing>,
    evicted: Notify,
}

#[derive(Debug)]
struct Standing {
    /// Requests being answered.
    users: u32,
    /// Since when it idles or sends the head of a request; means nothing
    /// while it has users.
    since: Instant,
    is_sending_head: bool,
    /// Since when the client does not read.
    blocked: Option<Instant>,
    is_evicted: bool,
}

impl Seats {
    pub(super) fn new(max: usize) -> Self {
        Self { max, taken: Mutex::default() }
    }

    /// A seat for a new connection. If all are taken, the connection that
    /// idled longest leaves; `None` if none idles.
    pub(super) fn take(self: &Arc<Self>) -> Option<Arc<Seat>> {
        if self.lock().seats.len() >= self.max {
            let leaving = self.longest_idle()?;
            if !leaving.evict() {
                return None;
            }
            self.lock().seats.remove(&leaving.number);
        }
        let mut taken = self.lock();
        taken.last += 1;
        let number = taken.last;
        let seat = Arc::new(Seat {
            seats: Arc::downgrade(self),
            number,
            standing: Mutex::new(Standing::new()),
            evicted: Notify::new(),
        });
        taken.seats.insert(number, Arc::downgrade(&seat));
        Some(seat)
    }

    /// Makes those leave whose time is over.
    pub(super) fn sweep(&self, now: Instant, limits: &Limits) {
        for seat in self.all() {
            if seat.standing().is_over(now, limits) {
                seat.leave();
            }
        }
    }

    fn longest_idle(&self) -> Option<Arc<Seat>> {
        if let Some(known) = self.next_idlest() {
            return Some(known);
        }
        let idle = self.all().into_iter().filter_map(|seat| Some((seat.idle_since()?, seat)));
        let mut idle: Vec<_> = idle.collect();
        idle.sort_unstable_by_key(|(since, _)| *since);
        let idlest = idle.iter().take(IDLEST).map(|(since, seat)| (*since, Arc::downgrade(seat))).collect();
        self.lock().idlest = idlest;
        self.next_idlest()
    }

    /// The next of those that were found to idle longest, if it has done so since.
    fn next_idlest(&self) -> Option<Arc<Seat>> {
        loop {
            // A statement of its own: a seat that is dropped takes the lock.
            let next = self.lock().idlest.pop_front();
            let (since, seat) = next?;
            if let Some(seat) = seat.upgrade()
                && seat.idle_since() == Some(since)
            {
                return Some(seat);
            }
        }
    }

    /// Everybody. A seat that is dropped takes the lock, so none is while it
    /// is held.
    fn all(&self) -> Vec<Arc<Seat>> {
        self.lock().seats.values().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Standing {
    /// A client that connects is about to send the head of a request.
    fn new() -> Self {
        Self { users: 0, since: Instant::now(), is_sending_head: true, blocked: None, is_evicted: false }
    }

    fn is_over(&self, now: Instant, limits: &Limits) -> bool {
        if self.blocked.is_some_and(|since| now >= since + limits.write_timeout) {
            return true;
        }
        let patience = if self.is_sending_head { limits.header_timeout } else { limits.idle_timeout };
        self.users == 0 && now >= self.since + patience
    }
}

impl Seat {
    /// A request has arrived; `None` if the connection has to leave.
    pub(super) fn begin(self: &Arc<Self>) -> Option<Busy> {
        let mut standing = self.standing();
        if standing.is_evicted {
            return None;
        }
        standing.users += 1;
        standing.is_sending_head = false;
        drop(standing);
        Some(Busy(Some(Arc::clone(self))))
    }

    /// Bytes have arrived.
    pub(super) fn heard(&self) {
        let mut standing = self.standing();
        if standing.users == 0 && !standing.is_sending_head {
            standing.is_sending_head = true;
            standing.since = Instant::now();
        }
    }

    /// Whether the client reads what is written.
    pub(super) fn wrote(&self, is_blocked: bool) {
        let mut standing = self.standing();
        match (is_blocked, standing.blocked) {
            (true, None) => standing.blocked = Some(Instant::now()),
            (false, Some(_)) => standing.blocked = None,
            _ => {}
        }
    }

    fn idle_since(&self) -> Option<Instant> {
        let standing = self.standing();
        (standing.users == 0 && !standing.is_evicted).then_some(standing.since)
    }

    /// Waits until the connection has to leave.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Makes the connection leave if nothing is being answered.
    fn evict(&self) -> bool {
        let mut standing = self.standing();
        if standing.users > 0 {
            return false;
        }
        standing.is_evicted = true;
        drop(standing);
        self.evicted.notify_one();
        true
    }

    /// Makes the connection leave in any case.
    fn leave(&self) {
        self.standing().is_evicted = true;
        self.evicted.notify_one();
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(seats) = self.seats.upgrade() {
            seats.lock().seats.remove(&self.number);
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Busy(Option<Arc<Seat>>);

impl Busy {
    /// The connection is its handler's from now on, which never idles.
    pub(super) fn stay(mut self) {
        self.0 = None;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Some(seat) = &self.0 else { return };
        let mut standing = seat.standing();
        standing.users -= 1;
        standing.since = Instant::now();
    }
}
