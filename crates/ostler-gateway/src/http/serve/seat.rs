//! Who is connected, and who has to leave.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Limits, Privilege};

/// Connections that are remembered as those that idle longest, so that a crowd
/// of newcomers does not have all of them looked through for each.
const IDLEST: usize = 64;

/// What a client that has to be waited for must take at least, in bytes per second.
const MIN_RATE: f64 = 8.0 * 1024.0;

/// Parts of answers that are smaller fit what the kernel keeps for a client, and
/// are not counted.
const LARGE: usize = 64 * 1024;

/// Time for which a reserved connection stays after a privileged request: enough for the next request of the same
/// command. Only clients that know the secret have it, so that others can't fill the reserved connections with it.
const TENURE: Duration = Duration::from_secs(1);

/// The connections of one listener.
#[derive(Debug)]
pub(super) struct Seats {
    max: usize,
    /// Connections beyond `max`, for privileged requests.
    max_reserved: usize,
    max_unread: usize,
    /// Bytes of large answers that their clients have not taken yet.
    unread: AtomicUsize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    seats: HashMap<u64, Weak<Seat>>,
    /// The numbers of those that are reserved.
    reserved: HashSet<u64>,
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
    is_reserved: bool,
    standing: Mutex<Standing>,
    /// Its part of the unread bytes of all.
    unread: AtomicUsize,
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
    /// What the client has taken since it first had to be waited for.
    stalled: Option<Stalled>,
    is_evicted: bool,
    /// Whether a request came that precedes a privileged one.
    has_prelude: bool,
    /// Whether a privileged request came.
    is_privileged: bool,
}

/// A client that has to be waited for.
#[derive(Debug, Clone, Copy)]
struct Stalled {
    since: Instant,
    taken: usize,
    /// When it last took anything.
    last: Instant,
}

impl Stalled {
    fn from(now: Instant) -> Self {
        Self { since: now, taken: 0, last: now }
    }
}

impl Seats {
    pub(super) fn new(limits: &Limits) -> Self {
        let Limits { max_connections, reserved_connections, max_unread, .. } = *limits;
        Self {
            max: max_connections,
            max_reserved: reserved_connections,
            max_unread,
            unread: AtomicUsize::new(0),
            taken: Mutex::default(),
        }
    }

    /// Returns a seat for a new connection. If all are taken, the connection
    /// that idled longest leaves. If none idles, the seat is a reserved one,
    /// for which a reserved connection that idles leaves; `None` if none does,
    /// or all have just had a privileged request.
    pub(super) fn take(self: &Arc<Self>) -> Option<Arc<Seat>> {
        if self.lock().ordinary() < self.max {
            return Some(self.insert(false));
        }
        if let Some(seat) = self.longest_idle().and_then(|leaving| self.replace(&leaving)) {
            return Some(seat);
        }
        if self.lock().reserved.len() < self.max_reserved {
            return Some(self.insert(true));
        }
        self.replace(&self.longest_idle_reserved()?)
    }

    /// Gives the place of a connection that idles to a new one.
    fn replace(self: &Arc<Self>, leaving: &Arc<Seat>) -> Option<Arc<Seat>> {
        if !leaving.evict() {
            return None;
        }
        self.lock().remove(leaving.number);
        Some(self.insert(leaving.is_reserved))
    }

    fn insert(self: &Arc<Self>, is_reserved: bool) -> Arc<Seat> {
        let mut taken = self.lock();
        taken.last += 1;
        let number = taken.last;
        let seat = Arc::new(Seat {
            seats: Arc::downgrade(self),
            number,
            is_reserved,
            standing: Mutex::new(Standing::new()),
            unread: AtomicUsize::new(0),
            evicted: Notify::new(),
        });
        taken.seats.insert(number, Arc::downgrade(&seat));
        if is_reserved {
            taken.reserved.insert(number);
        }
        seat
    }

    /// Makes those leave whose time is over.
    pub(super) fn sweep(&self, now: Instant, limits: &Limits) {
        for seat in self.all() {
            if seat.is_over(now, limits) {
                seat.leave();
            }
        }
    }

    /// Makes those leave that take nothing, the one first that has taken nothing
    /// for longest, until what is unread is within its bound.
    fn bound_unread(&self) {
        let excess = self.unread.load(Ordering::Relaxed).saturating_sub(self.max_unread);
        if excess == 0 {
            return;
        }
        // Whoever owes nothing that is counted would leave for nothing.
        let stalled = |seat: Arc<Seat>| {
            let last = seat.standing().stalled.filter(|_| seat.has_unread())?.last;
            Some((last, seat))
        };
        let mut stalled: Vec<_> = self.all().into_iter().filter_map(stalled).collect();
        stalled.sort_unstable_by_key(|(last, _)| *last);
        let mut freed = 0;
        for (_, seat) in stalled {
            if freed >= excess {
                return;
            }
            freed += seat.unread.load(Ordering::Relaxed);
            seat.take_unread(usize::MAX);
            seat.leave();
        }
    }

    fn longest_idle(&self) -> Option<Arc<Seat>> {
        if let Some(known) = self.next_idlest() {
            return Some(known);
        }
        let ordinary = self.all().into_iter().filter(|seat| !seat.is_reserved);
        let idle = ordinary.filter_map(|seat| Some((seat.idle_since()?, seat)));
        let mut idle: Vec<_> = idle.collect();
        idle.sort_unstable_by_key(|(since, seat)| (*since, seat.number));
        let idlest = idle.iter().take(IDLEST).map(|(since, seat)| (*since, Arc::downgrade(seat))).collect();
        self.lock().idlest = idlest;
        self.next_idlest()
    }

    fn longest_idle_reserved(&self) -> Option<Arc<Seat>> {
        let reserved: Vec<Arc<Seat>> = {
            let taken = self.lock();
            taken.reserved.iter().filter_map(|number| taken.seats.get(number)?.upgrade()).collect()
        };
        let now = Instant::now();
        let evictable = reserved.into_iter().filter(|seat| !seat.has_tenure(now));
        let idle = evictable.filter_map(|seat| Some((seat.idle_since()?, seat)));
        idle.min_by_key(|(since, seat)| (*since, seat.number)).map(|(_, seat)| seat)
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

impl Taken {
    /// Connections that are not reserved.
    fn ordinary(&self) -> usize {
        self.seats.len() - self.reserved.len()
    }

    fn remove(&mut self, number: u64) {
        self.seats.remove(&number);
        self.reserved.remove(&number);
    }
}

impl Standing {
    /// A client that connects is about to send the head of a request.
    fn new() -> Self {
        Self {
            users: 0,
            since: Instant::now(),
            is_sending_head: true,
            stalled: None,
            is_evicted: false,
            has_prelude: false,
            is_privileged: false,
        }
    }

    /// Whether the client takes too little; a new time begins when it has taken enough.
    fn is_dawdling(&mut self, now: Instant, limits: &Limits) -> bool {
        let Some(stalled) = &mut self.stalled else { return false };
        if now < stalled.since + limits.write_timeout {
            return false;
        }
        let least = MIN_RATE * limits.write_timeout.as_secs_f64();
        let is_dawdling = (stalled.taken as f64) < least;
        *stalled = Stalled { last: stalled.last, ..Stalled::from(now) };
        is_dawdling
    }

    fn is_idle_for_too_long(&self, now: Instant, limits: &Limits) -> bool {
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

    /// Returns whether it is kept for privileged requests.
    pub(super) fn is_reserved(&self) -> bool {
        self.is_reserved
    }

    /// Returns whether a request may be answered on a reserved connection. A
    /// prelude may once: a client that repeats it does not hold the connection.
    pub(super) fn may_ask(&self, privilege: Privilege) -> bool {
        match privilege {
            Privilege::None => false,
            Privilege::Prelude => !std::mem::replace(&mut self.standing().has_prelude, true),
            Privilege::Full => {
                self.standing().is_privileged = true;
                true
            }
        }
    }

    /// Bytes have arrived.
    pub(super) fn heard(&self) {
        let mut standing = self.standing();
        if standing.users == 0 && !standing.is_sending_head {
            standing.is_sending_head = true;
            standing.since = Instant::now();
        }
    }

    /// The client has taken so many bytes, or none for now.
    pub(super) fn wrote(&self, taken: Option<usize>) {
        let mut standing = self.standing();
        match (taken, &mut standing.stalled) {
            (None, None) => standing.stalled = Some(Stalled::from(Instant::now())),
            (Some(taken), Some(stalled)) => {
                stalled.taken += taken;
                stalled.last = Instant::now();
            }
            _ => {}
        }
        drop(standing);
        self.take_unread(taken.unwrap_or(0));
    }

    /// The client has taken everything.
    pub(super) fn flushed(&self) {
        let mut standing = self.standing();
        // Who had to be waited for idles only from now on.
        if standing.stalled.take().is_some() && standing.users == 0 {
            standing.since = Instant::now();
        }
        drop(standing);
        self.take_unread(usize::MAX);
    }

    /// Whether the client has to be waited for.
    pub(super) fn is_stalled(&self) -> bool {
        self.standing().stalled.is_some()
    }

    /// So many bytes are to be written.
    fn owes(&self, bytes: usize) {
        let Some(seats) = self.seats.upgrade() else { return };
        // The sum first: it is never less than its parts.
        seats.unread.fetch_add(bytes, Ordering::Relaxed);
        self.unread.fetch_add(bytes, Ordering::Relaxed);
        seats.bound_unread();
    }

    /// Up to so many bytes are not unread any more; how many that are.
    fn take_unread(&self, bytes: usize) -> usize {
        // Small answers were never counted, and need nothing here.
        if bytes == 0 || self.unread.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let less = |unread: usize| Some(unread.saturating_sub(bytes));
        let before = self.unread.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).unwrap_or(0);
        let taken = before.min(bytes);
        if let Some(seats) = self.seats.upgrade() {
            seats.unread.fetch_sub(taken, Ordering::Relaxed);
        }
        taken
    }

    fn is_over(&self, now: Instant, limits: &Limits) -> bool {
        let has_unread = self.has_unread();
        let mut standing = self.standing();
        let is_served = has_unread || standing.stalled.is_some();
        standing.is_dawdling(now, limits) || !is_served && standing.is_idle_for_too_long(now, limits)
    }

    fn idle_since(&self) -> Option<Instant> {
        let has_unread = self.has_unread();
        let standing = self.standing();
        let is_served = has_unread || standing.stalled.is_some() || standing.users > 0;
        (!is_served && !standing.is_evicted).then_some(standing.since)
    }

    /// Returns whether the next request of an operator's command may be on its way.
    fn has_tenure(&self, now: Instant) -> bool {
        let standing = self.standing();
        standing.is_privileged && now < standing.since + TENURE
    }

    fn has_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed) > 0
    }

    /// Waits until the connection has to leave.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Whether the connection has to leave.
    pub(super) fn is_evicted(&self) -> bool {
        self.standing().is_evicted
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
        self.take_unread(usize::MAX);
        if let Some(seats) = self.seats.upgrade() {
            seats.lock().remove(self.number);
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Busy(Option<Arc<Seat>>);

impl Busy {
    /// A part of the answer is to be written.
    pub(super) fn owes(&self, bytes: usize) {
        if let Some(seat) = self.0.as_ref().filter(|_| bytes >= LARGE) {
            seat.owes(bytes);
        }
    }

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

#[cfg(test)]
mod tests;
