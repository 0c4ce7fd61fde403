//! Phases of a server.

use std::fmt;
use std::time::{Duration, Instant};

use crate::fault::HumanDuration;

/// Phase of a server, with the data that only this phase has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Not running, and may be started.
    Idle,
    /// A session is being started.
    Starting {
        /// The number of the session.
        generation: u64,
    },
    /// A session can be used.
    Ready {
        /// The number of the session.
        generation: u64,
        /// Its start time.
        since: Instant,
        /// True if it has given a good answer.
        is_proven: bool,
    },
    /// Waiting before the next start.
    Backoff {
        /// Time from which a waiting caller has it started.
        soonest: Instant,
        /// Time at which it is started without one; not before `soonest`.
        until: Instant,
        /// True after a failed start, false after a lost session.
        is_start_failure: bool,
    },
    /// Ejected until an operator reloads it, or until it is readmitted.
    Ejected {
        /// Time of the readmission; `None` leaves it to an operator.
        readmit_at: Option<Instant>,
        /// The reason of the ejection.
        ejection: EjectionReason,
        /// The last failure, for people.
        cause: String,
    },
    /// Paused until a person has fixed its credentials, or until the next try.
    NeedsAuth {
        /// Time of the next try.
        until: Instant,
        /// The server's message, for people.
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
    /// Returns the word used in status output.
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

/// Reason of an ejection.
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
    /// A retry does not help.
    Permanent,
}

impl EjectionReason {
    /// Describes the consequence for the server: it is left out, for how long.
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

/// State of a server for a caller that wants a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability<'a> {
    /// The session of this generation can be used.
    Ready(u64),
    /// A session, or a failure, will follow.
    Wait,
    /// The server never came up, and is not waited for until its next try; the cause is the last failure.
    NeverUp {
        /// Time of the next try.
        until: Instant,
    },
    /// The server is ejected.
    Ejected {
        /// Time of the readmission.
        readmit_at: Option<Instant>,
        /// The reason of the ejection.
        ejection: EjectionReason,
        /// The last failure.
        cause: &'a str,
    },
    /// A person must fix the server's credentials.
    NeedsAuth {
        /// Time of the next try.
        until: Instant,
        /// The server's message.
        cause: &'a str,
    },
    /// An operator has stopped the server.
    Stopped,
}
