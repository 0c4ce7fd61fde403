//! Pins: a tool is what somebody approved, or it is kept back.
//!
//! A server can change what its tools say at any time, and a model follows what they say. A [`Lock`] holds the
//! definitions that have been approved; [`Pins::standing`] tells for each offered definition whether it is one of
//! them, and [`compare`] what differs. Everything here is about texts: where the lock file lies and what becomes
//! of a tool that is not approved is the host's business.

mod changes;
mod compare;
mod deceptive;
mod hash;
mod json;
mod lock;
pub mod suspect;
mod transport;
mod words;
mod write;

pub use changes::{Change, What, changes};
pub use compare::{Difference, compare};
pub use deceptive::is_deceptive;
pub use hash::{Hash, MAX_DEFINITION, NotAHash, NotAnObject, Pin, hash};
pub use lock::{Lock, LockError, LockedServer, MAX_LOCK, VERSION};
pub use transport::{transport_of, transport_seen_from};
pub use words::{MAX_WORDS, Piece, diff, reveal};

use crate::config::PinMode;

/// What has been approved, and what happens to the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pins {
    /// What happens to a tool that is not approved.
    pub mode: PinMode,
    /// What is.
    pub lock: Lock,
}

/// How a tool's definition stands to its pin.
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
    /// How the definition that `server` offers for `tool` stands to its pin. In a server that the lock does not
    /// name every tool is new.
    pub fn standing(&self, server: &str, tool: &str, definition: &[u8]) -> Standing {
        if self.mode == PinMode::Off {
            return Standing::Unpinned;
        }
        match self.pin(server, tool) {
            None => Standing::New,
            Some(pin) if compare::is_approved(pin, definition) => Standing::Approved,
            Some(_) => Standing::Changed,
        }
    }

    /// The pin of a tool.
    pub fn pin(&self, server: &str, tool: &str) -> Option<&Pin> {
        self.lock.servers.get(server)?.tools.get(tool)
    }
}
