//! Supervisor of one server: decides when it starts, when it ends, and which calls are admitted.
//!
//! ```text
//!            wanted, or eager            started
//!   idle ───────────────────▶ starting ──────────▶ ready ───stop───▶ draining ──▶ stopped
//!    ▲ ▲                        ▲  │                │ │                              │
//!    │ └──────unused, evicted───┼──┼────────────────┼─┘              start           │
//!    │                          │  │ failed         │ lost                           │
//!    │ no waiter         delay  │  ▼                ▼                                │
//!    └──────────────────────── backoff ◀── within the restart budget                 │
//!    ▲                                              │ budget spent, permanent cause  │
//!    └───────────reload, readmitted──────────── ejected                              │
//!    ▲                                                                               │
//!    └───────────reload, a minute──────────── needs auth ◀── starting or ready       │
//!    └───────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Every session has a generation. An event names its generation, and an event of another one than the
//! current changes nothing, so a crash seen by sixty-four calls, the exit watcher and the reader is one
//! crash. Invalidating a generation does not depend on the leases still held of it.
//!
//! Callers and the server's task share one supervisor behind a short lock: callers are admitted and leave,
//! only the task carries out [`Action`]s.

mod action;
#[cfg(test)]
mod delay_tests;
mod failure;
#[cfg(test)]
mod model;
mod phase;
#[cfg(test)]
mod remote_tests;
mod restart_or_eject;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use crate::breaker::{
    Breaker, BreakerPermit, BreakerRejection, BreakerState, CallOrigin, HealthSignal, MAX_RESET,
};
use crate::classify::{Classification, SessionEffect};
use crate::fault::FaultKind;
use crate::restart_budget::RestartBudget;
use crate::spec::{RestartSettings, ServerSpec, ServerTransport};

pub use action::{Action, RetireMode};
pub use failure::{FailureHint, ServerFailure};
pub use phase::{Availability, EjectionReason, Phase};
use restart_or_eject::SessionHistory;

/// Uptime after which, with one good answer, delays restart from the first.
pub const HEALTHY_AFTER: Duration = Duration::from_secs(10);

/// Pause before a server that needs other credentials is tried again. A person has to act first; a try once a
/// minute notices that without a reload.
pub const AUTH_RETRY: Duration = Duration::from_secs(60);

/// Factor by which an ejection may exceed `readmit_after`, by doubling: from a minute to ten.
const MAX_READMISSION_FACTOR: u32 = 10;

/// Supervision state of one server.
#[derive(Debug)]
pub struct Supervisor {
    is_lazy: bool,
    /// True if the server is remote, operated by another party.
    is_remote: bool,
    /// True if the host serves one command: a remote server that fails twice is not waited for.
    is_single_command: bool,
    keep_alive: Duration,
    restart: RestartSettings,
    phase: Phase,
    /// The newest generation; it only grows.
    generation: u64,
    budget: RestartBudget,
    backoff: Backoff,
    /// Delays of a remote server without waiting callers.
    unattended_backoff: Backoff,
    breaker: Breaker,
    /// True once a session has come up in this run.
    has_started: bool,
    /// True if a session has come up in an earlier run, or if the server is waited for as if one had.
    has_started_before: bool,
    /// Starts that failed since the last session.
    failed_starts: u32,
    /// Readmissions since the server was last healthy.
    readmissions: u32,
    /// True if the next start is the probe of an ejected server: one failure ejects it again.
    is_on_probation: bool,
    /// Leases held, over all generations.
    leases: usize,
    /// Callers that wait for a session.
    waiters: usize,
    /// Those of them that leave when a start fails.
    brief_waiters: usize,
    /// Binders that want the server kept up.
    binders: usize,
    /// The ejection of a server that has been stopped since.
    ejection: Option<Phase>,
    /// True if an operator wants a session although no caller waits for one.
    is_start_requested: bool,
    /// Time of the end of the last lease, or of the start of the session.
    last_use: Instant,
    failure: Option<ServerFailure>,
    /// Sessions to be ended, in order.
    retiring: VecDeque<Action>,
}

/// A completed call.
#[derive(Debug, Clone, Copy)]
pub struct CompletedCall<'a> {
    /// Caller and tool, as they were at [`Supervisor::admit`].
    pub origin: Option<CallOrigin<'a>>,
    /// The session it was sent to.
    pub generation: u64,
    /// The classification of its outcome.
    pub classification: Classification,
}

impl Supervisor {
    /// Creates the supervisor of a server that has not been started.
    pub fn new(spec: &ServerSpec, now: Instant) -> Self {
        Self {
            is_lazy: spec.lazy,
            is_remote: matches!(spec.transport, ServerTransport::Http(_)),
            is_single_command: false,
            keep_alive: spec.keep_alive,
            restart: spec.restart,
            phase: Phase::Idle,
            generation: 0,
            budget: RestartBudget::new(spec.restart.max, spec.restart.window),
            backoff: Backoff::new(spec.restart.first_delay, spec.restart.max_delay),
            unattended_backoff: Backoff::new(spec.restart.first_delay, MAX_RESET),
            breaker: Breaker::new(spec.breaker),
            has_started: false,
            has_started_before: false,
            failed_starts: 0,
            readmissions: 0,
            is_on_probation: false,
            leases: 0,
            waiters: 0,
            brief_waiters: 0,
            binders: 0,
            ejection: None,
            is_start_requested: false,
            last_use: now,
            failure: None,
            retiring: VecDeque::new(),
        }
    }

    /// Sets the supervisor up for a host that serves a single command.
    #[must_use]
    pub fn for_single_command(mut self) -> Self {
        self.is_single_command = true;
        self
    }

    // Events of callers.

    /// Asks the breaker. The permit must come back through [`record_outcome`](Self::record_outcome).
    pub fn admit(
        &mut self,
        origin: Option<CallOrigin<'_>>,
        now: Instant,
    ) -> Result<BreakerPermit, BreakerRejection> {
        self.breaker.admit(origin, now)
    }

    /// Returns whether no event since a permit was given has changed the admission of calls.
    pub fn is_current(&mut self, permit: &BreakerPermit, origin: Option<CallOrigin<'_>>) -> bool {
        self.breaker.is_current(permit, origin)
    }

    /// Returns whether a session is available now.
    pub fn availability(&self, now: Instant) -> Availability<'_> {
        match &self.phase {
            Phase::Ready { generation, .. } => Availability::Ready(*generation),
            Phase::Backoff { soonest, .. } if self.is_unlikely_to_start() && now < *soonest => {
                Availability::NeverUp { until: *soonest }
            }
            Phase::Idle | Phase::Starting { .. } | Phase::Backoff { .. } => Availability::Wait,
            Phase::Ejected { readmit_at, ejection, cause } => {
                Availability::Ejected { readmit_at: *readmit_at, ejection: *ejection, cause }
            }
            Phase::NeedsAuth { until, cause } => Availability::NeedsAuth { until: *until, cause },
            Phase::Draining { .. } | Phase::Stopped => Availability::Stopped,
        }
    }

    /// Counts a caller that begins to wait for a session.
    pub fn on_wait(&mut self) {
        self.waiters += 1;
    }

    /// Counts a caller that stops waiting, for any reason.
    pub fn on_wait_over(&mut self) {
        self.waiters = self.waiters.saturating_sub(1);
    }

    /// One more caller waits for a session, and leaves when a start fails.
    pub fn on_brief_wait(&mut self) {
        self.brief_waiters += 1;
        self.on_wait();
    }

    /// The end of [`on_brief_wait`](Self::on_brief_wait).
    pub fn on_brief_wait_over(&mut self) {
        self.brief_waiters = self.brief_waiters.saturating_sub(1);
        self.on_wait_over();
    }

    /// Counts a lease that begins.
    pub fn on_lease(&mut self) {
        self.leases += 1;
    }

    /// Counts a lease that ends. Returns true for the last one, which starts the keep-alive time.
    pub fn on_release(&mut self, now: Instant) -> bool {
        self.leases = self.leases.saturating_sub(1);
        self.last_use = now;
        self.leases == 0
    }

    /// Counts a binder that wants the server kept up, for longer than a call.
    pub fn on_bind(&mut self) {
        self.binders += 1;
    }

    /// Counts a binder that leaves; the last one starts the keep-alive time.
    pub fn on_unbind(&mut self, now: Instant) {
        self.binders = self.binders.saturating_sub(1);
        self.last_use = now;
    }

    /// Takes a permit back with the outcome of its call. A dropped permit is no evidence.
    pub fn record_outcome(&mut self, permit: BreakerPermit, call: CompletedCall<'_>, now: Instant) {
        let CompletedCall { origin, generation, classification } = call;
        if let Phase::Ready { generation: current, is_proven, .. } = &mut self.phase
            && *current == generation
        {
            *is_proven |= classification.signal == HealthSignal::Success
                || classification.effect == SessionEffect::MarkProven;
        }
        // The end of a session is counted once, by `on_lost`, and not again by the calls that ended it or
        // were in flight.
        let signal = if classification.effect == SessionEffect::Restart {
            HealthSignal::Neutral
        } else {
            classification.signal
        };
        self.breaker.record_signal(permit, origin, signal, now);
        if let SessionEffect::Pause(wait) = classification.effect {
            self.breaker.hold_open(now, wait);
        }
    }

    // Reports of the server's task.

    /// Records that the session of this generation is up. Returns false if it is no longer wanted; the task
    /// must end it then.
    pub fn on_started(&mut self, generation: u64, now: Instant) -> bool {
        if self.phase != (Phase::Starting { generation }) {
            return false;
        }
        self.phase = Phase::Ready { generation, since: now, is_proven: false };
        self.last_use = now;
        (self.has_started, self.failed_starts) = (true, 0);
        if std::mem::take(&mut self.is_on_probation) {
            self.budget.clear();
            self.backoff.reset();
        }
        // Callers that asked for a session while this one was starting have it now.
        self.is_start_requested = false;
        true
    }

    /// Records that this generation could not be started.
    pub fn on_start_failed(&mut self, generation: u64, failure: ServerFailure, rng: &mut fastrand::Rng) {
        if self.phase == (Phase::Starting { generation }) {
            self.on_failure(failure, SessionHistory::NotStarted, rng);
        }
    }

    /// Records that the server has come up in an earlier run, or is waited for as if it had.
    pub fn on_started_before(&mut self) {
        self.has_started_before = true;
    }

    /// Records that a start was abandoned for a reason other than the server's.
    pub fn on_start_abandoned(&mut self, generation: u64) {
        if self.phase == (Phase::Starting { generation }) {
            self.phase = Phase::Idle;
        }
    }

    /// Records that the session of this generation ended by itself, or hangs. Returns true if it was the
    /// current one.
    pub fn on_lost(&mut self, generation: u64, failure: ServerFailure, rng: &mut fastrand::Rng) -> bool {
        let Phase::Ready { generation: current, since, is_proven } = self.phase else { return false };
        if current != generation {
            return false;
        }
        if is_proven && failure.at.saturating_duration_since(since) >= HEALTHY_AFTER {
            self.backoff.reset();
            self.unattended_backoff.reset();
            self.readmissions = 0;
        }
        self.retire(generation, RetireMode::Now);
        self.on_failure(
            failure,
            if is_proven { SessionHistory::Proven } else { SessionHistory::Unproven },
            rng,
        );
        true
    }

    /// Records that a draining session has ended.
    pub fn on_closed(&mut self, generation: u64) {
        if self.phase == (Phase::Draining { generation }) {
            self.phase = Phase::Stopped;
        }
    }

    // Commands of operators.

    /// Ends the session after its calls; no call is admitted until [`on_resume`](Self::on_resume).
    pub fn on_stop(&mut self) {
        self.phase = match self.phase {
            Phase::Ready { generation, .. } => {
                self.retire(generation, RetireMode::Drain);
                Phase::Draining { generation }
            }
            Phase::Draining { generation } => Phase::Draining { generation },
            Phase::Ejected { .. } => {
                self.ejection = Some(std::mem::replace(&mut self.phase, Phase::Stopped));
                Phase::Stopped
            }
            _ => Phase::Stopped,
        };
    }

    /// Starts a stopped or sleeping server.
    pub fn on_resume(&mut self) {
        if matches!(self.phase, Phase::Draining { .. } | Phase::Stopped) {
            // Stopping and starting does not lift an ejection.
            self.phase = self.ejection.take().unwrap_or(Phase::Idle);
        }
        self.is_start_requested = !matches!(self.phase, Phase::Ready { .. });
    }

    /// Starts a fresh session and clears the record; the old session finishes its calls.
    pub fn on_reload(&mut self) {
        if let Phase::Ready { generation, .. } = self.phase {
            self.retire(generation, RetireMode::Drain);
        }
        self.budget.clear();
        self.backoff.reset();
        self.unattended_backoff.reset();
        self.breaker.clear();
        (self.failed_starts, self.readmissions, self.is_on_probation) = (0, 0, false);
        self.failure = None;
        self.ejection = None;
        self.phase = Phase::Idle;
        self.is_start_requested = true;
    }

    /// Frees the server's place in the pool. Returns true if the session was unused and is being ended.
    pub fn on_evict(&mut self) -> bool {
        let Phase::Ready { generation, .. } = self.phase else { return false };
        if !self.is_lazy || !self.is_unused() {
            return false;
        }
        self.retire(generation, RetireMode::Now);
        self.phase = Phase::Idle;
        true
    }

    // Queries of the task.

    /// Returns the next action; the task repeats it until `None`.
    pub fn poll(&mut self, now: Instant) -> Option<Action> {
        if let Some(action) = self.retiring.pop_front() {
            return Some(action);
        }
        match self.phase {
            Phase::Backoff { .. } | Phase::NeedsAuth { .. }
                if self.next_wake().is_some_and(|wake| now >= wake) =>
            {
                self.phase = Phase::Idle;
            }
            Phase::Ejected { readmit_at: Some(readmit_at), .. } if now >= readmit_at => {
                self.readmissions = self.readmissions.saturating_add(1);
                self.is_on_probation = true;
                self.phase = Phase::Idle;
            }
            Phase::Ready { generation, .. } if self.is_keep_alive_over(now) => {
                self.phase = Phase::Idle;
                return Some(Action::Retire { generation, mode: RetireMode::Now });
            }
            _ => {}
        }
        if self.phase == Phase::Idle && self.has_demand() {
            return Some(Action::Start { generation: self.begin_start() });
        }
        None
    }

    /// Returns the time at which [`poll`](Self::poll) has something to do without further events.
    pub fn next_wake(&self) -> Option<Instant> {
        match self.phase {
            Phase::Backoff { soonest, .. } if self.waiters > 0 || self.is_start_requested => Some(soonest),
            Phase::Backoff { until, .. } | Phase::NeedsAuth { until, .. } => Some(until),
            Phase::Ejected { readmit_at, .. } => readmit_at,
            Phase::Ready { .. } if self.is_lazy && self.is_unused() => Some(self.last_use + self.keep_alive),
            _ => None,
        }
    }

    /// Returns whether the starting generation is still wanted.
    pub fn is_starting(&self, generation: u64) -> bool {
        self.phase == (Phase::Starting { generation })
    }

    /// Returns the phase of the server.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Returns the state of the breaker.
    pub fn circuit(&self, now: Instant) -> BreakerState {
        self.breaker.circuit(now)
    }

    /// Returns the failures since the last good answer, plus the starts that failed since the last session.
    pub fn consecutive_failures(&self) -> u32 {
        self.breaker.consecutive_failures().saturating_add(self.failed_starts)
    }

    /// Returns [`Breaker::held_back`].
    pub fn held_back(&self) -> usize {
        self.breaker.held_back()
    }

    /// Returns [`Breaker::transitions`].
    pub fn breaker_transitions(&self) -> u64 {
        self.breaker.transitions()
    }

    /// Returns the restarts used in the window, and the restarts allowed.
    pub fn restarts(&self, now: Instant) -> (u32, u32) {
        (self.budget.used(now), self.budget.max())
    }

    /// Returns the newest generation, 0 before the first start.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the number of leases held, those of binders included.
    pub fn leases(&self) -> usize {
        self.leases + self.binders
    }

    /// Returns the number of callers that wait for a session.
    pub fn waiters(&self) -> usize {
        self.waiters
    }

    /// Returns the last failure, until a reload.
    pub fn failure(&self) -> Option<&ServerFailure> {
        self.failure.as_ref()
    }

    /// Returns whether the last start failed. A start in progress has not ended, so the one before it counts.
    pub fn has_failed_start(&self) -> bool {
        self.failed_starts > 0
    }

    /// Returns whether a session has come up in this run.
    pub fn has_come_up(&self) -> bool {
        self.has_started
    }

    /// Returns whether a session has come up in this run or an earlier one.
    pub fn has_ever_come_up(&self) -> bool {
        self.has_started || self.has_started_before
    }

    /// Returns the time since which a ready server is unused, if it may be evicted.
    pub fn idle_since(&self) -> Option<Instant> {
        let is_evictable = matches!(self.phase, Phase::Ready { .. }) && self.is_lazy && self.is_unused();
        is_evictable.then_some(self.last_use)
    }

    /// Returns whether a caller, a binder or an operator wants a session.
    pub fn has_demand(&self) -> bool {
        !self.is_lazy || self.waiters + self.binders > 0 || self.is_start_requested
    }

    /// Returns whether the delay before the next start ends with a start, whatever comes. If not, the next call brings it.
    pub fn plans_restart(&self) -> bool {
        let is_awaited = self.waiters > self.brief_waiters && !self.is_unlikely_to_start();
        let is_wanted = !self.is_lazy || self.binders > 0 || self.is_start_requested;
        matches!(self.phase, Phase::Backoff { .. }) && (is_wanted || is_awaited)
    }

    fn is_unused(&self) -> bool {
        self.leases + self.waiters + self.binders == 0
    }

    fn is_keep_alive_over(&self, now: Instant) -> bool {
        self.is_lazy && self.is_unused() && now >= self.last_use + self.keep_alive
    }

    /// Returns whether a server that never came up, in this run or an earlier one, is not worth waiting for:
    /// its endpoint is unreachable, or its process has failed to start twice. Its first failure may be a
    /// dependency that comes up late.
    fn is_unlikely_to_start(&self) -> bool {
        let Some(failure) = &self.failure else { return false };
        let is_out_of_reach = matches!(failure.kind, FaultKind::Connect(_));
        let has_failed_twice = !self.is_remote && self.failed_starts >= 2;
        (is_out_of_reach || has_failed_twice) && !self.has_started && !self.has_started_before
    }

    fn begin_start(&mut self) -> u64 {
        self.generation += 1;
        self.is_start_requested = false;
        self.phase = Phase::Starting { generation: self.generation };
        self.generation
    }

    fn retire(&mut self, generation: u64, manner: RetireMode) {
        self.retiring.push_back(Action::Retire { generation, mode: manner });
    }
}
