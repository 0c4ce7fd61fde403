//! What a failure leads to: another start, and when, or none.

use std::time::{Duration, Instant};

use super::{AUTH_RETRY, Failure, Phase, Supervisor};
use crate::breaker::Circuit;
use crate::fault::FaultKind;
use crate::restart::Decision;
use crate::sabotage::{self, Sabotage};

/// What is known of the session that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Past {
    /// It has given a good answer.
    Proven,
    /// It has not, or never came up.
    Unproven,
}

impl Supervisor {
    pub(super) fn fail(&mut self, failure: Failure, past: Past, rng: &mut fastrand::Rng) {
        let now = failure.at;
        self.phase = match &failure.kind {
            FaultKind::NeedsAuth { .. } => {
                Phase::NeedsAuth { until: now + AUTH_RETRY, cause: failure.to_string() }
            }
            FaultKind::Paused { wait, .. } => {
                self.breaker.hold(now, *wait);
                Phase::Backoff { until: now + *wait }
            }
            kind => {
                self.breaker.fail(now);
                if self.is_elsewhere(kind) {
                    Phase::Backoff { until: now + self.distance(now, past, rng) }
                } else {
                    match self.budget.on_failure(now) {
                        Decision::Restart => Phase::Backoff { until: now + self.delay(past, rng) },
                        Decision::Eject => Phase::Ejected { since: now, cause: self.epitaph(&failure) },
                    }
                }
            }
        };
        self.failure = Some(failure);
    }

    /// Whether the cause lies where no operator of this host can see to it. What
    /// keeps a remote server from being asked at all is in its config here.
    fn is_elsewhere(&self, kind: &FaultKind) -> bool {
        match kind {
            FaultKind::Connect(_) | FaultKind::Transfer(_) | FaultKind::Status { .. } => true,
            FaultKind::Start(_) => false,
            _ => self.is_remote,
        }
    }

    /// How long to wait before the next start. A server that has worked and
    /// fails for the first time is started again at once: its callers wait.
    fn delay(&mut self, past: Past, rng: &mut fastrand::Rng) -> Duration {
        if sabotage::is_on(Sabotage::StayDown) {
            return Duration::from_secs(3_600);
        }
        match past {
            Past::Proven if self.backoff.is_rested() => self.backoff.skip(),
            Past::Proven | Past::Unproven => self.backoff.next(rng),
        }
    }

    /// How long to stay away from a remote server. It comes back without an
    /// operator here, so it is never ejected; the breaker's growing wait keeps
    /// it from being asked for ever at the pace of a restart.
    fn distance(&mut self, now: Instant, past: Past, rng: &mut fastrand::Rng) -> Duration {
        let delay = self.delay(past, rng);
        match self.breaker.circuit(now) {
            Circuit::Open { retry_after } => delay.max(retry_after),
            Circuit::Closed { .. } | Circuit::HalfOpen { .. } => delay,
        }
    }

    /// Why a server is out, in the words an operator needs.
    fn epitaph(&self, failure: &Failure) -> String {
        let times = match self.restart.max.saturating_add(1) {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        };
        let window = crate::fault::Span(self.restart.window);
        format!("it failed {times} in {window} (last: {failure})")
    }
}
