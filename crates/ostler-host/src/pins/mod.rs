//! Pins: tools whose definition nobody has approved are kept from callers.
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

use std::sync::Arc;

use ostler_core::caller::Caller;
use ostler_core::config::PinMode;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::pins::Pins;

pub(crate) use self::watch::Flagged;
use crate::bus::ServerEvent;
use crate::host::Host;
use crate::lists::Kind;
use crate::server::Server;
use crate::server::known::{Item, Known};
use crate::tally::Errand;
use crate::tools::Tool;
use crate::upstream::Event;

/// Every tool of a server, whoever may use it and whether it is approved or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definitions {
    /// Whose they are.
    pub server: ServerName,
    /// In the server's order.
    pub tools: Vec<Tool>,
    /// Names that the server lists more than once; the first definition stands among the tools.
    pub repeated: Vec<String>,
}

/// Pins that do something.
pub(crate) fn effective(pins: Option<Pins>) -> Option<Arc<Pins>> {
    pins.filter(|pins| pins.mode != PinMode::Off).map(Arc::new)
}

impl Host {
    /// Other definitions are approved from now on. Every known list is judged
    /// anew, and whoever listens hears that tools have changed.
    pub fn set_pins(&self, pins: Option<Pins>) {
        let pins = effective(pins);
        let before = self.shared().pins.swap(pins.clone());
        if before == pins {
            return;
        }
        self.shared().bus.raise_version();
        for server in self.shared().registry.load().values() {
            if !is_repinned(before.as_deref(), pins.as_deref(), &server.spec.name) {
                continue;
            }
            let slots = server.slots();
            if slots.is_empty() {
                let (server, partition) = (server.spec.name.clone(), "".into());
                let event = Event::ToolsChanged;
                self.shared().bus.tell(ServerEvent { server, partition, event });
            }
            for slot in &slots {
                if let Some(known) = slot.known(Kind::Tools).filter(|known| !known.is_of_no_session()) {
                    self.look_over(slot, &known);
                }
                slot.tell_repinned();
            }
        }
    }

    /// The approved definitions, unless nothing is compared with them.
    pub fn pins(&self) -> Option<Arc<Pins>> {
        self.shared().pins.load_full()
    }

    /// Asks a server for all its tools, for an operator: neither rules nor pins
    /// leave any out.
    pub async fn definitions(&self, server: &str) -> Result<Definitions, CallError> {
        let server = self.server(server)?;
        let operator = Caller::operator();
        let slot = server.slot(&operator)?;
        let _in_flight = self.count_in(&operator, Errand::Look)?;
        let known = self.fetch_list(&slot, &operator, Kind::Tools).await?;
        Ok(describe(&server, &known))
    }

    /// The tools of a server as far as they are known; nobody is asked.
    pub fn known_definitions(&self, server: &str) -> Result<Option<Definitions>, CallError> {
        let server = self.server(server)?;
        let slots = server.slots();
        let seen =
            slots.iter().filter_map(|slot| slot.known(Kind::Tools)).find(|known| !known.is_of_no_session());
        Ok(seen.map(|known| describe(&server, &known)))
    }

    /// The pins, if they keep anything from callers.
    pub(crate) fn enforced(&self) -> Option<Arc<Pins>> {
        self.pins().filter(|pins| pins.mode == PinMode::Enforce)
    }
}

/// Whether a server's tools may be judged otherwise than before.
fn is_repinned(before: Option<&Pins>, after: Option<&Pins>, server: &ServerName) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            before.mode != after.mode || before.lock.servers.get(server) != after.lock.servers.get(server)
        }
        _ => true,
    }
}

fn describe(server: &Server, known: &Known) -> Definitions {
    let tool = |item: &Item| Tool { name: item.name.to_string(), definition: item.definition.clone() };
    let repeated = known.items.iter().filter(|item| known.is_repeated(&item.name));
    Definitions {
        server: server.spec.name.clone(),
        tools: known.items.iter().map(tool).collect(),
        repeated: repeated.map(|item| item.name.to_string()).collect(),
    }
}
