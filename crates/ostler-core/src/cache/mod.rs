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
mod server_entries;

use std::collections::HashMap;
use std::fmt;
use std::hash::RandomState;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hashlink::LinkedHashMap;
use serde::{Deserialize, Serialize};

use self::key::PartitionKey;
pub use self::key::{CacheKey, CacheVisibility};
use self::server_entries::ServerEntries;
use crate::sabotage;
use crate::server_name::ServerName;

/// What an entry costs beside its key and body: the records in the maps. The
/// exact figure does not matter; that a million empty answers are not free does.
const ENTRY_OVERHEAD: usize = 256;

/// The limits of a cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheLimits {
    /// Entries of one server, method and subject.
    pub per_subject: usize,
    /// Bytes of all entries together: keys, bodies, and a constant for each.
    pub max_bytes: usize,
    /// Longest time to live; longer ones are cut to it.
    pub max_ttl: Duration,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { per_subject: 64, max_bytes: 64 << 20, max_ttl: Duration::from_secs(24 * 3600) }
    }
}

/// An answer that may be remembered.
#[derive(Debug, Clone)]
pub struct CacheableResult {
    /// The result as it came.
    pub body: Bytes,
    /// How long it stays fresh, from its receipt.
    pub ttl: Duration,
    /// Who may be given it.
    pub scope: CacheVisibility,
}

/// A remembered answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheHit {
    /// The result as it came.
    pub body: Bytes,
    /// How long it stays fresh; never zero.
    pub remaining: Duration,
    /// Who may be given it.
    pub scope: CacheVisibility,
}

/// Says when a question was asked, so that an answer which an invalidation has
/// overtaken is not stored. Taken before asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheEpoch(u64);

/// Counts of a cache, or of one server's part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheStats {
    /// Answers held.
    pub entries: usize,
    /// What they cost.
    pub bytes: usize,
    /// Lookups answered.
    pub hits: u64,
    /// Lookups not answered.
    pub misses: u64,
}

struct CacheEntry {
    partition_key: PartitionKey,
    /// Hash of server, method and subject: its place on the shelf.
    subject: u64,
    body: Bytes,
    received: Instant,
    ttl: Duration,
}

impl CacheEntry {
    fn cost(&self) -> usize {
        cost(&self.partition_key.key, &self.body)
    }

    fn remaining(&self, now: Instant) -> Option<Duration> {
        sabotage!(StaleCache, return Some(self.ttl));
        self.ttl.checked_sub(now.saturating_duration_since(self.received)).filter(|left| !left.is_zero())
    }
}

fn cost(key: &CacheKey, body: &Bytes) -> usize {
    ENTRY_OVERHEAD
        + key.server.as_str().len()
        + key.method.len()
        + key.subject.len()
        + key.params.len()
        + body.len()
}

/// The remembered answers of all servers.
pub struct Cache {
    limits: CacheLimits,
    hasher: RandomState,
    /// By the hash of the address, least recently used first.
    entries: LinkedHashMap<u64, CacheEntry>,
    /// Of the servers that have been asked about since they were last forgotten.
    by_server: HashMap<ServerName, ServerEntries>,
    /// The last epoch given out; no epoch is given out twice.
    last_epoch: u64,
    /// The epoch of every server without a shelf.
    default_epoch: u64,
    /// Sums over all servers, forgotten ones included in `hits` and `misses`.
    total: CacheStats,
}

impl Cache {
    /// An empty cache.
    pub fn new(limits: CacheLimits) -> Self {
        Self {
            limits,
            hasher: RandomState::new(),
            entries: LinkedHashMap::new(),
            by_server: HashMap::new(),
            last_epoch: 0,
            default_epoch: 0,
            total: CacheStats::default(),
        }
    }

    /// A fresh answer that this caller may be given: its own, else a public one.
    pub fn lookup(&mut self, key: &CacheKey, principal: &str, now: Instant) -> Option<CacheHit> {
        let hashes = key.hashes(&self.hasher, principal);
        let hit = self
            .get_fresh(hashes.private, key, Some(principal), now)
            .or_else(|| self.get_fresh(hashes.public, key, None, now));
        let shelf = self.server_entries(&key.server);
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
        self.server_entries(server).stats.misses += misses;
        self.total.misses += misses;
    }

    /// Finds one address, drops it when it is stale, else makes it the most recently used.
    fn get_fresh(
        &mut self,
        hash: u64,
        key: &CacheKey,
        owner: Option<&str>,
        now: Instant,
    ) -> Option<CacheHit> {
        let entry = self.entries.get(&hash).filter(|entry| entry.partition_key.matches(key, owner))?;
        let Some(remaining) = entry.remaining(now) else {
            self.remove(hash);
            return None;
        };
        let hit = CacheHit { body: entry.body.clone(), remaining, scope: entry.partition_key.scope() };
        let subject = entry.subject;
        self.entries.to_back(&hash);
        if let Some(shelf) = self.by_server.get_mut(&key.server) {
            shelf.touch(subject, hash);
        }
        Some(hit)
    }

    /// To be taken before the server is asked.
    pub fn epoch(&self, server: &ServerName) -> CacheEpoch {
        CacheEpoch(self.by_server.get(server).map_or(self.default_epoch, |shelf| shelf.epoch))
    }

    /// Remembers an answer received now, and says whether it did. It does not
    /// when the server was invalidated after the ticket was taken, when the
    /// answer is not to live, or when it alone exceeds the bounds.
    ///
    /// The newest answer replaces whatever this caller would have been given
    /// before, so a server that turns from `public` to `private` is believed at once.
    pub fn store(
        &mut self,
        ticket: CacheEpoch,
        key: CacheKey,
        principal: &str,
        fresh: CacheableResult,
        now: Instant,
    ) -> bool {
        if ticket != self.epoch(&key.server) {
            return false;
        }
        let hashes = key.hashes(&self.hasher, principal);
        self.remove(hashes.private);
        self.remove(hashes.public);
        let ttl = fresh.ttl.min(self.limits.max_ttl);
        let cost = cost(&key, &fresh.body);
        if ttl.is_zero() || cost > self.limits.max_bytes || self.limits.per_subject == 0 {
            return false;
        }
        let (hash, owner) = match fresh.scope {
            CacheVisibility::Public => (hashes.public, None),
            CacheVisibility::Private => (hashes.private, Some(principal.into())),
        };
        self.evict_for(&key.server, hashes.subject, cost);
        let shelf = self.server_entries(&key.server);
        shelf.insert(hashes.subject, key.method, hash, cost);
        self.total.entries += 1;
        self.total.bytes += cost;
        let address = PartitionKey { key, owner };
        let entry = CacheEntry {
            partition_key: address,
            subject: hashes.subject,
            body: fresh.body,
            received: now,
            ttl,
        };
        self.entries.insert(hash, entry);
        true
    }

    fn evict_for(&mut self, server: &ServerName, subject: u64, cost: usize) {
        if let Some(shelf) = self.by_server.get(server)
            && shelf.subject_len(subject) >= self.limits.per_subject
            && let Some(oldest) = shelf.oldest_in_subject(subject)
        {
            self.remove(oldest);
        }
        while self.total.bytes + cost > self.limits.max_bytes
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
        if let Some(shelf) = self.by_server.get_mut(&entry.partition_key.key.server) {
            shelf.remove(entry.subject, hash, cost);
        }
    }

    fn server_entries(&mut self, server: &ServerName) -> &mut ServerEntries {
        self.by_server.entry(server.clone()).or_insert_with(|| ServerEntries::new(self.default_epoch))
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
        let Some(shelf) = self.by_server.get_mut(server) else {
            self.default_epoch = self.last_epoch;
            return;
        };
        shelf.epoch = self.last_epoch;
        for hash in shelf.hashes(is_meant) {
            self.remove(hash);
        }
    }

    /// Drops the private answers of the owners that are meant. Answers that are on their way are still stored.
    pub fn purge_owners(&mut self, is_meant: impl Fn(&str) -> bool) {
        let is_owned = |entry: &CacheEntry| entry.partition_key.owner.as_deref().is_some_and(&is_meant);
        let owned: Vec<u64> =
            self.entries.iter().filter(|(_, entry)| is_owned(entry)).map(|(hash, _)| *hash).collect();
        for hash in owned {
            self.remove(hash);
        }
    }

    /// Drops everything of a server and its counts: it is gone from the config.
    pub fn remove_server(&mut self, server: &ServerName) {
        self.purge_server(server);
        self.by_server.remove(server);
        self.default_epoch = self.last_epoch;
    }

    /// Counts over all servers.
    pub fn stats(&self) -> CacheStats {
        self.total
    }

    /// Counts of one server.
    pub fn stats_of(&self, server: &ServerName) -> CacheStats {
        self.by_server.get(server).map(|shelf| shelf.stats).unwrap_or_default()
    }
}

impl fmt::Debug for Cache {
    /// Counts only: the answers belong to callers, and there may be megabytes of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("bounds", &self.limits)
            .field("stats", &self.total)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
