//! Load: whether one more call fits in, half of all calls at most for one worker.

use std::sync::Arc;

use ostler_core::keyed_limit::{KeyedLimit, KeyedPermit, LimitReached};

use crate::name::RelayName;

/// The calls that are there: those that run, and those that wait for their
/// refusal. A call that is refused takes no room from others.
#[derive(Debug)]
pub(super) struct ServiceCallLimits {
    running: Arc<KeyedLimit>,
    refused: Arc<KeyedLimit>,
}

/// Whether a call fits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallCapacity {
    Free,
    /// Nothing of it may begin.
    Full {
        limit: usize,
        /// Whether it is its worker that has too much under way.
        is_worker_limit: bool,
    },
}

impl ServiceCallLimits {
    /// Makes room for `max` calls, half of them for one worker.
    pub(super) fn new(max: usize) -> Self {
        let limit = || KeyedLimit::new(max, max.div_ceil(2));
        Self { running: limit(), refused: limit() }
    }

    /// Counts one more call of a worker, until its permit is dropped. As many as may run may wait for their refusal;
    /// beyond that it is `None`.
    pub(super) fn acquire(&self, worker: &RelayName) -> Option<(CallCapacity, KeyedPermit)> {
        let full = match self.running.acquire(worker.as_str()) {
            Ok(permit) => return Some((CallCapacity::Free, permit)),
            Err(full) => full,
        };
        let room = match full {
            LimitReached::All => CallCapacity::Full { limit: self.running.max(), is_worker_limit: false },
            _ => CallCapacity::Full { limit: self.running.max_per_key(), is_worker_limit: true },
        };
        Some((room, self.refused.acquire(worker.as_str()).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> RelayName {
        RelayName::new(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn who_is_refused_takes_no_room_from_others() {
        let (load, loud, other, third) =
            (ServiceCallLimits::new(4), name("loud"), name("other"), name("third"));
        let room = |entered: &Option<(CallCapacity, KeyedPermit)>| entered.as_ref().map(|(room, _)| *room);
        let own = Some(CallCapacity::Full { limit: 2, is_worker_limit: true });
        let mut hers = [(); 6].map(|()| load.acquire(&loud));
        let rooms = hers.each_ref().map(room);
        assert_eq!(rooms, [Some(CallCapacity::Free), Some(CallCapacity::Free), own, own, None, None]);
        let his = [(); 2].map(|()| load.acquire(&other));
        assert_eq!(his.each_ref().map(room), [Some(CallCapacity::Free); 2]);
        let refused = load.acquire(&third);
        assert_eq!(room(&refused), Some(CallCapacity::Full { limit: 4, is_worker_limit: false }));
        hers[0] = None;
        assert_eq!(room(&load.acquire(&third)), Some(CallCapacity::Free));
    }
}
