//! What a change at the desk has led to, told when the desk has been left.

use std::time::Instant;

use ostler_core::breaker::Circuit;
use ostler_core::supervisor::{Failure, Phase, Supervisor};

use super::slot::Slot;
use crate::happening::{Happening, What};

/// A session that is no more, or never came to be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Setback {
    /// It was up.
    Lost(u64),
    /// It was on its way.
    StartFailed(u64),
}

/// How the breaker stood before a change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Before(u64);

impl Before {
    pub(super) fn of(supervisor: &Supervisor) -> Self {
        Self(supervisor.breaker_turns())
    }

    /// What is different now. Calls that went well find nothing, and nothing
    /// is made for them.
    pub(super) fn news(
        self,
        supervisor: &Supervisor,
        setback: Option<Setback>,
        now: Instant,
    ) -> Option<Box<News>> {
        let has_turned = supervisor.breaker_turns() != self.0;
        if !has_turned && setback.is_none() {
            return None;
        }
        let cause = || supervisor.failure().map_or_else(String::new, ToString::to_string);
        let is_out = setback.is_some() && matches!(supervisor.phase(), Phase::Ejected { .. });
        Some(Box::new(News {
            circuit: has_turned.then(|| supervisor.circuit(now)),
            setback: setback
                .map(|setback| (setback, cause(), supervisor.phase().clone(), supervisor.next_wake())),
            ejected_by: supervisor.failure().filter(|_| is_out).cloned(),
            now,
        }))
    }
}

/// What is to be told.
pub(super) struct News {
    circuit: Option<Circuit>,
    /// What was lost, why, where the server stands after it, and until when.
    setback: Option<(Setback, String, Phase, Option<Instant>)>,
    /// The failure that took the server out.
    ejected_by: Option<Failure>,
    now: Instant,
}

impl Slot {
    /// Tells whoever observes what happened here.
    pub(super) fn happened(&self, what: What<'_>) {
        let (server, partition) = (self.key.server.as_str(), &*self.key.partition);
        self.host.happened(&Happening { server, partition, what });
    }

    /// Tells what a change has led to. The desk must not be locked.
    pub(super) fn announce(&self, news: Option<Box<News>>) {
        let Some(news) = news else { return };
        if let Some((setback, cause, phase, until)) = &news.setback {
            self.happened(match *setback {
                Setback::Lost(generation) => What::Lost { generation, cause },
                Setback::StartFailed(generation) => What::StartFailed { generation, cause },
            });
            let wait = until.map(|until| until.saturating_duration_since(news.now));
            match phase {
                Phase::Backoff { .. } => {
                    self.happened(What::RestartPlanned { delay: wait.unwrap_or_default() });
                }
                Phase::Ejected { ejection, .. } => {
                    let failure = news.ejected_by.as_ref();
                    let remedy = failure.and_then(|failure| self.remedy_of(failure));
                    self.happened(What::Ejected {
                        ejection: *ejection,
                        cause,
                        remedy: remedy.as_deref(),
                        readmit_in: wait,
                    });
                }
                Phase::NeedsAuth { .. } => {
                    self.happened(What::NeedsAuth { cause, retry_in: wait.unwrap_or_default() });
                }
                _ => {}
            }
        }
        match news.circuit {
            Some(Circuit::Open { retry_after }) => self.happened(What::BreakerOpened { wait: retry_after }),
            Some(Circuit::Closed { .. }) => self.happened(What::BreakerClosed),
            Some(Circuit::HalfOpen { .. }) | None => {}
        }
    }
}
