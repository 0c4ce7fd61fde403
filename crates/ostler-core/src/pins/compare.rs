//! Comparison of offered definitions with the approved ones.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::hash::{Pin, PinHash, hash_definition};
use super::lock::LockedServer;
use super::section::LockSection;

/// One item that differs from its approved state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Kind of item.
    pub section: LockSection,
    /// The server's name for it.
    pub name: String,
    /// The definitions, as far as they exist.
    pub kind: DifferenceKind,
}

/// Kind of difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DifferenceKind {
    /// Its definition has changed.
    Changed {
        /// The approved definition, canonical.
        old: Bytes,
        /// The offered one; canonical unless it can't be pinned, then as it came.
        new: Bytes,
    },
    /// It is not approved yet.
    New {
        /// The offered definition; canonical unless it can't be pinned, then as it came.
        new: Bytes,
    },
    /// It is approved and no longer offered.
    Removed {
        /// The approved definition, canonical.
        old: Bytes,
    },
}

impl Difference {
    /// Returns the offered definition.
    pub fn new_definition(&self) -> Option<&Bytes> {
        match &self.kind {
            DifferenceKind::Changed { new, .. } | DifferenceKind::New { new } => Some(new),
            DifferenceKind::Removed { .. } => None,
        }
    }

    /// Identifies the effect of an approval: the offered definition, or its removal.
    pub fn hash(&self) -> PinHash {
        match &self.kind {
            DifferenceKind::Changed { new, .. } | DifferenceKind::New { new } => PinHash::digest(new),
            DifferenceKind::Removed { old } => PinHash::digest(&[b"removed:", &old[..]].concat()),
        }
    }
}

/// Identifies all differences of a server together with its transport.
pub fn hash_of_all(transport: &str, differences: &[Difference]) -> PinHash {
    let mut text = format!("{transport}\n");
    for difference in differences {
        text.push_str(&format!("{} {:?} {}\n", difference.section.key(), difference.name, difference.hash()));
    }
    PinHash::digest(text.as_bytes())
}

/// Returns all differences, sorted by section and name. Without a locked server every item is new; a section
/// that is not pinned yet is not compared. An item that is offered twice differs if any of its definitions
/// does, and the last that differs is shown.
pub fn compare<'o>(
    locked: Option<&LockedServer>,
    offered: impl Iterator<Item = (LockSection, &'o str, &'o [u8])>,
) -> Vec<Difference> {
    let mut seen = BTreeSet::new();
    let mut found = BTreeMap::new();
    for (section, name, definition) in offered {
        let pin = match locked.map(|server| server.sections.get(&section)) {
            Some(None) => continue,
            Some(Some(pins)) => pins.get(name),
            None => None,
        };
        seen.insert((section, name));
        if let Some(what) = differ(pin, definition) {
            found.insert((section, name), what);
        }
    }
    for (section, name, pin) in locked.iter().flat_map(|server| server.pins()) {
        if !seen.contains(&(section, name)) {
            found.insert((section, name), DifferenceKind::Removed { old: pin.definition.clone() });
        }
    }
    found
        .into_iter()
        .map(|((section, name), what)| Difference { section, name: name.to_owned(), kind: what })
        .collect()
}

fn differ(pin: Option<&Pin>, definition: &[u8]) -> Option<DifferenceKind> {
    let offered = Pin::from_definition(definition);
    match (pin, offered) {
        (Some(pin), Ok(offered)) if pin.hash == offered.hash => None,
        (pin, offered) => {
            let new =
                offered.map_or_else(|_| Bytes::copy_from_slice(definition), |offered| offered.definition);
            Some(match pin {
                Some(pin) => DifferenceKind::Changed { old: pin.definition.clone(), new },
                None => DifferenceKind::New { new },
            })
        }
    }
}

/// Returns whether a definition equals that of a pin. An ambiguous one never does.
pub(super) fn is_approved(pin: &Pin, definition: &[u8]) -> bool {
    hash_definition(definition).is_ok_and(|found| found == pin.hash)
}
