//! Pins: approved definitions of tools, prompts, resources, templates and instructions.
//!
//! A server can change these texts at any time, and a model follows them. A [`Lock`] holds the
//! definitions that have been approved; [`Pins::standing`] tells for each offered definition whether it is one of
//! them, and [`compare`] what differs. Everything here is about texts: where the lock file lies and what becomes
//! of a tool that is not approved is the host's business.

mod changes;
mod compare;
mod deceptive;
mod hash;
mod json;
mod lock;
mod section;
pub mod suspect;
mod transport;
mod words;
mod write;

pub use changes::{Change, What, changes};
pub use compare::{Difference, DifferenceKind, compare, hash_of_all};
pub use deceptive::is_deceptive;
pub use hash::{Hash, MAX_DEFINITION, NotAHash, NotAnObject, Pin, hash};
pub use lock::{Lock, LockError, LockedServer, MAX_LOCK, VERSION};
pub use section::{INSTRUCTIONS, Section, instructions_definition};
pub use transport::{transport_of, transport_seen_from};
pub use words::{MAX_WORDS, Piece, diff, reveal};

use std::collections::BTreeSet;

use crate::config::{Config, PinMode};
use crate::name::ServerName;

/// What has been approved, and what happens to the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pins {
    /// What happens to a definition that is not approved.
    pub mode: PinMode,
    /// What is.
    pub lock: Lock,
    /// Servers with `pins = "off"`.
    pub exempt: BTreeSet<ServerName>,
}

/// How a definition stands to its pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is the approved one.
    Approved,
    /// Another one has been approved.
    Changed,
    /// Nobody has approved any.
    New,
    /// Definitions are not compared.
    Unpinned,
}

impl Pins {
    /// Pins without exemptions.
    pub fn new(mode: PinMode, lock: Lock) -> Self {
        Self { mode, lock, exempt: BTreeSet::new() }
    }

    /// Returns the pins of a config whose lock file this is.
    pub fn of(config: &Config, lock: Option<&Lock>) -> Option<Self> {
        let exempt = config.servers.iter().filter(|spec| !spec.is_pinned).map(|spec| spec.name.clone());
        lock.map(|lock| Self { mode: config.pins, lock: lock.clone(), exempt: exempt.collect() })
    }

    /// Whether definitions of a section are compared. A server that the lock does not name has none approved; one
    /// whose lock is older than the section has it unpinned until the next `ostler lock`.
    pub fn covers(&self, server: &str, section: Section) -> bool {
        let is_pinned = |locked: &LockedServer| locked.sections.contains_key(&section);
        self.mode != PinMode::Off
            && !self.exempt.contains(server)
            && self.lock.servers.get(server).is_none_or(is_pinned)
    }

    /// How the definition that `server` offers for an item stands to its pin. In a server that the lock does not
    /// name every item is new.
    pub fn standing(&self, server: &str, (section, name): (Section, &str), definition: &[u8]) -> Standing {
        if !self.covers(server, section) {
            return Standing::Unpinned;
        }
        match self.pin(server, section, name) {
            None => Standing::New,
            Some(pin) if compare::is_approved(pin, definition) => Standing::Approved,
            Some(_) => Standing::Changed,
        }
    }

    /// The pin of an item.
    pub fn pin(&self, server: &str, section: Section, name: &str) -> Option<&Pin> {
        self.lock.servers.get(server)?.sections.get(&section)?.get(name)
    }
}
