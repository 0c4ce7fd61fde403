//! Connection: requests under way, what its client has taken, and whether it has to leave.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::connection_table::ConnectionTable;
use super::{ConnectionLimits, Privilege};

/// What a client that has to be waited for must take at least, in bytes per second.
const MIN_RATE: f64 = 8.0 * 1024.0;

/// Parts of answers that are smaller fit what the kernel keeps for a client, and
/// are not counted.
const LARGE: usize = 64 * 1024;

/// Time for which a reserved connection stays after a privileged request: enough for the next request of the same
/// command. Only clients that know the secret have it, so that others can't fill the reserved connections with it.
pub(super) const RESERVATION_TIME: Duration = Duration::from_secs(1);

/// Time without progress after which newcomers may evict a caller's connection: a slow client takes something in this time.
pub(super) const STALL_GRACE: Duration = Duration::from_secs(1);

/// When a connection is evicted for a newcomer: the lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EvictionRank {
    /// True if it owes an answer to a caller, who has a limit of its own. Strangers are evicted first.
    owes_caller: bool,
    /// Since when it idles, or its client has taken nothing.
    since: Instant,
}

/// One connection. It lives as long as the socket does, also when that has
/// been upgraded.
#[derive(Debug)]
pub(super) struct HttpConnection {
    table: Weak<ConnectionTable>,
    number: u64,
    is_reserved: bool,
    state: Mutex<ConnectionState>,
    /// Its part of the unread bytes of all: given to the socket, and waiting for it to be free.
    unread: AtomicUsize,
    backlog: AtomicUsize,
    evicted: Notify,
}

#[derive(Debug)]
struct ConnectionState {
    /// Requests being answered.
    requests: u32,
    /// Since when it idles or sends the head of a request; means nothing
    /// while it has users.
    since: Instant,
    is_sending_head: bool,
    /// What the client has taken since it first had to be waited for.
    stalled: Option<Stalled>,
    /// The sizes of the large parts of answers that are not written to the end, in order, and how much of the first one
    /// is. A part is in memory as a whole until then.
    parts: VecDeque<usize>,
    taken_of_first: usize,
    is_evicted: bool,
    /// True if the last answer was to an authenticated caller.
    served_caller: bool,
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

impl ConnectionState {
    /// A client that connects is about to send the head of a request.
    fn new() -> Self {
        Self {
            requests: 0,
            since: Instant::now(),
            is_sending_head: true,
            stalled: None,
            parts: VecDeque::new(),
            taken_of_first: 0,
            is_evicted: false,
            served_caller: false,
            has_prelude: false,
            is_privileged: false,
        }
    }

    /// Notes that so many bytes were taken, and returns the size of the parts that this completes.
    fn complete_parts(&mut self, taken: usize) -> usize {
        if self.parts.is_empty() {
            return 0;
        }
        self.taken_of_first += taken;
        let mut completed = 0;
        while let Some(first) = self.parts.pop_front_if(|first| *first <= self.taken_of_first) {
            self.taken_of_first -= first;
            completed += first;
        }
        if self.parts.is_empty() {
            // What was taken beyond them is of small parts, which are not counted.
            self.taken_of_first = 0;
        }
        completed
    }

    /// Whether the client takes too little; a new time begins when it has taken enough.
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

    /// A request has arrived; `None` if the connection has to leave.
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

    /// Returns whether it is kept for privileged requests.
    pub(super) fn is_reserved(&self) -> bool {
        self.is_reserved
    }

    /// Returns whether a request may be answered on a reserved connection. A
    /// prelude may once: a client that repeats it does not hold the connection.
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

    /// Bytes have arrived.
    pub(super) fn note_read(&self) {
        let mut state = self.state();
        if state.requests == 0 && !state.is_sending_head {
            state.is_sending_head = true;
            state.since = Instant::now();
        }
    }

    /// The client has taken so many bytes, or none for now.
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
        let completed = state.complete_parts(taken.unwrap_or(0));
        drop(state);
        self.subtract_unread(completed);
    }

    /// The client has taken everything.
    pub(super) fn note_flush(&self) {
        let mut state = self.state();
        // Who had to be waited for idles only from now on.
        if state.stalled.take().is_some() && state.requests == 0 {
            state.since = Instant::now();
        }
        state.parts.clear();
        state.taken_of_first = 0;
        drop(state);
        self.subtract_unread(usize::MAX);
    }

    /// Whether the client has to be waited for.
    pub(super) fn is_stalled(&self) -> bool {
        self.state().stalled.is_some()
    }

    /// A part of so many bytes is to be written.
    pub(super) fn add_unread(&self, bytes: usize) {
        self.state().parts.push_back(bytes);
        self.add(&self.unread, bytes);
    }

    fn add(&self, part: &AtomicUsize, bytes: usize) {
        let Some(table) = self.table.upgrade() else { return };
        // The sum first: it is never less than its parts.
        table.unread.fetch_add(bytes, Ordering::Relaxed);
        part.fetch_add(bytes, Ordering::Relaxed);
        table.enforce_unread_limit();
    }

    /// Up to so many bytes are not unread any more; how many that are.
    fn subtract_unread(&self, bytes: usize) -> usize {
        self.subtract(&self.unread, bytes)
    }

    fn subtract(&self, part: &AtomicUsize, bytes: usize) -> usize {
        // Small answers were never counted, and need nothing here.
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

    /// Returns where bytes count that wait for a stream of the connection.
    pub(super) fn backlog(self: &Arc<Self>) -> StreamBacklog {
        StreamBacklog(Arc::downgrade(self))
    }

    /// Returns since when the client has taken nothing of large answers that it is owed.
    pub(super) fn stalled_since(&self) -> Option<Instant> {
        Some(self.state().stalled.filter(|_| self.has_unread())?.last)
    }

    /// Counts nothing of what it is owed any more, and returns how much that was.
    pub(super) fn clear_unread(&self) -> usize {
        self.subtract_unread(usize::MAX) + self.subtract(&self.backlog, usize::MAX)
    }

    pub(super) fn has_timed_out(&self, now: Instant, limits: &ConnectionLimits) -> bool {
        let has_unread = self.has_unread();
        let mut state = self.state();
        let is_served = has_unread || state.stalled.is_some();
        state.is_too_slow(now, limits) || !is_served && state.is_idle_for_too_long(now, limits)
    }

    /// Returns its rank among those that newcomers evict; `None` while a request is answered or its client takes the
    /// answer.
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

    /// Waits until the connection has to leave.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Whether the connection has to leave.
    pub(super) fn is_evicted(&self) -> bool {
        self.state().is_evicted
    }

    /// Makes the connection leave if no request is being answered.
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

    /// Makes the connection leave in any case.
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

/// Counter of the bytes that wait for a stream of a connection.
#[derive(Debug, Clone)]
pub(crate) struct StreamBacklog(Weak<HttpConnection>);

/// Bytes that wait for a stream of a connection. Dropping it counts them out.
#[derive(Debug)]
pub(crate) struct BacklogShare {
    connection: Weak<HttpConnection>,
    bytes: usize,
}

impl StreamBacklog {
    /// Counts bytes in; `None` if the connection has ended.
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

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct BusyGuard {
    connection: Option<Arc<HttpConnection>>,
    serves_caller: bool,
}

impl BusyGuard {
    /// A part of the answer is to be written.
    pub(super) fn add_unread(&self, bytes: usize) {
        if let Some(connection) = self.connection.as_ref().filter(|_| bytes >= LARGE) {
            connection.add_unread(bytes);
        }
    }

    /// True if the answer is to an authenticated caller.
    pub(super) fn set_serves_caller(&mut self, serves_caller: bool) {
        self.serves_caller = serves_caller;
    }

    /// The connection is its handler's from now on, which never idles.
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
