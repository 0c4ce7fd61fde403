//! Where a server stands.

use std::time::Instant;

/// Where a server stands. Each state carries what only it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Not running, and may be started.
    Idle,
    /// A session is being made.
    Starting {
        /// Its number.
        generation: u64,
    },
    /// A session can be used.
    Ready {
        /// Its number.
        generation: u64,
        /// Since when.
        since: Instant,
        /// Whether it has given a good answer.
        is_proven: bool,
    },
    /// Waiting before the next start.
    Backoff {
        /// When the wait is over.
        until: Instant,
    },
    /// Out until an operator reloads it, or until it is readmitted.
    Ejected {
        /// Since when.
        since: Instant,
        /// Why, for people.
        cause: String,
    },
    /// Left alone until a person has seen to its credentials, or until it is
    /// time to see whether one has.
    NeedsAuth {
        /// When that is.
        until: Instant,
        /// What the server said, for people.
        cause: String,
    },
    /// Stopped by an operator; the last calls finish.
    Draining {
        /// The session they use.
        generation: u64,
    },
    /// Stopped by an operator.
    Stopped,
}

impl Phase {
    /// The word used in status output.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting { .. } => "starting",
            Self::Ready { .. } => "ready",
            Self::Backoff { .. } => "backoff",
            Self::Ejected { .. } => "ejected",
            Self::NeedsAuth { .. } => "needs_auth",
            Self::Draining { .. } => "draining",
            Self::Stopped => "stopped",
        }
    }
}

/// What a caller that wants a session finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry<'a> {
    /// The session of this generation can be used.
    Open(u64),
    /// There will be one, or an end to the waiting.
    Wait,
    /// The server is out; the cause.
    Ejected(&'a str),
    /// A person must see to the server's credentials.
    NeedsAuth {
        /// When the server is asked again.
        until: Instant,
        /// What it said.
        cause: &'a str,
    },
    /// An operator has stopped the server.
    Stopped,
}
