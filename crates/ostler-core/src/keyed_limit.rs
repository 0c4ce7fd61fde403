//! Keyed limits: at most N permits in all and M for each key, given back on drop.
//!
//! A request that does not fit is refused at once; there is no queue. Only keys that hold a permit are
//! stored, so there are never more entries than permits.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;

/// A limit on permits, in all and for each key.
pub struct KeyedLimit {
    max: usize,
    max_per_key: usize,
    hasher: RandomState,
    counts: Mutex<KeyCounts>,
}

#[derive(Default)]
struct KeyCounts {
    /// The sum over all keys; never more than `max`.
    total: usize,
    /// By the keyed hash of the key, so that nothing is allocated for a short-lived key; two keys of one hash
    /// would share only their limits. No entry is zero.
    keys: HashTable<KeyCount>,
}

#[derive(Clone, Copy)]
struct KeyCount {
    key: u64,
    held: usize,
    /// The permits that were acquired as marked.
    marked: usize,
}

/// Permits to be acquired at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitRequest {
    /// Number of permits; zero always succeeds.
    pub amount: usize,
    /// Set for marked permits, which have a limit of their own as well.
    pub marked_limit: Option<MarkedLimit>,
}

/// Limit of marked permits within that of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkedLimit {
    /// Most marked permits that the key may hold; callers may pass another number each time.
    pub max: usize,
}

impl PermitRequest {
    /// One permit, not marked.
    pub const ONE: Self = Self { amount: 1, marked_limit: None };

    /// Requests several permits, not marked.
    pub fn many(amount: usize) -> Self {
        Self { amount, marked_limit: None }
    }

    /// Requests one marked permit.
    pub fn marked(max: usize) -> Self {
        Self { amount: 1, marked_limit: Some(MarkedLimit { max }) }
    }
}

/// The limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitReached {
    /// The limit over all keys.
    All,
    /// The limit of the key.
    Key,
    /// The limit of the key's marked permits.
    Marked {
        /// Number of marked permits that the key holds.
        held: usize,
    },
}

/// Permits of one key. Dropping them releases them.
pub struct KeyedPermit {
    limit: Arc<KeyedLimit>,
    key: u64,
    amount: usize,
    is_marked: bool,
}

impl KeyedLimit {
    /// Creates a limit of `max` permits in all and `max_per_key` for each key.
    pub fn new(max: usize, max_per_key: usize) -> Arc<Self> {
        Arc::new(Self { max, max_per_key, hasher: RandomState::new(), counts: Mutex::default() })
    }

    /// Creates a limit for each key alone.
    pub fn per_key(max_per_key: usize) -> Arc<Self> {
        Self::new(usize::MAX, max_per_key)
    }

    /// Returns the number of permits in all.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Returns the number of permits that one key may hold.
    pub fn max_per_key(&self) -> usize {
        self.max_per_key
    }

    /// Acquires one permit for a key.
    pub fn acquire(self: &Arc<Self>, key: &str) -> Result<KeyedPermit, LimitReached> {
        self.acquire_many(key, PermitRequest::ONE)
    }

    /// Acquires permits for a key: all that are requested, or none. A limit of the key itself is reported
    /// first.
    pub fn acquire_many(
        self: &Arc<Self>,
        key: &str,
        wanted: PermitRequest,
    ) -> Result<KeyedPermit, LimitReached> {
        let key = self.hasher.hash_one(key);
        let PermitRequest { amount, marked_limit } = wanted;
        let mut counts = self.counts();
        let total = counts.total;
        let known = counts.keys.find_mut(key, |count| count.key == key);
        let held = known.as_deref().copied().unwrap_or(KeyCount { key, held: 0, marked: 0 });
        if amount > self.max_per_key.saturating_sub(held.held) {
            return Err(LimitReached::Key);
        }
        if marked_limit.is_some_and(|marked_limit| amount > marked_limit.max.saturating_sub(held.marked)) {
            return Err(LimitReached::Marked { held: held.marked });
        }
        if amount > self.max - total {
            return Err(LimitReached::All);
        }
        let is_marked = marked_limit.is_some();
        let marked = held.marked + if is_marked { amount } else { 0 };
        let count = KeyCount { key, held: held.held + amount, marked };
        match known {
            Some(known) => *known = count,
            None if amount > 0 => drop(counts.keys.insert_unique(key, count, |count| count.key)),
            None => {}
        }
        counts.total = total + amount;
        Ok(KeyedPermit { limit: Arc::clone(self), key, amount, is_marked })
    }

    /// Returns the number of marked permits held, over all keys.
    pub fn marked(&self) -> usize {
        self.counts().keys.iter().map(|count| count.marked).sum()
    }

    fn counts(&self) -> MutexGuard<'_, KeyCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeyedPermit {
    fn drop(&mut self) {
        let mut counts = self.limit.counts();
        counts.total -= self.amount;
        let Ok(mut entry) = counts.keys.find_entry(self.key, |count| count.key == self.key) else { return };
        let count = entry.get_mut();
        count.held -= self.amount;
        if self.is_marked {
            count.marked -= self.amount;
        }
        if count.held == 0 {
            entry.remove();
        }
    }
}

impl fmt::Debug for KeyedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLimit")
            .field("max", &self.max)
            .field("max_per_key", &self.max_per_key)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for KeyedPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedPermit").field("amount", &self.amount).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of permits held and the number of keys that hold them.
    fn held(limit: &KeyedLimit) -> (usize, usize) {
        let counts = limit.counts();
        (counts.total, counts.keys.len())
    }

    #[test]
    fn a_key_gets_its_share_and_the_others_the_rest() {
        let limit = KeyedLimit::new(3, 2);
        let own = [limit.acquire("ada").unwrap(), limit.acquire("ada").unwrap()];
        assert_eq!(limit.acquire("ada").unwrap_err(), LimitReached::Key);
        let _third = limit.acquire("bob").unwrap();
        assert_eq!(limit.acquire("bob").unwrap_err(), LimitReached::All);
        drop(own);
        limit.acquire("ada").unwrap();
    }

    #[test]
    fn a_key_that_holds_nothing_is_forgotten() {
        let limit = KeyedLimit::new(10, 10);
        for key in 0..100 {
            drop(limit.acquire(&key.to_string()));
        }
        drop(limit.acquire_many("ada", PermitRequest::many(0)));
        assert_eq!(held(&limit), (0, 0));
    }

    #[test]
    fn permits_are_taken_and_given_back_together() {
        let limit = KeyedLimit::new(10, 8);
        let seven = limit.acquire_many("ada", PermitRequest::many(7)).unwrap();
        assert_eq!(limit.acquire_many("ada", PermitRequest::many(2)).unwrap_err(), LimitReached::Key);
        assert_eq!(limit.acquire_many("bob", PermitRequest::many(4)).unwrap_err(), LimitReached::All);
        assert_eq!(
            limit.acquire_many("bob", PermitRequest::many(usize::MAX)).unwrap_err(),
            LimitReached::Key
        );
        drop(seven);
        limit.acquire_many("bob", PermitRequest::many(8)).unwrap();
    }

    #[test]
    fn a_refusal_takes_nothing() {
        let limit = KeyedLimit::per_key(1);
        let permit = limit.acquire("ada").unwrap();
        assert!(limit.acquire("ada").is_err());
        assert!(limit.acquire_many("bob", PermitRequest::marked(0)).is_err());
        drop(permit);
        assert_eq!(held(&limit), (0, 0));
    }

    #[test]
    fn marked_permits_have_a_limit_of_their_own() {
        let limit = KeyedLimit::new(10, 10);
        let call = limit.acquire_many("ada", PermitRequest::marked(1)).unwrap();
        assert_eq!(
            limit.acquire_many("ada", PermitRequest::marked(1)).unwrap_err(),
            LimitReached::Marked { held: 1 }
        );
        let look = limit.acquire("ada").unwrap();
        let other = limit.acquire_many("bob", PermitRequest::marked(1)).unwrap();
        assert_eq!(limit.marked(), 2);
        drop((call, look));
        assert_eq!(limit.marked(), 1);
        limit.acquire_many("ada", PermitRequest::marked(1)).unwrap();
        drop(other);
    }
}
