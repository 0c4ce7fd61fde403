//! Which session leaves when there is no room for another one.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use super::OwnedSession;

/// Sessions that are remembered as the next to leave, so that a crowd of
/// newcomers does not have all of them looked through for each.
const MAX_CANDIDATES: usize = 128;

/// Those who leave next: always one of whoever has the most, and of those the
/// one that idled longest. A session that was in use when all were last looked
/// through is not among them.
#[derive(Debug, Default)]
pub(super) struct EvictionQueue {
    candidates: VecDeque<EvictionCandidate>,
    /// The most sessions of anybody who has got more of them, or has used one
    /// that was to leave: the list may know too little of those. Whoever has
    /// fewer need not give any.
    min_owned: usize,
}

/// A session that idles, in the order in which they leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct EvictionCandidate {
    /// What its owner has left when those have gone that idle for longer.
    owner_remaining: Reverse<usize>,
    since: u64,
    key: u128,
}

impl EvictionQueue {
    /// Takes note of one more session of somebody.
    pub(super) fn note_added(&mut self, newcomer: &Arc<str>) {
        self.min_owned = self.min_owned.max(owner_sessions(newcomer));
    }

    /// The session that makes room for one of `newcomer`, which counts already.
    pub(super) fn choose(
        &mut self,
        sessions: &HashMap<u128, OwnedSession>,
        newcomer: &Arc<str>,
    ) -> Option<u128> {
        let key = self.next_candidate(sessions, newcomer).or_else(|| {
            *self = Self::rank(sessions);
            // Whoever has more has nothing that idles.
            self.candidates.pop_front().map(|first| first.key)
        })?;
        let is_own = sessions.get(&key).is_some_and(|owned| Arc::ptr_eq(&owned.owner, newcomer));
        self.min_owned = self.min_owned.max(owner_sessions(newcomer) - usize::from(is_own));
        Some(key)
    }

    fn next_candidate(
        &mut self,
        sessions: &HashMap<u128, OwnedSession>,
        newcomer: &Arc<str>,
    ) -> Option<u128> {
        let mut at = 0;
        while let Some(&EvictionCandidate { owner_remaining: held, since, key }) = self.candidates.get(at) {
            let Some(OwnedSession { session, owner }) = sessions.get(&key) else {
                self.candidates.remove(at);
                continue;
            };
            if session.idle_since() != Some(since) {
                self.min_owned = self.min_owned.max(owner_sessions(owner));
                self.candidates.remove(at);
                continue;
            }
            if owner_sessions(owner) < held.0 {
                // Some have left by themselves, so that it may not be its owner's turn.
                return None;
            }
            if owner_sessions(owner) >= self.min_owned.max(owner_sessions(newcomer)) {
                self.candidates.remove(at);
                return Some(key);
            }
            at += 1;
        }
        None
    }

    #[cfg(test)]
    pub(super) fn candidate_count(&self) -> usize {
        self.candidates.len()
    }

    /// Looks through all sessions.
    fn rank(sessions: &HashMap<u128, OwnedSession>) -> Self {
        let idle = |(key, owned): (&u128, &OwnedSession)| {
            let since = owned.session.idle_since()?;
            Some((Arc::as_ptr(&owned.owner).addr(), since, *key, owner_sessions(&owned.owner)))
        };
        let mut idle: Vec<_> = sessions.iter().filter_map(idle).collect();
        idle.sort_unstable();
        let mut next = Vec::with_capacity(idle.len());
        for of_one in idle.chunk_by(|one, other| one.0 == other.0) {
            let left = of_one.iter().enumerate().map(|(gone, &(_, since, key, count))| EvictionCandidate {
                owner_remaining: Reverse(count.saturating_sub(gone)),
                since,
                key,
            });
            // More than so many of one owner are not remembered anyway.
            next.extend(left.take(MAX_CANDIDATES));
        }
        if next.len() > MAX_CANDIDATES {
            next.select_nth_unstable(MAX_CANDIDATES);
            next.truncate(MAX_CANDIDATES);
        }
        next.sort_unstable();
        Self { candidates: next.into(), min_owned: 0 }
    }
}

/// How many sessions somebody has, and one more.
fn owner_sessions(owner: &Arc<str>) -> usize {
    Arc::strong_count(owner)
}
