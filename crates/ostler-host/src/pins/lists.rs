//! Lists: without what nobody has approved, and of sleeping servers what is pinned.

use std::collections::HashSet;
use std::sync::Arc;

use ostler_core::caller::Caller;
use ostler_core::name::ServerName;
use ostler_core::pins::Pins;

use crate::host::Host;
use crate::lists::Kind;
use crate::server::Server;
use crate::server::judgement::is_unapproved;
use crate::server::known::{Item, Known};
use crate::server::slot::Slot;

impl Host {
    /// Whether the pins let a tool be listed as it is defined here. `None`
    /// stands for one that is defined more than once.
    pub fn may_list(&self, caller: &Caller, server: &str, tool: &str, definition: Option<&[u8]>) -> bool {
        let Some(pins) = self.enforced() else { return true };
        let Some(definition) = definition else { return false };
        let is_repeated = || {
            let server = self.shared().registry.load().get(server)?.existing_slot(caller)?;
            Some(server.known_to(caller, Kind::Tools)?.is_repeated(tool))
        };
        !is_unapproved(pins.standing(server, tool, definition)) && !is_repeated().unwrap_or_default()
    }

    /// Whether the tool, as it is known, is kept from the caller by the pins.
    pub fn is_quarantined(&self, caller: &Caller, server: &str, tool: &str) -> bool {
        let Some(pins) = self.enforced() else { return false };
        let registry = self.shared().registry.load();
        let Some(server) = registry.get(server) else { return false };
        let known = server.existing_slot(caller).and_then(|slot| slot.known_to(caller, Kind::Tools));
        let standing = known.and_then(|known| known.standing(&pins, &server.spec.name, tool));
        standing.is_some_and(is_unapproved)
    }

    /// The items of a list that the pins let through.
    pub(crate) fn approved<'k>(
        &self,
        server: &Server,
        kind: Kind,
        known: &'k Known,
    ) -> impl Iterator<Item = &'k Item> + use<'k> {
        let pins = self.enforced().filter(|_| kind == Kind::Tools);
        let judgement = pins.map(|pins| known.judged(&pins, &server.spec.name));
        let is_approved = move |at: usize| {
            judgement
                .as_ref()
                .and_then(|judgement| judgement.standing(at))
                .is_none_or(|it| !is_unapproved(it))
        };
        known.items.iter().enumerate().filter(move |(at, _)| is_approved(*at)).map(|(_, item)| item)
    }

    /// The pinned tools of a server none of whose sessions has listed any yet.
    pub(crate) fn pinned_instead(&self, slot: &Slot, kind: Kind) -> Option<Arc<Known>> {
        if kind != Kind::Tools || slot.known(kind).is_some_and(|known| !known.is_of_no_session()) {
            return None;
        }
        let pins = self.pins()?;
        let items = pinned_items(&pins, &slot.key.server);
        (!items.is_empty()).then(|| Arc::new(Known::remembered(items)))
    }

    /// The last list there is: a session's, what is pinned, or an earlier run's.
    pub(crate) fn last_list(&self, slot: &Slot, caller: &Caller, kind: Kind) -> Option<Arc<Known>> {
        self.pinned_instead(slot, kind).or_else(|| slot.known_to(caller, kind))
    }

    /// Adds the pinned tools that are not known otherwise.
    pub(crate) fn add_pinned(&self, server: &Server, kind: Kind, items: &mut Vec<Item>) {
        let Some(pins) = self.pins().filter(|_| kind == Kind::Tools) else { return };
        let known: HashSet<Arc<str>> = items.iter().map(|item| Arc::clone(&item.name)).collect();
        let pinned = pinned_items(&pins, &server.spec.name).into_iter();
        items.extend(pinned.filter(|item| !known.contains(&item.name)));
    }
}

fn pinned_items(pins: &Pins, server: &ServerName) -> Vec<Item> {
    let tools = pins.lock.servers.get(server).into_iter().flat_map(|locked| &locked.tools);
    tools.map(|(name, pin)| Item { name: name.as_str().into(), definition: pin.definition.clone() }).collect()
}
