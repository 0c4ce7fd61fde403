//! Load: whether one more call fits in, half of all calls at most for one worker.

use std::sync::Arc;

use ostler_core::keyed_limit::{Full, KeyedLimit, Permit};

use crate::name::Name;

/// The calls that are there: those that run, and those that wait for their
/// refusal. A call that is refused takes no room from others.
#[derive(Debug)]
pub(super) struct Load {
    running: Arc<KeyedLimit>,
    refused: Arc<KeyedLimit>,
}

/// Whether a call fits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// Nothing of it may begin.
    Full {
        limit: usize,
        /// Whether it is its worker that has too much under way.
        is_own: bool,
    },
}

impl Load {
    /// Makes room for `max` calls, half of them for one worker.
    pub(super) fn new(max: usize) -> Self {
        let limit = || KeyedLimit::new(max, max.div_ceil(2));
        Self { running: limit(), refused: limit() }
    }

    /// Counts one more call of a worker, until its permit is dropped. As many as may run may wait for their refusal;
    /// beyond that it is `None`.
    pub(super) fn enter(&self, worker: &Name) -> Option<(Room, Permit)> {
        let full = match self.running.acquire(worker.as_str()) {
            Ok(permit) => return Some((Room::Free, permit)),
            Err(full) => full,
        };
        let room = match full {
            Full::All => Room::Full { limit: self.running.max(), is_own: false },
            _ => Room::Full { limit: self.running.max_per_key(), is_own: true },
        };
        Some((room, self.refused.acquire(worker.as_str()).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn who_is_refused_takes_no_room_from_others() {
        let (load, loud, other, third) = (Load::new(4), name("loud"), name("other"), name("third"));
        let room = |entered: &Option<(Room, Permit)>| entered.as_ref().map(|(room, _)| *room);
        let own = Some(Room::Full { limit: 2, is_own: true });
        let mut hers = [(); 6].map(|()| load.enter(&loud));
        let rooms = hers.each_ref().map(room);
        assert_eq!(rooms, [Some(Room::Free), Some(Room::Free), own, own, None, None]);
        let his = [(); 2].map(|()| load.enter(&other));
        assert_eq!(his.each_ref().map(room), [Some(Room::Free); 2]);
        let refused = load.enter(&third);
        assert_eq!(room(&refused), Some(Room::Full { limit: 4, is_own: false }));
        hers[0] = None;
        assert_eq!(room(&load.enter(&third)), Some(Room::Free));
    }
}
