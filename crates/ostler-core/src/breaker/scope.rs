//! State machine of one scope of a breaker: closed, open for a while, half-open with one probe.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{Circuit, MAX_RESET, PROBE_RETRY};
use crate::sabotage;
use crate::spec::BreakerSettings;

#[derive(Debug, Default)]
enum State {
    #[default]
    Closed,
    Open {
        since: Instant,
        wait: Duration,
    },
    HalfOpen {
        /// The wait that just ended, from which a failed probe doubles.
        wait: Duration,
        /// Alive as long as the probe's permit is.
        probe: Weak<()>,
    },
}

/// One scope of a breaker.
#[derive(Debug, Default)]
pub(super) struct Scope {
    state: State,
    /// Failures since the last success, failed probes included.
    pub(super) consecutive: u32,
    /// The turn of the breaker in which this scope last opened or closed.
    turn: u64,
}

impl Scope {
    /// Asks to pass; the value is what the probe holds, if the caller is the probe. Refused with the time to wait.
    pub(super) fn admit(&mut self, now: Instant) -> Result<Option<Arc<()>>, Duration> {
        sabotage!(
            BreakerWithoutPermit,
            if let State::HalfOpen { probe, .. } = &mut self.state {
                *probe = Weak::new();
            }
        );
        let wait = match &self.state {
            State::Closed => return Ok(None),
            State::Open { since, wait } => match time_left(*since, *wait, now) {
                Some(retry_after) => return Err(retry_after),
                None => *wait,
            },
            State::HalfOpen { probe, .. } if is_alive(probe) => return Err(PROBE_RETRY),
            State::HalfOpen { wait, .. } => *wait,
        };
        let probe = Arc::new(());
        self.state = State::HalfOpen { wait, probe: Arc::downgrade(&probe) };
        Ok(Some(probe))
    }

    /// Counts one more failure and returns how long the scope opens for; `None` if it stays as it is.
    pub(super) fn next_wait(&self, settings: &BreakerSettings, now: Instant) -> Option<Duration> {
        match self.state {
            State::Closed if settings.failures == 0 || self.consecutive < settings.failures => None,
            State::Closed => Some(settings.reset),
            State::Open { .. } if self.time_left(now).is_some() => None,
            State::Open { wait, .. } | State::HalfOpen { wait, .. } => Some(doubled(wait, settings)),
        }
    }

    pub(super) fn open(&mut self, now: Instant, wait: Duration, turn: u64) {
        self.state = State::Open { since: now, wait };
        self.turn = turn;
    }

    pub(super) fn close(&mut self, turn: u64) {
        *self = Self { turn, ..Self::default() };
    }

    /// Returns whether the scope has not turned since a permit was given.
    pub(super) fn is_current(&self, given: u64) -> bool {
        given >= self.turn
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// What is left of the wait of an open scope.
    pub(super) fn time_left(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Open { since, wait } => time_left(since, wait, now),
            State::Closed | State::HalfOpen { .. } => None,
        }
    }

    pub(super) fn circuit(&self, now: Instant) -> Circuit {
        match &self.state {
            State::Closed => Circuit::Closed { consecutive: self.consecutive },
            State::Open { since, wait } => match time_left(*since, *wait, now) {
                Some(retry_after) => Circuit::Open { retry_after },
                None => Circuit::HalfOpen { is_probing: false },
            },
            State::HalfOpen { probe, .. } => Circuit::HalfOpen { is_probing: is_alive(probe) },
        }
    }
}

/// Twice a wait, up to the cap.
pub(super) fn doubled(wait: Duration, settings: &BreakerSettings) -> Duration {
    wait.saturating_mul(2).min(MAX_RESET.max(settings.reset))
}

/// What is left of a wait; `None` when it is over.
fn time_left(since: Instant, wait: Duration, now: Instant) -> Option<Duration> {
    wait.checked_sub(now.saturating_duration_since(since)).filter(|left| !left.is_zero())
}

fn is_alive(probe: &Weak<()>) -> bool {
    probe.strong_count() > 0
}
