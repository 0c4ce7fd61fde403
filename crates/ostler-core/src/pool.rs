//! Process pool: bounds live processes and selects the idle one to evict.
//!
//! ```text
//!             admit: Granted            set_idle
//!   (absent) ────────────────▶  Busy ───────────▶  Idle
//!      ▲                         ▲ ▲                │ │ admit of another: Evict(this)
//!      │                         │ └── set_busy ────┘ ▼
//!      │                         └──── set_busy ──── Evicting
//!      └──────────────── release, from any ─────────────┘
//! ```
//!
//! An entry counts from its grant until its release, also while it is evicted: a process that is being closed
//! still holds its memory.

use std::hash::Hash;
use std::time::Instant;

use hashlink::LinkedHashMap;

/// Result of an admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolAdmission<K> {
    /// The key has a place and is busy.
    Granted,
    /// This idle process must be closed first; the caller repeats the admission after its release.
    Evict(K),
    /// No process is idle; the caller repeats the admission after the next release or idling.
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PoolEntryState {
    /// Starting or in use.
    Busy,
    /// May be offered for eviction.
    Idle,
    /// Offered for eviction; not offered again.
    Evicting,
}

#[derive(Debug)]
struct PoolEntry {
    state: PoolEntryState,
    /// Time of the last change of state.
    last_used: Instant,
}

/// Places of live processes.
#[derive(Debug)]
pub struct EvictionPool<K> {
    max: usize,
    /// At most `max`. Kept in the order of arrival, so that of two used at the same instant always the same
    /// one is evicted.
    entries: LinkedHashMap<K, PoolEntry>,
}

impl<K: Clone + Eq + Hash> EvictionPool<K> {
    /// Creates a pool of `max` processes; 0 means none, not one.
    pub fn new(max: usize) -> Self {
        Self { max, entries: LinkedHashMap::new() }
    }

    /// Admits `key`.
    ///
    /// A key that has a place keeps it and becomes busy. An exception is a key being evicted: its old process
    /// is still being closed and a new one would be one too many, so it waits for its own release like any
    /// other.
    pub fn admit(&mut self, key: K, now: Instant) -> PoolAdmission<K> {
        match self.entries.get(&key).map(|entry| entry.state) {
            Some(PoolEntryState::Evicting) => return PoolAdmission::Full,
            Some(PoolEntryState::Busy | PoolEntryState::Idle) => {
                self.set(&key, PoolEntryState::Busy, now);
                return PoolAdmission::Granted;
            }
            None => {}
        }
        if self.entries.len() < self.max {
            self.entries.insert(key, PoolEntry { state: PoolEntryState::Busy, last_used: now });
            return PoolAdmission::Granted;
        }
        self.evict_one(|_| true)
    }

    /// Evicts the longest idle process among a selection, for a caller that has used up its share.
    pub fn evict_one(&mut self, is_among: impl Fn(&K) -> bool) -> PoolAdmission<K> {
        let idle = self
            .entries
            .iter_mut()
            .filter(|(key, entry)| entry.state == PoolEntryState::Idle && is_among(key));
        match idle.min_by_key(|(_, entry)| entry.last_used) {
            Some((key, entry)) => {
                entry.state = PoolEntryState::Evicting;
                PoolAdmission::Evict(key.clone())
            }
            None => PoolAdmission::Full,
        }
    }

    /// Marks a process as in use. One that was being evicted stays: a lease began before it was closed.
    pub fn set_busy(&mut self, key: &K, now: Instant) {
        self.set(key, PoolEntryState::Busy, now);
    }

    /// Marks a process as unused, so that it may be evicted. One that is being evicted stays so.
    pub fn set_idle(&mut self, key: &K, now: Instant) {
        self.set(key, PoolEntryState::Idle, now);
    }

    fn set(&mut self, key: &K, place: PoolEntryState, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.last_used = now;
        if !(entry.state == PoolEntryState::Evicting && place == PoolEntryState::Idle) {
            entry.state = place;
        }
    }

    /// Frees the place of a process that has ended.
    pub fn release(&mut self, key: &K) {
        self.entries.remove(key);
    }

    /// Returns the number of places taken.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no place is taken.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of places in all.
    pub fn max(&self) -> usize {
        self.max
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_clock::at;

    #[test]
    fn the_least_recently_used_idle_one_goes_first_and_is_offered_once() {
        let mut pool = EvictionPool::new(3);
        for key in ["a", "b", "c"] {
            assert_eq!(pool.admit(key, at(0)), PoolAdmission::Granted);
        }
        pool.set_idle(&"b", at(1));
        pool.set_idle(&"a", at(2));
        assert_eq!(pool.admit("d", at(3)), PoolAdmission::Evict("b"));
        assert_eq!(pool.admit("e", at(3)), PoolAdmission::Evict("a"));
        assert_eq!(pool.admit("f", at(3)), PoolAdmission::Full);
        assert_eq!((pool.len(), pool.max(), pool.is_empty()), (3, 3, false));
        pool.release(&"b");
        assert_eq!(pool.admit("d", at(4)), PoolAdmission::Granted);
        assert_eq!(pool.len(), 3);
    }

    #[test]
    fn of_some_the_least_recently_used_idle_one_goes_though_there_is_room() {
        let mut pool = EvictionPool::new(9);
        for (key, now) in [("a", 0), ("b", 1), ("c", 2)] {
            let _ = pool.admit(key, at(now));
            pool.set_idle(&key, at(now));
        }
        assert_eq!(pool.evict_one(|key| *key != "a"), PoolAdmission::Evict("b"));
        assert_eq!(pool.evict_one(|key| *key == "b"), PoolAdmission::Full, "it is leaving already");
    }

    #[test]
    fn using_an_idle_one_again_makes_it_the_most_recently_used() {
        let mut pool = EvictionPool::new(2);
        for (key, now) in [("a", 0), ("b", 1)] {
            let _ = pool.admit(key, at(now));
            pool.set_idle(&key, at(now));
        }
        assert_eq!(pool.admit("a", at(2)), PoolAdmission::Granted);
        pool.set_idle(&"a", at(3));
        assert_eq!(pool.admit("c", at(4)), PoolAdmission::Evict("b"));
    }

    #[test]
    fn none_allowed_means_none_and_not_one() {
        assert_eq!(EvictionPool::new(0).admit("a", at(0)), PoolAdmission::Full);
    }

    #[test]
    fn a_lease_that_came_before_the_closing_keeps_the_process() {
        let mut pool = EvictionPool::new(1);
        let _ = pool.admit("a", at(0));
        pool.set_idle(&"a", at(0));
        assert_eq!(pool.admit("b", at(1)), PoolAdmission::Evict("a"));
        pool.set_busy(&"a", at(2));
        assert_eq!(pool.admit("b", at(3)), PoolAdmission::Full);
        assert_eq!(pool.admit("a", at(3)), PoolAdmission::Granted);
    }

    #[test]
    fn one_that_is_leaving_gets_a_new_process_only_after_its_old_one_is_gone() {
        let mut pool = EvictionPool::new(1);
        let _ = pool.admit("a", at(0));
        pool.set_idle(&"a", at(0));
        let _ = pool.admit("b", at(1));
        pool.set_idle(&"a", at(2));
        assert_eq!(pool.admit("a", at(2)), PoolAdmission::Full);
        pool.release(&"a");
        assert_eq!(pool.admit("a", at(3)), PoolAdmission::Granted);
    }

    #[test]
    fn talk_about_strangers_takes_no_place() {
        let mut pool = EvictionPool::new(1);
        pool.set_busy(&"a", at(0));
        pool.set_idle(&"a", at(0));
        pool.release(&"a");
        assert!(pool.is_empty());
    }

    proptest! {
        /// The model is a list in order of last use, with a letter for each place.
        #[test]
        fn the_pool_agrees_with_a_list_in_order_of_use(
            max in 0usize..4,
            events in prop::collection::vec((0u8..4, 0u8..6), 0..120),
        ) {
            let mut pool = EvictionPool::new(max);
            let mut list: Vec<(u8, char)> = Vec::new();
            for (now, (event, key)) in events.into_iter().enumerate() {
                let now = at(now as u64);
                let position = list.iter().position(|&(other, _)| other == key);
                let held = position.map(|i| list[i].1);
                match event {
                    0 => {
                        let expected = match held {
                            Some('l') => PoolAdmission::Full,
                            Some(_) => PoolAdmission::Granted,
                            None if list.len() < max => PoolAdmission::Granted,
                            None => match list.iter_mut().find(|(_, place)| *place == 'i') {
                                Some((victim, place)) => {
                                    *place = 'l';
                                    PoolAdmission::Evict(*victim)
                                }
                                None => PoolAdmission::Full,
                            },
                        };
                        prop_assert_eq!(pool.admit(key, now), expected.clone());
                        if expected == PoolAdmission::Granted {
                            list.retain(|&(other, _)| other != key);
                            list.push((key, 'b'));
                        }
                    }
                    1 | 2 => {
                        if event == 1 { pool.set_busy(&key, now) } else { pool.set_idle(&key, now) }
                        if let Some(i) = position {
                            let (_, was) = list.remove(i);
                            let place = if event == 1 { 'b' } else if was == 'l' { 'l' } else { 'i' };
                            list.push((key, place));
                        }
                    }
                    _ => {
                        pool.release(&key);
                        list.retain(|&(other, _)| other != key);
                    }
                }
                prop_assert_eq!(pool.len(), list.len());
                prop_assert!(pool.len() <= max);
            }
        }
    }
}
