//! Pin verdicts of one list.

use std::sync::Arc;

use ostler_core::pins::{LockSection, PinPolicy, PinStatus};
use ostler_core::server_name::ServerName;

use super::server_list::{ServerItem, ServerList};

/// Pin status of each item of one list.
#[derive(Debug)]
pub(crate) struct PinVerdicts {
    /// The pins that the statuses come from; other pins need other verdicts.
    pins: Arc<PinPolicy>,
    /// One status per item, in list order.
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
            // A call by this name could reach either item.
            true => PinStatus::Changed,
            false => pins.status(server.as_str(), (section, &item.name), &item.definition),
        };
        Self { pins: Arc::clone(pins), statuses: known.items.iter().map(judge).collect() }
    }

    pub(super) fn is_by_pins(&self, pins: &Arc<PinPolicy>) -> bool {
        Arc::ptr_eq(&self.pins, pins)
    }

    /// Returns the status of the item at an index of the list.
    pub(crate) fn status(&self, at: usize) -> Option<PinStatus> {
        self.statuses.get(at).copied()
    }

    /// Returns the items without an approval of their current definition.
    pub(crate) fn unapproved<'a>(
        &'a self,
        known: &'a ServerList,
    ) -> impl Iterator<Item = (&'a ServerItem, PinStatus)> + 'a {
        let judged = known.items.iter().zip(self.statuses.iter().copied());
        judged.filter(|(_, standing)| is_unapproved(*standing))
    }
}

/// Returns whether the pins know the item's server but not this definition.
pub(crate) fn is_unapproved(standing: PinStatus) -> bool {
    matches!(standing, PinStatus::Changed | PinStatus::New)
}
