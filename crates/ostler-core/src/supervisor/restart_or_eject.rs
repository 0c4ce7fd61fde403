//! Failure policy: the phase after a failure, which is a delayed restart or an ejection.

use std::time::{Duration, Instant};

use super::{AUTH_RETRY, EjectionReason, MAX_READMISSION_FACTOR, Phase, ServerFailure, Supervisor};
use crate::breaker::BreakerState;
use crate::fault::FaultKind;
use crate::restart_budget::RestartDecision;
use crate::sabotage;

/// Delay before the second start of a server that has never come up, in multiples of the first delay: a
/// dependency may be seconds late.
const NEVER_UP_FACTOR: u32 = 5;

/// History of the failed session.
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
        history: SessionHistory,
        rng: &mut fastrand::Rng,
    ) {
        let now = failure.at;
        let is_start_failure = history == SessionHistory::NotStarted;
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
                // The backoff handles failed starts. If the breaker counted them too, it would hold calls
                // back for half a minute from a server that was away for a moment. A remote server whose
                // handshakes fail is treated like one whose calls fail.
                if history == SessionHistory::NotStarted && (is_away || !is_elsewhere) {
                    self.failed_starts = self.failed_starts.saturating_add(1);
                } else {
                    self.breaker.record_server_failure(now);
                }
                if self.is_permanent(kind) {
                    self.eject(&failure, EjectionReason::Permanent)
                } else if is_elsewhere && (is_away || !self.is_single_command) {
                    self.wait_for_remote(now, (history, is_away), rng)
                } else if self.is_on_probation {
                    self.eject(&failure, EjectionReason::FailedReadmission)
                } else {
                    match self.budget.on_failure(now) {
                        // The next start uses another handshake and needs no delay.
                        RestartDecision::Restart if matches!(kind, FaultKind::EndedAtProbe(_)) => {
                            Phase::Backoff { soonest: now, until: now, is_start_failure: false }
                        }
                        // With at most one attempt left, the whole limit is not waited for twice.
                        RestartDecision::Restart
                            if matches!(kind, FaultKind::StartTimeout(_)) && self.restart.max <= 1 =>
                        {
                            self.eject(
                                &failure,
                                EjectionReason::BudgetSpent { failures: 1, window: self.restart.window },
                            )
                        }
                        RestartDecision::Restart => {
                            let until = now + self.restart_delay(now, history, rng);
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

    /// Returns whether a retry does not help. An error that a remote endpoint reports about itself may pass
    /// if the endpoint has worked before: a proxy answers for a server that is being replaced.
    fn is_permanent(&self, kind: &FaultKind) -> bool {
        matches!(kind, FaultKind::Permanent(cause) if !(cause.is_remote() && self.has_started))
    }

    /// Returns whether the cause is out of reach of this host's operator. A permanent cause before any
    /// request to a remote server is in this host's config.
    fn is_remote_fault(&self, kind: &FaultKind) -> bool {
        match kind {
            FaultKind::Connect(_) | FaultKind::Transfer(_) | FaultKind::Status { .. } => true,
            FaultKind::Start(_) => false,
            _ => self.is_remote,
        }
    }

    /// Ejects the server, for twice as long after each failed readmission.
    fn eject(&mut self, failure: &ServerFailure, ejection: EjectionReason) -> Phase {
        self.is_on_probation = false;
        let readmit_at = self.restart.readmit_after.map(|first| {
            let longest = first.saturating_mul(MAX_READMISSION_FACTOR);
            failure.at + first.saturating_mul(1 << self.readmissions.min(16)).min(longest)
        });
        Phase::Ejected { readmit_at, ejection, cause: failure.to_string() }
    }

    /// Returns the delay before the next start. A server that has worked and fails for the first time is
    /// started again at once, because its callers wait. The last restart of the budget waits the longest
    /// delay, so that the budget lasts while a dependency comes up.
    fn restart_delay(&mut self, now: Instant, history: SessionHistory, rng: &mut fastrand::Rng) -> Duration {
        sabotage!(StayDown, return Duration::from_secs(3_600));
        match history {
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

    /// Waits for a remote server. It recovers without an operator here, so it is never ejected. While callers
    /// wait, one that is away is tried at the pace of restarts; without any, ever more seldom and not while
    /// the breaker is open.
    fn wait_for_remote(
        &mut self,
        now: Instant,
        (history, is_away): (SessionHistory, bool),
        rng: &mut fastrand::Rng,
    ) -> Phase {
        self.is_on_probation = false;
        sabotage!(StayDown, {
            let late = now + Duration::from_secs(3_600);
            return Phase::Backoff {
                soonest: late,
                until: late,
                is_start_failure: history == SessionHistory::NotStarted,
            };
        });
        let delay = match history {
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
            is_start_failure: history == SessionHistory::NotStarted,
        }
    }
}

/// Returns whether a failure of a remote server does not come from the server itself: it is unreachable, or a
/// proxy answers in its place.
fn is_unreachable(kind: &FaultKind) -> bool {
    match kind {
        FaultKind::Connect(_) => true,
        FaultKind::Status { code, .. } => matches!(code, 502..=504),
        FaultKind::Permanent(cause) => cause.is_remote(),
        _ => false,
    }
}
