//! Connection table: bounds the connections of one listener and evicts idle and stalled ones.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hashbrown::{HashMap, HashSet};
use tokio::time::Instant;

use super::ConnectionLimits;
use super::connection::{EvictionRank, HttpConnection};

/// Connections that are remembered as the next to be evicted, so that a burst of newcomers does not scan the whole
/// table for each.
const MAX_CANDIDATES: usize = 64;

/// Connections of one listener.
#[derive(Debug)]
pub(super) struct ConnectionTable {
    max: usize,
    /// Connections above `max`, for privileged requests.
    max_reserved: usize,
    max_unread: usize,
    /// Bytes of large answers that clients have not taken yet.
    pub(super) unread: AtomicUsize,
    state: Mutex<ConnectionTableState>,
}

#[derive(Debug, Default)]
struct ConnectionTableState {
    all: HashMap<u64, Weak<HttpConnection>>,
    /// Numbers of the reserved connections.
    reserved: HashSet<u64>,
    last: u64,
    /// First connections to be evicted as of the last scan, by rank.
    candidates: VecDeque<(EvictionRank, Weak<HttpConnection>)>,
}

impl ConnectionTable {
    pub(super) fn new(limits: &ConnectionLimits) -> Self {
        let ConnectionLimits { max_connections, reserved_connections, max_unread, .. } = *limits;
        Self {
            max: max_connections,
            max_reserved: reserved_connections,
            max_unread,
            unread: AtomicUsize::new(0),
            state: Mutex::default(),
        }
    }

    /// Adds a new connection. If the table is full, evicts the connection that has idled longest, or whose client has
    /// taken nothing of its last answer for longest. If there is none, the new connection is reserved, and a reserved
    /// connection is evicted for it likewise; `None` if none can be, or all have just had a privileged request.
    pub(super) fn admit(self: &Arc<Self>) -> Option<Arc<HttpConnection>> {
        if self.lock().unreserved() < self.max {
            return Some(self.insert(false));
        }
        if let Some(connection) = self.next_to_evict().and_then(|leaving| self.replace(&leaving)) {
            return Some(connection);
        }
        if self.lock().reserved.len() < self.max_reserved {
            return Some(self.insert(true));
        }
        self.replace(&self.next_reserved_to_evict()?)
    }

    /// Replaces an unused connection by a new one.
    fn replace(self: &Arc<Self>, leaving: &Arc<HttpConnection>) -> Option<Arc<HttpConnection>> {
        if !leaving.evict_if_unused() {
            return None;
        }
        self.lock().remove(leaving.number());
        Some(self.insert(leaving.is_reserved()))
    }

    fn insert(self: &Arc<Self>, is_reserved: bool) -> Arc<HttpConnection> {
        let mut taken = self.lock();
        taken.last += 1;
        let number = taken.last;
        let connection = Arc::new(HttpConnection::new(self, number, is_reserved));
        taken.all.insert(number, Arc::downgrade(&connection));
        if is_reserved {
            taken.reserved.insert(number);
        }
        connection
    }

    /// Evicts connections whose timeouts have passed.
    pub(super) fn sweep(&self, now: Instant, limits: &ConnectionLimits) {
        for connection in self.all() {
            if connection.has_timed_out(now, limits) {
                connection.evict_now();
            }
        }
    }

    /// Evicts stalled connections, the longest stalled first, until the unread bytes are within their limit.
    pub(super) fn enforce_unread_limit(&self) {
        let excess = self.unread.load(Ordering::Relaxed).saturating_sub(self.max_unread);
        if excess == 0 {
            return;
        }
        // Evicting a connection without counted bytes would free nothing.
        let stalled = |connection: Arc<HttpConnection>| Some((connection.stalled_since()?, connection));
        let mut stalled: Vec<_> = self.all().into_iter().filter_map(stalled).collect();
        stalled.sort_unstable_by_key(|(last, _)| *last);
        let mut freed = 0;
        for (_, connection) in stalled {
            if freed >= excess {
                return;
            }
            freed += connection.clear_unread();
            connection.evict_now();
        }
    }

    fn next_to_evict(&self) -> Option<Arc<HttpConnection>> {
        if let Some(known) = self.next_candidate() {
            return Some(known);
        }
        let ordinary = self.all().into_iter().filter(|connection| !connection.is_reserved());
        let ranked = ordinary.filter_map(|connection| Some((connection.eviction_rank()?, connection)));
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_unstable_by_key(|(rank, connection)| (*rank, connection.number()));
        let first = ranked
            .iter()
            .take(MAX_CANDIDATES)
            .map(|(rank, connection)| (*rank, Arc::downgrade(connection)))
            .collect();
        self.lock().candidates = first;
        self.next_candidate()
    }

    fn next_reserved_to_evict(&self) -> Option<Arc<HttpConnection>> {
        let reserved: Vec<Arc<HttpConnection>> = {
            let taken = self.lock();
            taken.reserved.iter().filter_map(|number| taken.all.get(number)?.upgrade()).collect()
        };
        let now = Instant::now();
        let evictable = reserved.into_iter().filter(|connection| !connection.is_recently_privileged(now));
        let ranked = evictable.filter_map(|connection| Some((connection.eviction_rank()?, connection)));
        ranked.min_by_key(|(rank, connection)| (*rank, connection.number())).map(|(_, connection)| connection)
    }

    /// Returns the next candidate whose rank is unchanged since the last scan.
    fn next_candidate(&self) -> Option<Arc<HttpConnection>> {
        loop {
            // A statement of its own: a connection that is dropped takes the lock.
            let next = self.lock().candidates.pop_front();
            let (rank, connection) = next?;
            if let Some(connection) = connection.upgrade()
                && connection.eviction_rank() == Some(rank)
            {
                return Some(connection);
            }
        }
    }

    /// Returns all connections. A dropped connection takes the lock, so none is dropped while it is held.
    fn all(&self) -> Vec<Arc<HttpConnection>> {
        self.lock().all.values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the bytes of large answers that clients have not taken yet.
    #[cfg(test)]
    pub(super) fn unread_bytes(&self) -> usize {
        self.unread.load(Ordering::Relaxed)
    }

    /// Removes a connection that has ended.
    pub(super) fn remove(&self, number: u64) {
        self.lock().remove(number);
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionTableState {
    /// Returns the number of connections that are not reserved.
    fn unreserved(&self) -> usize {
        self.all.len() - self.reserved.len()
    }

    fn remove(&mut self, number: u64) {
        self.all.remove(&number);
        self.reserved.remove(&number);
    }
}

#[cfg(test)]
mod tests;
