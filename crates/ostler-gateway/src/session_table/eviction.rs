//! Eviction queue: selects the session that is evicted for a new one.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use super::OwnedSession;

/// Sessions that are remembered as the next to be evicted, so that a burst of newcomers does not scan all sessions for
/// each.
const MAX_CANDIDATES: usize = 128;

/// Next sessions to be evicted: always one of the owner with the most sessions, and of those the one that has idled
/// longest. A session that was in use at the last scan is not among them.
#[derive(Debug, Default)]
pub(super) struct EvictionQueue {
    candidates: VecDeque<EvictionCandidate>,
    /// Highest session count of an owner that got more sessions, or used a candidate, since the last scan: the queue
    /// may be incomplete for it. An owner with fewer sessions need not lose any.
    min_owned: usize,
}

/// Idle session, ordered by eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct EvictionCandidate {
    /// Sessions left to its owner after those that have idled longer are gone.
    owner_remaining: Reverse<usize>,
    since: u64,
    key: u128,
}

impl EvictionQueue {
    /// Records one more session of an owner.
    pub(super) fn note_added(&mut self, newcomer: &Arc<str>) {
        self.min_owned = self.min_owned.max(owner_sessions(newcomer));
    }

    /// Returns the session to evict for one of `newcomer`, which counts already.
    pub(super) fn choose(
        &mut self,
        sessions: &HashMap<u128, OwnedSession>,
        newcomer: &Arc<str>,
    ) -> Option<u128> {
        let key = self.next_candidate(sessions, newcomer).or_else(|| {
            *self = Self::rank(sessions);
            // An owner with more sessions has none that idles.
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
                // Some sessions have ended by themselves, so that it may not be its owner's turn.
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

    /// Scans all sessions.
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
            // Candidates of one owner beyond this number would be dropped anyway.
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

/// Returns the number of an owner's sessions, plus one.
fn owner_sessions(owner: &Arc<str>) -> usize {
    Arc::strong_count(owner)
}
