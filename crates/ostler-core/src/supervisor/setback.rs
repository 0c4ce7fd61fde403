//! What a failure leads to: another start, and when, or none.

use std::time::{Duration, Instant};

use super::{AUTH_RETRY, Ejection, Failure, MAX_READMISSION_FACTOR, Phase, Supervisor};
use crate::breaker::Circuit;
use crate::fault::FaultKind;
use crate::restart::Decision;
use crate::sabotage;

/// Delay before the second start of a server that has never come up, in first delays: what it needs may be seconds late.
const NEVER_UP: u32 = 5;

/// What is known of the session that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Past {
    /// It has given a good answer.
    Proven,
    /// It came up and gave no good answer.
    Unproven,
    /// It never came up.
    NotStarted,
}

impl Supervisor {
    pub(super) fn fail(&mut self, failure: Failure, past: Past, rng: &mut fastrand::Rng) {
        let now = failure.at;
        let is_start_failure = past == Past::NotStarted;
        self.phase = match &failure.kind {
            FaultKind::NeedsAuth { .. } => {
                Phase::NeedsAuth { until: now + AUTH_RETRY, cause: failure.to_string() }
            }
            FaultKind::Paused { wait, .. } => {
                self.breaker.hold(now, *wait);
                Phase::Backoff { soonest: now + *wait, until: now + *wait, is_start_failure }
            }
            kind => {
                let is_elsewhere = self.is_elsewhere(kind);
                let is_away = is_elsewhere && is_away(kind);
                // The backoff holds back what can't be started. With starts in its count, the breaker would keep calls
                // for half a minute from a server that was away for a moment. A remote server that answers its
                // handshakes with failures is spared like one that does so with its calls.
                if past == Past::NotStarted && (is_away || !is_elsewhere) {
                    self.failed_starts = self.failed_starts.saturating_add(1);
                } else {
                    self.breaker.fail(now);
                }
                if self.is_permanent(kind) {
                    self.eject(&failure, Ejection::Permanent)
                } else if is_elsewhere && (is_away || !self.is_once) {
                    self.stay_away(now, (past, is_away), rng)
                } else if self.is_on_probation {
                    self.eject(&failure, Ejection::Relapse)
                } else {
                    match self.budget.on_failure(now) {
                        // The next start asks differently, and need not wait for that.
                        Decision::Restart if matches!(kind, FaultKind::EndedAtProbe(_)) => {
                            Phase::Backoff { soonest: now, until: now, is_start_failure: false }
                        }
                        // Who has one more try at most does not wait for the whole limit twice.
                        Decision::Restart
                            if matches!(kind, FaultKind::StartTimeout(_)) && self.restart.max <= 1 =>
                        {
                            self.eject(&failure, Ejection::Spent { failures: 1, window: self.restart.window })
                        }
                        Decision::Restart => {
                            let until = now + self.delay(now, past, rng);
                            Phase::Backoff { soonest: until, until, is_start_failure }
                        }
                        Decision::Eject => {
                            let failures = self.restart.max.saturating_add(1);
                            self.eject(&failure, Ejection::Spent { failures, window: self.restart.window })
                        }
                    }
                }
            }
        };
        self.failure = Some(failure);
    }

    /// Whether trying again does not help. What a remote endpoint says of itself may pass where it has worked: a proxy
    /// answers for a server that is being replaced.
    fn is_permanent(&self, kind: &FaultKind) -> bool {
        matches!(kind, FaultKind::Permanent(cause) if !(cause.is_elsewhere() && self.has_started))
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

    /// Takes the server out, for twice as long with each time that it was readmitted in vain.
    fn eject(&mut self, failure: &Failure, ejection: Ejection) -> Phase {
        self.is_on_probation = false;
        let readmit_at = self.restart.readmit_after.map(|first| {
            let longest = first.saturating_mul(MAX_READMISSION_FACTOR);
            failure.at + first.saturating_mul(1 << self.readmissions.min(16)).min(longest)
        });
        Phase::Ejected { readmit_at, ejection, cause: failure.to_string() }
    }

    /// How long to wait before the next start. A server that has worked and
    /// fails for the first time is started again at once: its callers wait. The last restart of the budget
    /// waits the longest delay, so that the budget lasts while something that the server needs comes up.
    fn delay(&mut self, now: Instant, past: Past, rng: &mut fastrand::Rng) -> Duration {
        sabotage!(StayDown, return Duration::from_secs(3_600));
        match past {
            Past::Proven if self.backoff.is_rested() => self.backoff.skip(),
            _ if self.budget.is_spent(now) => self.backoff.longest(),
            Past::NotStarted if !self.has_started => self.backoff.next_from(NEVER_UP, rng),
            Past::Proven | Past::Unproven | Past::NotStarted => self.backoff.next(rng),
        }
    }

    /// Waits for a remote server. It comes back without an operator here, so it is never ejected. While callers wait, one
    /// that is away is tried at the pace of restarts; without any, ever more seldom and not while the breaker is open.
    fn stay_away(&mut self, now: Instant, (past, is_away): (Past, bool), rng: &mut fastrand::Rng) -> Phase {
        self.is_on_probation = false;
        sabotage!(StayDown, {
            let late = now + Duration::from_secs(3_600);
            return Phase::Backoff { soonest: late, until: late, is_start_failure: past == Past::NotStarted };
        });
        let delay = match past {
            Past::Proven if self.backoff.is_rested() => self.backoff.skip(),
            Past::NotStarted if !self.has_started => self.backoff.next_from(NEVER_UP, rng),
            Past::Proven | Past::Unproven | Past::NotStarted => self.backoff.next(rng),
        };
        let held_back = match self.breaker.circuit(now) {
            Circuit::Open { retry_after } => retry_after,
            Circuit::Closed { .. } | Circuit::HalfOpen { .. } => Duration::ZERO,
        };
        let distance = if delay.is_zero() { delay } else { self.distance.next(rng) };
        Phase::Backoff {
            soonest: now + if is_away { delay } else { delay.max(held_back) },
            until: now + delay.max(distance).max(held_back),
            is_start_failure: past == Past::NotStarted,
        }
    }
}

/// Whether a failure of a remote server does not come from the server itself: it can't be reached, or a proxy answers in its
/// place.
fn is_away(kind: &FaultKind) -> bool {
    match kind {
        FaultKind::Connect(_) => true,
        FaultKind::Status { code, .. } => matches!(code, 502..=504),
        FaultKind::Permanent(cause) => cause.is_elsewhere(),
        _ => false,
    }
}
