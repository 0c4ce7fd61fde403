//! Slot registry: every slot of a host, registered or not, until nothing of it is left.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::server::slot::Slot;

/// Slots of one host. A slot whose server is being prepared, or has been replaced or removed, is held only here.
///
/// Lock order: before a slot's state, never the other way round.
#[derive(Default)]
pub(crate) struct SlotRegistry(Mutex<RegisteredSlots>);

#[derive(Default)]
struct RegisteredSlots {
    /// Ended slots are removed whenever another one is added.
    slots: Vec<Weak<Slot>>,
    is_closed: bool,
}

impl SlotRegistry {
    /// Adds a slot; after the registry is closed, removes it at once.
    pub(crate) fn add(&self, slot: &Arc<Slot>) {
        let mut entries = self.entries();
        entries.slots.retain(|slot| slot.upgrade().is_some_and(|slot| !slot.is_gone.load(Ordering::Acquire)));
        entries.slots.push(Arc::downgrade(slot));
        if entries.is_closed {
            slot.remove();
        }
    }

    /// Closes the registry, and returns the remaining slots.
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
