//! Response cache, bounded and partitioned by caller.
//!
//! ```text
//!            epoch ── ask the server ── store ──▶ fresh ── ttl over ──▶ dropped at the next lookup
//!              │                          │         │
//!              └── an invalidation between┘         ├── evicted as least recently used of its subject or of all
//!                  them: not stored                 └── purged with its server or method
//! ```
//!
//! An entry is found by the 64-bit keyed hash of its whole address and then compared in full against borrowed
//! parts. A lookup builds no key and allocates nothing; two addresses with one hash displace each other but
//! are never confused.

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

/// Cost of an entry beside its key and body: the records in the maps. The exact figure does not matter; it
/// keeps a million empty answers from being free.
const ENTRY_OVERHEAD: usize = 256;

/// Limits of a cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheLimits {
    /// Entries of one server, method and subject.
    pub per_subject: usize,
    /// Bytes of all entries together: keys, bodies, and a constant for each.
    pub max_bytes: usize,
    /// Longest time to live; longer ones are clamped.
    pub max_ttl: Duration,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { per_subject: 64, max_bytes: 64 << 20, max_ttl: Duration::from_secs(24 * 3600) }
    }
}

/// An answer that may be cached.
#[derive(Debug, Clone)]
pub struct CacheableResult {
    /// The result, unchanged.
    pub body: Bytes,
    /// Time it stays fresh, from its receipt.
    pub ttl: Duration,
    /// The callers that may receive it.
    pub scope: CacheVisibility,
}

/// A cached answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheHit {
    /// The result, unchanged.
    pub body: Bytes,
    /// Time it stays fresh; never zero.
    pub remaining: Duration,
    /// The callers that may receive it.
    pub scope: CacheVisibility,
}

/// The epoch in which a request was sent, so that an answer overtaken by an invalidation is not stored. Taken
/// before sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheEpoch(u64);

/// Counters of a cache, or of one server's part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheStats {
    /// Cached answers.
    pub entries: usize,
    /// Their cost in bytes.
    pub bytes: usize,
    /// Lookups that found an answer.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
}

struct CacheEntry {
    partition_key: PartitionKey,
    /// Hash of server, method and subject: the key of its group in [`ServerEntries`].
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

/// Cached answers of all servers.
pub struct Cache {
    limits: CacheLimits,
    hasher: RandomState,
    /// By the hash of the address, least recently used first.
    entries: LinkedHashMap<u64, CacheEntry>,
    /// Servers with entries or counters since they were last removed.
    by_server: HashMap<ServerName, ServerEntries>,
    /// The last epoch issued; no epoch is issued twice.
    last_epoch: u64,
    /// The epoch of every server without entries.
    default_epoch: u64,
    /// Sums over all servers, removed ones included in `hits` and `misses`.
    total: CacheStats,
}

impl Cache {
    /// Creates an empty cache.
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

    /// Returns a fresh answer that this caller may receive: its own, else a public one.
    pub fn lookup(&mut self, key: &CacheKey, principal: &str, now: Instant) -> Option<CacheHit> {
        let hashes = key.hashes(&self.hasher, principal);
        let hit = self
            .get_fresh(hashes.private, key, Some(principal), now)
            .or_else(|| self.get_fresh(hashes.public, key, None, now));
        let server_entries = self.server_entries(&key.server);
        match hit {
            Some(_) => {
                server_entries.stats.hits += 1;
                self.total.hits += 1;
            }
            None => {
                server_entries.stats.misses += 1;
                self.total.misses += 1;
            }
        }
        hit
    }

    /// Counts requests of a server that were not looked up because nothing of it is cached.
    pub fn count_misses(&mut self, server: &ServerName, misses: u64) {
        self.server_entries(server).stats.misses += misses;
        self.total.misses += misses;
    }

    /// Finds one address; drops a stale entry, else makes it the most recently used.
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
        if let Some(server_entries) = self.by_server.get_mut(&key.server) {
            server_entries.touch(subject, hash);
        }
        Some(hit)
    }

    /// Returns the current epoch of a server, to be taken before the request is sent.
    pub fn epoch(&self, server: &ServerName) -> CacheEpoch {
        CacheEpoch(
            self.by_server.get(server).map_or(self.default_epoch, |server_entries| server_entries.epoch),
        )
    }

    /// Stores an answer received now and returns whether it did. It does not if the server was invalidated
    /// after `epoch` was taken, if the time to live is zero, or if the answer alone exceeds the limits.
    ///
    /// The newest answer replaces any answer this caller would have received before, so a server that changes
    /// from `public` to `private` takes effect at once.
    pub fn store(
        &mut self,
        epoch: CacheEpoch,
        key: CacheKey,
        principal: &str,
        fresh: CacheableResult,
        now: Instant,
    ) -> bool {
        if epoch != self.epoch(&key.server) {
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
        let server_entries = self.server_entries(&key.server);
        server_entries.insert(hashes.subject, key.method, hash, cost);
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
        if let Some(server_entries) = self.by_server.get(server)
            && server_entries.subject_len(subject) >= self.limits.per_subject
            && let Some(oldest) = server_entries.oldest_in_subject(subject)
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
        if let Some(server_entries) = self.by_server.get_mut(&entry.partition_key.key.server) {
            server_entries.remove(entry.subject, hash, cost);
        }
    }

    fn server_entries(&mut self, server: &ServerName) -> &mut ServerEntries {
        self.by_server.entry(server.clone()).or_insert_with(|| ServerEntries::new(self.default_epoch))
    }

    /// Drops everything of a server, and every answer of it that is in flight.
    pub fn purge_server(&mut self, server: &ServerName) {
        self.purge(server, |_| true);
    }

    /// Drops everything of one method of a server. Answers of any of its methods that are in flight are not
    /// stored either: it is unknown which ones the change affects, and asking again is cheap.
    pub fn purge_method(&mut self, server: &ServerName, method: &str) {
        self.purge(server, |other| other == method);
    }

    fn purge(&mut self, server: &ServerName, is_meant: impl Fn(&str) -> bool) {
        self.last_epoch += 1;
        let Some(server_entries) = self.by_server.get_mut(server) else {
            self.default_epoch = self.last_epoch;
            return;
        };
        server_entries.epoch = self.last_epoch;
        for hash in server_entries.hashes(is_meant) {
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

    /// Drops everything of a server and its counters, when it is removed from the config.
    pub fn remove_server(&mut self, server: &ServerName) {
        self.purge_server(server);
        self.by_server.remove(server);
        self.default_epoch = self.last_epoch;
    }

    /// Returns the counters over all servers.
    pub fn stats(&self) -> CacheStats {
        self.total
    }

    /// Returns the counters of one server.
    pub fn stats_of(&self, server: &ServerName) -> CacheStats {
        self.by_server.get(server).map(|server_entries| server_entries.stats).unwrap_or_default()
    }
}

impl fmt::Debug for Cache {
    /// Shows counters only: the answers belong to callers, and there may be megabytes of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("limits", &self.limits)
            .field("stats", &self.total)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
