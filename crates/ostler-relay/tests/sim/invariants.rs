//! Invariants: checks the guarantees where they apply and records violations, since a panic inside
//! a task would be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use ostler_core::fault::Delivery;
use ostler_host::{Answer, CallError};
use ostler_relay::WallClock;
use ostler_relay::envelope::CallHead;
use tokio::time::Instant;

use crate::journal::SLOWEST;

/// Observations so far.
#[derive(Default)]
pub(crate) struct RelayObservations {
    pub(crate) violations: Vec<String>,
    pub(crate) trace: Vec<String>,
    pub(crate) ends: BTreeSet<String>,
    calls: BTreeMap<String, ObservedCall>,
}

/// Observations of one call.
#[derive(Debug, Default)]
struct ObservedCall {
    executions: usize,
    /// Latest times in its messages, by the hosts' clock.
    begin_by: u64,
    deadline: u64,
    /// `true` if the request was sent twice, so that two hosts may have received it.
    is_resent: bool,
    end: Option<RelayCallEnd>,
}

/// End of a call as far as its execution is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RelayCallEnd {
    Ran,
    DidNotRun,
    MayHaveRun,
}

/// Invariants of one run.
pub(crate) struct RelayInvariants {
    began: Instant,
    /// Clock of all hosts.
    pub(crate) clock: WallClock,
    /// `true` if servers are always ready, so that accepted calls begin at once.
    pub(crate) is_prompt: bool,
    /// `true` if some answers exceed one message.
    pub(crate) has_large: bool,
    /// `true` once servers inject no more faults.
    is_fault_free: AtomicBool,
    observations: Mutex<RelayObservations>,
}

impl RelayInvariants {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        // Large answers take most of the time of a run that has them.
        let (is_prompt, has_large) = (rng.bool(), rng.u8(..5) == 0);
        let clock = WallClock::starting_at(1_800_000_000_000);
        Self {
            began: Instant::now(),
            clock,
            is_prompt,
            has_large,
            is_fault_free: AtomicBool::new(false),
            observations: Mutex::default(),
        }
    }

    pub(crate) fn observations(&self) -> MutexGuard<'_, RelayObservations> {
        self.observations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the faults of the servers.
    pub(crate) fn stop_faults(&self) {
        self.is_fault_free.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_fault_free(&self) -> bool {
        self.is_fault_free.load(Ordering::Relaxed)
    }

    /// Records a violation unless `holds`.
    pub(crate) fn expect(&self, holds: bool, promise: impl FnOnce() -> String) {
        if !holds {
            let violation = format!("at {:?}: {}", self.began.elapsed(), promise());
            let mut observations = self.observations();
            observations.trace.push(format!("BROKEN {violation}"));
            observations.violations.push(violation);
        }
    }

    /// Records an event, for comparison with a replay.
    pub(crate) fn trace(&self, what: &str) {
        let line = format!("{:?} {what}", self.began.elapsed());
        self.observations().trace.push(line);
    }

    /// Records the times in the headers of a request.
    pub(crate) fn record_times(&self, argument: &str, head: &CallHead) {
        let mut observations = self.observations();
        let seen = observations.calls.entry(argument.to_owned()).or_default();
        seen.begin_by = seen.begin_by.max(head.begin_by);
        seen.deadline = seen.deadline.max(head.deadline);
    }

    /// Records that a request is sent a second time.
    pub(crate) fn record_resend(&self, argument: &str) {
        self.observations().calls.entry(argument.to_owned()).or_default().is_resent = true;
    }

    /// Records an execution at a server.
    pub(crate) fn record_execution(&self, host: &str, tool: &str, argument: &str) {
        self.trace(&format!("{host} executes {tool} {argument}"));
        let now = self.clock.now();
        let (begin_by, deadline) = {
            let mut observations = self.observations();
            let seen = observations.calls.entry(argument.to_owned()).or_default();
            seen.executions += 1;
            (seen.begin_by, seen.deadline)
        };
        let slack = SLOWEST.as_millis() as u64;
        self.expect(now <= deadline + slack, || format!("{argument} begins {} ms late", now - deadline));
        self.expect(!self.is_prompt || now <= begin_by + slack, || {
            format!("{argument} begins {} ms after it was to begin", now - begin_by)
        });
        let is_forbidden = tool == "secret" && argument.contains("some");
        self.expect(!is_forbidden, || format!("{argument} was let to the secret tool"));
    }

    /// Records the end of a call for its caller.
    pub(crate) fn record_end(
        &self,
        argument: &str,
        result: Option<&Result<Answer, CallError>>,
        took: Duration,
    ) {
        let (end, label) = match result {
            None => (RelayCallEnd::MayHaveRun, "left".to_owned()),
            Some(result) => self.classify_end(argument, result),
        };
        self.trace(&format!("{argument} ends after {took:?}: {label}"));
        let mut observations = self.observations();
        observations.ends.insert(label);
        let seen = observations.calls.entry(argument.to_owned()).or_default();
        let previous = seen.end.replace(end);
        drop(observations);
        self.expect(previous.is_none(), || format!("{argument} ends twice"));
    }

    fn classify_end(&self, argument: &str, result: &Result<Answer, CallError>) -> (RelayCallEnd, String) {
        match result {
            Ok(answer) => {
                let text = answer.text();
                let is_own_answer = text.split(' ').next() == Some(argument);
                self.expect(is_own_answer, || format!("{argument} was answered with {:.80}", text));
                (RelayCallEnd::Ran, if answer.is_error() { "tool error" } else { "ok" }.to_owned())
            }
            Err(CallError::Rpc(answer)) => classify_host_error(&answer.raw),
            Err(error) => {
                let end = match error.delivery() {
                    None | Some(Delivery::NotSent | Delivery::Rejected) => RelayCallEnd::DidNotRun,
                    Some(Delivery::Unknown | Delivery::Answered) => RelayCallEnd::MayHaveRun,
                };
                (end, error.code().to_owned())
            }
        }
    }

    /// Checks how often each call was executed, which is known only at the end.
    pub(crate) fn check_calls(&self) {
        let calls = std::mem::take(&mut self.observations().calls);
        for (argument, seen) in calls {
            let times = seen.executions;
            self.expect(times <= 1, || format!("{argument} was executed {times} times"));
            let is_consistent = match seen.end {
                Some(RelayCallEnd::Ran) => times >= 1,
                // The host that refuses one copy knows nothing of the other.
                Some(RelayCallEnd::DidNotRun) => times == 0 || seen.is_resent,
                Some(RelayCallEnd::MayHaveRun) | None => true,
            };
            self.expect(is_consistent, || {
                format!("{argument} ended as {:?}, and ran {times} times", seen.end)
            });
        }
    }
}

/// Classifies an error of the host or of the server behind it.
fn classify_host_error(raw: &[u8]) -> (RelayCallEnd, String) {
    let error: serde_json::Value = serde_json::from_slice(raw).unwrap();
    let Some(code) = error["data"]["code"].as_str() else {
        return (RelayCallEnd::Ran, "from the server".into());
    };
    let end = match error["data"]["delivery"].as_str() {
        None | Some("not-sent" | "rejected") => RelayCallEnd::DidNotRun,
        Some(_) => RelayCallEnd::MayHaveRun,
    };
    (end, format!("from the host: {code}"))
}
