//! Lifecycle events of a slot: computed under the state lock, sent after it is released.

use std::time::Instant;

use ostler_core::breaker::BreakerState;
use ostler_core::supervisor::{Phase, ServerFailure, Supervisor};

use super::slot::Slot;
use crate::lifecycle_event::{LifecycleEvent, LifecycleEventKind};

/// A session that ended, or a start that failed.
#[derive(Debug, Clone, Copy)]
pub(super) enum SessionLoss {
    /// The session was up.
    Lost(u64),
    /// The session was starting.
    StartFailed(u64),
}

/// The breaker's transition count before a change.
#[derive(Debug, Clone, Copy)]
pub(super) struct BreakerCheckpoint(u64);

impl BreakerCheckpoint {
    pub(super) fn take(supervisor: &Supervisor) -> Self {
        Self(supervisor.breaker_transitions())
    }

    /// Returns the events of a change, or `None`. A successful call yields none and allocates nothing.
    pub(super) fn transition(
        self,
        supervisor: &Supervisor,
        setback: Option<SessionLoss>,
        now: Instant,
    ) -> Option<Box<Transition>> {
        let has_turned = supervisor.breaker_transitions() != self.0;
        if !has_turned && setback.is_none() {
            return None;
        }
        let cause = || supervisor.failure().map_or_else(String::new, ToString::to_string);
        let is_out = setback.is_some() && matches!(supervisor.phase(), Phase::Ejected { .. });
        Some(Box::new(Transition {
            breaker_state: has_turned.then(|| supervisor.circuit(now)),
            session_loss: setback
                .map(|setback| (setback, cause(), supervisor.phase().clone(), supervisor.next_wake())),
            is_restart_planned: supervisor.plans_restart(),
            ejected_by: supervisor.failure().filter(|_| is_out).cloned(),
            now,
        }))
    }
}

/// Events of one change, to be sent.
pub(super) struct Transition {
    breaker_state: Option<BreakerState>,
    /// The loss, its cause, the phase after it, and the end of that phase.
    session_loss: Option<(SessionLoss, String, Phase, Option<Instant>)>,
    /// The delay before the next start ends with a start, with or without a call.
    is_restart_planned: bool,
    /// The failure that ejected the server.
    ejected_by: Option<ServerFailure>,
    now: Instant,
}

impl Slot {
    /// Sends the events of this change to the observers.
    pub(super) fn emit_lifecycle_event(&self, what: LifecycleEventKind<'_>) {
        let (server, partition) = (self.key.server.as_str(), &*self.key.partition);
        self.host.notify_observers(&LifecycleEvent { server, partition, kind: what });
    }

    /// Sends the events of a change. The state must not be locked.
    pub(super) fn emit_transition(&self, news: Option<Box<Transition>>) {
        let Some(news) = news else { return };
        if let Some((setback, cause, phase, until)) = &news.session_loss {
            self.emit_lifecycle_event(match *setback {
                SessionLoss::Lost(generation) => LifecycleEventKind::Lost { generation, cause },
                SessionLoss::StartFailed(generation) => LifecycleEventKind::StartFailed { generation, cause },
            });
            let wait = until.map(|until| until.saturating_duration_since(news.now));
            match phase {
                Phase::Backoff { .. } if !news.is_restart_planned => {
                    self.emit_lifecycle_event(LifecycleEventKind::RestartOnDemand);
                }
                Phase::Backoff { .. } => {
                    self.emit_lifecycle_event(LifecycleEventKind::RestartPlanned {
                        delay: wait.unwrap_or_default(),
                    });
                }
                Phase::Ejected { ejection, .. } => {
                    let failure = news.ejected_by.as_ref();
                    let remedy = failure.and_then(|failure| self.remedy_of(failure));
                    self.emit_lifecycle_event(LifecycleEventKind::Ejected {
                        ejection: *ejection,
                        cause,
                        remedy: remedy.as_deref(),
                        readmit_in: wait,
                    });
                }
                Phase::NeedsAuth { .. } => {
                    self.emit_lifecycle_event(LifecycleEventKind::NeedsAuth {
                        cause,
                        retry_in: wait.unwrap_or_default(),
                    });
                }
                _ => {}
            }
        }
        match news.breaker_state {
            Some(BreakerState::Open { retry_after }) => {
                self.emit_lifecycle_event(LifecycleEventKind::BreakerOpened { wait: retry_after })
            }
            Some(BreakerState::Closed { .. }) => self.emit_lifecycle_event(LifecycleEventKind::BreakerClosed),
            Some(BreakerState::HalfOpen { .. }) | None => {}
        }
    }
}
