//! What the pins say of one list.

use std::sync::Arc;

use ostler_core::pins::{LockSection, PinPolicy, PinStatus};
use ostler_core::server_name::ServerName;

use super::server_list::{ServerItem, ServerList};

/// What the pins say of each item of one list.
#[derive(Debug)]
pub(crate) struct PinVerdicts {
    /// Whose word it is; other pins make another judgement.
    pins: Arc<PinPolicy>,
    /// One for each item of the list.
    statuses: Vec<PinStatus>,
}

impl PinVerdicts {
    pub(super) fn new(
        pins: &Arc<PinPolicy>,
        (server, section): (&ServerName, LockSection),
        known: &ServerList,
    ) -> Self {
        let is_pinned =
            pins.lock.servers.contains_key(server) && pins.is_section_pinned(server.as_str(), section);
        let judge = |item: &ServerItem| match is_pinned && known.is_repeated(&item.name) {
            // Nobody can say which of them a call would reach.
            true => PinStatus::Changed,
            false => pins.status(server.as_str(), (section, &item.name), &item.definition),
        };
        Self { pins: Arc::clone(pins), statuses: known.items.iter().map(judge).collect() }
    }

    pub(super) fn is_by_pins(&self, pins: &Arc<PinPolicy>) -> bool {
        Arc::ptr_eq(&self.pins, pins)
    }

    /// Of the item at that place in the list.
    pub(crate) fn status(&self, at: usize) -> Option<PinStatus> {
        self.statuses.get(at).copied()
    }

    /// The items that nobody has approved as they are.
    pub(crate) fn unapproved<'a>(
        &'a self,
        known: &'a ServerList,
    ) -> impl Iterator<Item = (&'a ServerItem, PinStatus)> + 'a {
        let judged = known.items.iter().zip(self.statuses.iter().copied());
        judged.filter(|(_, standing)| is_unapproved(*standing))
    }
}

/// Whether the pins know of the item's server and not of this definition.
pub(crate) fn is_unapproved(standing: PinStatus) -> bool {
    matches!(standing, PinStatus::Changed | PinStatus::New)
}
