//! Who watches: what was promised is checked where it happens and noted when
//! it does not hold, for a panic inside a task would be lost.

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

/// What has been seen so far.
#[derive(Default)]
pub(crate) struct RelayObservations {
    pub(crate) violations: Vec<String>,
    pub(crate) trace: Vec<String>,
    pub(crate) ends: BTreeSet<String>,
    calls: BTreeMap<String, ObservedCall>,
}

/// What was seen of one call.
#[derive(Debug, Default)]
struct ObservedCall {
    executions: usize,
    /// The last times that its messages named, by the hosts' clock.
    begin_by: u64,
    deadline: u64,
    /// Whether it was sent twice, so that two hosts may have got it.
    is_resent: bool,
    end: Option<RelayCallEnd>,
}

/// How a call has ended, as far as its execution goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RelayCallEnd {
    Ran,
    DidNotRun,
    MayHaveRun,
}

/// Watches one life.
pub(crate) struct RelayInvariants {
    began: Instant,
    /// The clock of all hosts.
    pub(crate) clock: WallClock,
    /// Whether servers are always ready, so that what is accepted begins at once.
    pub(crate) is_prompt: bool,
    /// Whether some answers are too large for one message.
    pub(crate) has_large: bool,
    /// Whether servers do nothing wrong any more.
    is_fault_free: AtomicBool,
    observations: Mutex<RelayObservations>,
}

impl RelayInvariants {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        // Large answers take most of the time of a life that has some.
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

    /// From now on servers do nothing wrong.
    pub(crate) fn stop_faults(&self) {
        self.is_fault_free.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_fault_free(&self) -> bool {
        self.is_fault_free.load(Ordering::Relaxed)
    }

    /// Notes a promise that does not hold.
    pub(crate) fn expect(&self, holds: bool, promise: impl FnOnce() -> String) {
        if !holds {
            let violation = format!("at {:?}: {}", self.began.elapsed(), promise());
            let mut notes = self.observations();
            notes.trace.push(format!("BROKEN {violation}"));
            notes.violations.push(violation);
        }
    }

    /// Notes something that happens, for comparison with a replay.
    pub(crate) fn trace(&self, what: &str) {
        let line = format!("{:?} {what}", self.began.elapsed());
        self.observations().trace.push(line);
    }

    /// A request was sent that says this of its time.
    pub(crate) fn record_times(&self, argument: &str, head: &CallHead) {
        let mut notes = self.observations();
        let seen = notes.calls.entry(argument.to_owned()).or_default();
        seen.begin_by = seen.begin_by.max(head.begin_by);
        seen.deadline = seen.deadline.max(head.deadline);
    }

    /// A request is sent a second time.
    pub(crate) fn record_resend(&self, argument: &str) {
        self.observations().calls.entry(argument.to_owned()).or_default().is_resent = true;
    }

    /// A server executes a call.
    pub(crate) fn record_execution(&self, site: &str, tool: &str, argument: &str) {
        self.trace(&format!("{site} executes {tool} {argument}"));
        let now = self.clock.now();
        let (begin_by, deadline) = {
            let mut notes = self.observations();
            let seen = notes.calls.entry(argument.to_owned()).or_default();
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

    /// A call has ended for its caller.
    pub(crate) fn record_end(
        &self,
        argument: &str,
        result: Option<&Result<Answer, CallError>>,
        took: Duration,
    ) {
        let (end, word) = match result {
            None => (RelayCallEnd::MayHaveRun, "left".to_owned()),
            Some(result) => self.classify_end(argument, result),
        };
        self.trace(&format!("{argument} ends after {took:?}: {word}"));
        let mut notes = self.observations();
        notes.ends.insert(word);
        let seen = notes.calls.entry(argument.to_owned()).or_default();
        let before = seen.end.replace(end);
        drop(notes);
        self.expect(before.is_none(), || format!("{argument} ends twice"));
    }

    fn classify_end(&self, argument: &str, result: &Result<Answer, CallError>) -> (RelayCallEnd, String) {
        match result {
            Ok(answer) => {
                let text = answer.text();
                let is_own = text.split(' ').next() == Some(argument);
                self.expect(is_own, || format!("{argument} was answered with {:.80}", text));
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

    /// What only the end of everything can tell: how often each call ran.
    pub(crate) fn check_calls(&self) {
        let calls = std::mem::take(&mut self.observations().calls);
        for (argument, seen) in calls {
            let times = seen.executions;
            self.expect(times <= 1, || format!("{argument} was executed {times} times"));
            let is_true = match seen.end {
                Some(RelayCallEnd::Ran) => times >= 1,
                // Who refuses one copy knows nothing of the other.
                Some(RelayCallEnd::DidNotRun) => times == 0 || seen.is_resent,
                Some(RelayCallEnd::MayHaveRun) | None => true,
            };
            self.expect(is_true, || format!("{argument} ended as {:?}, and ran {times} times", seen.end));
        }
    }
}

/// What an error says that the host, or the server behind it, has answered with.
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
