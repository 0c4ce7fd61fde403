//! What a failure leads to: another start, and when, or none.

use std::time::{Duration, Instant};

use super::{AUTH_RETRY, EjectionReason, MAX_READMISSION_FACTOR, Phase, ServerFailure, Supervisor};
use crate::breaker::BreakerState;
use crate::fault::FaultKind;
use crate::restart_budget::RestartDecision;
use crate::sabotage;

/// Delay before the second start of a server that has never come up, in first delays: what it needs may be seconds late.
const NEVER_UP_FACTOR: u32 = 5;

/// What is known of the session that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionHistory {
    /// It has given a good answer.
    Proven,
    /// It came up and gave no good answer.
    Unproven,
    /// It never came up.
    NotStarted,
}

impl Supervisor {
    pub(super) fn on_failure(
        &mut self,
        failure: ServerFailure,
        past: SessionHistory,
        rng: &mut fastrand::Rng,
    ) {
        let now = failure.at;
        let is_start_failure = past == SessionHistory::NotStarted;
        self.phase = match &failure.kind {
            FaultKind::NeedsAuth { .. } => {
                Phase::NeedsAuth { until: now + AUTH_RETRY, cause: failure.to_string() }
            }
            FaultKind::RetryAfter { wait, .. } => {
                self.breaker.hold_open(now, *wait);
                Phase::Backoff { soonest: now + *wait, until: now + *wait, is_start_failure }
            }
            kind => {
                let is_elsewhere = self.is_remote_fault(kind);
                let is_away = is_elsewhere && is_unreachable(kind);
                // The backoff holds back what can't be started. With starts in its count, the breaker would keep calls
                // for half a minute from a server that was away for a moment. A remote server that answers its
                // handshakes with failures is spared like one that does so with its calls.
                if past == SessionHistory::NotStarted && (is_away || !is_elsewhere) {
                    self.failed_starts = self.failed_starts.saturating_add(1);
                } else {
                    self.breaker.record_server_failure(now);
                }
                if self.is_permanent(kind) {
                    self.eject(&failure, EjectionReason::Permanent)
                } else if is_elsewhere && (is_away || !self.is_single_command) {
                    self.wait_for_remote(now, (past, is_away), rng)
                } else if self.is_on_probation {
                    self.eject(&failure, EjectionReason::FailedReadmission)
                } else {
                    match self.budget.on_failure(now) {
                        // The next start asks differently, and need not wait for that.
                        RestartDecision::Restart if matches!(kind, FaultKind::EndedAtProbe(_)) => {
                            Phase::Backoff { soonest: now, until: now, is_start_failure: false }
                        }
                        // Who has one more try at most does not wait for the whole limit twice.
                        RestartDecision::Restart
                            if matches!(kind, FaultKind::StartTimeout(_)) && self.restart.max <= 1 =>
                        {
                            self.eject(
                                &failure,
                                EjectionReason::BudgetSpent { failures: 1, window: self.restart.window },
                            )
                        }
                        RestartDecision::Restart => {
                            let until = now + self.restart_delay(now, past, rng);
                            Phase::Backoff { soonest: until, until, is_start_failure }
                        }
                        RestartDecision::Eject => {
                            let failures = self.restart.max.saturating_add(1);
                            self.eject(
                                &failure,
                                EjectionReason::BudgetSpent { failures, window: self.restart.window },
                            )
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
        matches!(kind, FaultKind::Permanent(cause) if !(cause.is_remote() && self.has_started))
    }

    /// Whether the cause lies where no operator of this host can see to it. What
    /// keeps a remote server from being asked at all is in its config here.
    fn is_remote_fault(&self, kind: &FaultKind) -> bool {
        match kind {
            FaultKind::Connect(_) | FaultKind::Transfer(_) | FaultKind::Status { .. } => true,
            FaultKind::Start(_) => false,
            _ => self.is_remote,
        }
    }

    /// Takes the server out, for twice as long with each time that it was readmitted in vain.
    fn eject(&mut self, failure: &ServerFailure, ejection: EjectionReason) -> Phase {
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
    fn restart_delay(&mut self, now: Instant, past: SessionHistory, rng: &mut fastrand::Rng) -> Duration {
        sabotage!(StayDown, return Duration::from_secs(3_600));
        match past {
            SessionHistory::Proven if self.backoff.is_reset() => self.backoff.skip(),
            _ if self.budget.is_spent(now) => self.backoff.take_max(),
            SessionHistory::NotStarted if !self.has_started => {
                self.backoff.next_at_least(NEVER_UP_FACTOR, rng)
            }
            SessionHistory::Proven | SessionHistory::Unproven | SessionHistory::NotStarted => {
                self.backoff.next(rng)
            }
        }
    }

    /// Waits for a remote server. It comes back without an operator here, so it is never ejected. While callers wait, one
    /// that is away is tried at the pace of restarts; without any, ever more seldom and not while the breaker is open.
    fn wait_for_remote(
        &mut self,
        now: Instant,
        (past, is_away): (SessionHistory, bool),
        rng: &mut fastrand::Rng,
    ) -> Phase {
        self.is_on_probation = false;
        sabotage!(StayDown, {
            let late = now + Duration::from_secs(3_600);
            return Phase::Backoff {
                soonest: late,
                until: late,
                is_start_failure: past == SessionHistory::NotStarted,
            };
        });
        let delay = match past {
            SessionHistory::Proven if self.backoff.is_reset() => self.backoff.skip(),
            SessionHistory::NotStarted if !self.has_started => {
                self.backoff.next_at_least(NEVER_UP_FACTOR, rng)
            }
            SessionHistory::Proven | SessionHistory::Unproven | SessionHistory::NotStarted => {
                self.backoff.next(rng)
            }
        };
        let held_back = match self.breaker.circuit(now) {
            BreakerState::Open { retry_after } => retry_after,
            BreakerState::Closed { .. } | BreakerState::HalfOpen { .. } => Duration::ZERO,
        };
        let distance = if delay.is_zero() { delay } else { self.unattended_backoff.next(rng) };
        Phase::Backoff {
            soonest: now + if is_away { delay } else { delay.max(held_back) },
            until: now + delay.max(distance).max(held_back),
            is_start_failure: past == SessionHistory::NotStarted,
        }
    }
}

/// Whether a failure of a remote server does not come from the server itself: it can't be reached, or a proxy answers in its
/// place.
fn is_unreachable(kind: &FaultKind) -> bool {
    match kind {
        FaultKind::Connect(_) => true,
        FaultKind::Status { code, .. } => matches!(code, 502..=504),
        FaultKind::Permanent(cause) => cause.is_remote(),
        _ => false,
    }
}
