//! Where a slot keeps one of its lists.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use arc_swap::ArcSwapOption;
use ostler_core::error::CallError;

use super::known::Known;

/// What the last round of asking for a list has brought.
pub(crate) type LastRound = Option<Result<Arc<Known>, CallError>>;

/// One list of a server: the last one known, and the round of asking for it.
#[derive(Default)]
pub(crate) struct Shelf {
    known: ArcSwapOption<Known>,
    /// Held while the list is asked for; what the last round has brought.
    pub(crate) listing: Arc<tokio::sync::Mutex<LastRound>>,
    /// Rounds of asking for the list that are over.
    pub(crate) rounds: AtomicU64,
    /// Changes of the list that the server has announced, and sessions that
    /// it has forgotten: a list from before is not what there is now.
    pub(crate) changes: AtomicU64,
    /// Somebody was answered without the list, because it took too long.
    pub(crate) is_missed: AtomicBool,
}

impl Shelf {
    /// The last list, however old.
    pub(crate) fn known(&self) -> Option<Arc<Known>> {
        self.known.load_full()
    }

    pub(crate) fn learn(&self, known: Arc<Known>) {
        self.known.store(Some(known));
    }

    /// True if nothing was known before.
    pub(crate) fn learn_if_unknown(&self, known: Arc<Known>) -> bool {
        let before = self.known.rcu(|current| current.clone().or_else(|| Some(Arc::clone(&known))));
        before.is_none()
    }
}
