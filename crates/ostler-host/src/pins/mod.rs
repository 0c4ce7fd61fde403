//! Pins: unapproved tools, prompts, resources, templates and `instructions` are kept from callers.
//!
//! ```text
//! a list is fetched ─▶ evaluated, item by item ─▶ unapproved: left out of every list, reported once
//! a call has a lease ─▶ is the list of this very session known and evaluated?
//!     yes ─▶ approved: sent      not approved: definition-changed
//!     no  ─▶ the lease is released, the list fetched, and a lease taken again
//! ```
//!
//! A hidden item never comes here, so pins reveal nothing that the rules hide.

mod drift;
mod enforce;
mod list_filter;

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_core::caller::Caller;
use ostler_core::config::PinMode;
use ostler_core::error::CallError;
use ostler_core::pins::{INSTRUCTIONS, LockSection, PinPolicy, instructions_definition};
use ostler_core::server_name::ServerName;
use ostler_wire::ServerInfo;

pub(crate) use self::drift::ReportedDrift;
use crate::host::Host;
use crate::in_flight::RequestClass;
use crate::lists::Kind;
use crate::notifications::HostNotification;
use crate::registry::RegistrySnapshot;
use crate::server::Server;
use crate::server::server_list::{ServerItem, ServerList};
use crate::tools::ItemDefinition;

/// All definitions of a server, regardless of caller and approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfilteredDefinitions {
    /// Server that defines them.
    pub server: ServerName,
    /// Definitions by section, in the server's order. A section that was not fetched is absent.
    pub sections: BTreeMap<LockSection, Vec<ItemDefinition>>,
    /// Items that the server lists more than once; the first definition stands among the others.
    pub repeated: Vec<(LockSection, String)>,
}

impl UnfilteredDefinitions {
    /// Returns all definitions.
    pub fn items(&self) -> impl Iterator<Item = (LockSection, &str, &[u8])> {
        self.sections.iter().flat_map(|(section, items)| {
            items.iter().map(|item| (*section, item.name.as_str(), &*item.definition))
        })
    }
}

/// Returns the pins unless their mode is off.
pub(crate) fn unless_off(pins: Option<PinPolicy>) -> Option<Arc<PinPolicy>> {
    pins.filter(|pins| pins.mode != PinMode::Off).map(Arc::new)
}

impl Host {
    /// Evaluates every known list again after a change of the approved definitions, and notifies listeners of changed
    /// lists.
    pub(crate) fn reevaluate_pins(&self, before: &RegistrySnapshot, after: &RegistrySnapshot) {
        let (before, pins) = (before.pins.as_deref(), after.pins.as_deref());
        if before == pins {
            return;
        }
        for server in after.servers.values() {
            if !is_pin_change(before, pins, &server.spec.name) {
                continue;
            }
            let slots = server.slots();
            for kind in Kind::ALL.into_iter().filter(|_| slots.is_empty()) {
                let (server, partition) = (server.spec.name.clone(), "".into());
                self.bus().publish(HostNotification { server, partition, notification: kind.list_changed() });
            }
            slots.iter().for_each(|slot| self.report_instructions_drift(slot));
            for (slot, kind) in slots.iter().flat_map(|slot| Kind::ALL.map(|kind| (slot, kind))) {
                if let Some(known) = slot.cached_list(kind).filter(|known| !known.is_of_no_session()) {
                    self.report_list_drift(slot, kind, &known);
                }
                slot.on_repinned(kind);
            }
        }
    }

    /// Returns the approved definitions, unless nothing is compared with them.
    pub fn pins(&self) -> Option<Arc<PinPolicy>> {
        self.current().pins.clone()
    }

    /// Fetches all definitions of a server, for an operator: neither rules nor pins leave anything out.
    pub async fn definitions(&self, server: &str) -> Result<UnfilteredDefinitions, CallError> {
        let server = self.server(server)?;
        let operator = Caller::operator();
        let slot = server.slot(&operator)?;
        let _in_flight = self.acquire_in_flight(&operator, RequestClass::Listing)?;
        let mut found = UnfilteredDefinitions::empty(&server);
        for kind in Kind::ALL {
            let list = self.fetch_list_of_one(&slot, &operator, kind).await?;
            found.add(kind, list.as_ref());
        }
        found.add_instructions(slot.last_server_info().as_deref());
        Ok(found)
    }

    /// Returns the known definitions of a server. Asks no server.
    pub fn known_definitions(&self, server: &str) -> Result<Option<UnfilteredDefinitions>, CallError> {
        let server = self.server(server)?;
        let slots = server.slots();
        let mut found = UnfilteredDefinitions::empty(&server);
        for kind in Kind::ALL {
            let lists = slots.iter().filter_map(|slot| slot.cached_list(kind));
            if let Some(known) = lists.into_iter().find(|known| !known.is_of_no_session()) {
                found.add(kind, &known);
            }
        }
        if let Some(hello) = slots.iter().find_map(|slot| slot.last_server_info()) {
            found.add_instructions(Some(&hello));
        }
        Ok((!found.sections.is_empty()).then_some(found))
    }
}

/// Returns whether the verdicts on a server's tools may have changed.
fn is_pin_change(before: Option<&PinPolicy>, after: Option<&PinPolicy>, server: &ServerName) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            before.mode != after.mode
                || before.exempt.contains(server) != after.exempt.contains(server)
                || before.lock.servers.get(server) != after.lock.servers.get(server)
        }
        _ => true,
    }
}

impl UnfilteredDefinitions {
    fn empty(server: &Server) -> Self {
        Self { server: server.spec.name.clone(), sections: BTreeMap::new(), repeated: Vec::new() }
    }

    fn add(&mut self, kind: Kind, known: &ServerList) {
        let tool = |item: &ServerItem| ItemDefinition {
            name: item.name.to_string(),
            definition: item.definition.clone(),
        };
        self.sections.insert(kind.section(), known.items.iter().map(tool).collect());
        let repeated = known.items.iter().filter(|item| known.is_repeated(&item.name));
        self.repeated.extend(repeated.map(|item| (kind.section(), item.name.to_string())));
    }

    /// Adds the instructions; a server without any has empty ones.
    fn add_instructions(&mut self, hello: Option<&ServerInfo>) {
        let text = hello.and_then(|hello| hello.instructions.as_ref()).map(|advice| advice.text());
        let item = |text: &str| ItemDefinition {
            name: INSTRUCTIONS.to_owned(),
            definition: instructions_definition(text).into(),
        };
        self.sections.insert(LockSection::Instructions, text.as_deref().map(item).into_iter().collect());
    }
}
