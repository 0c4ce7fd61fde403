//! Lease: the right to use a session for one call.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::breaker::{BreakerPermit, BreakerRejection, BreakerState, CallOrigin};
use ostler_core::classify::{Classification, SessionEffect};
use ostler_core::error::{CallError, Remedy, Unavailable, UnavailableState};
use ostler_core::fault::Delivery;
use ostler_core::remedy;
use ostler_core::spec::ServerTransport;
use ostler_core::status::{StartStage, StartStatus};
use ostler_core::supervisor::{Availability, CompletedCall, EjectionReason, Phase, Supervisor};
use tokio::time::{Instant, timeout_at};

use super::call_queue::{CallPermit, QueueRefusal, SuspendHandle};
use super::exclusive::{ExclusiveAccess, ExclusiveTurn};
use super::slot::{LiveSession, Slot, SlotState};
use super::start_progress::StartProgress;
use super::transitions::BreakerCheckpoint;
use crate::options::StartRetry;
use crate::request::Request;
use crate::upstream::{ServerSession, attribution};

/// Delay after which a caller that was refused by a full queue may retry. Queues of this size empty within a second
/// at the call rates they are made for.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The right to use a session for one call. Dropping it releases the permits and the session.
pub(crate) struct Lease {
    slot: Arc<Slot>,
    live: Arc<LiveSession>,
    since: Instant,
    /// Released when the lease ends; `None` from then on.
    breaker_permit: Option<BreakerPermit>,
    call_permit: CallPermit,
    has_waited: bool,
}

/// Deadlines of a caller that waits for a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseDeadlines {
    /// Deadline while no start is in progress.
    pub(crate) without_start: Instant,
    /// Deadline during a start, which has a limit of its own.
    pub(crate) during_start: Instant,
}

impl Lease {
    pub(crate) fn session(&self) -> &dyn ServerSession {
        &*self.live.session
    }

    pub(crate) fn generation(&self) -> u64 {
        self.live.generation
    }

    /// Returns the start of the lease.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Returns whether the caller waited for the session.
    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Returns the handle that suspends the call while its caller answers a server request.
    pub(crate) fn suspend_handle(&self) -> Option<Arc<SuspendHandle>> {
        self.call_permit.suspend_handle()
    }

    /// Ends the lease with the outcome of the call.
    pub(crate) fn finish(mut self, request: &Request<'_>, weight: Classification, now: Instant) {
        self.release(Some((request, weight)), now);
    }

    /// Releases everything under one lock; a second call does nothing.
    fn release(&mut self, outcome: Option<(&Request<'_>, Classification)>, now: Instant) {
        let Some(permit) = self.breaker_permit.take() else { return };
        let (now, generation) = (now.into_std(), self.live.generation);
        let mut desk = self.slot.state();
        let before = BreakerCheckpoint::take(&desk.supervisor);
        let mut needs_task = false;
        // A permit that is dropped records no outcome.
        if let Some((request, weight)) = outcome {
            let tool = request.breaker_tool();
            let call = CompletedCall { origin: request.origin(&tool), generation, classification: weight };
            desk.supervisor.record_outcome(permit, call, now);
            if weight.effect == SessionEffect::Probe {
                desk.liveness.on_timeout();
                needs_task = true;
            }
        }
        let is_last = desk.supervisor.on_release(now);
        needs_task |= is_last && std::mem::take(&mut desk.needs_wake);
        let news = before.transition(&desk.supervisor, None, now);
        drop(desk);
        self.live.end_lease();
        self.slot.process_pool.note_idle();
        if needs_task {
            self.slot.wake_task.notify_one();
        }
        self.slot.emit_transition(news);
    }
}

impl Drop for Lease {
    /// Releases a cancelled call, without an outcome.
    fn drop(&mut self) {
        self.release(None, Instant::now());
    }
}

/// A caller that waits for a lease. Dropping it releases the breaker permit and its demand for a session.
pub(crate) struct PendingLease<'a> {
    slot: &'a Arc<Slot>,
    origin: Option<CallOrigin<'a>>,
    breaker_permit: Option<BreakerPermit>,
    is_waiting: bool,
    /// Lifetime of the demand for a session.
    demand: Demand,
}

/// Lifetime of the demand of a waiter that makes no call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Persists over failed starts.
    Lasting,
    /// Ends when a start fails, so that it causes no restart.
    UntilStartFails,
}

impl Drop for PendingLease<'_> {
    fn drop(&mut self) {
        if self.breaker_permit.is_none() && !self.is_waiting {
            return;
        }
        let mut desk = self.slot.state();
        // Under the lock, so that the next caller finds the probe's permit free.
        drop(self.breaker_permit.take());
        let mut is_unwanted = false;
        if self.is_waiting {
            match self.demand {
                Demand::Lasting => desk.supervisor.on_wait_over(),
                Demand::UntilStartFails => desk.supervisor.on_brief_wait_over(),
            }
            is_unwanted = !desk.supervisor.has_demand();
        }
        drop(desk);
        if is_unwanted {
            self.slot.wake_task.notify_one();
        }
    }
}

impl Slot {
    /// Requests a session without a call, for as long as the result is held.
    pub(crate) fn demand_session(self: &Arc<Self>, demand: Demand) -> PendingLease<'_> {
        self.update(|desk| match demand {
            Demand::Lasting => desk.supervisor.on_wait(),
            Demand::UntilStartFails => desk.supervisor.on_brief_wait(),
        });
        PendingLease { slot: self, origin: None, breaker_permit: None, is_waiting: true, demand }
    }

    /// Acquires a lease for one call: the breaker's permit, a call permit and a session, which is started if there is
    /// none.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        request: &Request<'_>,
        now: Instant,
        patience: LeaseDeadlines,
    ) -> Result<Lease, CallError> {
        let tool = request.breaker_tool();
        let origin = request.origin(&tool);
        let demand = Demand::Lasting;
        let mut visitor =
            PendingLease { slot: self, origin, breaker_permit: None, is_waiting: false, demand };
        let (mut now, principal) = (now, request.caller().principal());
        let place = match self.call_queue.try_acquire(principal) {
            Some(place) => place,
            None => {
                // A caller that the breaker refuses need not queue.
                self.admit(&mut self.state(), &mut visitor, now)?;
                let place = Box::pin(self.call_queue.acquire(principal, patience.without_start)).await;
                now = Instant::now();
                place.map_err(|shed| self.queue_refused_error(shed))?
            }
        };
        if request.is_passive && self.live().is_none() {
            return Err(self.not_ready_error());
        }
        let found = self.try_session(&mut visitor, now)?;
        let has_waited = found.is_none();
        let (live, since) = match found {
            Some(live) => (live, now),
            None => {
                let news = StartProgress::new(self, request.caller(), request.call_observer.as_ref());
                let waiting = self.wait_for_session(&mut visitor, news, patience);
                (Box::pin(waiting).await?, Instant::now())
            }
        };
        Ok(Lease {
            slot: Arc::clone(self),
            live,
            since,
            breaker_permit: visitor.breaker_permit.take(),
            call_permit: place,
            has_waited,
        })
    }

    /// Waits for access to a server that does not say which of its callers it asks: a call whose caller can answer
    /// runs alone, the others run together. Calls of servers without an unattributed request pass, and so do requests
    /// that can't cause one.
    pub(crate) async fn acquire_exclusive_access(
        &self,
        request: &Request<'_>,
        until: Instant,
    ) -> ExclusiveAccess {
        if !self.connector.needs_exclusive_calls() || !attribution::can_trigger_messages(request.method()) {
            return ExclusiveAccess::NotNeeded;
        }
        let door = Arc::clone(&self.exclusive_lock);
        let turn = async {
            match request.call_observer.as_ref().filter(|_| request.is_interactive()) {
                Some(_) => {
                    let turn = Arc::clone(&door).write_owned().await;
                    ExclusiveAccess::Exclusive(Arc::new(ExclusiveTurn::new(door, turn)))
                }
                None => ExclusiveAccess::Shared { _guard: door.read_owned().await },
            }
        };
        // Only half of the time is spent on waiting: calls that never end must not block the others. A call can still
        // run without its turn; a server request that may be another call's is then refused.
        let now = Instant::now();
        let patience = now + until.saturating_duration_since(now) / 2;
        Box::pin(timeout_at(patience, turn)).await.unwrap_or(ExclusiveAccess::NotNeeded)
    }

    async fn wait_for_session(
        &self,
        visitor: &mut PendingLease<'_>,
        mut news: StartProgress<'_>,
        patience: LeaseDeadlines,
    ) -> Result<Arc<LiveSession>, CallError> {
        loop {
            let moved = self.phase_changed.notified();
            tokio::pin!(moved);
            // Registered before the check, so that no change falls in between.
            moved.as_mut().enable();
            if let Some(live) = self.try_session(visitor, Instant::now())? {
                return Ok(live);
            }
            let end = if self.is_starting() { patience.during_start } else { patience.without_start };
            if Instant::now() >= end {
                return Err(self.not_ready_error());
            }
            let _ = timeout_at(end.min(news.next_at), moved).await;
            news.notify_if_due(self);
        }
    }

    /// Checks that the server accepts callers at all. Runs before the breaker: errors that need an operator come
    /// first.
    fn check_available(&self, desk: &SlotState) -> Result<(), CallError> {
        match desk.supervisor.availability(Instant::now().into_std()) {
            _ if desk.is_removed => Err(self.stopped_error()),
            Availability::Ready(_) | Availability::Wait => Ok(()),
            Availability::NeverUp { .. } | Availability::Ejected { .. } => Err(self.failed_error(desk)),
            Availability::NeedsAuth { until, cause } => Err(self.needs_auth_error(desk, until, cause)),
            Availability::Stopped => Err(self.stopped_error()),
        }
    }

    /// Checks that the server would accept a list request now; acquires nothing.
    pub(crate) fn check_accepts_lists(&self) -> Result<(), CallError> {
        self.check_available(&self.state())
    }

    /// Checks that the server would accept calls of any caller now; acquires nothing.
    pub(crate) fn check_accepts_calls(&self) -> Result<(), CallError> {
        let desk = self.state();
        self.check_available(&desk)?;
        match desk.supervisor.circuit(Instant::now().into_std()) {
            BreakerState::Open { retry_after } => Err(self.breaker_open_error(
                &desk.supervisor,
                None,
                BreakerRejection { retry_after, caller_failures: None },
            )),
            BreakerState::Closed { .. } | BreakerState::HalfOpen { .. } => Ok(()),
        }
    }

    /// Makes the error for a server that has failed and is not waited for.
    pub(crate) fn failed_error(&self, desk: &SlotState) -> CallError {
        let now = Instant::now().into_std();
        let left = |until: std::time::Instant| until.saturating_duration_since(now);
        let last = || desk.supervisor.failure().map_or_else(String::new, ToString::to_string);
        let is_once = self.start_retry == StartRetry::Once;
        let needs_reload = matches!(desk.supervisor.availability(now), Availability::Ejected { .. });
        let (state, cause, action, retry_after) = match desk.supervisor.availability(now) {
            Availability::Ejected { readmit_at, ejection, cause } => {
                let state = match ejection {
                    EjectionReason::Permanent => UnavailableState::CannotStart,
                    // A remote server is not started.
                    EjectionReason::BudgetSpent { .. }
                        if is_once && matches!(self.spec.transport, ServerTransport::Http(_)) =>
                    {
                        UnavailableState::CannotStart
                    }
                    // The error of a one-command host reads like that of a daemon after as many attempts.
                    EjectionReason::BudgetSpent { .. } if is_once && !desk.supervisor.has_come_up() => {
                        UnavailableState::StartFailed
                    }
                    EjectionReason::BudgetSpent { .. } | EjectionReason::FailedReadmission => {
                        UnavailableState::Ejected
                    }
                };
                let readmit_in = readmit_at.map(left);
                match (ejection, is_once) {
                    (_, false) => (state, cause.to_owned(), ejection.explain(readmit_in), readmit_in),
                    // The host ends with the command: there is no later retry.
                    (EjectionReason::BudgetSpent { failures, .. }, true) if failures > 1 => {
                        (state, cause.to_owned(), format!("it failed {failures} times"), None)
                    }
                    (_, true) => (state, cause.to_owned(), String::new(), None),
                }
            }
            Availability::NeverUp { until } => {
                let (state, action) = match self.spec.transport {
                    ServerTransport::Stdio(_) => (UnavailableState::StartFailed, "it has never come up"),
                    ServerTransport::Http(_) => (UnavailableState::CannotStart, "no try has reached it yet"),
                };
                // Without a daemon there is no next call.
                let action =
                    if is_once { String::new() } else { format!("{action}; the next call tries again") };
                (state, last(), action, Some(left(until)))
            }
            Availability::NeedsAuth { until, cause } => return self.needs_auth_error(desk, until, cause),
            Availability::Stopped => return self.stopped_error(),
            Availability::Ready(_) | Availability::Wait => {
                let until = desk.supervisor.next_wake();
                (UnavailableState::StartFailed, last(), String::new(), until.map(left))
            }
        };
        let failure = desk.supervisor.failure();
        let action = match failure.and_then(|failure| failure.kind.detail()) {
            Some(detail) if action.is_empty() => detail,
            Some(detail) => format!("{detail}; {action}"),
            None => action,
        };
        CallError::Unavailable(Unavailable {
            server: self.key.server.clone(),
            state,
            cause,
            action: action.into(),
            remedy: self.remedy(desk, needs_reload),
            retry_after,
        })
    }

    /// Returns the remedy for the last failure.
    fn remedy(&self, desk: &SlotState, needs_reload: bool) -> Option<Box<Remedy>> {
        let failure = desk.supervisor.failure()?;
        let text = self.remedy_of(failure)?;
        // A host that ends with its command has nothing to reload.
        let is_lasting = self.start_retry != StartRetry::Once;
        let needs_reload = needs_reload && is_lasting && !remedy::needs_ostler_restart(failure);
        let for_clients = remedy::for_clients(self.key.server.as_str(), failure);
        Some(Box::new(Remedy { text, for_clients, needs_reload }))
    }

    fn needs_auth_error(&self, desk: &SlotState, until: std::time::Instant, cause: &str) -> CallError {
        let left = until.saturating_duration_since(Instant::now().into_std());
        let mut error = self.unavailable_error(UnavailableState::NeedsAuth, cause.to_owned(), Some(left));
        if let CallError::Unavailable(it) = &mut error {
            it.remedy = self.remedy(desk, true);
        }
        error
    }

    /// Ensures that the caller holds a breaker permit that still counts: the breaker may have opened during a wait.
    fn admit(
        &self,
        desk: &mut SlotState,
        visitor: &mut PendingLease<'_>,
        now: Instant,
    ) -> Result<(), CallError> {
        self.check_available(desk)?;
        let now = now.into_std();
        match visitor.breaker_permit.take() {
            Some(permit) if desk.supervisor.is_current(&permit, visitor.origin) => {
                visitor.breaker_permit = Some(permit);
                return Ok(());
            }
            Some(_) | None => {}
        }
        let permit = desk.supervisor.admit(visitor.origin, now);
        visitor.breaker_permit = Some(
            permit.map_err(|refused| self.breaker_open_error(&desk.supervisor, visitor.origin, refused))?,
        );
        Ok(())
    }

    /// Checks the state once: returns a session, `None` to wait, or an error.
    fn try_session(
        &self,
        visitor: &mut PendingLease<'_>,
        now: Instant,
    ) -> Result<Option<Arc<LiveSession>>, CallError> {
        let mut desk = self.state();
        if visitor.is_waiting {
            self.check_available(&desk)?;
        } else {
            self.admit(&mut desk, visitor, now)?;
        }
        if desk.supervisor.availability(now.into_std()) == Availability::Wait {
            if !std::mem::replace(&mut visitor.is_waiting, true) {
                desk.supervisor.on_wait();
                drop(desk);
                self.wake_task.notify_one();
            }
            return Ok(None);
        }
        let Some(live) = desk.live.clone() else { return Ok(None) };
        if visitor.is_waiting {
            self.admit(&mut desk, visitor, now)?;
            visitor.is_waiting = false;
            desk.supervisor.on_wait_over();
        }
        desk.supervisor.on_lease();
        live.begin_lease();
        Ok(Some(live))
    }

    /// Makes the error for a server in a state that needs an operator's action.
    pub(crate) fn unavailable_error(
        &self,
        state: UnavailableState,
        cause: String,
        retry_after: Option<Duration>,
    ) -> CallError {
        CallError::Unavailable(Unavailable::new(self.key.server.clone(), state, cause, retry_after))
    }

    pub(crate) fn stopped_error(&self) -> CallError {
        self.unavailable_error(UnavailableState::Stopped, "an operator stopped it".into(), None)
    }

    /// Makes the error for an open breaker, with the failures of the caller or of all callers.
    fn breaker_open_error(
        &self,
        supervisor: &Supervisor,
        origin: Option<CallOrigin<'_>>,
        refused: BreakerRejection,
    ) -> CallError {
        let mut cause = match (refused.caller_failures, origin) {
            (Some(failures), Some(origin)) => {
                format!("{failures} of your calls to `{}` in a row failed", origin.tool)
            }
            _ => format!("{} calls in a row failed", supervisor.consecutive_failures()),
        };
        if let Some(failure) = supervisor.failure() {
            cause.push_str(&format!(" (last: {failure})"));
        }
        self.unavailable_error(UnavailableState::BreakerOpen, cause, Some(refused.retry_after))
    }

    /// Makes the error for a call whose deadline passed: with a session the outcome of the request is known; without
    /// one the error gives the reason.
    pub(crate) fn timed_out_error(&self, request: &Request<'_>, delivery: Delivery) -> CallError {
        let has_session =
            matches!(self.state().supervisor.availability(Instant::now().into_std()), Availability::Ready(_));
        match has_session {
            true => CallError::TimedOut {
                server: self.key.server.clone(),
                after: request.received_at.elapsed(),
                delivery,
            },
            false => self.not_ready_error(),
        }
    }

    /// Makes the error for a deadline that passed before there was a session.
    pub(crate) fn not_ready_error(&self) -> CallError {
        let start = self.startup.load().as_ref().map(|startup| startup.status());
        let desk = self.state();
        let last = desk
            .supervisor
            .failure()
            .map(|failure| format!(" (last failure: {failure})"))
            .unwrap_or_default();
        match (desk.supervisor.phase(), start) {
            (Phase::Backoff { soonest, .. }, _) => {
                let left = soonest.saturating_duration_since(Instant::now().into_std());
                self.unavailable_error(
                    UnavailableState::Backoff,
                    format!("it waits before its next start{last}"),
                    Some(left),
                )
            }
            (_, Some(StartStatus { stage: StartStage::WaitingForRoom, .. })) => CallError::Overloaded {
                what: format!("no room for a process of server `{}`: all are in use", self.key.server),
                retry_after: RETRY_AFTER,
            },
            (_, Some(start)) => {
                let state = match start.stage {
                    StartStage::Fetching | StartStage::WaitingForDownload => UnavailableState::Fetching,
                    _ => UnavailableState::Starting,
                };
                let mut error = self.unavailable_error(state, format!("it {start}{last}"), Some(RETRY_AFTER));
                if let CallError::Unavailable(it) = &mut error {
                    it.remedy = start.hint.map(|text| Box::new(Remedy::new(text, false)));
                }
                error
            }
            (_, None) => self.unavailable_error(
                UnavailableState::Starting,
                format!("it was not ready in time{last}"),
                Some(RETRY_AFTER),
            ),
        }
    }

    fn queue_refused_error(&self, shed: QueueRefusal) -> CallError {
        let (server, places) = (&self.key.server, self.spec.max_in_flight);
        let what = match shed {
            QueueRefusal::Full | QueueRefusal::TimedOut => format!(
                "server `{server}` has {places} calls in flight and {} waiting",
                self.call_queue.waiting()
            ),
            QueueRefusal::Displaced => format!(
                "server `{server}` has {places} calls in flight, and of all who wait you have the most calls"
            ),
        };
        CallError::Overloaded { what, retry_after: RETRY_AFTER }
    }
}
