//! Cleanup guard: marks a slot as unfinished until every part of its session is gone.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::slot::Slot;
use crate::process_pool::ProcessPermit;

/// Keeps a session counted as not cleaned up for as long as any clone exists.
///
/// The host counts the process and waits for its end until then. A connector passes a clone to any task that outlives
/// its future, such as the one that ends a process which never became a session.
#[derive(Clone)]
pub struct CleanupGuard {
    _held: Arc<HeldCleanup>,
}

struct HeldCleanup {
    slot: Arc<Slot>,
    process_permit: Option<ProcessPermit>,
}

impl CleanupGuard {
    pub(crate) fn new(slot: Arc<Slot>, place: Option<ProcessPermit>) -> Self {
        slot.open_cleanups.fetch_add(1, Ordering::AcqRel);
        Self { _held: Arc::new(HeldCleanup { slot, process_permit: place }) }
    }
}

impl Drop for HeldCleanup {
    fn drop(&mut self) {
        // The permit first: a waiter that is woken below may need it.
        self.process_permit = None;
        self.slot.open_cleanups.fetch_sub(1, Ordering::AcqRel);
        self.slot.wake_task.notify_one();
    }
}

impl fmt::Debug for CleanupGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stay")
    }
}
