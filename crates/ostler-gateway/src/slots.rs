//! Room for a number of things at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Room for a number of things at once.
#[derive(Debug)]
pub(crate) struct Slots {
    max: usize,
    taken: AtomicUsize,
}

/// One place, given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Slots>);

impl Slots {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: AtomicUsize::new(0) })
    }

    /// A place, if one is free.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Slot> {
        // The slot is made first so that a refusal gives its count back as well.
        let slot = Slot(Arc::clone(self));
        (self.taken.fetch_add(1, Ordering::AcqRel) < self.max).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}
