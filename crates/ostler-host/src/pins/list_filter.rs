//! Pin filter of lists: leaves out unapproved items, and lists the pinned items of sleeping servers.

use std::collections::HashSet;
use std::sync::Arc;

use ostler_core::caller::Caller;
use ostler_core::config::PinMode;
use ostler_core::pins::{INSTRUCTIONS, LockSection, PinPolicy, instructions_definition};
use ostler_core::server_name::ServerName;
use ostler_wire::MemberEdit;

use crate::answer::Answer;
use crate::host::Host;
use crate::lists::Kind;
use crate::registry::RegistrySnapshot;
use crate::request::Request;
use crate::server::Server;
use crate::server::pin_verdicts::is_unapproved;
use crate::server::server_list::{ServerItem, ServerList};
use crate::server::slot::Slot;

impl Host {
    /// Returns whether the pins keep the tool, as it is known, from the caller.
    pub(crate) fn is_quarantined(&self, caller: &Caller, server: &str, tool: &str) -> bool {
        let current = self.current();
        let Some(pins) = current.enforced_pins() else { return false };
        let Some(server) = current.server(server) else { return false };
        let known = server.existing_slot(caller).and_then(|slot| slot.cached_list_for(caller, Kind::Tools));
        let of = (&server.spec.name, LockSection::Tools);
        let standing = known.and_then(|known| known.pin_status(pins, of, tool));
        standing.is_some_and(is_unapproved)
    }

    /// Returns whether the pins let `instructions` of a server be given to callers.
    pub(crate) fn may_show_instructions(&self, server: &str, text: &str) -> bool {
        self.current().may_show_instructions(server, text)
    }
}

impl RegistrySnapshot {
    /// Returns the pins, if they keep anything from callers.
    pub(crate) fn enforced_pins(&self) -> Option<&Arc<PinPolicy>> {
        self.pins.as_ref().filter(|pins| pins.mode == PinMode::Enforce)
    }

    fn may_show_instructions(&self, server: &str, text: &str) -> bool {
        let Some(pins) = self.enforced_pins() else { return true };
        let definition = instructions_definition(text);
        !is_unapproved(pins.status(server, (LockSection::Instructions, INSTRUCTIONS), &definition))
    }

    /// Returns the items of a list that the pins let through.
    pub(crate) fn approved_items<'k>(
        &self,
        server: &Server,
        kind: Kind,
        known: &'k ServerList,
    ) -> impl Iterator<Item = &'k ServerItem> + use<'k> {
        let judgement =
            self.enforced_pins().map(|pins| known.pin_verdicts(pins, (&server.spec.name, kind.section())));
        let is_approved = move |at: usize| {
            judgement.as_ref().and_then(|judgement| judgement.status(at)).is_none_or(|it| !is_unapproved(it))
        };
        known.items.iter().enumerate().filter(move |(at, _)| is_approved(*at)).map(|(_, item)| item)
    }
}

impl Host {
    /// Removes unapproved instructions from an answer to `server/discover`.
    pub(crate) fn without_unapproved_instructions(
        &self,
        request: &Request<'_>,
        mut answer: Answer,
    ) -> Answer {
        if request.method() != "server/discover" {
            return answer;
        }
        let current = self.snapshot_for(request);
        let covers =
            |pins: &&Arc<PinPolicy>| pins.is_section_pinned(request.server(), LockSection::Instructions);
        if current.enforced_pins().filter(covers).is_none() {
            return answer;
        }
        let advice = ostler_wire::member(&answer.body, INSTRUCTIONS);
        let text = advice.and_then(|advice| serde_json::from_slice::<String>(advice).ok());
        let change = match (advice, text) {
            // A duplicate key is removed.
            (Some(advice), Some(text)) if current.may_show_instructions(request.server(), &text) => {
                MemberEdit::Set(advice)
            }
            _ => MemberEdit::Remove,
        };
        if let Some(body) = ostler_wire::edit(&answer.body, &[(INSTRUCTIONS, change)]) {
            answer.body = body.into();
        }
        answer
    }

    /// Returns whether the lock has a pin for an item of a server, whatever its definition is now.
    pub(crate) fn is_pinned(&self, server: &ServerName, kind: Kind, name: &str) -> bool {
        self.pins().is_some_and(|pins| {
            let section =
                pins.lock.servers.get(server).and_then(|locked| locked.sections.get(&kind.section()));
            section.is_some_and(|section| section.contains_key(name))
        })
    }

    /// Returns the pinned items of a server none of whose sessions has listed any yet.
    pub(crate) fn pinned_fallback(&self, slot: &Slot, kind: Kind) -> Option<Arc<ServerList>> {
        if slot.cached_list(kind).is_some_and(|known| !known.is_of_no_session()) {
            return None;
        }
        let pins = self.pins()?;
        let items = pinned_items(&pins, &slot.key.server, kind);
        (!items.is_empty()).then(|| Arc::new(ServerList::restored(items)))
    }

    /// Returns the last known list: a session's, the pinned items, or an earlier run's.
    pub(crate) fn last_known_list(
        &self,
        slot: &Slot,
        caller: &Caller,
        kind: Kind,
    ) -> Option<Arc<ServerList>> {
        self.pinned_fallback(slot, kind).or_else(|| slot.cached_list_for(caller, kind))
    }

    /// Adds the pinned items that are not known otherwise.
    pub(crate) fn add_pinned(&self, server: &Server, kind: Kind, items: &mut Vec<ServerItem>) {
        let Some(pins) = self.pins() else { return };
        let known: HashSet<Arc<str>> = items.iter().map(|item| Arc::clone(&item.name)).collect();
        let pinned = pinned_items(&pins, &server.spec.name, kind).into_iter();
        items.extend(pinned.filter(|item| !known.contains(&item.name)));
    }
}

fn pinned_items(pins: &PinPolicy, server: &ServerName, kind: Kind) -> Vec<ServerItem> {
    if !pins.is_section_pinned(server.as_str(), kind.section()) {
        return Vec::new();
    }
    let locked = pins.lock.servers.get(server);
    let items = locked.and_then(|locked| locked.sections.get(&kind.section())).into_iter().flatten();
    items.map(|(name, pin)| ServerItem::new(kind, name.as_str(), pin.definition.clone())).collect()
}
