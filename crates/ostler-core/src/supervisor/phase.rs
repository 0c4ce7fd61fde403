//! Where a server stands.

use std::fmt;
use std::time::{Duration, Instant};

use crate::fault::HumanDuration;

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
        /// When a caller that waits has it started.
        soonest: Instant,
        /// When it is started without one; not before `soonest`.
        until: Instant,
        /// Whether it is a failed start, or a session that was lost, that is behind it.
        is_start_failure: bool,
    },
    /// Left alone until an operator reloads it, or until it is readmitted.
    Ejected {
        /// When it may be started again; `None` leaves that to an operator.
        readmit_at: Option<Instant>,
        /// What led to it.
        ejection: EjectionReason,
        /// The last failure, for people.
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
    pub fn as_str(&self) -> &'static str {
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

/// What led to an ejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EjectionReason {
    /// The restart budget is spent.
    BudgetSpent {
        /// Failures in the window.
        failures: u32,
        /// The window.
        window: Duration,
    },
    /// It was readmitted and failed again.
    FailedReadmission,
    /// Trying again does not help.
    Permanent,
}

impl EjectionReason {
    /// Says what is done about the server: nothing, for so long.
    pub fn explain(self, readmit_in: Option<Duration>) -> String {
        let until = match readmit_in {
            Some(wait) => {
                let seconds =
                    Duration::from_secs(wait.as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX));
                format!("it is not tried again for {}, unless it is reloaded", HumanDuration(seconds))
            }
            None => "it is not tried again until it is reloaded".to_owned(),
        };
        match self {
            Self::Permanent => format!("{until} or its config changes"),
            Self::BudgetSpent { .. } | Self::FailedReadmission => format!("{self}; {until}"),
        }
    }
}

impl fmt::Display for EjectionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BudgetSpent { failures: 1, .. } => f.write_str("ejected after one failure"),
            Self::BudgetSpent { failures, window } => {
                write!(f, "ejected after {failures} failures in {}", HumanDuration(*window))
            }
            Self::FailedReadmission => f.write_str("ejected again, since it failed when it was readmitted"),
            Self::Permanent => f.write_str("ejected, since trying again does not help"),
        }
    }
}

/// What a caller that wants a session finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability<'a> {
    /// The session of this generation can be used.
    Ready(u64),
    /// There will be one, or an end to the waiting.
    Wait,
    /// The server never came up, and is not waited for until its next try; the cause is the last failure.
    NeverUp {
        /// When it is tried again.
        until: Instant,
    },
    /// The server is out.
    Ejected {
        /// When it may be started again.
        readmit_at: Option<Instant>,
        /// What led to it.
        ejection: EjectionReason,
        /// The last failure.
        cause: &'a str,
    },
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
