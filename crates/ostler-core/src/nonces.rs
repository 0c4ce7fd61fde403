//! Nonces: numbers that can be used once each, until they expire.
//!
//! A number that is not in the table was used, has expired or was evicted, so a full table refuses and never
//! repeats. A caller evicts its own oldest numbers first, then those of the caller that holds the most.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Open numbers of one caller: more questions than a person or a program leaves open at once.
const MAX_PER_CALLER: usize = 1_024;

/// Open numbers over all callers: about 1 MiB.
const MAX_TOTAL: usize = 16_384;

/// Numbers that were issued and not redeemed yet.
#[derive(Debug)]
pub struct Nonces {
    ttl: Duration,
    next: u64,
    /// Per caller in the order of issue, which is the order of expiry. No queue is empty.
    open: HashMap<Box<str>, VecDeque<Nonce>>,
    /// The number of all entries in `open`.
    count: usize,
}

#[derive(Debug, Clone, Copy)]
struct Nonce {
    number: u64,
    expires: Instant,
}

impl Nonces {
    /// Creates an empty table whose numbers live for `ttl`.
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, next: 0, open: HashMap::new(), count: 0 }
    }

    /// Issues a number to a caller. No number is issued twice.
    pub fn issue(&mut self, caller: &str, now: Instant) -> u64 {
        let nonce = Nonce { number: self.next, expires: now + self.ttl };
        self.next += 1;
        let own = match self.open.get_mut(caller) {
            Some(own) => own,
            None => self.open.entry(caller.into()).or_default(),
        };
        own.push_back(nonce);
        self.count += 1;
        let expired = own.partition_point(|nonce| nonce.expires <= now);
        let surplus = expired.max(own.len().saturating_sub(MAX_PER_CALLER));
        own.drain(..surplus);
        self.count -= surplus;
        if self.count > MAX_TOTAL {
            self.evict(now);
        }
        nonce.number
    }

    /// Redeems a number: true once, for the caller it was issued to, before it expires.
    pub fn redeem(&mut self, caller: &str, number: u64, now: Instant) -> bool {
        let Some(own) = self.open.get_mut(caller) else { return false };
        let Ok(at) = own.binary_search_by_key(&number, |nonce| nonce.number) else { return false };
        let Some(nonce) = own.remove(at) else { return false };
        self.count -= 1;
        if own.is_empty() {
            self.open.remove(caller);
        }
        nonce.expires > now
    }

    /// Returns the number of open numbers, including expired ones that are not yet evicted.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether no number is open.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Evicts expired numbers, or else the older half of the numbers of the caller that holds the most.
    fn evict(&mut self, now: Instant) {
        self.open.retain(|_, own| {
            own.retain(|nonce| nonce.expires > now);
            !own.is_empty()
        });
        self.count = self.open.values().map(VecDeque::len).sum();
        if self.count <= MAX_TOTAL {
            return;
        }
        let Some((caller, own)) = self.open.iter_mut().max_by_key(|(_, own)| own.len()) else { return };
        let caller = caller.clone();
        let dropped = own.len().div_ceil(2);
        own.drain(..dropped);
        self.count -= dropped;
        if own.is_empty() {
            self.open.remove(&caller);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::test_clock::{at, ms};

    const LIFE: Duration = ms(600_000);

    #[test]
    fn a_number_is_good_once_and_for_its_caller_alone() {
        let (mut nonces, now) = (Nonces::new(LIFE), at(0));
        let number = nonces.issue("ada", now);
        assert!(!nonces.redeem("bob", number, now));
        assert!(nonces.redeem("ada", number, now));
        assert!(!nonces.redeem("ada", number, now));
        assert!(nonces.is_empty());
    }

    #[test]
    fn a_number_expires() {
        let (mut nonces, now) = (Nonces::new(LIFE), at(0));
        let (late, early) = (nonces.issue("ada", now), nonces.issue("ada", now));
        assert!(nonces.redeem("ada", early, now + LIFE - ms(1)));
        assert!(!nonces.redeem("ada", late, now + LIFE));
    }

    #[test]
    fn a_caller_with_too_many_loses_its_own_oldest() {
        let (mut nonces, now) = (Nonces::new(LIFE), at(0));
        let other = nonces.issue("bob", now);
        let first = nonces.issue("ada", now);
        let numbers: Vec<u64> = (0..MAX_PER_CALLER).map(|_| nonces.issue("ada", now)).collect();
        assert_eq!(nonces.len(), MAX_PER_CALLER + 1);
        assert!(!nonces.redeem("ada", first, now));
        assert!(numbers.iter().all(|number| nonces.redeem("ada", *number, now)));
        assert!(nonces.redeem("bob", other, now));
    }

    #[test]
    fn a_full_table_displaces_the_numbers_of_whoever_has_most() {
        let (mut nonces, now) = (Nonces::new(LIFE), at(0));
        let small = nonces.issue("small", now);
        for holder in 0..=MAX_TOTAL / MAX_PER_CALLER {
            for _ in 0..MAX_PER_CALLER {
                nonces.issue(&format!("greedy {holder}"), now);
            }
        }
        assert!(nonces.len() <= MAX_TOTAL);
        assert!(nonces.redeem("small", small, now));
    }

    #[test]
    fn a_full_table_of_expired_numbers_displaces_nothing_else() {
        let (mut nonces, now) = (Nonces::new(LIFE), at(0));
        for caller in 0..MAX_TOTAL {
            nonces.issue(&caller.to_string(), now);
        }
        let later = now + LIFE;
        let fresh = nonces.issue("fresh", later);
        assert_eq!(nonces.len(), 1);
        assert!(nonces.redeem("fresh", fresh, later));
    }

    proptest! {
        /// After any operations, no number is redeemed twice, late or by another caller, and the counts
        /// agree.
        #[test]
        fn no_number_is_redeemed_twice(
            steps in prop::collection::vec((0u8..4, 0u8..3, 0u64..40, 0u64..200), 0..200),
        ) {
            let mut nonces = Nonces::new(LIFE);
            let (mut issued, mut used, mut elapsed) = (Vec::new(), HashSet::new(), 0);
            for (what, caller, number, seconds) in steps {
                let (name, now) = (caller.to_string(), at(elapsed));
                match what {
                    0 => elapsed += seconds * 1_000,
                    1 => issued.push((nonces.issue(&name, now), caller, now)),
                    _ => {
                        let is_open = issued.iter().any(|(own, holder, at)| {
                            *own == number && *holder == caller && now < *at + LIFE
                        });
                        let is_good = nonces.redeem(&name, number, now);
                        prop_assert_eq!(is_good, is_open && !used.contains(&number));
                        if is_good {
                            used.insert(number);
                        }
                    }
                }
                prop_assert_eq!(nonces.len(), nonces.open.values().map(VecDeque::len).sum::<usize>());
            }
        }
    }
}
