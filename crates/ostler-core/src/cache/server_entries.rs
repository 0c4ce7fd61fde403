//! One server's part of the cache.

use std::collections::HashMap;

use hashlink::LinkedHashSet;

use super::CacheStats;

/// One server's entries, grouped by subject, and its counters.
pub(super) struct ServerEntries {
    /// Changes with every invalidation.
    pub(super) epoch: u64,
    pub(super) stats: CacheStats,
    /// By the hash of server, method and subject; no group is empty.
    subjects: HashMap<u64, SubjectEntries>,
}

struct SubjectEntries {
    method: &'static str,
    /// The hashes of its entries, least recently used first.
    entries: LinkedHashSet<u64>,
}

impl ServerEntries {
    pub(super) fn new(epoch: u64) -> Self {
        Self { epoch, stats: CacheStats::default(), subjects: HashMap::new() }
    }

    pub(super) fn subject_len(&self, subject: u64) -> usize {
        self.subjects.get(&subject).map_or(0, |subject| subject.entries.len())
    }

    pub(super) fn oldest_in_subject(&self, subject: u64) -> Option<u64> {
        self.subjects.get(&subject)?.entries.front().copied()
    }

    pub(super) fn insert(&mut self, subject: u64, method: &'static str, hash: u64, cost: usize) {
        let held = self.subjects.entry(subject);
        held.or_insert_with(|| SubjectEntries { method, entries: LinkedHashSet::new() }).entries.insert(hash);
        self.stats.entries += 1;
        self.stats.bytes += cost;
    }

    pub(super) fn touch(&mut self, subject: u64, hash: u64) {
        if let Some(subject) = self.subjects.get_mut(&subject) {
            subject.entries.to_back(&hash);
        }
    }

    pub(super) fn remove(&mut self, subject: u64, hash: u64, cost: usize) {
        self.stats.entries -= 1;
        self.stats.bytes -= cost;
        let Some(held) = self.subjects.get_mut(&subject) else { return };
        held.entries.remove(&hash);
        if held.entries.is_empty() {
            self.subjects.remove(&subject);
        }
    }

    /// Returns the entries of the selected methods.
    pub(super) fn hashes(&self, is_meant: impl Fn(&str) -> bool) -> Vec<u64> {
        let meant = self.subjects.values().filter(|subject| is_meant(subject.method));
        meant.flat_map(|subject| subject.entries.iter().copied()).collect()
    }
}
