//! Telling people of definitions that are not as they were approved.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use ostler_core::config::PinMode;
use ostler_core::name::ServerName;
use ostler_core::pins::{INSTRUCTIONS, Pins, Section, Standing, instructions_definition};
use ostler_core::status::ServerStatus;

use crate::happening::{Happening, What};
use crate::host::Host;
use crate::lists::Kind;
use crate::off_thread::off_thread;
use crate::server::Server;
use crate::server::judgement::is_unapproved;
use crate::server::known::Known;
use crate::server::slot::Slot;

/// Items that have been told of, with the definitions that they had; an empty
/// one stands for an item that is gone. As many as the lists have, at most.
pub(crate) type Flagged = HashSet<(Section, Arc<str>, Bytes)>;

impl Host {
    /// Judges each item of a list, as all who ask later need it.
    pub(crate) async fn judge_list(&self, server: &ServerName, kind: Kind, known: &Arc<Known>) {
        let Some(pins) = self.pins() else { return };
        let (judged, server) = (Arc::clone(known), server.clone());
        let judge = move || drop(judged.judged(&pins, (&server, kind.section())));
        off_thread(known.size, judge).await;
    }

    /// Judges a list and tells of what nobody has approved, once for each
    /// change. Whether there was any that callers can't see from now on.
    pub(crate) fn look_over(&self, slot: &Slot, kind: Kind, known: &Known) -> bool {
        let Some(pins) = self.pins() else { return false };
        let (server, section) = (&slot.key.server, kind.section());
        // Where lists are private, each of them counts: what one caller is
        // shown is no news because another was shown something else.
        let lists = slot.shelf(kind).all();
        let mut flagged: Vec<(Arc<str>, Bytes, &'static str)> = Vec::new();
        for list in &lists {
            for (item, standing) in list.judged(&pins, (server, section)).unapproved(list) {
                flagged.push((Arc::clone(&item.name), item.definition.clone(), word(standing)));
            }
        }
        let gone = removed(&pins, (server, section), known, &lists);
        flagged.extend(gone.map(|name| (Arc::from(name), Bytes::new(), "removed")));
        self.flag(slot, (&pins, section), flagged)
    }

    /// The same for the instructions of a session that has just begun.
    pub(crate) fn look_at_instructions(&self, slot: &Slot) {
        let Some(pins) = self.pins() else { return };
        let flagged = instructions_of(slot, &pins)
            .map(|(definition, standing)| (Arc::from(INSTRUCTIONS), definition, word(standing)));
        self.flag(slot, (&pins, Section::Instructions), flagged.into_iter().collect());
    }

    /// Tells of items that have not been told of. Whether callers miss any of them.
    fn flag(
        &self,
        slot: &Slot,
        (pins, section): (&Pins, Section),
        flagged: Vec<(Arc<str>, Bytes, &'static str)>,
    ) -> bool {
        let mut news: Vec<(Arc<str>, &'static str)> = Vec::new();
        let mut told = slot.flagged.lock().unwrap_or_else(PoisonError::into_inner);
        let before: Flagged = told.extract_if(|flag| flag.0 == section).collect();
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
                Section::Tools | Section::Instructions => name.to_string(),
                _ => format!("{}:{name}", section.noun()),
            };
            tracing::warn!(%server, %name, standing, mode, "a definition is not what was approved");
            let what =
                What::DefinitionChanged { tool: &name, standing, is_refused: pins.mode == PinMode::Enforce };
            self.happened(&Happening { server: server.as_str(), partition: &slot.key.partition, what });
        }
        hides_any
    }

    /// Adds what the pins say of a server to its status.
    pub(crate) fn count_pins(&self, server: &Server, status: &mut ServerStatus) {
        let name = &server.spec.name;
        let Some(pins) = self.pins().filter(|pins| !pins.exempt.contains(name)) else { return };
        let (mut changed, mut new) = (BTreeSet::new(), BTreeSet::new());
        let mut gone: BTreeSet<(Section, String)> = BTreeSet::new();
        let mut count = |item: (Section, String), standing: Standing| {
            let counted = if standing == Standing::New { &mut new } else { &mut changed };
            counted.insert(item);
        };
        for (slot, kind) in server.slots().iter().flat_map(|slot| Kind::ALL.map(|kind| (slot, kind))) {
            let section = kind.section();
            let lists = slot.shelf(kind).all();
            for known in &lists {
                for (item, standing) in known.judged(&pins, (name, section)).unapproved(known) {
                    count((section, item.name.to_string()), standing);
                }
            }
            if let Some(known) = slot.known(kind).filter(|known| !known.is_of_no_session()) {
                let missing = removed(&pins, (name, section), &known, &lists);
                gone.extend(missing.map(|name| (section, name.to_owned())));
            }
        }
        for (_, standing) in server.slots().iter().filter_map(|slot| instructions_of(slot, &pins)) {
            count((Section::Instructions, String::new()), standing);
        }
        status.pinned = Some(pins.lock.servers.get(name).map_or(0, |locked| locked.pins().count()));
        status.changed = Some(changed.len());
        status.new = Some(new.len());
        status.removed = Some(gone.len());
    }
}

fn word(standing: Standing) -> &'static str {
    if standing == Standing::New { "new" } else { "changed" }
}

/// Instructions of the last session, if they are not approved.
fn instructions_of(slot: &Slot, pins: &Pins) -> Option<(Bytes, Standing)> {
    let definition = instructions_definition(&slot.hello()?.instructions.as_ref()?.text());
    let item = (Section::Instructions, INSTRUCTIONS);
    let standing = pins.standing(slot.key.server.as_str(), item, &definition);
    is_unapproved(standing).then(|| (definition.into(), standing))
}

/// Pinned items that a list lacks, and so do the others of its session.
fn removed<'p>(
    pins: &'p Pins,
    (server, section): (&ServerName, Section),
    known: &'p Known,
    lists: &'p [Arc<Known>],
) -> impl Iterator<Item = &'p str> + use<'p> {
    let covered = pins.lock.servers.get(server).filter(|_| pins.covers(server.as_str(), section));
    let pinned = covered.and_then(|locked| locked.sections.get(&section)).into_iter().flatten();
    pinned
        .map(|(name, _)| name.as_str())
        .filter(|name| !known.has(name) && !lists.iter().any(|list| list.is_beside(known) && list.has(name)))
}
