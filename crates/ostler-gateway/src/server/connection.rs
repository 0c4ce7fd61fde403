//! HTTP connection: its requests in flight, its unread bytes, and its eviction.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::connection_table::ConnectionTable;
use super::{ConnectionLimits, Privilege};

/// Minimum rate of a client that does not take its answer at once, in bytes per second.
const MIN_RATE: f64 = 8.0 * 1024.0;

/// Size above which a part of an answer counts as unread. Smaller parts fit the kernel's send buffer.
const LARGE: usize = 64 * 1024;

/// Time for which a reserved connection stays after a privileged request: enough for the next request of the same
/// command. Only clients that know the secret have it, so that others can't fill the reserved connections with it.
pub(super) const RESERVATION_TIME: Duration = Duration::from_secs(1);

/// Time without progress after which newcomers may evict a caller's connection: a slow client takes some bytes in it.
pub(super) const STALL_GRACE: Duration = Duration::from_secs(1);

/// Eviction order of a connection for a newcomer: the lowest rank first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EvictionRank {
    /// True if it owes an answer to a caller, which has a limit of its own. Connections of strangers are evicted first.
    owes_caller: bool,
    /// Start of its idle time, or of the time in which its client has taken nothing.
    since: Instant,
}

/// HTTP connection. It lives as long as the socket does, also after an upgrade.
#[derive(Debug)]
pub(super) struct HttpConnection {
    table: Weak<ConnectionTable>,
    number: u64,
    is_reserved: bool,
    state: Mutex<ConnectionState>,
    /// Its part of the table's unread bytes: written to the socket, or waiting for the socket to be writable.
    unread: AtomicUsize,
    backlog: AtomicUsize,
    evicted: Notify,
}

#[derive(Debug)]
struct ConnectionState {
    /// Requests in flight.
    requests: u32,
    /// Start of the idle time or of the head of a request; not meaningful while requests are in flight.
    since: Instant,
    is_sending_head: bool,
    /// Bytes that the client has taken since it first stalled; `None` while it does not stall.
    stalled: Option<Stalled>,
    is_evicted: bool,
    /// True if the last answer was to a caller that was authenticated.
    served_caller: bool,
    /// True once a prelude to a privileged request has arrived.
    has_prelude: bool,
    /// True once a privileged request has arrived.
    is_privileged: bool,
}

/// Progress of a client that does not take its answer at once.
#[derive(Debug, Clone, Copy)]
struct Stalled {
    since: Instant,
    taken: usize,
    /// Time at which it last took any bytes.
    last: Instant,
}

impl Stalled {
    fn from(now: Instant) -> Self {
        Self { since: now, taken: 0, last: now }
    }
}

impl ConnectionState {
    /// A client that connects is about to send the head of a request.
    fn new() -> Self {
        Self {
            requests: 0,
            since: Instant::now(),
            is_sending_head: true,
            stalled: None,
            is_evicted: false,
            served_caller: false,
            has_prelude: false,
            is_privileged: false,
        }
    }

    /// Returns whether the client is below the minimum rate; a new period starts when it has taken enough.
    fn is_too_slow(&mut self, now: Instant, limits: &ConnectionLimits) -> bool {
        let Some(stalled) = &mut self.stalled else { return false };
        if now < stalled.since + limits.write_timeout {
            return false;
        }
        let least = MIN_RATE * limits.write_timeout.as_secs_f64();
        let is_dawdling = (stalled.taken as f64) < least;
        *stalled = Stalled { last: stalled.last, ..Stalled::from(now) };
        is_dawdling
    }

    fn is_idle_for_too_long(&self, now: Instant, limits: &ConnectionLimits) -> bool {
        let patience = if self.is_sending_head { limits.header_timeout } else { limits.idle_timeout };
        self.requests == 0 && now >= self.since + patience
    }
}

impl HttpConnection {
    pub(super) fn new(table: &Arc<ConnectionTable>, number: u64, is_reserved: bool) -> Self {
        Self {
            table: Arc::downgrade(table),
            number,
            is_reserved,
            state: Mutex::new(ConnectionState::new()),
            unread: AtomicUsize::new(0),
            backlog: AtomicUsize::new(0),
            evicted: Notify::new(),
        }
    }

    /// Returns its number in the table.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Counts a request that has arrived; `None` if the connection is evicted.
    pub(super) fn begin_request(self: &Arc<Self>) -> Option<BusyGuard> {
        let mut state = self.state();
        if state.is_evicted {
            return None;
        }
        state.requests += 1;
        state.is_sending_head = false;
        drop(state);
        Some(BusyGuard { connection: Some(Arc::clone(self)), serves_caller: false })
    }

    /// Returns whether it is reserved for privileged requests.
    pub(super) fn is_reserved(&self) -> bool {
        self.is_reserved
    }

    /// Returns whether a request may be answered on a reserved connection. A prelude may once: a client that repeats it
    /// does not hold the connection.
    pub(super) fn may_serve(&self, privilege: Privilege) -> bool {
        match privilege {
            Privilege::None => false,
            Privilege::Prelude => !std::mem::replace(&mut self.state().has_prelude, true),
            Privilege::Full => {
                self.state().is_privileged = true;
                true
            }
        }
    }

    /// Records that bytes have arrived.
    pub(super) fn note_read(&self) {
        let mut state = self.state();
        if state.requests == 0 && !state.is_sending_head {
            state.is_sending_head = true;
            state.since = Instant::now();
        }
    }

    /// Records that the client has taken that many bytes; `None` means that the socket is not writable.
    pub(super) fn note_write(&self, taken: Option<usize>) {
        let mut state = self.state();
        match (taken, &mut state.stalled) {
            (None, None) => state.stalled = Some(Stalled::from(Instant::now())),
            (Some(taken), Some(stalled)) => {
                stalled.taken += taken;
                stalled.last = Instant::now();
            }
            _ => {}
        }
        drop(state);
        self.subtract_unread(taken.unwrap_or(0));
    }

    /// Records that the client has taken every byte.
    pub(super) fn note_flush(&self) {
        let mut state = self.state();
        // The idle time of a client that stalled starts only now.
        if state.stalled.take().is_some() && state.requests == 0 {
            state.since = Instant::now();
        }
        drop(state);
        self.subtract_unread(usize::MAX);
    }

    /// Returns whether the client stalls.
    pub(super) fn is_stalled(&self) -> bool {
        self.state().stalled.is_some()
    }

    /// Counts bytes that are to be written.
    pub(super) fn add_unread(&self, bytes: usize) {
        self.add(&self.unread, bytes);
    }

    fn add(&self, part: &AtomicUsize, bytes: usize) {
        let Some(table) = self.table.upgrade() else { return };
        // The sum first: it is never less than its parts.
        table.unread.fetch_add(bytes, Ordering::Relaxed);
        part.fetch_add(bytes, Ordering::Relaxed);
        table.enforce_unread_limit();
    }

    /// Subtracts at most that many unread bytes; returns the number subtracted.
    fn subtract_unread(&self, bytes: usize) -> usize {
        self.subtract(&self.unread, bytes)
    }

    fn subtract(&self, part: &AtomicUsize, bytes: usize) -> usize {
        // Small answers were never counted, and need no subtraction.
        if bytes == 0 || part.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let less = |counted: usize| Some(counted.saturating_sub(bytes));
        let before = part.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).unwrap_or(0);
        let taken = before.min(bytes);
        if let Some(table) = self.table.upgrade() {
            table.unread.fetch_sub(taken, Ordering::Relaxed);
        }
        taken
    }

    /// Returns the counter of bytes that wait for a stream of the connection.
    pub(super) fn backlog(self: &Arc<Self>) -> Backlog {
        Backlog(Arc::downgrade(self))
    }

    /// Returns the time since which the client has taken nothing of the large answers it is owed.
    pub(super) fn stalled_since(&self) -> Option<Instant> {
        Some(self.state().stalled.filter(|_| self.has_unread())?.last)
    }

    /// Clears its unread bytes and returns their number.
    pub(super) fn clear_unread(&self) -> usize {
        self.subtract_unread(usize::MAX) + self.subtract(&self.backlog, usize::MAX)
    }

    pub(super) fn has_timed_out(&self, now: Instant, limits: &ConnectionLimits) -> bool {
        let has_unread = self.has_unread();
        let mut state = self.state();
        let is_served = has_unread || state.stalled.is_some();
        state.is_too_slow(now, limits) || !is_served && state.is_idle_for_too_long(now, limits)
    }

    /// Returns its eviction rank; `None` while a request is answered or its client takes the answer.
    pub(super) fn eviction_rank(&self) -> Option<EvictionRank> {
        let has_unread = self.has_unread();
        let state = self.state();
        if state.is_evicted || state.requests > 0 {
            return None;
        }
        match state.stalled {
            Some(stalled) if !state.served_caller => {
                Some(EvictionRank { owes_caller: false, since: stalled.last })
            }
            Some(stalled) => (Instant::now() >= stalled.last + STALL_GRACE)
                .then_some(EvictionRank { owes_caller: true, since: stalled.last }),
            None if has_unread => None,
            None => Some(EvictionRank { owes_caller: false, since: state.since }),
        }
    }

    /// Returns whether the next request of an operator's command may be on its way.
    pub(super) fn is_recently_privileged(&self, now: Instant) -> bool {
        let state = self.state();
        state.is_privileged && now < state.since + RESERVATION_TIME
    }

    fn has_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed) > 0 || self.backlog.load(Ordering::Relaxed) > 0
    }

    /// Waits until the connection is evicted.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Returns whether the connection is evicted.
    pub(super) fn is_evicted(&self) -> bool {
        self.state().is_evicted
    }

    /// Evicts the connection if no request is in flight; returns whether it did.
    pub(super) fn evict_if_unused(&self) -> bool {
        let mut state = self.state();
        if state.requests > 0 {
            return false;
        }
        state.is_evicted = true;
        drop(state);
        self.evicted.notify_one();
        true
    }

    /// Evicts the connection in any case.
    pub(super) fn evict_now(&self) {
        self.state().is_evicted = true;
        self.evicted.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HttpConnection {
    fn drop(&mut self) {
        self.clear_unread();
        if let Some(table) = self.table.upgrade() {
            table.remove(self.number);
        }
    }
}

/// Counter of bytes that wait for a stream of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Backlog(Weak<HttpConnection>);

/// Bytes that wait for a stream of a connection, subtracted when dropped.
#[derive(Debug)]
pub(crate) struct BacklogShare {
    connection: Weak<HttpConnection>,
    bytes: usize,
}

impl Backlog {
    /// Adds bytes; `None` if the connection has ended.
    pub(crate) fn add(&self, bytes: usize) -> Option<BacklogShare> {
        let connection = self.0.upgrade()?;
        connection.add(&connection.backlog, bytes);
        Some(BacklogShare { connection: Weak::clone(&self.0), bytes })
    }
}

impl Drop for BacklogShare {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.upgrade() {
            connection.subtract(&connection.backlog, self.bytes);
        }
    }
}

/// Request in flight on a connection.
#[derive(Debug)]
pub(super) struct BusyGuard {
    connection: Option<Arc<HttpConnection>>,
    serves_caller: bool,
}

impl BusyGuard {
    /// Counts a part of the answer that is to be written.
    pub(super) fn add_unread(&self, bytes: usize) {
        if let Some(connection) = self.connection.as_ref().filter(|_| bytes >= LARGE) {
            connection.add_unread(bytes);
        }
    }

    /// Records if the answer is to a caller that was authenticated.
    pub(super) fn set_serves_caller(&mut self, serves_caller: bool) {
        self.serves_caller = serves_caller;
    }

    /// Hands the connection over to the handler of an upgrade; it never counts as idle again.
    pub(super) fn detach(mut self) {
        self.connection = None;
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        let Some(connection) = &self.connection else { return };
        let mut state = connection.state();
        state.requests -= 1;
        state.since = Instant::now();
        state.served_caller = self.serves_caller;
    }
}
