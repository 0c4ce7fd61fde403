//! Checker: reads the records of a run and names every broken promise.
//!
//! Each promise has a file. A check reports only what is certain: where the records allow for an
//! innocent explanation, there is no violation. Each check reads the records once, or sorts a part
//! of them.

use std::fmt;

mod at_most_once;
mod every_call_ends;
mod evidence;
#[cfg(test)]
mod history_builder;
mod no_cross_harm;
mod none_left_behind;
mod one_probe;
mod own_answer;
mod policy_everywhere;
mod private_cache;
mod quiet_when_idle;
mod records;
mod recovers;
mod truthful_end;

use serde::Serialize;

pub use self::evidence::{Evidence, evidence, is_whole};

use self::records::Records;
use crate::history::{CallNumber, HistoryEvent};
use crate::ledger::Execution;

/// Upper bound of the difference between two clocks of one machine: the wall clock, which stamps
/// the records, is corrected now and then, and the daemon's monotonic clock is not.
const CLOCK_TOLERANCE: u64 = 50_000;

/// A promise to callers and operators.
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
    /// Tools that a role may not use neither run nor are listed, on any route.
    PolicyEverywhere,
    /// A private answer reaches one caller only.
    PrivateCache,
    /// An open breaker admits one probe at a time.
    OneProbe,
    /// No process is left behind, dead or alive.
    NoneLeftBehind,
    /// After the nemesis is done, calls succeed again.
    Recovers,
    /// An abusive caller or server takes no server from good callers.
    NoCrossHarm,
    /// No process starts while no caller makes a request.
    QuietWhenIdle,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    pub promise: Promise,
    /// The calls that show it.
    pub calls: Vec<CallNumber>,
    /// A description for people, with times and names.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.what)
    }
}

impl Violation {
    fn new(promise: Promise, calls: impl IntoIterator<Item = CallNumber>, what: String) -> Self {
        Self { promise, calls: calls.into_iter().collect(), what }
    }
}

/// Checks a run and returns every violation.
#[must_use]
pub fn check(history: &[HistoryEvent], executions: &[Execution]) -> Vec<Violation> {
    let records = Records::new(history, executions);
    let checks = [
        every_call_ends::check,
        own_answer::check,
        at_most_once::check,
        truthful_end::check,
        policy_everywhere::check,
        private_cache::check,
        one_probe::check,
        none_left_behind::check,
        recovers::check,
        no_cross_harm::check,
        quiet_when_idle::check,
    ];
    checks.iter().flat_map(|check| check(&records)).collect()
}

impl Promise {
    /// All promises, in the order in which they are checked.
    pub const ALL: [Self; 11] = [
        Self::EveryCallEnds,
        Self::OwnAnswer,
        Self::AtMostOnce,
        Self::TruthfulEnd,
        Self::PolicyEverywhere,
        Self::PrivateCache,
        Self::OneProbe,
        Self::NoneLeftBehind,
        Self::Recovers,
        Self::NoCrossHarm,
        Self::QuietWhenIdle,
    ];
}
