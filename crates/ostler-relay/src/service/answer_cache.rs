//! Answer cache: answers of the last ten minutes, for workers that ask again after a lost
//! connection.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use hashbrown::HashMap;

use super::call_registry::RelayCallKey;
use crate::journal::CLAIM_RETENTION;

/// Bound on all cached answers. A flooded host needs about as much memory again for other buffers.
const MAX_BYTES: usize = 32 << 20;

/// Bytes counted per answer besides its text, so that many small answers are bounded too.
const OVERHEAD: usize = 256;

/// Cached answers, bounded by age and total size; the oldest are evicted first.
#[derive(Debug, Default)]
pub(super) struct AnswerCache {
    entries: HashMap<RelayCallKey, (Instant, Bytes)>,
    /// In order of insertion; an entry with an outdated time belongs to a replaced answer.
    order: VecDeque<(Instant, RelayCallKey)>,
    bytes: usize,
}

impl AnswerCache {
    /// Caches an answer and replaces an earlier one of the same call.
    pub(super) fn insert(&mut self, key: RelayCallKey, text: Bytes, now: Instant) {
        self.bytes += text.len() + OVERHEAD;
        if let Some((_, earlier)) = self.entries.insert(key.clone(), (now, text)) {
            self.bytes -= earlier.len() + OVERHEAD;
        }
        self.order.push_back((now, key));
        self.evict(now);
    }

    /// Returns the answer of a call.
    pub(super) fn get(&self, key: &RelayCallKey) -> Option<Bytes> {
        self.entries.get(key).map(|(_, text)| text.clone())
    }

    /// Iterates over the calls answered since `then`, newest first.
    pub(super) fn answered_since(&self, then: Instant) -> impl Iterator<Item = &RelayCallKey> {
        self.order.iter().rev().take_while(move |(at, _)| *at >= then).map(|(_, key)| key)
    }

    /// Evicts expired answers, then the oldest ones until the rest fit.
    pub(super) fn evict(&mut self, now: Instant) {
        while let Some((at, key)) = self.order.front() {
            let is_old = now.saturating_duration_since(*at) >= CLAIM_RETENTION;
            // Keeps the newest answer even if it alone exceeds the bound; `MAX_ANSWER` limits it.
            let is_too_much = self.bytes > MAX_BYTES && self.order.len() > 1;
            if !is_old && !is_too_much {
                return;
            }
            if self.entries.get(key).is_some_and(|(kept_at, _)| kept_at == at)
                && let Some((_, text)) = self.entries.remove(key)
            {
                self.bytes -= text.len() + OVERHEAD;
            }
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{CallId, RelayName};

    fn key(number: u8) -> RelayCallKey {
        let worker = RelayName::new("w").unwrap_or_else(|error| panic!("{error}"));
        RelayCallKey { worker, call: CallId::new(1, &[number; 10]) }
    }

    #[test]
    fn answers_are_kept_for_ten_minutes() {
        let (mut answers, now) = (AnswerCache::default(), Instant::now());
        answers.insert(key(1), Bytes::from_static(b"one"), now);
        answers.evict(now + CLAIM_RETENTION - Duration::from_millis(1));
        assert_eq!(answers.get(&key(1)).as_deref(), Some(&b"one"[..]));
        answers.evict(now + CLAIM_RETENTION);
        assert_eq!((answers.get(&key(1)), answers.bytes), (None, 0));
    }

    #[test]
    fn the_newest_win_and_the_very_newest_stays_whatever_its_length() {
        let (mut answers, now) = (AnswerCache::default(), Instant::now());
        for number in 0..3 {
            answers.insert(key(number), Bytes::from(vec![0; MAX_BYTES / 2]), now);
        }
        let lengths: Vec<_> = (0..3).map(|number| answers.get(&key(number)).map(|text| text.len())).collect();
        assert_eq!(lengths, [None, None, Some(MAX_BYTES / 2)], "two halves and what they take beside");
        answers.insert(key(9), Bytes::from(vec![0; MAX_BYTES * 2]), now);
        assert!(answers.get(&key(2)).is_none() && answers.get(&key(9)).is_some());
    }

    #[test]
    fn keeping_again_replaces_and_counts_once() {
        let (mut answers, now) = (AnswerCache::default(), Instant::now());
        answers.insert(key(1), Bytes::from_static(b"one"), now);
        answers.insert(key(1), Bytes::from_static(b"other"), now + Duration::from_secs(1));
        assert_eq!(answers.bytes, 5 + OVERHEAD);
        answers.evict(now + CLAIM_RETENTION);
        assert_eq!(answers.get(&key(1)).as_deref(), Some(&b"other"[..]));
    }
}
