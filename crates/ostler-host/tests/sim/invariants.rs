//! Invariants of a simulation: checked where events happen. A violation is noted, because a panic inside the host's
//! tasks would be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ostler_core::error::CallError;
use ostler_host::{Answer, Host};
use tokio::time::Instant;

/// Limits of a simulated host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostSimLimits {
    pub(crate) processes: usize,
    pub(crate) in_flight: usize,
    pub(crate) cache_bytes: usize,
}

/// Observations so far.
#[derive(Default)]
pub(crate) struct Observations {
    pub(crate) violations: Vec<String>,
    pub(crate) trace: Vec<String>,
    pub(crate) outcomes: BTreeSet<&'static str>,
    /// Requests made and requests recorded as ended.
    pub(crate) requests: usize,
    pub(crate) ended: usize,
    /// Principal of each answer: all answers are private, and no two are alike.
    answer_owners: BTreeMap<String, String>,
}

/// Observer of one simulation.
pub(crate) struct InvariantChecker {
    pub(crate) limits: HostSimLimits,
    began: Instant,
    observations: Mutex<Observations>,
    /// Taken out at the end, so that the last handle can be dropped.
    host: Mutex<Option<Host>>,
}

impl InvariantChecker {
    pub(crate) fn new(limits: HostSimLimits) -> Self {
        Self { limits, began: Instant::now(), observations: Mutex::default(), host: Mutex::default() }
    }

    pub(crate) fn observations(&self) -> MutexGuard<'_, Observations> {
        self.observations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_host(&self, host: Option<Host>) {
        *self.host.lock().unwrap_or_else(PoisonError::into_inner) = host;
    }

    pub(crate) fn host(&self) -> Option<Host> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes a violation.
    pub(crate) fn expect(&self, holds: bool, promise: impl FnOnce() -> String) {
        if !holds {
            let violation = format!("at {:?}: {}", self.began.elapsed(), promise());
            self.observations().violations.push(violation);
        }
    }

    /// Notes an event, for comparison with a replay.
    pub(crate) fn trace(&self, what: &str) {
        let line = format!("{:?} {what}", self.began.elapsed());
        self.observations().trace.push(line);
    }

    /// Checks the bounds of the host itself.
    pub(crate) fn check_limits(&self) {
        let Some(host) = self.host() else { return };
        let (processes, cache) = (host.process_count(), host.cache_stats());
        self.expect(processes <= self.limits.processes, || format!("{processes} processes"));
        self.expect(cache.bytes <= self.limits.cache_bytes, || format!("{} bytes in the cache", cache.bytes));
        let status = host.status();
        let in_flight: usize = status.iter().map(|server| server.in_flight).sum();
        // Liveness probes bypass the bound on calls; lists are calls.
        self.expect(in_flight <= self.limits.in_flight, || format!("{in_flight} calls in flight"));
        for server in status {
            let restarts = server.restarts;
            self.expect(restarts.used <= restarts.budget, || format!("{}: {restarts:?}", server.name));
        }
    }

    /// Checks that every request has ended, and once.
    pub(crate) fn check_ends(&self) {
        let (asked, ended) = {
            let notes = self.observations();
            (notes.requests, notes.ended)
        };
        self.expect(asked == ended, || format!("{asked} requests, {ended} ends"));
    }

    /// Checks that a private answer reaches only the principal that first got it.
    pub(crate) fn check_owner(&self, principal: &str, answer: &Answer) {
        let owner = {
            let mut notes = self.observations();
            let owners = &mut notes.answer_owners;
            owners.entry(answer.text()).or_insert_with(|| principal.to_owned()).clone()
        };
        self.expect(owner == principal, || format!("{principal} was given an answer of {owner}"));
    }

    /// Checks that a visible item is known. A hidden item is unknown, or passes the checks of a missing item before its
    /// server is asked for it; it is never answered.
    pub(crate) fn check_visibility(&self, may_see: bool, what: &str, result: &Result<Answer, CallError>) {
        let code = result.as_ref().err().map(CallError::code).unwrap_or_default();
        let is_unknown = code.starts_with("unknown-");
        let is_held_back = matches!(code, "server-unavailable" | "overloaded" | "over-budget" | "timed-out");
        let is_right = if may_see { !is_unknown } else { is_unknown || is_held_back };
        self.expect(is_right, || format!("{what}: may see {may_see}, got {result:?}"));
    }
}
