//! Circuit breaker of one server: holds calls back after failures, for as few callers as the failures allow.
//!
//! | in a row, without a success between | holds back |
//! |---|---|
//! | `failures` failed calls of one caller to one tool | that caller at that tool |
//! | `failures` failures of two or more callers | every caller |
//! | `failures` failures, a crash or a failed start among them | every caller |
//! | a pause that the server asks for | every caller |
//!
//! So one caller alone holds back nobody but itself. Each scope, the server's and a caller's at a tool, is the same
//! machine ([`Scope`]):
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
//! A probe of the server's scope that fails by a call is one caller's word again: that caller waits twice as long,
//! and the next caller may probe at once. Only when its probe fails too does the scope re-open for every caller.
//!
//! A crash without a call to blame ([`Breaker::fail`]) counts like a failed call while closed and like two failed
//! probes while half-open.
//!
//! Half-open is not a flag but a [`Permit`]: exactly one exists, and its holder is the probe. Dropping it in any way,
//! a panic included, frees the place for the next caller. Every trip, closing and clearing is a turn, and a permit
//! given before the last turn of a scope settles nothing there.

mod scope;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashlink::LinkedHashMap;

use self::scope::BreakerScope;
use crate::sabotage;
use crate::spec::BreakerSettings;

/// Callers at tools whose failures are counted; the one that failed least recently is forgotten first. More than
/// this fail at once only where the whole server fails, which two callers are enough to show.
const MAX_CALLER_SCOPES: usize = 256;

/// The longest wait that doubling reaches. A server that is down for hours is
/// then asked twelve times an hour, which neither burdens it nor hides for
/// long that it has come back. A longer first wait of the operator stands.
pub const MAX_RESET: Duration = Duration::from_secs(300);

/// What callers are told while the probe is out. When it ends nobody knows
/// yet; a second is long enough not to be a busy loop and short enough not to
/// miss a recovery.
pub const PROBE_RETRY: Duration = Duration::from_secs(1);

/// Caller and tool of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallOrigin<'a> {
    /// The principal.
    pub caller: &'a str,
    /// The tool, or the method of a request that calls none.
    pub tool: &'a str,
}

/// The right to send one call.
///
/// It is handed back with [`Breaker::settle`]; dropping it instead is the same
/// as settling it [`Mark::Neutral`].
#[must_use = "a call is sent under its permit and settled with it"]
#[derive(Debug)]
pub struct BreakerPermit {
    /// The turn of the breaker in which it was given; `None` for a request that the breaker does not judge.
    epoch: Option<u64>,
    /// Held by the server's probe alone: the scope watches whether it is still alive.
    probe: Option<Arc<()>>,
    /// Likewise for the caller's own scope.
    _caller_probe: Option<Arc<()>>,
}

impl BreakerPermit {
    /// Returns whether this call is the probe that decides if the server's scope closes.
    pub fn is_probe(&self) -> bool {
        self.probe.is_some()
    }
}

/// The call is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the breaker is open")]
pub struct BreakerRejection {
    /// When asking again makes sense.
    pub retry_after: Duration,
    /// Failures in a row that led to it: of the caller itself at this tool, or `None` if every caller is held back.
    pub caller_failures: Option<u32>,
}

/// What a call says about its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthSignal {
    /// The server works, whatever it answered.
    Success,
    /// The server or the way to it failed.
    Failure,
    /// The call says nothing about the server.
    Neutral,
}

/// What the breaker looks like from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
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

/// The callers whose calls have failed since the last success of any.
#[derive(Debug, Default)]
enum FailedCallers {
    #[default]
    None,
    One(Box<str>),
    /// Two callers, or a failure without a call.
    Several,
}

impl FailedCallers {
    fn add(&mut self, caller: &str) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(caller.into()),
            Self::One(other) if *other == *caller => Self::One(other),
            Self::One(_) | Self::Several => Self::Several,
        };
    }
}

/// The caller whose probe was the only one to fail since the last turn of the server's scope.
#[derive(Debug)]
struct LoneProbeFailure {
    caller: Box<str>,
    /// When it may probe again.
    until: Instant,
    /// The wait that ends then, from which its next failed probe doubles.
    wait: Duration,
}

/// The breaker of one server.
#[derive(Debug)]
pub struct Breaker {
    settings: BreakerSettings,
    /// Of all callers together.
    server: BreakerScope,
    failed_callers: FailedCallers,
    /// Only while the server's scope is half-open.
    lone_probe_failure: Option<LoneProbeFailure>,
    /// Of callers at tools, those alone that failed last. Bounded by [`MAX_RECORDS`].
    caller_scopes: LinkedHashMap<Box<str>, BreakerScope>,
    /// Grows with every turn of any scope.
    epoch: u64,
    /// Turns of the server's scope.
    server_transitions: u64,
}

impl Breaker {
    /// Closed. With `failures = 0` it never opens.
    pub fn new(settings: BreakerSettings) -> Self {
        Self {
            settings,
            server: BreakerScope::default(),
            failed_callers: FailedCallers::None,
            lone_probe_failure: None,
            caller_scopes: LinkedHashMap::new(),
            epoch: 0,
            server_transitions: 0,
        }
    }

    /// Asks to send one call; a request without an origin, such as a list, always passes and says nothing.
    pub fn admit(
        &mut self,
        origin: Option<CallOrigin<'_>>,
        now: Instant,
    ) -> Result<BreakerPermit, BreakerRejection> {
        let Some(origin) = origin else {
            return Ok(BreakerPermit { epoch: None, probe: None, _caller_probe: None });
        };
        let own_probe = match self.caller_scope(origin) {
            None => None,
            Some(scope) => scope.admit(now).map_err(|retry_after| BreakerRejection {
                retry_after,
                caller_failures: Some(scope.consecutive),
            })?,
        };
        let refused = |retry_after| BreakerRejection { retry_after, caller_failures: None };
        if let Some(suspect) = &self.lone_probe_failure
            && *suspect.caller == *origin.caller
            && now < suspect.until
        {
            return Err(refused(suspect.until.saturating_duration_since(now)));
        }
        // A probe of its own that is dropped here is free again.
        let probe = self.server.admit(now).map_err(refused)?;
        Ok(BreakerPermit { epoch: Some(self.epoch), probe, _caller_probe: own_probe })
    }

    /// Returns whether the breaker has not turned, for server and caller, since it gave a permit.
    /// One that has waited since before a trip does not.
    pub fn is_current(&mut self, permit: &BreakerPermit, origin: Option<CallOrigin<'_>>) -> bool {
        let (Some(turn), Some(origin)) = (permit.epoch, origin) else { return true };
        self.server.is_current(turn) && self.caller_scope(origin).is_none_or(|own| own.is_current(turn))
    }

    /// Takes a permit back with what the call said about the server.
    pub fn record_signal(
        &mut self,
        permit: BreakerPermit,
        origin: Option<CallOrigin<'_>>,
        mark: HealthSignal,
        now: Instant,
    ) {
        let (Some(turn), Some(origin)) = (permit.epoch, origin) else { return };
        match mark {
            HealthSignal::Neutral => {}
            HealthSignal::Success => self.on_success(turn, origin),
            HealthSignal::Failure => self.on_failure(turn, origin, now),
        }
    }

    fn on_success(&mut self, turn: u64, origin: CallOrigin<'_>) {
        if self.caller_scope(origin).is_some_and(|own| own.is_current(turn)) {
            self.caller_scopes.remove(&*caller_scope_key(origin));
        }
        if !self.server.is_current(turn) {
            return;
        }
        self.server.consecutive = 0;
        self.failed_callers = FailedCallers::None;
        if !self.server.is_closed() {
            let turn = self.begin_server_epoch();
            self.server.close(turn);
        }
    }

    fn on_failure(&mut self, turn: u64, origin: CallOrigin<'_>, now: Instant) {
        let settings = self.settings;
        // Before the server's scope turns: the failure is of the turn before.
        let own = self.caller_scope_or_insert(origin);
        if own.is_current(turn) {
            own.consecutive = own.consecutive.saturating_add(1);
            if let Some(wait) = own.opening_wait(&settings, now) {
                self.epoch += 1;
                let turn = self.epoch;
                if let Some(own) = self.caller_scope(origin) {
                    own.open(now, wait, turn);
                }
            }
        }
        if !self.server.is_current(turn) {
            return;
        }
        self.server.consecutive = self.server.consecutive.saturating_add(1);
        self.failed_callers.add(origin.caller);
        sabotage!(SharedBreaker, self.failed_callers = FailedCallers::Several);
        if self.server.is_closed() && !matches!(self.failed_callers, FailedCallers::Several) {
            return;
        }
        let Some(wait) = self.server.opening_wait(&settings, now) else { return };
        match &self.lone_probe_failure {
            _ if self.server.is_closed() => self.open_server(now, wait),
            Some(suspect) if *suspect.caller != *origin.caller => self.open_server(now, wait),
            known => {
                let wait = known.as_ref().map_or(wait, |suspect| scope::double_wait(suspect.wait, &settings));
                self.lone_probe_failure =
                    Some(LoneProbeFailure { caller: origin.caller.into(), until: now + wait, wait });
            }
        }
    }

    /// Counts a failure without a call to blame: the server crashed, hung or
    /// could not be started. This counts once, however many calls it ended;
    /// their permits are settled [`Mark::Neutral`].
    ///
    /// While open nothing changes but the count, since no call relies on the
    /// server; once the wait is over it is worth as much as a failed probe.
    pub fn record_server_failure(&mut self, now: Instant) {
        self.server.consecutive = self.server.consecutive.saturating_add(1);
        self.failed_callers = FailedCallers::Several;
        if let Some(wait) = self.server.opening_wait(&self.settings, now) {
            self.open_server(now, wait);
        }
    }

    /// Holds every caller back for as long as the server asks for, then lets one through as
    /// the probe. The server asks for itself, so this holds with `failures = 0` too. A
    /// longer wait that is under way stands.
    pub fn hold_open(&mut self, now: Instant, wait: Duration) {
        if self.server.time_left(now).is_none_or(|left| left < wait) {
            self.open_server(now, wait);
        }
    }

    fn open_server(&mut self, now: Instant, wait: Duration) {
        let turn = self.begin_server_epoch();
        self.server.open(now, wait, turn);
    }

    /// Begins another turn of the server's scope.
    fn begin_server_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.server_transitions += 1;
        self.lone_probe_failure = None;
        self.epoch
    }

    /// The scope of a caller at a tool, if any of its calls has failed.
    fn caller_scope(&mut self, origin: CallOrigin<'_>) -> Option<&mut BreakerScope> {
        // Where no call has failed nothing is allocated to look for one.
        if self.caller_scopes.is_empty() {
            None
        } else {
            self.caller_scopes.get_mut(&*caller_scope_key(origin))
        }
    }

    /// The same, made if there is none.
    fn caller_scope_or_insert(&mut self, origin: CallOrigin<'_>) -> &mut BreakerScope {
        let key = caller_scope_key(origin);
        let scope = self.caller_scopes.remove(&key).unwrap_or_default();
        if self.caller_scopes.len() >= MAX_CALLER_SCOPES {
            self.caller_scopes.pop_front();
        }
        // A record that was taken out comes last: it failed most recently.
        self.caller_scopes.entry(key).or_insert(scope)
    }

    /// Returns the state that a caller without failures meets next.
    pub fn circuit(&self, now: Instant) -> BreakerState {
        self.server.circuit(now)
    }

    /// Failures since the last success of any caller, failed probes included.
    pub fn consecutive_failures(&self) -> u32 {
        self.server.consecutive
    }

    /// Callers at tools that are held back by their own failures alone.
    pub fn held_back(&self) -> usize {
        self.caller_scopes.values().filter(|own| !own.is_closed()).count()
    }

    /// Turns for every caller, by tripping, closing or being cleared: another number than
    /// before says that something changed.
    pub fn transitions(&self) -> u64 {
        self.server_transitions
    }

    /// Closes, whatever happened: an operator reloads the server.
    pub fn clear(&mut self) {
        self.caller_scopes.clear();
        self.failed_callers = FailedCallers::None;
        let turn = self.begin_server_epoch();
        self.server.close(turn);
    }
}

/// Names the record of a caller at a tool. No principal holds the separator.
fn caller_scope_key(origin: CallOrigin<'_>) -> Box<str> {
    [origin.caller, "\0", origin.tool].concat().into()
}

#[cfg(test)]
mod tests;
