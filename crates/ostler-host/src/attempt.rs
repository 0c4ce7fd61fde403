//! Attempts: one is usual, another only when repeating is safe.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::breaker::Mark;
use ostler_core::error::{CallError, RpcAnswer, UnavailableState};
use ostler_core::fault::{Delivery, Fault, FaultKind};
use ostler_core::repeat::{Attempt, MethodKind, may_repeat};
use ostler_core::sabotage;
use ostler_core::spec::ToolRules;
use ostler_core::weigh::{self, Effect, Weight, weigh};
use ostler_wire::{Outcome, RpcError};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::host::Host;
use crate::request::{Request, Wanted};
use crate::server::lease::{Lease, Patience};
use crate::server::slot::Slot;
use crate::server::turn::{AskedVoice, Turn};
use crate::upstream::Ask;

/// How often one call is meant for a session that the server then forgets.
const MAX_RENEWALS: u32 = 2;

/// The times of one call.
#[derive(Debug, Clone, Copy)]
struct Clock {
    began: Instant,
    /// When the call is over, waiting included, unless progress moves that.
    until: Instant,
    /// When the caller stops waiting, or the call's hard end.
    end: Instant,
    /// Whether `end` is the caller's own wish.
    is_callers: bool,
}

impl Clock {
    fn start(slot: &Slot, request: &Request<'_>, began: Instant) -> Self {
        let hard = began + slot.spec.max_call_time;
        let (end, is_callers) = match request.deadline {
            Some(deadline) if deadline < hard => (deadline, true),
            _ => (hard, false),
        };
        Self { began, until: end.min(began + slot.spec.call_timeout), end, is_callers }
    }

    /// Gives a call that has waited for a start its whole time: a start is not the call's.
    fn allow(&mut self, lease: &Lease, call_timeout: Duration) {
        if lease.has_waited() {
            self.until = self.end.min(lease.since() + call_timeout);
        }
    }

    /// Whether an attempt that began at `since` and is out of time now says
    /// nothing about its server: the caller wished so, or waiting has taken
    /// most of the time.
    fn is_short(&self, since: Instant, now: Instant, call_timeout: Duration) -> bool {
        (self.is_callers && now >= self.end) || now.saturating_duration_since(since) < call_timeout / 2
    }
}

impl Host {
    /// Sends a request until it is answered or may not be repeated. Every
    /// attempt asks for the session of that moment.
    pub(crate) async fn perform(&self, slot: &Arc<Slot>, request: &Request<'_>) -> Result<Answer, CallError> {
        let mut now = Instant::now();
        let mut clock = Clock::start(slot, request, now);
        if now >= clock.end {
            let (server, after) = (slot.key.server.clone(), request.asked.elapsed());
            return Err(CallError::TimedOut { server, after, delivery: Delivery::NotSent });
        }
        let turn = slot.take_turn(request, clock.until).await;
        if !matches!(turn, Turn::Free) {
            now = Instant::now();
        }
        let caller = request.caller();
        slot.note_user(caller.principal());
        let is_restricted = || self.current_of(request).is_restricted_at(caller, slot.key.server.as_str());
        let has_others = (request.voice.is_some() && is_restricted()).then_some(&slot.has_several_users);
        let key = self.idempotency_key();
        // The fault after which the request may have run, whatever comes later.
        let mut doubt: Option<Fault> = None;
        let mut renewals = 0;
        loop {
            let patience = Patience { until: clock.until, end: clock.end };
            let lease = match (self.checked_lease(slot, request, now, patience).await, &doubt) {
                (Ok(lease), _) => lease,
                (Err(error), None) => return Err(error),
                (Err(_), Some(fault)) => return Err(explain(slot, request, fault, clock)),
            };
            if request.is_hidden {
                return Err(not_there(slot, request));
            }
            clock.allow(&lease, slot.spec.call_timeout);
            let generation = lease.generation();
            let interactive = request.voice.as_ref().filter(|_| request.is_interactive());
            let asked = interactive.map(|voice| AskedVoice::wrap(voice, &turn, lease.parking()));
            let is_fit = || self.is_open(slot, request, generation);
            let ask = Ask {
                method: request.method(),
                params: &request.params,
                idempotency_key: Some(key.as_str()),
                until: clock.until,
                client: request.client(),
                voice: asked.as_ref().or(request.voice.as_ref()),
                has_others,
                at_most: clock.end,
                headers: &request.headers,
                is_fit: Some(&is_fit),
            };
            let result = lease.session().request(ask).await.and_then(in_shape);
            now = Instant::now();
            // Whose caller can be asked may have waited for the caller.
            let is_short = clock.is_short(lease.since(), now, slot.spec.call_timeout)
                || (now >= clock.end && request.is_interactive());
            lease.settle(request, weight_of(request, &result, is_short), now);
            let fault = match result {
                Ok(outcome) => return finish(slot, generation, outcome),
                Err(fault) => fault,
            };
            let attempt = Attempt {
                is_trusted_idempotent: self.is_trusted_idempotent(slot, request),
                // The next attempt asks for the list first, and finds it otherwise.
                is_something_changed: fault.kind == FaultKind::Renewed && renewals < MAX_RENEWALS,
                ..attempt_of(slot, request, &fault, doubt.is_some())
            };
            if now >= clock.until || !may_repeat(&attempt) {
                let worst = doubt.filter(|_| is_harmless(&fault)).unwrap_or(fault);
                return Err(explain(slot, request, &worst, clock));
            }
            Box::pin(slot.outlive(generation, &fault, clock.until)).await;
            renewals += u32::from(fault.kind == FaultKind::Renewed);
            if !is_harmless(&fault) {
                doubt = Some(fault);
            }
        }
    }
}

/// Refuses a result that is no object: every result of MCP is one, and clients rely on that.
fn in_shape(outcome: Outcome) -> Result<Outcome, Fault> {
    match &outcome {
        Outcome::Result(body) if !body.trim_ascii_start().starts_with(b"{") => {
            let kind = FaultKind::Malformed("`result` is not an object".into());
            Err(Fault { delivery: Delivery::Answered, kind })
        }
        _ => Ok(outcome),
    }
}

/// Whether the request can't have run because of this attempt.
fn is_harmless(fault: &Fault) -> bool {
    matches!(fault.delivery, Delivery::NotSent | Delivery::Rejected)
}

/// What an attempt says about its server. A list that is answered proves that
/// the session works and says nothing to the breaker: a server may list its
/// tools well and fail at every one of them.
fn weight_of(request: &Request<'_>, result: &Result<Outcome, Fault>, is_short: bool) -> Weight {
    let mut weight = weigh(&outcome_of(result, is_short));
    if request.is_list() && weight.mark == Mark::Success {
        weight = Weight { mark: Mark::Neutral, effect: Effect::Prove };
    }
    weight
}

fn outcome_of<'a>(result: &'a Result<Outcome, Fault>, is_short: bool) -> weigh::Outcome<'a> {
    match result {
        Ok(Outcome::Result(_)) => weigh::Outcome::Result,
        Ok(Outcome::Error(_)) => weigh::Outcome::RpcError,
        Err(Fault { kind: FaultKind::TimedOut(_), .. }) if is_short => weigh::Outcome::CutShort,
        Err(fault) => weigh::Outcome::Fault(&fault.kind),
    }
}

fn attempt_of(slot: &Slot, request: &Request<'_>, fault: &Fault, has_doubt: bool) -> Attempt {
    let rules = request.tool_name().map_or_else(ToolRules::default, |tool| slot.spec.rules(&tool));
    // A full session stays full for longer than a repeat takes.
    let is_congested = fault.kind == FaultKind::Congested;
    Attempt {
        delivery: if is_congested { Delivery::Rejected } else { fault.delivery },
        kind: request.kind(),
        retry: rules.retry,
        is_trusted_idempotent: false,
        is_continuation: request.params.is_continuation(),
        repeats_of_unknown: u32::from(has_doubt),
        is_something_changed: false,
    }
}

fn finish(slot: &Slot, generation: u64, outcome: Outcome) -> Result<Answer, CallError> {
    match outcome {
        Outcome::Result(body) => Ok(Answer::received(slot.key.server.clone(), generation, body)),
        Outcome::Error(error) => Err(CallError::Rpc(RpcAnswer {
            server: slot.key.server.clone(),
            code: error.code,
            message: error.message,
            raw: error.raw,
        })),
    }
}

/// What a server that lacks the item would answer. The caller is told of it in
/// our own words.
fn not_there(slot: &Slot, request: &Request<'_>) -> CallError {
    let code = match request.wanted() {
        Ok(Wanted::Item(..)) => ostler_wire::RESOURCE_NOT_FOUND,
        _ => ostler_wire::METHOD_NOT_FOUND,
    };
    let error = RpcError::own(code, "not found");
    let server = slot.key.server.clone();
    CallError::Rpc(RpcAnswer { server, code, message: error.message, raw: error.raw })
}

/// Turns the last fault into what the caller is told.
fn explain(slot: &Slot, request: &Request<'_>, fault: &Fault, clock: Clock) -> CallError {
    sabotage!(
        FalseRefusal,
        if fault.delivery == Delivery::Unknown {
            return slot.congested();
        }
    );
    let server = slot.key.server.clone();
    match (&fault.kind, fault.delivery) {
        (FaultKind::TimedOut(_), delivery) => {
            CallError::TimedOut { server, after: clock.began.elapsed(), delivery }
        }
        (FaultKind::Malformed(_) | FaultKind::ContentType(_) | FaultKind::Oversize(_), _) => {
            CallError::UpstreamProtocol { server, detail: fault.to_string() }
        }
        (FaultKind::Congested, _) => slot.congested(),
        (FaultKind::NeedsAuth { .. }, Delivery::Rejected) => {
            slot.held_back(UnavailableState::NeedsAuth, fault, None)
        }
        (FaultKind::Paused { wait, .. }, Delivery::Rejected) => {
            slot.held_back(UnavailableState::BreakerOpen, fault, Some(*wait))
        }
        (FaultKind::Unreachable(why) | FaultKind::Denied(why), Delivery::NotSent | Delivery::Rejected) => {
            let (state, cause) = (UnavailableState::OutOfReach, why.clone());
            slot.unavailable(state, cause, None)
        }
        (_, Delivery::Unknown) if request.kind() == MethodKind::Call => {
            let tool = request.tool_name().map(|name| name.into_owned());
            CallError::OutcomeUnknown { server, tool, cause: fault.to_string() }
        }
        _ => slot.lost(fault),
    }
}
