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
pub mod lint;
mod lock;
mod section;
mod transport;
mod word_diff;
mod write;

pub use changes::{FieldChange, FieldChangeKind, field_changes};
pub use compare::{Difference, DifferenceKind, compare, hash_of_all};
pub use deceptive::is_deceptive;
pub use hash::{HashParseError, MAX_DEFINITION, Pin, PinHash, UnpinnableDefinition, hash_definition};
pub use lock::{LockError, LockFile, LockedServer, MAX_LOCK, VERSION};
pub use section::{INSTRUCTIONS, LockSection, instructions_definition};
pub use transport::{portable_transport_fingerprint, transport_fingerprint};
pub use word_diff::{DiffSegment, MAX_WORDS, diff_words, spell_out_deceptive};

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::config::{Config, PinMode};
use crate::server_name::ServerName;

/// What has been approved, and what happens to the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinPolicy {
    /// What happens to a definition that is not approved.
    pub mode: PinMode,
    /// What is.
    pub lock: Arc<LockFile>,
    /// Servers with `pins = "off"`.
    pub exempt: BTreeSet<ServerName>,
}

/// How a definition stands to its pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinStatus {
    /// It is the approved one.
    Approved,
    /// Another one has been approved.
    Changed,
    /// Nobody has approved any.
    New,
    /// Definitions are not compared.
    Unpinned,
}

impl PinPolicy {
    /// Pins without exemptions.
    pub fn new(mode: PinMode, lock: impl Into<Arc<LockFile>>) -> Self {
        Self { mode, lock: lock.into(), exempt: BTreeSet::new() }
    }

    /// Returns the pins of a config whose lock file this is.
    pub fn from_config(config: &Config, lock: Option<&Arc<LockFile>>) -> Option<Self> {
        let exempt = config.servers.iter().filter(|spec| !spec.is_pinned).map(|spec| spec.name.clone());
        lock.map(|lock| Self { mode: config.pins, lock: Arc::clone(lock), exempt: exempt.collect() })
    }

    /// Whether definitions of a section are compared. A server that the lock does not name has none approved; one
    /// whose lock is older than the section has it unpinned until the next `ostler lock`.
    pub fn is_section_pinned(&self, server: &str, section: LockSection) -> bool {
        let is_pinned = |locked: &LockedServer| locked.sections.contains_key(&section);
        self.mode != PinMode::Off
            && !self.exempt.contains(server)
            && self.lock.servers.get(server).is_none_or(is_pinned)
    }

    /// How the definition that `server` offers for an item stands to its pin. In a server that the lock does not
    /// name every item is new.
    pub fn status(&self, server: &str, (section, name): (LockSection, &str), definition: &[u8]) -> PinStatus {
        if !self.is_section_pinned(server, section) {
            return PinStatus::Unpinned;
        }
        match self.pin(server, section, name) {
            None => PinStatus::New,
            Some(pin) if compare::is_approved(pin, definition) => PinStatus::Approved,
            Some(_) => PinStatus::Changed,
        }
    }

    /// The pin of an item.
    pub fn pin(&self, server: &str, section: LockSection, name: &str) -> Option<&Pin> {
        self.lock.servers.get(server)?.sections.get(&section)?.get(name)
    }
}
