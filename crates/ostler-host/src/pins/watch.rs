//! Telling people of tools that are not as they were approved.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use ostler_core::config::PinMode;
use ostler_core::name::ServerName;
use ostler_core::pins::{Pins, Standing};
use ostler_core::status::ServerStatus;

use crate::happening::{Happening, What};
use crate::host::Host;
use crate::lists::Kind;
use crate::server::Server;
use crate::server::known::Known;
use crate::server::slot::Slot;

/// Tools that have been told of, with the definitions that they had; an empty
/// one stands for a tool that is gone. As many as the lists have, at most.
pub(crate) type Flagged = HashSet<(Arc<str>, Bytes)>;

impl Host {
    /// Judges a list and tells of what nobody has approved, once for each
    /// change. Whether there was any that callers can't see from now on.
    pub(crate) fn look_over(&self, slot: &Slot, known: &Known) -> bool {
        let Some(pins) = self.pins() else { return false };
        let server = &slot.key.server;
        // Where lists are private, each of them counts: what one caller is
        // shown is no news because another was shown something else.
        let lists = slot.shelf(Kind::Tools).all();
        let mut flagged: Flagged = HashSet::new();
        let mut news: Vec<(Arc<str>, &'static str)> = Vec::new();
        let mut told = slot.flagged.lock().unwrap_or_else(PoisonError::into_inner);
        for list in &lists {
            for (item, standing) in list.judged(&pins, server).unapproved(list) {
                let flag = (Arc::clone(&item.name), item.definition.clone());
                if flagged.insert(flag.clone()) && !told.contains(&flag) {
                    let word = if standing == Standing::New { "new" } else { "changed" };
                    news.push((flag.0, word));
                }
            }
        }
        for tool in removed(&pins, server, known, &lists) {
            let flag = (Arc::from(tool), Bytes::new());
            if !told.contains(&flag) {
                news.push((Arc::clone(&flag.0), "removed"));
            }
            flagged.insert(flag);
        }
        *told = flagged;
        drop(told);
        let mode = if pins.mode == PinMode::Enforce { "refused until it is approved" } else { "allowed" };
        let hides_any = pins.mode == PinMode::Enforce && !news.is_empty();
        for (tool, standing) in news {
            tracing::warn!(%server, %tool, standing, mode, "a tool is not what was approved");
            let what = What::DefinitionChanged { tool: &tool, standing };
            self.happened(&Happening { server: server.as_str(), partition: &slot.key.partition, what });
        }
        hides_any
    }

    /// Adds what the pins say of a server to its status.
    pub(crate) fn count_pins(&self, server: &Server, status: &mut ServerStatus) {
        let Some(pins) = self.pins() else { return };
        let name = &server.spec.name;
        let (mut changed, mut new) = (BTreeSet::new(), BTreeSet::new());
        let mut gone: Option<BTreeSet<String>> = None;
        for slot in server.slots() {
            let lists = slot.shelf(Kind::Tools).all();
            for known in &lists {
                for (item, standing) in known.judged(&pins, name).unapproved(known) {
                    let counted = if standing == Standing::New { &mut new } else { &mut changed };
                    counted.insert(item.name.to_string());
                }
            }
            if let Some(known) = slot.known(Kind::Tools).filter(|known| !known.is_of_no_session()) {
                let missing = removed(&pins, name, &known, &lists).map(str::to_owned);
                gone.get_or_insert_default().extend(missing);
            }
        }
        status.pinned = Some(pins.lock.servers.get(name).map_or(0, |locked| locked.tools.len()));
        status.changed = Some(changed.len());
        status.new = Some(new.len());
        status.removed = Some(gone.map_or(0, |gone| gone.len()));
    }
}

/// Pinned tools that a list lacks, and so do the others of its session.
fn removed<'p>(
    pins: &'p Pins,
    server: &ServerName,
    known: &'p Known,
    lists: &'p [Arc<Known>],
) -> impl Iterator<Item = &'p str> + use<'p> {
    let pinned = pins.lock.servers.get(server).into_iter().flat_map(|locked| locked.tools.keys());
    pinned
        .map(String::as_str)
        .filter(|tool| !known.has(tool) && !lists.iter().any(|list| list.is_beside(known) && list.has(tool)))
}
