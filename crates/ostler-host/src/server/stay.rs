//! What is left of a session, wherever it is.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::slot::Slot;
use crate::room::Place;

/// Says that something of a session is left, as long as any clone of it exists.
///
/// Its host counts the process and waits for its end until then. A connector
/// hands a clone to whatever goes on when its future is dropped, such as the
/// task that ends a process which never became a session.
#[derive(Clone)]
pub struct Stay {
    _held: Arc<Held>,
}

struct Held {
    slot: Arc<Slot>,
    place: Option<Place>,
}

impl Stay {
    pub(crate) fn new(slot: Arc<Slot>, place: Option<Place>) -> Self {
        slot.stays.fetch_add(1, Ordering::AcqRel);
        Self { _held: Arc::new(Held { slot, place }) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Room first: who is told that nothing is left may want it.
        self.place = None;
        self.slot.stays.fetch_sub(1, Ordering::AcqRel);
        self.slot.bell.notify_one();
    }
}

impl fmt::Debug for Stay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stay")
    }
}
