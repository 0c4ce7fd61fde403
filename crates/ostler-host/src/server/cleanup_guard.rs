//! What is left of a session, wherever it is.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::slot::Slot;
use crate::process_pool::ProcessPermit;

/// Says that something of a session is left, as long as any clone of it exists.
///
/// Its host counts the process and waits for its end until then. A connector
/// hands a clone to whatever goes on when its future is dropped, such as the
/// task that ends a process which never became a session.
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
        // Room first: who is told that nothing is left may want it.
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
