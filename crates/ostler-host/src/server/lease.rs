//! The right to use a session for one call.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::breaker::{Circuit, Origin, Permit, Refused};
use ostler_core::error::{CallError, Remedy, Unavailable, UnavailableState};
use ostler_core::fault::Delivery;
use ostler_core::remedy;
use ostler_core::spec::Transport;
use ostler_core::status::{Stage, StartStatus};
use ostler_core::supervisor::{Ejection, Entry, Phase, Settled, Supervisor};
use ostler_core::weigh::{Effect, Weight};
use tokio::time::{Instant, timeout_at};

use super::news::Before;
use super::places::{Parking, Place, Shed};
use super::slot::{Desk, Live, Slot};
use super::start_news::StartNews;
use super::turn::{InTurn, Turn};
use crate::options::StartPatience;
use crate::request::Request;
use crate::upstream::{Session, whose};

/// How soon a caller that found a full queue may come back. Queues of this
/// size empty within a second at the call rates they are made for.
const COME_BACK: Duration = Duration::from_secs(1);

/// The right to use a session for one call. Dropping it gives everything back.
pub(crate) struct Lease {
    slot: Arc<Slot>,
    live: Arc<Live>,
    since: Instant,
    /// Given back when the lease ends; `None` from then on.
    permit: Option<Permit>,
    place: Place,
    has_waited: bool,
}

/// How long a caller waits for a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// While no start is under way.
    pub(crate) until: Instant,
    /// While one is, which has a limit of its own.
    pub(crate) end: Instant,
}

impl Lease {
    pub(crate) fn session(&self) -> &dyn Session {
        &*self.live.session
    }

    pub(crate) fn generation(&self) -> u64 {
        self.live.generation
    }

    /// When it began.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Returns whether the session had to be waited for.
    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// The place of the call, to be given up while its caller thinks about a question.
    pub(crate) fn parking(&self) -> Option<Arc<Parking>> {
        self.place.parking()
    }

    /// Ends the lease with what became of the call.
    pub(crate) fn settle(mut self, request: &Request<'_>, weight: Weight, now: Instant) {
        self.end(Some((request, weight)), now);
    }

    /// Gives everything back under one lock; the second time does nothing.
    fn end(&mut self, outcome: Option<(&Request<'_>, Weight)>, now: Instant) {
        let Some(permit) = self.permit.take() else { return };
        let (now, generation) = (now.into_std(), self.live.generation);
        let mut desk = self.slot.desk();
        let before = Before::of(&desk.supervisor);
        let mut needs_task = false;
        // A permit that is dropped says nothing.
        if let Some((request, weight)) = outcome {
            let tool = request.breaker_tool();
            let call = Settled { origin: request.origin(&tool), generation, weight };
            desk.supervisor.settle(permit, call, now);
            if weight.effect == Effect::Probe {
                desk.liveness.on_timeout();
                needs_task = true;
            }
        }
        let is_last = desk.supervisor.on_release(now);
        needs_task |= is_last && std::mem::take(&mut desk.needs_wake);
        let news = before.news(&desk.supervisor, None, now);
        drop(desk);
        self.live.end_lease();
        self.slot.room.note_idle();
        if needs_task {
            self.slot.bell.notify_one();
        }
        self.slot.announce(news);
    }
}

impl Drop for Lease {
    /// The call was given up: nothing is known of how it went.
    fn drop(&mut self) {
        self.end(None, Instant::now());
    }
}

/// A caller at the door. Dropping it gives the permit and the place in the
/// line back, wherever it was waiting.
pub(crate) struct Visitor<'a> {
    slot: &'a Arc<Slot>,
    origin: Option<Origin<'a>>,
    permit: Option<Permit>,
    is_waiting: bool,
}

impl Drop for Visitor<'_> {
    fn drop(&mut self) {
        if self.permit.is_none() && !self.is_waiting {
            return;
        }
        let mut desk = self.slot.desk();
        // Under the lock, so that the next caller finds the probe's place free.
        drop(self.permit.take());
        let mut is_unwanted = false;
        if self.is_waiting {
            desk.supervisor.on_wait_over();
            is_unwanted = !desk.supervisor.has_demand();
        }
        drop(desk);
        if is_unwanted {
            self.slot.bell.notify_one();
        }
    }
}

impl Slot {
    /// Wants a session without a call to make, for as long as the visitor is held.
    pub(crate) fn visit(self: &Arc<Self>) -> Visitor<'_> {
        self.change(|desk| desk.supervisor.on_wait());
        Visitor { slot: self, origin: None, permit: None, is_waiting: true }
    }

    /// Gets a session for one call: past the breaker, into a place, and onto a
    /// session, which is started if there is none.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        request: &Request<'_>,
        now: Instant,
        patience: Patience,
    ) -> Result<Lease, CallError> {
        let tool = request.breaker_tool();
        let origin = request.origin(&tool);
        let mut visitor = Visitor { slot: self, origin, permit: None, is_waiting: false };
        let (mut now, principal) = (now, request.caller().principal());
        let place = match self.places.try_take(principal) {
            Some(place) => place,
            None => {
                // Whom the breaker refuses need not queue.
                self.admit(&mut self.desk(), &mut visitor, now)?;
                let place = Box::pin(self.places.wait(principal, patience.until)).await;
                now = Instant::now();
                place.map_err(|shed| self.crowded(shed))?
            }
        };
        if request.is_passive && self.live().is_none() {
            return Err(self.late());
        }
        let found = self.look(&mut visitor, now)?;
        let has_waited = found.is_none();
        let (live, since) = match found {
            Some(live) => (live, now),
            None => {
                let news = StartNews::new(self, request.caller(), request.voice.as_ref());
                let waiting = self.wait_for_session(&mut visitor, news, patience);
                (Box::pin(waiting).await?, Instant::now())
            }
        };
        Ok(Lease { slot: Arc::clone(self), live, since, permit: visitor.permit.take(), place, has_waited })
    }

    /// Waits for a turn at a server that does not say which of its callers it
    /// asks: a call whose caller can answer is there alone, the others are
    /// there together. Calls of servers that never asked in vain pass, and so
    /// do requests that can't cause a question.
    pub(crate) async fn take_turn(&self, request: &Request<'_>, until: Instant) -> Turn {
        if !self.connector.takes_turns() || !whose::can_cause(request.method()) {
            return Turn::Free;
        }
        let door = Arc::clone(&self.turn);
        let turn = async {
            match request.voice.as_ref().filter(|_| request.is_interactive()) {
                Some(_) => {
                    let turn = Arc::clone(&door).write_owned().await;
                    Turn::Alone(Arc::new(InTurn::new(door, turn)))
                }
                None => Turn::Shared { _guard: door.read_owned().await },
            }
        };
        // Only half of the time is spent on waiting: calls that never end must not keep the others from the server.
        // Without its turn a call can still run; a question that may be another call's is refused as ever.
        let now = Instant::now();
        let patience = now + until.saturating_duration_since(now) / 2;
        Box::pin(timeout_at(patience, turn)).await.unwrap_or(Turn::Free)
    }

    async fn wait_for_session(
        &self,
        visitor: &mut Visitor<'_>,
        mut news: StartNews<'_>,
        patience: Patience,
    ) -> Result<Arc<Live>, CallError> {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            // Listening begins before looking, so that no change falls in between.
            moved.as_mut().enable();
            if let Some(live) = self.look(visitor, Instant::now())? {
                return Ok(live);
            }
            let end = if self.is_coming_up() { patience.end } else { patience.until };
            if Instant::now() >= end {
                return Err(self.late());
            }
            let _ = timeout_at(end.min(news.next), moved).await;
            news.tell(self);
        }
    }

    /// Whether the server takes callers at all. Asked before the breaker:
    /// what an operator must act upon is said first.
    fn check_in(&self, desk: &Desk) -> Result<(), CallError> {
        match desk.supervisor.entry(Instant::now().into_std()) {
            _ if desk.is_removed => Err(self.stopped()),
            Entry::Open(_) | Entry::Wait => Ok(()),
            Entry::NeverUp { .. } | Entry::Ejected { .. } => Err(self.failed(desk)),
            Entry::NeedsAuth { until, cause } => Err(self.needs_auth(desk, until, cause)),
            Entry::Stopped => Err(self.stopped()),
        }
    }

    /// Whether the server would take a list now; nothing is taken by asking.
    pub(crate) fn check_open(&self) -> Result<(), CallError> {
        self.check_in(&self.desk())
    }

    /// Whether the server would take calls now, whoever makes them; nothing is taken by asking.
    pub(crate) fn check_calls(&self) -> Result<(), CallError> {
        let desk = self.desk();
        self.check_in(&desk)?;
        match desk.supervisor.circuit(Instant::now().into_std()) {
            Circuit::Open { retry_after } => {
                Err(self.broken(&desk.supervisor, None, Refused { retry_after, own_failures: None }))
            }
            Circuit::Closed { .. } | Circuit::HalfOpen { .. } => Ok(()),
        }
    }

    /// The error for a server that has failed and is not waited for.
    pub(crate) fn failed(&self, desk: &Desk) -> CallError {
        let now = Instant::now().into_std();
        let left = |until: std::time::Instant| until.saturating_duration_since(now);
        let last = || desk.supervisor.failure().map_or_else(String::new, ToString::to_string);
        let is_once = self.start_patience == StartPatience::Once;
        let needs_reload = matches!(desk.supervisor.entry(now), Entry::Ejected { .. });
        let (state, cause, action, retry_after) = match desk.supervisor.entry(now) {
            Entry::Ejected { readmit_at, ejection, cause } => {
                let state = match ejection {
                    Ejection::Permanent => UnavailableState::CannotStart,
                    // A remote server is not started.
                    Ejection::Spent { .. }
                        if is_once && matches!(self.spec.transport, Transport::Http(_)) =>
                    {
                        UnavailableState::CannotStart
                    }
                    // The host of one command reads like a daemon that has tried as often.
                    Ejection::Spent { .. } if is_once && !desk.supervisor.has_come_up() => {
                        UnavailableState::StartFailed
                    }
                    Ejection::Spent { .. } | Ejection::Relapse => UnavailableState::Ejected,
                };
                let readmit_in = readmit_at.map(left);
                match (ejection, is_once) {
                    (_, false) => (state, cause.to_owned(), ejection.explain(readmit_in), readmit_in),
                    // The host ends with the command: nothing comes later.
                    (Ejection::Spent { failures, .. }, true) if failures > 1 => {
                        (state, cause.to_owned(), format!("it failed {failures} times"), None)
                    }
                    (_, true) => (state, cause.to_owned(), String::new(), None),
                }
            }
            Entry::NeverUp { until } => {
                let (state, action) = match self.spec.transport {
                    Transport::Stdio(_) => (UnavailableState::StartFailed, "it has never come up"),
                    Transport::Http(_) => (UnavailableState::CannotStart, "no try has reached it yet"),
                };
                // Without a daemon there is no next call.
                let action =
                    if is_once { String::new() } else { format!("{action}; the next call tries again") };
                (state, last(), action, Some(left(until)))
            }
            Entry::NeedsAuth { until, cause } => return self.needs_auth(desk, until, cause),
            Entry::Stopped => return self.stopped(),
            Entry::Open(_) | Entry::Wait => {
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

    /// What a person can do about the last failure.
    fn remedy(&self, desk: &Desk, needs_reload: bool) -> Option<Box<Remedy>> {
        let failure = desk.supervisor.failure()?;
        let text = self.remedy_of(failure)?;
        // A host that ends with its command has nothing to reload.
        let is_lasting = self.start_patience != StartPatience::Once;
        let needs_reload = needs_reload && is_lasting && !remedy::wants_restart(failure);
        let for_clients = remedy::for_clients(self.key.server.as_str(), failure);
        Some(Box::new(Remedy { text, for_clients, needs_reload }))
    }

    fn needs_auth(&self, desk: &Desk, until: std::time::Instant, cause: &str) -> CallError {
        let left = until.saturating_duration_since(Instant::now().into_std());
        let mut error = self.unavailable(UnavailableState::NeedsAuth, cause.to_owned(), Some(left));
        if let CallError::Unavailable(it) = &mut error {
            it.remedy = self.remedy(desk, true);
        }
        error
    }

    /// Makes sure that the visitor holds a permit that still counts: after a
    /// wait the breaker may have opened.
    fn admit(&self, desk: &mut Desk, visitor: &mut Visitor<'_>, now: Instant) -> Result<(), CallError> {
        self.check_in(desk)?;
        let now = now.into_std();
        match visitor.permit.take() {
            Some(permit) if desk.supervisor.is_current(&permit, visitor.origin) => {
                visitor.permit = Some(permit);
                return Ok(());
            }
            Some(_) | None => {}
        }
        let permit = desk.supervisor.admit(visitor.origin, now);
        visitor.permit =
            Some(permit.map_err(|refused| self.broken(&desk.supervisor, visitor.origin, refused))?);
        Ok(())
    }

    /// One look at the desk: a session, nothing yet, or a reason to leave.
    fn look(&self, visitor: &mut Visitor<'_>, now: Instant) -> Result<Option<Arc<Live>>, CallError> {
        let mut desk = self.desk();
        if visitor.is_waiting {
            self.check_in(&desk)?;
        } else {
            self.admit(&mut desk, visitor, now)?;
        }
        if desk.supervisor.entry(now.into_std()) == Entry::Wait {
            if !std::mem::replace(&mut visitor.is_waiting, true) {
                desk.supervisor.on_wait();
                drop(desk);
                self.bell.notify_one();
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

    /// The error for a server in a state that says what to do.
    pub(crate) fn unavailable(
        &self,
        state: UnavailableState,
        cause: String,
        retry_after: Option<Duration>,
    ) -> CallError {
        CallError::Unavailable(Unavailable::new(self.key.server.clone(), state, cause, retry_after))
    }

    pub(crate) fn stopped(&self) -> CallError {
        self.unavailable(UnavailableState::Stopped, "an operator stopped it".into(), None)
    }

    /// Says whose failures hold a call back.
    fn broken(&self, supervisor: &Supervisor, origin: Option<Origin<'_>>, refused: Refused) -> CallError {
        let mut cause = match (refused.own_failures, origin) {
            (Some(failures), Some(origin)) => {
                format!("{failures} of your calls to `{}` in a row failed", origin.tool)
            }
            _ => format!("{} calls in a row failed", supervisor.consecutive_failures()),
        };
        if let Some(failure) = supervisor.failure() {
            cause.push_str(&format!(" (last: {failure})"));
        }
        self.unavailable(UnavailableState::BreakerOpen, cause, Some(refused.retry_after))
    }

    /// The caller's time ran out: with a session, what became of the request
    /// is known; without one, why there is none is what matters.
    pub(crate) fn out_of_time(&self, request: &Request<'_>, delivery: Delivery) -> CallError {
        let has_session = matches!(self.desk().supervisor.entry(Instant::now().into_std()), Entry::Open(_));
        match has_session {
            true => CallError::TimedOut {
                server: self.key.server.clone(),
                after: request.asked.elapsed(),
                delivery,
            },
            false => self.late(),
        }
    }

    /// The caller's time ran out before there was a session.
    pub(crate) fn late(&self) -> CallError {
        let start = self.startup.load().as_ref().map(|startup| startup.status());
        let desk = self.desk();
        let last = desk
            .supervisor
            .failure()
            .map(|failure| format!(" (last failure: {failure})"))
            .unwrap_or_default();
        match (desk.supervisor.phase(), start) {
            (Phase::Backoff { soonest, .. }, _) => {
                let left = soonest.saturating_duration_since(Instant::now().into_std());
                self.unavailable(
                    UnavailableState::Backoff,
                    format!("it waits before its next start{last}"),
                    Some(left),
                )
            }
            (_, Some(StartStatus { stage: Stage::WaitingForRoom, .. })) => CallError::Overloaded {
                what: format!("no room for a process of server `{}`: all are in use", self.key.server),
                retry_after: COME_BACK,
            },
            (_, Some(start)) => {
                let state = match start.stage {
                    Stage::Fetching | Stage::WaitingForDownload => UnavailableState::Fetching,
                    _ => UnavailableState::Starting,
                };
                let mut error = self.unavailable(state, format!("it {start}{last}"), Some(COME_BACK));
                if let CallError::Unavailable(it) = &mut error {
                    it.remedy = start.hint.map(|text| Box::new(Remedy::new(text, false)));
                }
                error
            }
            (_, None) => self.unavailable(
                UnavailableState::Starting,
                format!("it was not ready in time{last}"),
                Some(COME_BACK),
            ),
        }
    }

    fn crowded(&self, shed: Shed) -> CallError {
        let (server, places) = (&self.key.server, self.spec.max_in_flight);
        let what = match shed {
            Shed::Full | Shed::Late => format!(
                "server `{server}` has {places} calls in flight and {} waiting",
                self.places.waiting()
            ),
            Shed::Displaced => format!(
                "server `{server}` has {places} calls in flight, and of all who wait you have the most calls"
            ),
        };
        CallError::Overloaded { what, retry_after: COME_BACK }
    }
}
