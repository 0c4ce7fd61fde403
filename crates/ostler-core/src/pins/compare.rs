//! What a server offers, beside what has been approved.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::hash::{Pin, hash};
use super::lock::LockedServer;

/// One tool that is not as it was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// Its definition is another one.
    Changed {
        /// The server's name for it.
        tool: String,
        /// The approved definition, canonical.
        old: Bytes,
        /// The offered one; canonical unless it can't be pinned, then as it came.
        new: Bytes,
    },
    /// Nobody has approved it.
    New {
        /// The server's name for it.
        tool: String,
        /// The offered definition; canonical unless it can't be pinned, then as it came.
        new: Bytes,
    },
    /// It is approved and no longer offered.
    Removed {
        /// The server's name for it.
        tool: String,
        /// The approved definition, canonical.
        old: Bytes,
    },
}

impl Difference {
    /// Which tool it is about.
    pub fn tool(&self) -> &str {
        match self {
            Self::Changed { tool, .. } | Self::New { tool, .. } | Self::Removed { tool, .. } => tool,
        }
    }
}

/// Everything that differs, sorted by tool. Without a locked server every tool is new. A tool that is offered
/// twice differs if any of its definitions does, and the last one that does is shown.
pub fn compare<'o>(
    locked: Option<&LockedServer>,
    offered: impl Iterator<Item = (&'o str, &'o [u8])>,
) -> Vec<Difference> {
    let mut seen = BTreeSet::new();
    let mut found = BTreeMap::new();
    for (tool, definition) in offered {
        seen.insert(tool);
        let pin = locked.and_then(|server| server.tools.get(tool));
        if let Some(difference) = differ(tool, pin, definition) {
            found.insert(tool.to_owned(), difference);
        }
    }
    for (tool, pin) in locked.iter().flat_map(|server| &server.tools) {
        if !seen.contains(tool.as_str()) {
            let removed = Difference::Removed { tool: tool.clone(), old: pin.definition.clone() };
            found.insert(tool.clone(), removed);
        }
    }
    found.into_values().collect()
}

fn differ(tool: &str, pin: Option<&Pin>, definition: &[u8]) -> Option<Difference> {
    let offered = Pin::of(definition);
    let tool = tool.to_owned();
    match (pin, offered) {
        (Some(pin), Ok(offered)) if pin.hash == offered.hash => None,
        (pin, offered) => {
            let new =
                offered.map_or_else(|_| Bytes::copy_from_slice(definition), |offered| offered.definition);
            Some(match pin {
                Some(pin) => Difference::Changed { tool, old: pin.definition.clone(), new },
                None => Difference::New { tool, new },
            })
        }
    }
}

/// Whether a definition is the one of a pin. One without a single meaning never is.
pub(super) fn is_approved(pin: &Pin, definition: &[u8]) -> bool {
    hash(definition).is_ok_and(|found| found == pin.hash)
}
