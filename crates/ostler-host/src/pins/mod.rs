//! Pins: tools, prompts, resources and templates whose definition nobody has approved are kept from callers, and so
//! are `instructions`.
//!
//! ```text
//! a list is learnt ─▶ judged, item by item ─▶ left out of every list, told of once
//! a call has a lease ─▶ is the list of this very session known and judged?
//!     yes ─▶ approved: sent      not approved: definition-changed
//!     no  ─▶ the lease is given back, the list asked for, and a lease taken again
//! ```
//!
//! What a role may not use never comes here, so pins tell nobody of anything
//! that the rules hide.

mod gate;
mod lists;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_core::caller::Caller;
use ostler_core::config::PinMode;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::pins::{INSTRUCTIONS, Pins, Section, instructions_definition};
use ostler_wire::Hello;

pub(crate) use self::watch::Flagged;
use crate::bus::ServerEvent;
use crate::host::Host;
use crate::in_flight::Errand;
use crate::lists::Kind;
use crate::registry::Current;
use crate::server::Server;
use crate::server::known::{Item, Known};
use crate::tools::Tool;

/// Everything that a server defines, whoever may use it and whether it is approved or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definitions {
    /// Whose they are.
    pub server: ServerName,
    /// By section, in the server's order. A section that was not asked for is absent.
    pub sections: BTreeMap<Section, Vec<Tool>>,
    /// Items that the server lists more than once; the first definition stands among the others.
    pub repeated: Vec<(Section, String)>,
}

impl Definitions {
    /// All definitions.
    pub fn items(&self) -> impl Iterator<Item = (Section, &str, &[u8])> {
        self.sections.iter().flat_map(|(section, items)| {
            items.iter().map(|item| (*section, item.name.as_str(), &*item.definition))
        })
    }
}

/// Pins that do something.
pub(crate) fn effective(pins: Option<Pins>) -> Option<Arc<Pins>> {
    pins.filter(|pins| pins.mode != PinMode::Off).map(Arc::new)
}

impl Host {
    /// Judges every known list anew after other definitions were approved, and tells whoever listens that lists have
    /// changed.
    pub(crate) fn repinned(&self, before: &Current, after: &Current) {
        let (before, pins) = (before.pins.as_deref(), after.pins.as_deref());
        if before == pins {
            return;
        }
        for server in after.servers.values() {
            if !is_repinned(before, pins, &server.spec.name) {
                continue;
            }
            let slots = server.slots();
            for kind in Kind::ALL.into_iter().filter(|_| slots.is_empty()) {
                let (server, partition) = (server.spec.name.clone(), "".into());
                self.bus().tell(ServerEvent { server, partition, event: kind.change() });
            }
            slots.iter().for_each(|slot| self.look_at_instructions(slot));
            for (slot, kind) in slots.iter().flat_map(|slot| Kind::ALL.map(|kind| (slot, kind))) {
                if let Some(known) = slot.known(kind).filter(|known| !known.is_of_no_session()) {
                    self.look_over(slot, kind, &known);
                }
                slot.tell_repinned(kind);
            }
        }
    }

    /// The approved definitions, unless nothing is compared with them.
    pub fn pins(&self) -> Option<Arc<Pins>> {
        self.current().pins.clone()
    }

    /// Asks a server for all that it defines, for an operator: neither rules nor
    /// pins leave anything out.
    pub async fn definitions(&self, server: &str) -> Result<Definitions, CallError> {
        let server = self.server(server)?;
        let operator = Caller::operator();
        let slot = server.slot(&operator)?;
        let _in_flight = self.count_in(&operator, Errand::Look)?;
        let mut found = Definitions::none(&server);
        for kind in Kind::ALL {
            found.add(kind, self.fetch_list(&slot, &operator, kind).await?.as_ref());
        }
        found.add_instructions(slot.hello().as_deref());
        Ok(found)
    }

    /// What a server defines as far as it is known; nobody is asked.
    pub fn known_definitions(&self, server: &str) -> Result<Option<Definitions>, CallError> {
        let server = self.server(server)?;
        let slots = server.slots();
        let mut found = Definitions::none(&server);
        for kind in Kind::ALL {
            let lists = slots.iter().filter_map(|slot| slot.known(kind));
            if let Some(known) = lists.into_iter().find(|known| !known.is_of_no_session()) {
                found.add(kind, &known);
            }
        }
        if let Some(hello) = slots.iter().find_map(|slot| slot.hello()) {
            found.add_instructions(Some(&hello));
        }
        Ok((!found.sections.is_empty()).then_some(found))
    }
}

/// Whether a server's tools may be judged otherwise than before.
fn is_repinned(before: Option<&Pins>, after: Option<&Pins>, server: &ServerName) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            before.mode != after.mode
                || before.exempt.contains(server) != after.exempt.contains(server)
                || before.lock.servers.get(server) != after.lock.servers.get(server)
        }
        _ => true,
    }
}

impl Definitions {
    fn none(server: &Server) -> Self {
        Self { server: server.spec.name.clone(), sections: BTreeMap::new(), repeated: Vec::new() }
    }

    fn add(&mut self, kind: Kind, known: &Known) {
        let tool = |item: &Item| Tool { name: item.name.to_string(), definition: item.definition.clone() };
        self.sections.insert(kind.section(), known.items.iter().map(tool).collect());
        let repeated = known.items.iter().filter(|item| known.is_repeated(&item.name));
        self.repeated.extend(repeated.map(|item| (kind.section(), item.name.to_string())));
    }

    /// A server that says nothing has instructions that are none.
    fn add_instructions(&mut self, hello: Option<&Hello>) {
        let text = hello.and_then(|hello| hello.instructions.as_ref()).map(|advice| advice.text());
        let item = |text: &str| Tool {
            name: INSTRUCTIONS.to_owned(),
            definition: instructions_definition(text).into(),
        };
        self.sections.insert(Section::Instructions, text.as_deref().map(item).into_iter().collect());
    }
}
