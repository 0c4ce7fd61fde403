//! Every session place of a host, registered or not, until nothing of it is left.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::server::slot::Slot;

/// The places of one host. A place whose server is being prepared, or has been
/// replaced or removed, stands here and nowhere else.
///
/// Locked before a desk, never the other way round.
#[derive(Default)]
pub(crate) struct SlotRegistry(Mutex<RegisteredSlots>);

#[derive(Default)]
struct RegisteredSlots {
    /// Those that have ended are struck out whenever another one comes.
    slots: Vec<Weak<Slot>>,
    is_closed: bool,
}

impl SlotRegistry {
    /// Enters a place; one that comes after the end is removed at once.
    pub(crate) fn add(&self, slot: &Arc<Slot>) {
        let mut entries = self.entries();
        entries.slots.retain(|slot| slot.upgrade().is_some_and(|slot| !slot.is_gone.load(Ordering::Acquire)));
        entries.slots.push(Arc::downgrade(slot));
        if entries.is_closed {
            slot.remove();
        }
    }

    /// Ends it all, and returns what is left.
    pub(crate) fn close(&self) -> Vec<Arc<Slot>> {
        let mut entries = self.entries();
        entries.is_closed = true;
        entries.slots.iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.entries().is_closed
    }

    fn entries(&self) -> MutexGuard<'_, RegisteredSlots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
