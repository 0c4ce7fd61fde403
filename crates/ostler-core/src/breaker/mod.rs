//! When calls stop being sent to a failing server.
//!
//! ```text
//!            `failures` in a row                    `wait` is over
//!   Closed ──────────────────────▶ Open{since,wait} ──────────────▶ HalfOpen{probe}
//!     ▲ ▲                            ▲                                │  │  │
//!     │ └── success: count = 0       └──── the probe fails: 2·wait ───┘  │  │
//!     └───────────────────────── the probe succeeds ─────────────────────┘  │
//!                   neutral or dropped: the place is free again ────────────┘
//! ```
//!
//! A crash without a call to blame ([`Breaker::fail`]) counts like a failed
//! call while closed and like a failed probe while half-open.
//!
//! Half-open is not a flag but a [`Permit`]: exactly one exists, and whoever
//! holds it is the probe. Dropping it in any way, a panic included, frees the
//! place for the next caller. Every trip, closing and clearing begins a new
//! epoch, and a permit of an earlier epoch settles nothing.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::sabotage::{self, Sabotage};
use crate::spec::BreakerSettings;

/// The longest wait that doubling reaches. A server that is down for hours is
/// then asked twelve times an hour, which neither burdens it nor hides for
/// long that it has come back. A longer first wait of the operator stands.
pub const MAX_RESET: Duration = Duration::from_secs(300);

/// What callers are told while the probe is out. When it ends nobody knows
/// yet; a second is long enough not to be a busy loop and short enough not to
/// miss a recovery.
pub const PROBE_RETRY: Duration = Duration::from_secs(1);

/// The right to send one call.
///
/// It is handed back with [`Breaker::settle`]; dropping it instead is the same
/// as settling it [`Mark::Neutral`].
#[must_use = "a call is sent under its permit and settled with it"]
#[derive(Debug)]
pub struct Permit {
    epoch: u64,
    /// Held by the probe alone: the breaker watches whether it is still alive.
    probe: Option<Arc<()>>,
}

impl Permit {
    /// Whether this call decides if the breaker closes.
    pub fn is_probe(&self) -> bool {
        self.probe.is_some()
    }
}

/// The call is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the breaker is open")]
pub struct Refused {
    /// When asking again makes sense.
    pub retry_after: Duration,
}

/// What a call says about its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The server works, whatever it answered.
    Success,
    /// The server or the way to it failed.
    Failure,
    /// The call says nothing about the server.
    Neutral,
}

/// What the breaker looks like from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Circuit {
    /// Calls pass.
    Closed {
        /// Failures in a row so far.
        consecutive: u32,
    },
    /// No call passes.
    Open {
        /// Until a probe may pass.
        retry_after: Duration,
    },
    /// One call passes as the probe.
    HalfOpen {
        /// Whether it is on its way.
        is_probing: bool,
    },
}

#[derive(Debug)]
enum State {
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

/// The breaker of one server.
#[derive(Debug)]
pub struct Breaker {
    settings: BreakerSettings,
    state: State,
    /// Failures since the last success, failed probes included.
    consecutive: u32,
    /// Grows with every trip, closing and clearing.
    epoch: u64,
}

impl Breaker {
    /// Closed. With `failures = 0` it never opens.
    pub fn new(settings: BreakerSettings) -> Self {
        Self { settings, state: State::Closed, consecutive: 0, epoch: 0 }
    }

    /// Asks to send one call.
    pub fn admit(&mut self, now: Instant) -> Result<Permit, Refused> {
        let wait = match &self.state {
            State::Closed => return Ok(Permit { epoch: self.epoch, probe: None }),
            State::Open { since, wait } => match time_left(*since, *wait, now) {
                Some(retry_after) => return Err(Refused { retry_after }),
                None => *wait,
            },
            State::HalfOpen { probe, .. }
                if is_alive(probe) && !sabotage::is_on(Sabotage::BreakerWithoutPermit) =>
            {
                return Err(Refused { retry_after: PROBE_RETRY });
            }
            State::HalfOpen { wait, .. } => *wait,
        };
        let probe = Arc::new(());
        self.state = State::HalfOpen { wait, probe: Arc::downgrade(&probe) };
        Ok(Permit { epoch: self.epoch, probe: Some(probe) })
    }

    /// Whether a permit still stands for what the breaker thinks of the server.
    /// One that has waited since before a trip does not.
    pub fn is_current(&self, permit: &Permit) -> bool {
        permit.epoch == self.epoch
    }

    /// Takes a permit back with what the call said about the server.
    pub fn settle(&mut self, permit: Permit, mark: Mark, now: Instant) {
        if permit.epoch != self.epoch {
            return;
        }
        match mark {
            Mark::Neutral => {}
            Mark::Success => self.on_success(),
            Mark::Failure => self.fail(now),
        }
    }

    // No permit of the current epoch is out while the breaker is open, so below
    // `Open` only stands beside `HalfOpen` to have every state named.

    fn on_success(&mut self) {
        self.consecutive = 0;
        match self.state {
            State::Closed => {}
            // Permits of the current epoch are out while half-open, never while open.
            State::Open { .. } | State::HalfOpen { .. } => self.enter(State::Closed),
        }
    }

    /// The server failed by itself, without a call to blame: it crashed, hung or
    /// could not be started. This counts once, however many calls it ended;
    /// their permits are settled [`Mark::Neutral`].
    ///
    /// While open nothing changes but the count, since nobody relies on the
    /// server; once the wait is over it is worth as much as a failed probe.
    pub fn fail(&mut self, now: Instant) {
        self.consecutive = self.consecutive.saturating_add(1);
        let wait = match self.state {
            State::Closed if self.settings.failures == 0 || self.consecutive < self.settings.failures => {
                return;
            }
            State::Closed => self.settings.reset,
            State::Open { since, wait } if time_left(since, wait, now).is_some() => return,
            State::Open { wait, .. } | State::HalfOpen { wait, .. } => {
                wait.saturating_mul(2).min(MAX_RESET.max(self.settings.reset))
            }
        };
        self.enter(State::Open { since: now, wait });
    }

    /// The server asks for a pause: nobody passes before it is over, then one as
    /// the probe. It asks for itself, so this holds with `failures = 0` too. A
    /// longer wait that is under way stands.
    pub fn hold(&mut self, now: Instant, wait: Duration) {
        if let State::Open { since, wait: open } = self.state
            && time_left(since, open, now).is_some_and(|left| left >= wait)
        {
            return;
        }
        self.enter(State::Open { since: now, wait });
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.epoch += 1;
    }

    /// What the next caller would meet.
    pub fn circuit(&self, now: Instant) -> Circuit {
        match &self.state {
            State::Closed => Circuit::Closed { consecutive: self.consecutive },
            State::Open { since, wait } => match time_left(*since, *wait, now) {
                Some(retry_after) => Circuit::Open { retry_after },
                None => Circuit::HalfOpen { is_probing: false },
            },
            State::HalfOpen { probe, .. } => Circuit::HalfOpen { is_probing: is_alive(probe) },
        }
    }

    /// Failures since the last success, failed probes included.
    pub fn consecutive_failures(&self) -> u32 {
        self.consecutive
    }

    /// How often it has tripped, closed or been cleared: another number than
    /// before says that something changed.
    pub fn turns(&self) -> u64 {
        self.epoch
    }

    /// Closes, whatever happened: an operator reloads the server.
    pub fn clear(&mut self) {
        self.consecutive = 0;
        self.enter(State::Closed);
    }
}

/// What is left of a wait; `None` when it is over.
fn time_left(since: Instant, wait: Duration, now: Instant) -> Option<Duration> {
    wait.checked_sub(now.saturating_duration_since(since)).filter(|left| !left.is_zero())
}

fn is_alive(probe: &Weak<()>) -> bool {
    probe.strong_count() > 0
}

#[cfg(test)]
mod tests;
