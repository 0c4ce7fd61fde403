//! Response cache: remembered answers, and reads under way that several callers share. Neither lock is held across an
//! await.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_core::cache::{Cache, CacheLimits};

use crate::coalesce::PendingReads;
use crate::server::PartitionOwner;

/// Remembers answers.
pub(crate) struct ResponseCache {
    cache: Arc<Mutex<Cache>>,
    pub(crate) pending_reads: PendingReads,
}

impl ResponseCache {
    pub(crate) fn new(bounds: CacheLimits) -> Self {
        Self { cache: Arc::new(Mutex::new(Cache::new(bounds))), pending_reads: PendingReads::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the private answers of a principal that has gone. Reads under way for it are not joined any more.
    pub(crate) fn forget(&self, owner: PartitionOwner<'_>) {
        self.pending_reads.forget(owner);
        self.lock().purge_owners(|other| owner.owns(other));
    }

    /// Returns the cache for slots, which forget answers when their server tells of changes.
    pub(crate) fn handle(&self) -> Arc<Mutex<Cache>> {
        Arc::clone(&self.cache)
    }
}
