//! Drift reports: definitions that differ from the approved ones, each change reported once.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use ostler_core::config::PinMode;
use ostler_core::pins::{INSTRUCTIONS, LockSection, PinPolicy, PinStatus, instructions_definition};
use ostler_core::server_name::ServerName;
use ostler_core::status::ServerStatus;

use crate::blocking::run_blocking_if_large;
use crate::host::Host;
use crate::lifecycle_event::{LifecycleEvent, LifecycleEventKind};
use crate::lists::Kind;
use crate::server::Server;
use crate::server::pin_verdicts::is_unapproved;
use crate::server::server_list::ServerList;
use crate::server::slot::Slot;

/// Reported items with the definitions that they had; an empty one stands for an item that is gone. At most as many as
/// the lists have.
pub(crate) type ReportedDrift = HashSet<(LockSection, Arc<str>, Bytes)>;

impl Host {
    /// Evaluates each item of a list once for all readers.
    pub(crate) async fn evaluate_pins(&self, server: &ServerName, kind: Kind, known: &Arc<ServerList>) {
        let Some(pins) = self.pins() else { return };
        let (judged, server) = (Arc::clone(known), server.clone());
        let judge = move || drop(judged.pin_verdicts(&pins, (&server, kind.section())));
        run_blocking_if_large(known.size, judge).await;
    }

    /// Evaluates a list and reports unapproved items, once for each change. Returns whether callers can't see some item
    /// from now on.
    pub(crate) fn report_list_drift(&self, slot: &Slot, kind: Kind, known: &ServerList) -> bool {
        let Some(pins) = self.pins() else { return false };
        let (server, section) = (&slot.key.server, kind.section());
        // Private lists are compared together: a difference between the lists of two callers is no drift.
        let lists = slot.list_cache(kind).all();
        let mut flagged: Vec<(Arc<str>, Bytes, &'static str)> = Vec::new();
        for list in &lists {
            for (item, standing) in list.pin_verdicts(&pins, (server, section)).unapproved(list) {
                flagged.push((Arc::clone(&item.name), item.definition.clone(), status_label(standing)));
            }
        }
        let gone = removed_items(&pins, (server, section), known, &lists);
        flagged.extend(gone.map(|name| (Arc::from(name), Bytes::new(), "removed")));
        self.report_drift(slot, (&pins, section), flagged)
    }

    /// Reports drift of the instructions of a session that has just begun.
    pub(crate) fn report_instructions_drift(&self, slot: &Slot) {
        let Some(pins) = self.pins() else { return };
        let flagged = unapproved_instructions(slot, &pins)
            .map(|(definition, standing)| (Arc::from(INSTRUCTIONS), definition, status_label(standing)));
        self.report_drift(slot, (&pins, LockSection::Instructions), flagged.into_iter().collect());
    }

    /// Reports items that have not been reported. Returns whether callers miss any of them.
    fn report_drift(
        &self,
        slot: &Slot,
        (pins, section): (&PinPolicy, LockSection),
        flagged: Vec<(Arc<str>, Bytes, &'static str)>,
    ) -> bool {
        let mut news: Vec<(Arc<str>, &'static str)> = Vec::new();
        let mut told = slot.reported_drift.lock().unwrap_or_else(PoisonError::into_inner);
        let before: ReportedDrift = told.extract_if(|flag| flag.0 == section).collect();
        for (name, definition, word) in flagged {
            let flag = (section, Arc::clone(&name), definition);
            let is_known = before.contains(&flag);
            if told.insert(flag) && !is_known {
                news.push((name, word));
            }
        }
        drop(told);
        let server = &slot.key.server;
        let mode = if pins.mode == PinMode::Enforce { "refused until it is approved" } else { "allowed" };
        let hides_any = pins.mode == PinMode::Enforce && !news.is_empty();
        for (name, standing) in news {
            let name = match section {
                LockSection::Tools | LockSection::Instructions => name.to_string(),
                _ => format!("{}:{name}", section.noun()),
            };
            tracing::warn!(%server, %name, standing, mode, "a definition is not what was approved");
            let what = LifecycleEventKind::DefinitionChanged {
                tool: &name,
                pin_status: standing,
                is_refused: pins.mode == PinMode::Enforce,
            };
            self.notify_observers(&LifecycleEvent {
                server: server.as_str(),
                partition: &slot.key.partition,
                kind: what,
            });
        }
        hides_any
    }

    /// Adds the pin counts of a server to its status.
    pub(crate) fn add_pin_counts(&self, server: &Server, status: &mut ServerStatus) {
        let name = &server.spec.name;
        let Some(pins) = self.pins().filter(|pins| !pins.exempt.contains(name)) else { return };
        let (mut changed, mut new) = (BTreeSet::new(), BTreeSet::new());
        let mut gone: BTreeSet<(LockSection, String)> = BTreeSet::new();
        let mut count = |item: (LockSection, String), standing: PinStatus| {
            let counted = if standing == PinStatus::New { &mut new } else { &mut changed };
            counted.insert(item);
        };
        for (slot, kind) in server.slots().iter().flat_map(|slot| Kind::ALL.map(|kind| (slot, kind))) {
            let section = kind.section();
            let lists = slot.list_cache(kind).all();
            for known in &lists {
                for (item, standing) in known.pin_verdicts(&pins, (name, section)).unapproved(known) {
                    count((section, item.name.to_string()), standing);
                }
            }
            if let Some(known) = slot.cached_list(kind).filter(|known| !known.is_of_no_session()) {
                let missing = removed_items(&pins, (name, section), &known, &lists);
                gone.extend(missing.map(|name| (section, name.to_owned())));
            }
        }
        for (_, standing) in server.slots().iter().filter_map(|slot| unapproved_instructions(slot, &pins)) {
            count((LockSection::Instructions, String::new()), standing);
        }
        status.pinned = Some(pins.lock.servers.get(name).map_or(0, |locked| locked.pins().count()));
        status.changed = Some(changed.len());
        status.new = Some(new.len());
        status.removed = Some(gone.len());
    }
}

fn status_label(standing: PinStatus) -> &'static str {
    if standing == PinStatus::New { "new" } else { "changed" }
}

/// Returns the last session's instructions, if they are not approved.
fn unapproved_instructions(slot: &Slot, pins: &PinPolicy) -> Option<(Bytes, PinStatus)> {
    let definition = instructions_definition(&slot.last_server_info()?.instructions.as_ref()?.text());
    let item = (LockSection::Instructions, INSTRUCTIONS);
    let standing = pins.status(slot.key.server.as_str(), item, &definition);
    is_unapproved(standing).then(|| (definition.into(), standing))
}

/// Returns pinned items that a list lacks, and that the other lists of its session lack too.
fn removed_items<'p>(
    pins: &'p PinPolicy,
    (server, section): (&ServerName, LockSection),
    known: &'p ServerList,
    lists: &'p [Arc<ServerList>],
) -> impl Iterator<Item = &'p str> + use<'p> {
    let covered = pins.lock.servers.get(server).filter(|_| pins.is_section_pinned(server.as_str(), section));
    let pinned = covered.and_then(|locked| locked.sections.get(&section)).into_iter().flatten();
    pinned.map(|(name, _)| name.as_str()).filter(|name| {
        !known.has(name) && !lists.iter().any(|list| list.is_of_same_session(known) && list.has(name))
    })
}
