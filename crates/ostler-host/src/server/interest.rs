//! The resources of one session place that somebody wants to hear of.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Mutex as Turn;

/// Resources of one session place that can be listened to at once.
pub(crate) const MAX_RESOURCES: usize = 1_024;

/// Who wants to hear of which resource, counted.
#[derive(Debug, Default)]
pub(crate) struct Interests {
    /// A resource without anybody stands here until its server has been told.
    counts: Mutex<BTreeMap<String, usize>>,
    /// Held while the server is told, so that what it is told last is what is
    /// wanted last.
    pub(crate) telling: Turn<()>,
}

impl Interests {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more for a resource; whether the server has to be told, or `None`
    /// where there are too many.
    pub(crate) fn add(&self, uri: &str) -> Option<bool> {
        let mut counts = self.counts();
        if let Some(count) = counts.get_mut(uri) {
            *count += 1;
            return Some(false);
        }
        if counts.len() >= MAX_RESOURCES {
            return None;
        }
        counts.insert(uri.to_owned(), 1);
        Some(true)
    }

    /// One less; true if it was the last.
    pub(crate) fn remove(&self, uri: &str) -> bool {
        let mut counts = self.counts();
        let Some(count) = counts.get_mut(uri) else { return false };
        *count = count.saturating_sub(1);
        *count == 0
    }

    /// Forgets a resource that nobody wants to hear of; true if it was there.
    pub(crate) fn forget(&self, uri: &str) -> bool {
        let mut counts = self.counts();
        let is_unwanted = counts.get(uri) == Some(&0);
        if is_unwanted {
            counts.remove(uri);
        }
        is_unwanted
    }

    /// What somebody wants to hear of.
    pub(crate) fn resources(&self) -> Vec<String> {
        self.counts().iter().filter(|(_, count)| **count > 0).map(|(uri, _)| uri.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_one_in_and_the_last_one_out_matter() {
        let interests = Interests::default();
        assert_eq!((interests.add("a"), interests.add("a")), (Some(true), Some(false)));
        assert!(!interests.remove("a"));
        assert!(!interests.forget("a"));
        assert!(interests.remove("a"));
        assert!(interests.resources().is_empty());
        // Somebody who comes before the server was told finds it still telling.
        assert_eq!(interests.add("a"), Some(false));
        assert!(!interests.forget("a"));
        assert!(interests.remove("a") && interests.forget("a"));
        assert_eq!(interests.add("a"), Some(true));
    }

    #[test]
    fn there_is_room_for_so_many_resources_and_not_one_more() {
        let interests = Interests::default();
        for n in 0..MAX_RESOURCES {
            assert_eq!(interests.add(&n.to_string()), Some(true));
        }
        assert_eq!(interests.add("one more"), None);
        assert_eq!(interests.add("0"), Some(false));
    }
}
