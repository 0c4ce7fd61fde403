//! State machine of one scope of a breaker: closed, open for a while, half-open with one probe.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{BreakerState, MAX_RESET, PROBE_RETRY};
use crate::sabotage;
use crate::spec::BreakerSettings;

#[derive(Debug, Default)]
enum ScopeState {
    #[default]
    Closed,
    Open {
        since: Instant,
        wait: Duration,
    },
    HalfOpen {
        /// The wait that just ended; a failed probe doubles it.
        wait: Duration,
        /// Alive as long as the probe's permit is.
        probe: Weak<()>,
    },
}

/// One scope of a breaker.
#[derive(Debug, Default)]
pub(super) struct BreakerScope {
    state: ScopeState,
    /// Failures since the last success, failed probes included.
    pub(super) consecutive: u32,
    /// The epoch of the breaker in which this scope last opened or closed.
    epoch: u64,
}

impl BreakerScope {
    /// Admits a caller. Returns the token of the probe if the caller is the probe, or the time to wait if it
    /// is refused.
    pub(super) fn admit(&mut self, now: Instant) -> Result<Option<Arc<()>>, Duration> {
        sabotage!(
            BreakerWithoutPermit,
            if let ScopeState::HalfOpen { probe, .. } = &mut self.state {
                *probe = Weak::new();
            }
        );
        let wait = match &self.state {
            ScopeState::Closed => return Ok(None),
            ScopeState::Open { since, wait } => match time_left(*since, *wait, now) {
                Some(retry_after) => return Err(retry_after),
                None => *wait,
            },
            ScopeState::HalfOpen { probe, .. } if is_alive(probe) => return Err(PROBE_RETRY),
            ScopeState::HalfOpen { wait, .. } => *wait,
        };
        let probe = Arc::new(());
        self.state = ScopeState::HalfOpen { wait, probe: Arc::downgrade(&probe) };
        Ok(Some(probe))
    }

    /// Counts one more failure and returns the wait that opens the scope; `None` if it stays as it is.
    pub(super) fn opening_wait(&self, settings: &BreakerSettings, now: Instant) -> Option<Duration> {
        match self.state {
            ScopeState::Closed if settings.failures == 0 || self.consecutive < settings.failures => None,
            ScopeState::Closed => Some(settings.reset),
            ScopeState::Open { .. } if self.time_left(now).is_some() => None,
            ScopeState::Open { wait, .. } | ScopeState::HalfOpen { wait, .. } => {
                Some(double_wait(wait, settings))
            }
        }
    }

    pub(super) fn open(&mut self, now: Instant, wait: Duration, epoch: u64) {
        self.state = ScopeState::Open { since: now, wait };
        self.epoch = epoch;
    }

    pub(super) fn close(&mut self, epoch: u64) {
        *self = Self { epoch, ..Self::default() };
    }

    /// Returns whether the scope has made no transition since a permit was given.
    pub(super) fn is_current(&self, given: u64) -> bool {
        given >= self.epoch
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, ScopeState::Closed)
    }

    /// Returns the rest of the wait of an open scope.
    pub(super) fn time_left(&self, now: Instant) -> Option<Duration> {
        match self.state {
            ScopeState::Open { since, wait } => time_left(since, wait, now),
            ScopeState::Closed | ScopeState::HalfOpen { .. } => None,
        }
    }

    pub(super) fn circuit(&self, now: Instant) -> BreakerState {
        match &self.state {
            ScopeState::Closed => BreakerState::Closed { consecutive: self.consecutive },
            ScopeState::Open { since, wait } => match time_left(*since, *wait, now) {
                Some(retry_after) => BreakerState::Open { retry_after },
                None => BreakerState::HalfOpen { is_probing: false },
            },
            ScopeState::HalfOpen { probe, .. } => BreakerState::HalfOpen { is_probing: is_alive(probe) },
        }
    }
}

/// Returns twice a wait, up to the cap.
pub(super) fn double_wait(wait: Duration, settings: &BreakerSettings) -> Duration {
    wait.saturating_mul(2).min(MAX_RESET.max(settings.reset))
}

/// Returns the rest of a wait; `None` when it is over.
fn time_left(since: Instant, wait: Duration, now: Instant) -> Option<Duration> {
    wait.checked_sub(now.saturating_duration_since(since)).filter(|left| !left.is_zero())
}

fn is_alive(probe: &Weak<()>) -> bool {
    probe.strong_count() > 0
}
