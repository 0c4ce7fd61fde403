//! Response cache: cached answers, and reads in flight that several callers share. Neither lock is held across an
//! await.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_core::cache::{Cache, CacheLimits};

use crate::coalesce::PendingReads;
use crate::server::PartitionOwner;

/// Cached answers and pending reads of one host.
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

    /// Drops the private answers of a principal that has gone. Its reads in flight are not joined any more.
    pub(crate) fn forget(&self, owner: PartitionOwner<'_>) {
        self.pending_reads.forget(owner);
        self.lock().purge_owners(|other| owner.owns(other));
    }

    /// Returns the cache for slots, which invalidate answers when their server announces changes.
    pub(crate) fn handle(&self) -> Arc<Mutex<Cache>> {
        Arc::clone(&self.cache)
    }
}
