//! What the pins say of one list.

use std::sync::Arc;

use ostler_core::name::ServerName;
use ostler_core::pins::{Pins, Section, Standing};

use super::known::{Item, Known};

/// What the pins say of each item of one list.
#[derive(Debug)]
pub(crate) struct Judgement {
    /// Whose word it is; other pins make another judgement.
    pins: Arc<Pins>,
    /// One for each item of the list.
    standings: Vec<Standing>,
}

impl Judgement {
    pub(super) fn new(pins: &Arc<Pins>, (server, section): (&ServerName, Section), known: &Known) -> Self {
        let is_pinned = pins.lock.servers.contains_key(server) && pins.covers(server.as_str(), section);
        let judge = |item: &Item| match is_pinned && known.is_repeated(&item.name) {
            // Nobody can say which of them a call would reach.
            true => Standing::Changed,
            false => pins.standing(server.as_str(), (section, &item.name), &item.definition),
        };
        Self { pins: Arc::clone(pins), standings: known.items.iter().map(judge).collect() }
    }

    pub(super) fn is_by(&self, pins: &Arc<Pins>) -> bool {
        Arc::ptr_eq(&self.pins, pins)
    }

    /// Of the item at that place in the list.
    pub(crate) fn standing(&self, at: usize) -> Option<Standing> {
        self.standings.get(at).copied()
    }

    /// The items that nobody has approved as they are.
    pub(crate) fn unapproved<'a>(
        &'a self,
        known: &'a Known,
    ) -> impl Iterator<Item = (&'a Item, Standing)> + 'a {
        let judged = known.items.iter().zip(self.standings.iter().copied());
        judged.filter(|(_, standing)| is_unapproved(*standing))
    }
}

/// Whether the pins know of the item's server and not of this definition.
pub(crate) fn is_unapproved(standing: Standing) -> bool {
    matches!(standing, Standing::Changed | Standing::New)
}
