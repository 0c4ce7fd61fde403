//! Remembered answers, bounded and partitioned by caller.
//!
//! ```text
//!            ticket ── ask the server ── store ──▶ fresh ── ttl over ──▶ dropped when next seen
//!              │                           │         │
//!              └── an invalidation between ┘         ├── least recently used of its subject or of all
//!                  them: not stored                  └── purged with its server or method
//! ```
//!
//! An entry is found by the 64-bit keyed hash of its whole address, and then
//! compared in full against borrowed parts: a lookup builds no key and
//! allocates nothing, and two addresses with one hash displace each other but
//! are never taken for each other.

mod key;
mod shelf;

use std::collections::HashMap;
use std::fmt;
use std::hash::RandomState;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hashlink::LinkedHashMap;
use serde::{Deserialize, Serialize};

use self::key::Address;
pub use self::key::{Key, Scope};
use self::shelf::Shelf;
use crate::name::ServerName;
use crate::sabotage;

/// What an entry costs beside its key and body: the records in the maps. The
/// exact figure does not matter; that a million empty answers are not free does.
const OVERHEAD: usize = 256;

/// The limits of a cache.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Entries of one server, method and subject.
    pub per_subject: usize,
    /// Bytes of all entries together: keys, bodies, and a constant for each.
    pub max_bytes: usize,
    /// Longest time to live; longer ones are cut to it.
    pub max_ttl: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { per_subject: 64, max_bytes: 64 << 20, max_ttl: Duration::from_secs(24 * 3600) }
    }
}

/// An answer that may be remembered.
#[derive(Debug, Clone)]
pub struct Fresh {
    /// The result as it came.
    pub body: Bytes,
    /// How long it stays fresh, from its receipt.
    pub ttl: Duration,
    /// Who may be given it.
    pub scope: Scope,
}

/// A remembered answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// The result as it came.
    pub body: Bytes,
    /// How long it stays fresh; never zero.
    pub remaining: Duration,
    /// Who may be given it.
    pub scope: Scope,
}

/// Says when a question was asked, so that an answer which an invalidation has
/// overtaken is not stored. Taken before asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

/// Counts of a cache, or of one server's part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stats {
    /// Answers held.
    pub entries: usize,
    /// What they cost.
    pub bytes: usize,
    /// Lookups answered.
    pub hits: u64,
    /// Lookups not answered.
    pub misses: u64,
}

struct Entry {
    address: Address,
    /// Hash of server, method and subject: its place on the shelf.
    subject: u64,
    body: Bytes,
    received: Instant,
    ttl: Duration,
}

impl Entry {
    fn cost(&self) -> usize {
        cost(&self.address.key, &self.body)
    }

    fn remaining(&self, now: Instant) -> Option<Duration> {
        sabotage!(StaleCache, return Some(self.ttl));
        self.ttl.checked_sub(now.saturating_duration_since(self.received)).filter(|left| !left.is_zero())
    }
}

fn cost(key: &Key, body: &Bytes) -> usize {
    OVERHEAD
        + key.server.as_str().len()
        + key.method.len()
        + key.subject.len()
        + key.params.len()
        + body.len()
}

/// The remembered answers of all servers.
pub struct Cache {
    bounds: Bounds,
    hasher: RandomState,
    /// By the hash of the address, least recently used first.
    entries: LinkedHashMap<u64, Entry>,
    /// Of the servers that have been asked about since they were last forgotten.
    shelves: HashMap<ServerName, Shelf>,
    /// The last epoch given out; no epoch is given out twice.
    last_epoch: u64,
    /// The epoch of every server without a shelf.
    shelfless: u64,
    /// Sums over all servers, forgotten ones included in `hits` and `misses`.
    total: Stats,
}

impl Cache {
    /// An empty cache.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            hasher: RandomState::new(),
            entries: LinkedHashMap::new(),
            shelves: HashMap::new(),
            last_epoch: 0,
            shelfless: 0,
            total: Stats::default(),
        }
    }

    /// A fresh answer that this caller may be given: its own, else a public one.
    pub fn lookup(&mut self, key: &Key, principal: &str, now: Instant) -> Option<Hit> {
        let hashes = key.hashes(&self.hasher, principal);
        let hit = self
            .recall(hashes.private, key, Some(principal), now)
            .or_else(|| self.recall(hashes.public, key, None, now));
        let shelf = self.shelf(&key.server);
        match hit {
            Some(_) => {
                shelf.stats.hits += 1;
                self.total.hits += 1;
            }
            None => {
                shelf.stats.misses += 1;
                self.total.misses += 1;
            }
        }
        hit
    }

    /// Counts requests of a server of which nothing is remembered, for which nothing was looked up.
    pub fn count_misses(&mut self, server: &ServerName, misses: u64) {
        self.shelf(server).stats.misses += misses;
        self.total.misses += misses;
    }

    /// Finds one address, drops it when it is stale, else makes it the most recently used.
    fn recall(&mut self, hash: u64, key: &Key, owner: Option<&str>, now: Instant) -> Option<Hit> {
        let entry = self.entries.get(&hash).filter(|entry| entry.address.is(key, owner))?;
        let Some(remaining) = entry.remaining(now) else {
            self.remove(hash);
            return None;
        };
        let hit = Hit { body: entry.body.clone(), remaining, scope: entry.address.scope() };
        let subject = entry.subject;
        self.entries.to_back(&hash);
        if let Some(shelf) = self.shelves.get_mut(&key.server) {
            shelf.touch(subject, hash);
        }
        Some(hit)
    }

    /// To be taken before the server is asked.
    pub fn ticket(&self, server: &ServerName) -> Ticket {
        Ticket(self.shelves.get(server).map_or(self.shelfless, |shelf| shelf.epoch))
    }

    /// Remembers an answer received now, and says whether it did. It does not
    /// when the server was invalidated after the ticket was taken, when the
    /// answer is not to live, or when it alone exceeds the bounds.
    ///
    /// The newest answer replaces whatever this caller would have been given
    /// before, so a server that turns from `public` to `private` is believed at once.
    pub fn store(&mut self, ticket: Ticket, key: Key, principal: &str, fresh: Fresh, now: Instant) -> bool {
        if ticket != self.ticket(&key.server) {
            return false;
        }
        let hashes = key.hashes(&self.hasher, principal);
        self.remove(hashes.private);
        self.remove(hashes.public);
        let ttl = fresh.ttl.min(self.bounds.max_ttl);
        let cost = cost(&key, &fresh.body);
        if ttl.is_zero() || cost > self.bounds.max_bytes || self.bounds.per_subject == 0 {
            return false;
        }
        let (hash, owner) = match fresh.scope {
            Scope::Public => (hashes.public, None),
            Scope::Private => (hashes.private, Some(principal.into())),
        };
        self.make_room(&key.server, hashes.subject, cost);
        let shelf = self.shelf(&key.server);
        shelf.insert(hashes.subject, key.method, hash, cost);
        self.total.entries += 1;
        self.total.bytes += cost;
        let address = Address { key, owner };
        let entry = Entry { address, subject: hashes.subject, body: fresh.body, received: now, ttl };
        self.entries.insert(hash, entry);
        true
    }

    fn make_room(&mut self, server: &ServerName, subject: u64, cost: usize) {
        if let Some(shelf) = self.shelves.get(server)
            && shelf.len_of(subject) >= self.bounds.per_subject
            && let Some(oldest) = shelf.oldest_of(subject)
        {
            self.remove(oldest);
        }
        while self.total.bytes + cost > self.bounds.max_bytes
            && let Some((&oldest, _)) = self.entries.front()
        {
            self.remove(oldest);
        }
    }

    fn remove(&mut self, hash: u64) {
        let Some(entry) = self.entries.remove(&hash) else { return };
        let cost = entry.cost();
        self.total.entries -= 1;
        self.total.bytes -= cost;
        if let Some(shelf) = self.shelves.get_mut(&entry.address.key.server) {
            shelf.remove(entry.subject, hash, cost);
        }
    }

    fn shelf(&mut self, server: &ServerName) -> &mut Shelf {
        self.shelves.entry(server.clone()).or_insert_with(|| Shelf::new(self.shelfless))
    }

    /// Drops everything of a server, and every answer of it that is on its way.
    pub fn purge_server(&mut self, server: &ServerName) {
        self.purge(server, |_| true);
    }

    /// Drops everything of one method of a server. Answers of any of its methods
    /// that are on their way are not stored either: which ones the change
    /// touches is not known, and asking once more is cheap.
    pub fn purge_method(&mut self, server: &ServerName, method: &str) {
        self.purge(server, |other| other == method);
    }

    fn purge(&mut self, server: &ServerName, is_meant: impl Fn(&str) -> bool) {
        self.last_epoch += 1;
        let Some(shelf) = self.shelves.get_mut(server) else {
            self.shelfless = self.last_epoch;
            return;
        };
        shelf.epoch = self.last_epoch;
        for hash in shelf.hashes(is_meant) {
            self.remove(hash);
        }
    }

    /// Drops everything of a server and its counts: it is gone from the config.
    pub fn forget_server(&mut self, server: &ServerName) {
        self.purge_server(server);
        self.shelves.remove(server);
        self.shelfless = self.last_epoch;
    }

    /// Counts over all servers.
    pub fn stats(&self) -> Stats {
        self.total
    }

    /// Counts of one server.
    pub fn stats_of(&self, server: &ServerName) -> Stats {
        self.shelves.get(server).map(|shelf| shelf.stats).unwrap_or_default()
    }
}

impl fmt::Debug for Cache {
    /// Counts only: the answers belong to callers, and there may be megabytes of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("bounds", &self.bounds)
            .field("stats", &self.total)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
