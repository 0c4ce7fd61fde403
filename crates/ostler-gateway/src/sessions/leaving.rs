//! Which session leaves when there is no room for another one.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use super::Owned;

/// Sessions that are remembered as the next to leave, so that a crowd of
/// newcomers does not have all of them looked through for each.
const NEXT: usize = 128;

/// Those who leave next: always one of whoever has the most, and of those the
/// one that idled longest. A session that was in use when all were last looked
/// through is not among them.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    next: VecDeque<Candidate>,
    /// The most sessions of anybody who has got more of them, or has used one
    /// that was to leave: the list may know too little of those. Whoever has
    /// fewer need not give any.
    least: usize,
}

/// A session that idles, in the order in which they leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// What its owner has left when those have gone that idle for longer.
    held: Reverse<usize>,
    since: u64,
    key: u128,
}

impl Leaving {
    /// Takes note of one more session of somebody.
    pub(super) fn came(&mut self, newcomer: &Arc<str>) {
        self.least = self.least.max(count(newcomer));
    }

    /// The session that makes room for one of `newcomer`, which counts already.
    pub(super) fn choose(&mut self, sessions: &HashMap<u128, Owned>, newcomer: &Arc<str>) -> Option<u128> {
        let key = self.next_of(sessions, newcomer).or_else(|| {
            *self = Self::among(sessions);
            // Whoever has more has nothing that idles.
            self.next.pop_front().map(|first| first.key)
        })?;
        let is_own = sessions.get(&key).is_some_and(|owned| Arc::ptr_eq(&owned.owner, newcomer));
        self.least = self.least.max(count(newcomer) - usize::from(is_own));
        Some(key)
    }

    fn next_of(&mut self, sessions: &HashMap<u128, Owned>, newcomer: &Arc<str>) -> Option<u128> {
        let mut at = 0;
        while let Some(&Candidate { held, since, key }) = self.next.get(at) {
            let Some(Owned { session, owner }) = sessions.get(&key) else {
                self.next.remove(at);
                continue;
            };
            if session.idle_since() != Some(since) {
                self.least = self.least.max(count(owner));
                self.next.remove(at);
                continue;
            }
            if count(owner) < held.0 {
                // Some have left by themselves, so that it may not be its owner's turn.
                return None;
            }
            if count(owner) >= self.least.max(count(newcomer)) {
                self.next.remove(at);
                return Some(key);
            }
            at += 1;
        }
        None
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.next.len()
    }

    /// Looks through all sessions.
    fn among(sessions: &HashMap<u128, Owned>) -> Self {
        let idle = |(key, owned): (&u128, &Owned)| {
            let since = owned.session.idle_since()?;
            Some((Arc::as_ptr(&owned.owner).addr(), since, *key, count(&owned.owner)))
        };
        let mut idle: Vec<_> = sessions.iter().filter_map(idle).collect();
        idle.sort_unstable();
        let mut next = Vec::with_capacity(idle.len());
        for of_one in idle.chunk_by(|one, other| one.0 == other.0) {
            let left = of_one.iter().enumerate().map(|(gone, &(_, since, key, count))| Candidate {
                held: Reverse(count.saturating_sub(gone)),
                since,
                key,
            });
            // More than so many of one owner are not remembered anyway.
            next.extend(left.take(NEXT));
        }
        if next.len() > NEXT {
            next.select_nth_unstable(NEXT);
            next.truncate(NEXT);
        }
        next.sort_unstable();
        Self { next: next.into(), least: 0 }
    }
}

/// How many sessions somebody has, and one more.
fn count(owner: &Arc<str>) -> usize {
    Arc::strong_count(owner)
}
