//! Circuit breaker of one server: holds calls back after failures, for as few callers as the failures allow.
//!
//! | in a row, without a success between | holds back |
//! |---|---|
//! | `failures` failed calls of one caller to one tool | that caller at that tool |
//! | `failures` failures of two or more callers | every caller |
//! | `failures` failures, a crash or a failed start among them | every caller |
//! | a pause that the server asks for | every caller |
//!
//! So a caller that fails alone holds back only itself. Each scope, the server's and a caller's at a tool, is
//! the same state machine ([`BreakerScope`]):
//!
//! ```text
//!            `failures` in a row                    `wait` is over
//!   Closed ──────────────────────▶ Open{since,wait} ──────────────▶ HalfOpen{probe}
//!     ▲ ▲                            ▲                                │  │  │
//!     │ └── success: count = 0       └──── the probe fails: 2·wait ───┘  │  │
//!     └───────────────────────── the probe succeeds ─────────────────────┘  │
//!                neutral or dropped: the next caller may probe ────────────┘
//! ```
//!
//! A probe of the server's scope that fails by a call counts for its caller alone: that caller waits twice as
//! long, and the next caller may probe at once. The scope re-opens for every caller only when that probe
//! fails too.
//!
//! A failure without a call ([`Breaker::record_server_failure`]) counts as one failed call while closed and
//! as two failed probes while half-open.
//!
//! Half-open is not a flag but a [`BreakerPermit`]: exactly one exists, and its holder is the probe. Dropping
//! it in any way, a panic included, lets the next caller probe. Every opening, closing and clearing begins
//! another epoch, and a permit given in an earlier epoch of a scope changes nothing there.

mod scope;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashlink::LinkedHashMap;

use self::scope::BreakerScope;
use crate::sabotage;
use crate::spec::BreakerSettings;

/// Most scopes of callers at tools; the one that failed least recently is evicted first. More than this fail
/// at once only if the whole server fails, which two callers are enough to show.
const MAX_CALLER_SCOPES: usize = 256;

/// Longest wait that doubling reaches. A server that is down for hours is then probed twelve times an hour,
/// which does not burden it and soon shows its recovery. A longer first wait of the operator is kept.
pub const MAX_RESET: Duration = Duration::from_secs(300);

/// Retry time for callers while the probe is in flight. Its end is unknown; a second is long enough to avoid
/// a busy loop and short enough to notice a recovery.
pub const PROBE_RETRY: Duration = Duration::from_secs(1);

/// Caller and tool of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallOrigin<'a> {
    /// The principal.
    pub caller: &'a str,
    /// The tool, or the method of a request that calls none.
    pub tool: &'a str,
}

/// Permit to send one call.
///
/// It is returned with [`Breaker::record_signal`]; dropping it is the same as recording
/// [`HealthSignal::Neutral`].
#[must_use = "a call is sent under its permit and settled with it"]
#[derive(Debug)]
pub struct BreakerPermit {
    /// The epoch in which it was given; `None` for a request that the breaker ignores.
    epoch: Option<u64>,
    /// Held by the server's probe only: the scope checks whether it is still alive.
    probe: Option<Arc<()>>,
    /// The same for the caller's own scope.
    _caller_probe: Option<Arc<()>>,
}

impl BreakerPermit {
    /// Returns whether this call is the probe that decides if the server's scope closes.
    pub fn is_probe(&self) -> bool {
        self.probe.is_some()
    }
}

/// Refusal to send a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the breaker is open")]
pub struct BreakerRejection {
    /// Time after which a retry makes sense.
    pub retry_after: Duration,
    /// Failures in a row of the caller itself at this tool, or `None` if every caller is held back.
    pub caller_failures: Option<u32>,
}

/// Evidence that a call gives about its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthSignal {
    /// The server works, whatever it answered.
    Success,
    /// The server or the connection to it failed.
    Failure,
    /// The call gives no evidence about the server.
    Neutral,
}

/// State of the breaker, as status shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// Calls pass.
    Closed {
        /// Failures in a row so far.
        consecutive: u32,
    },
    /// No call passes.
    Open {
        /// Time until a probe may pass.
        retry_after: Duration,
    },
    /// One call passes as the probe.
    HalfOpen {
        /// True if the probe is in flight.
        is_probing: bool,
    },
}

/// Callers whose calls have failed since the last success of any caller.
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

/// The caller whose probe was the only one to fail in this epoch of the server's scope.
#[derive(Debug)]
struct LoneProbeFailure {
    caller: Box<str>,
    /// Time at which it may probe again.
    until: Instant,
    /// The wait that ends then; its next failed probe doubles it.
    wait: Duration,
}

/// The breaker of one server.
#[derive(Debug)]
pub struct Breaker {
    settings: BreakerSettings,
    /// Scope of all callers together.
    server: BreakerScope,
    failed_callers: FailedCallers,
    /// `Some` only while the server's scope is half-open.
    lone_probe_failure: Option<LoneProbeFailure>,
    /// Scopes of callers at tools that failed last. At most [`MAX_CALLER_SCOPES`].
    caller_scopes: LinkedHashMap<Box<str>, BreakerScope>,
    /// Grows with every transition of any scope.
    epoch: u64,
    /// Number of transitions of the server's scope.
    server_transitions: u64,
}

impl Breaker {
    /// Creates a closed breaker. With `failures = 0` it never opens.
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

    /// Admits one call. A request without an origin, such as a list, always passes and is not counted.
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
        if let Some(failed) = &self.lone_probe_failure
            && *failed.caller == *origin.caller
            && now < failed.until
        {
            return Err(refused(failed.until.saturating_duration_since(now)));
        }
        // The caller's own probe is free again if it is dropped here.
        let probe = self.server.admit(now).map_err(refused)?;
        Ok(BreakerPermit { epoch: Some(self.epoch), probe, _caller_probe: own_probe })
    }

    /// Returns whether the breaker has made no transition, for server and caller, since it gave a permit. A
    /// call that was waiting before the breaker opened is no longer current.
    pub fn is_current(&mut self, permit: &BreakerPermit, origin: Option<CallOrigin<'_>>) -> bool {
        let (Some(epoch), Some(origin)) = (permit.epoch, origin) else { return true };
        self.server.is_current(epoch)
            && self.caller_scope(origin).is_none_or(|caller_scope| caller_scope.is_current(epoch))
    }

    /// Takes a permit back with the call's evidence about the server.
    pub fn record_signal(
        &mut self,
        permit: BreakerPermit,
        origin: Option<CallOrigin<'_>>,
        signal: HealthSignal,
        now: Instant,
    ) {
        let (Some(epoch), Some(origin)) = (permit.epoch, origin) else { return };
        match signal {
            HealthSignal::Neutral => {}
            HealthSignal::Success => self.on_success(epoch, origin),
            HealthSignal::Failure => self.on_failure(epoch, origin, now),
        }
    }

    fn on_success(&mut self, epoch: u64, origin: CallOrigin<'_>) {
        if self.caller_scope(origin).is_some_and(|caller_scope| caller_scope.is_current(epoch)) {
            self.caller_scopes.remove(&*caller_scope_key(origin));
        }
        if !self.server.is_current(epoch) {
            return;
        }
        self.server.consecutive = 0;
        self.failed_callers = FailedCallers::None;
        if !self.server.is_closed() {
            let epoch = self.begin_server_epoch();
            self.server.close(epoch);
        }
    }

    fn on_failure(&mut self, epoch: u64, origin: CallOrigin<'_>, now: Instant) {
        let settings = self.settings;
        // Before the transition of the server's scope: the failure belongs to the earlier epoch.
        let caller_scope = self.caller_scope_or_insert(origin);
        if caller_scope.is_current(epoch) {
            caller_scope.consecutive = caller_scope.consecutive.saturating_add(1);
            if let Some(wait) = caller_scope.opening_wait(&settings, now) {
                self.epoch += 1;
                let epoch = self.epoch;
                if let Some(caller_scope) = self.caller_scope(origin) {
                    caller_scope.open(now, wait, epoch);
                }
            }
        }
        if !self.server.is_current(epoch) {
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
            Some(failed) if *failed.caller != *origin.caller => self.open_server(now, wait),
            known => {
                let wait = known.as_ref().map_or(wait, |failed| scope::double_wait(failed.wait, &settings));
                self.lone_probe_failure =
                    Some(LoneProbeFailure { caller: origin.caller.into(), until: now + wait, wait });
            }
        }
    }

    /// Counts a failure without a call: the server crashed, hung or could not be started. It counts once,
    /// however many calls it ended; their permits are returned with [`HealthSignal::Neutral`].
    ///
    /// While open only the count changes, since no call relies on the server. Once the wait is over the
    /// failure counts like a failed probe.
    pub fn record_server_failure(&mut self, now: Instant) {
        self.server.consecutive = self.server.consecutive.saturating_add(1);
        self.failed_callers = FailedCallers::Several;
        if let Some(wait) = self.server.opening_wait(&self.settings, now) {
            self.open_server(now, wait);
        }
    }

    /// Holds every caller back for the time that the server asks for, then lets one through as the probe. The
    /// server itself asks, so this applies with `failures = 0` too. A longer wait that is running is kept.
    pub fn hold_open(&mut self, now: Instant, wait: Duration) {
        if self.server.time_left(now).is_none_or(|left| left < wait) {
            self.open_server(now, wait);
        }
    }

    fn open_server(&mut self, now: Instant, wait: Duration) {
        let epoch = self.begin_server_epoch();
        self.server.open(now, wait, epoch);
    }

    /// Begins another epoch of the server's scope.
    fn begin_server_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.server_transitions += 1;
        self.lone_probe_failure = None;
        self.epoch
    }

    /// Returns the scope of a caller at a tool, if any of its calls has failed.
    fn caller_scope(&mut self, origin: CallOrigin<'_>) -> Option<&mut BreakerScope> {
        // Without any failed call the lookup allocates nothing.
        if self.caller_scopes.is_empty() {
            None
        } else {
            self.caller_scopes.get_mut(&*caller_scope_key(origin))
        }
    }

    /// Returns the scope of a caller at a tool, inserted if absent.
    fn caller_scope_or_insert(&mut self, origin: CallOrigin<'_>) -> &mut BreakerScope {
        let key = caller_scope_key(origin);
        let scope = self.caller_scopes.remove(&key).unwrap_or_default();
        if self.caller_scopes.len() >= MAX_CALLER_SCOPES {
            self.caller_scopes.pop_front();
        }
        // A reinserted scope is the last: it failed most recently.
        self.caller_scopes.entry(key).or_insert(scope)
    }

    /// Returns the state that a caller without failures meets next.
    pub fn circuit(&self, now: Instant) -> BreakerState {
        self.server.circuit(now)
    }

    /// Returns the failures since the last success of any caller, failed probes included.
    pub fn consecutive_failures(&self) -> u32 {
        self.server.consecutive
    }

    /// Returns the number of callers at tools that are held back by their own failures alone.
    pub fn held_back(&self) -> usize {
        self.caller_scopes.values().filter(|caller_scope| !caller_scope.is_closed()).count()
    }

    /// Returns the number of transitions of the server's scope (opening, closing, clearing): another number
    /// than before means that something changed.
    pub fn transitions(&self) -> u64 {
        self.server_transitions
    }

    /// Closes the breaker in any state: an operator reloads the server.
    pub fn clear(&mut self) {
        self.caller_scopes.clear();
        self.failed_callers = FailedCallers::None;
        let epoch = self.begin_server_epoch();
        self.server.close(epoch);
    }
}

/// Returns the map key of a caller at a tool. No principal holds the separator.
fn caller_scope_key(origin: CallOrigin<'_>) -> Box<str> {
    [origin.caller, "\0", origin.tool].concat().into()
}

#[cfg(test)]
mod tests;
