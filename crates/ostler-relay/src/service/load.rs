//! Whether one more call fits in.

use hashbrown::HashMap;

use crate::name::Name;

/// The calls that are there: those that run, and those that wait for their
/// refusal. Whoever is refused takes no room from others.
#[derive(Debug, Default)]
pub(super) struct Load {
    all: Count,
    of_worker: HashMap<Name, Count>,
}

#[derive(Debug, Default)]
struct Count {
    running: usize,
    refused: usize,
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
    /// One more call of a worker, where `max` may run, and half of them for one
    /// worker. As many may wait for their refusal; beyond that it is `None`.
    pub(super) fn enter(&mut self, worker: &Name, max: usize) -> Option<Room> {
        let each = max.div_ceil(2);
        let own = self.of_worker.get(worker);
        let (running, refused) = own.map_or((0, 0), |own| (own.running, own.refused));
        let room = match () {
            () if running >= each => Room::Full { limit: each, is_own: true },
            () if self.all.running >= max => Room::Full { limit: max, is_own: false },
            () => Room::Free,
        };
        if room != Room::Free && (refused >= each || self.all.refused >= max) {
            return None;
        }
        *self.all.of(room) += 1;
        *self.of_worker.entry(worker.clone()).or_default().of(room) += 1;
        Some(room)
    }

    /// One has ended.
    pub(super) fn leave(&mut self, worker: &Name, room: Room) {
        *self.all.of(room) -= 1;
        let Some(own) = self.of_worker.get_mut(worker) else { return };
        *own.of(room) -= 1;
        if own.running + own.refused == 0 {
            self.of_worker.remove(worker);
        }
    }
}

impl Count {
    fn of(&mut self, room: Room) -> &mut usize {
        match room {
            Room::Free => &mut self.running,
            Room::Full { .. } => &mut self.refused,
        }
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
        let (mut load, loud, other) = (Load::default(), name("loud"), name("other"));
        let own = Some(Room::Full { limit: 2, is_own: true });
        let rooms = [(); 6].map(|()| load.enter(&loud, 4));
        assert_eq!(rooms, [Some(Room::Free), Some(Room::Free), own, own, None, None]);
        assert_eq!([(); 2].map(|()| load.enter(&other, 4)), [Some(Room::Free); 2]);
        assert_eq!(load.enter(&name("third"), 4), Some(Room::Full { limit: 4, is_own: false }));
        load.leave(&loud, Room::Free);
        assert_eq!(load.enter(&name("third"), 4), Some(Room::Free));
    }

    #[test]
    fn nobody_is_remembered_who_has_nothing_under_way() {
        let (mut load, worker) = (Load::default(), name("w"));
        let rooms = [(); 3].map(|()| load.enter(&worker, 4));
        rooms.into_iter().flatten().for_each(|room| load.leave(&worker, room));
        assert!(load.of_worker.is_empty());
        assert_eq!((load.all.running, load.all.refused), (0, 0));
    }
}
