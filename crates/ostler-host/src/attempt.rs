//! Attempts of a call: one is usual; another is made only where repeating is safe.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::breaker::HealthSignal;
use ostler_core::classify::{self, Classification, SessionEffect, classify};
use ostler_core::error::{CallError, UnavailableState, UpstreamRpcError};
use ostler_core::fault::{Delivery, Fault, FaultKind};
use ostler_core::retry::{FailedAttempt, MethodKind, may_retry};
use ostler_core::sabotage;
use ostler_core::spec::{RetryRule, ServerSpec};
use ostler_wire::{RpcError, RpcOutcome};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::host::Host;
use crate::request::{Request, RequestSubject};
use crate::server::exclusive::{ExclusiveAccess, SuspendingObserver};
use crate::server::lease::{Lease, LeaseDeadlines};
use crate::server::slot::Slot;
use crate::upstream::UpstreamRequest;

/// Bounds how often one call moves to a new session because the server forgot the old one.
const MAX_RENEWALS: u32 = 2;

/// Deadlines of one call.
#[derive(Debug, Clone, Copy)]
struct CallTimeLimits {
    began: Instant,
    /// End of the call, waiting included; progress extends it up to the hard deadline.
    soft_deadline: Instant,
    /// The caller's deadline or the call's hard end, the earlier one.
    hard_deadline: Instant,
    /// Set if the caller's own deadline is the hard one.
    is_caller_deadline: bool,
}

impl CallTimeLimits {
    fn start(spec: &ServerSpec, request: &Request<'_>, began: Instant) -> Self {
        let hard = began + spec.max_call_time;
        let (hard_deadline, is_caller_deadline) = match request.deadline {
            Some(deadline) if deadline < hard => (deadline, true),
            _ => (hard, false),
        };
        Self {
            began,
            soft_deadline: hard_deadline.min(began + spec.call_timeout),
            hard_deadline,
            is_caller_deadline,
        }
    }

    /// Restores the full call timeout after a start: the start's time is not charged to the call.
    fn extend_after_start(&mut self, lease: &Lease, call_timeout: Duration) {
        if lease.has_waited() {
            self.soft_deadline = self.hard_deadline.min(lease.since() + call_timeout);
        }
    }

    /// Returns whether a timeout of an attempt that began at `since` says nothing about its server: the caller's
    /// deadline ended it, or waiting used most of the time.
    fn is_cut_short(&self, since: Instant, now: Instant, call_timeout: Duration) -> bool {
        (self.is_caller_deadline && now >= self.hard_deadline)
            || now.saturating_duration_since(since) < call_timeout / 2
    }
}

impl Host {
    /// Sends a request until it is answered or may not be repeated. Every attempt leases the current session.
    pub(crate) async fn send_with_retries(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
    ) -> Result<Answer, CallError> {
        let mut now = Instant::now();
        let mut clock = self.with_spec(slot, request, |spec| CallTimeLimits::start(spec, request, now));
        if now >= clock.hard_deadline {
            let (server, after) = (slot.key.server.clone(), request.received_at.elapsed());
            return Err(CallError::TimedOut { server, after, delivery: Delivery::NotSent });
        }
        let turn = slot.acquire_exclusive_access(request, clock.soft_deadline).await;
        if !matches!(turn, ExclusiveAccess::NotNeeded) {
            now = Instant::now();
        }
        let caller = request.caller();
        slot.note_user(caller.principal());
        let is_restricted = || self.snapshot_for(request).is_restricted_at(caller, slot.key.server.as_str());
        let has_others =
            (request.call_observer.is_some() && is_restricted()).then_some(&slot.has_several_users);
        let key = self.idempotency_key();
        // The fault after which the request may have run, whatever later attempts bring.
        let mut doubt: Option<Fault> = None;
        let mut renewals = 0;
        loop {
            let patience =
                LeaseDeadlines { without_start: clock.soft_deadline, during_start: clock.hard_deadline };
            let lease = match (self.pin_checked_lease(slot, request, now, patience).await, &doubt) {
                (Ok(lease), _) => lease,
                (Err(error), None) => return Err(error),
                (Err(_), Some(fault)) => return Err(to_call_error(slot, request, fault, clock)),
            };
            if request.is_hidden {
                return Err(not_found_error(slot, request));
            }
            clock.extend_after_start(&lease, slot.spec.call_timeout);
            let generation = lease.generation();
            let interactive = request.call_observer.as_ref().filter(|_| request.is_interactive());
            let asked =
                interactive.map(|voice| SuspendingObserver::wrap(voice, &turn, lease.suspend_handle()));
            let is_fit = || self.may_send_on(slot, request, generation);
            let ask = UpstreamRequest {
                method: request.method(),
                params: &request.params,
                idempotency_key: Some(key.as_str()),
                deadline: clock.soft_deadline,
                client: request.client_meta(),
                observer: asked.as_ref().or(request.call_observer.as_ref()),
                has_other_callers: has_others,
                hard_deadline: clock.hard_deadline,
                headers: &request.headers,
                may_send: Some(&is_fit),
            };
            let result = lease.session().request(ask).await.and_then(require_object_result);
            now = Instant::now();
            // A call whose caller can be asked may have spent its time waiting for the caller.
            let is_short = clock.is_cut_short(lease.since(), now, slot.spec.call_timeout)
                || (now >= clock.hard_deadline && request.is_interactive());
            lease.finish(request, classify_result(request, &result, is_short), now);
            let fault = match result {
                Ok(outcome) => return to_answer(slot, generation, outcome),
                Err(fault) => fault,
            };
            let attempt = FailedAttempt {
                is_trusted_idempotent: self.is_trusted_idempotent(slot, request),
                // The next attempt fetches the list of the new session first.
                has_rejection_cause_changed: fault.kind == FaultKind::StaleSession && renewals < MAX_RENEWALS,
                ..describe_attempt(self.retry_rule(slot, request), request, &fault, doubt.is_some())
            };
            if now >= clock.soft_deadline || !may_retry(&attempt) {
                let worst = doubt.filter(|_| is_unexecuted(&fault)).unwrap_or(fault);
                return Err(to_call_error(slot, request, &worst, clock));
            }
            Box::pin(slot.until_replaced(generation, &fault, clock.soft_deadline)).await;
            renewals += u32::from(fault.kind == FaultKind::StaleSession);
            if !is_unexecuted(&fault) {
                doubt = Some(fault);
            }
        }
    }
}

impl Host {
    /// Returns the operator's current rule for repeating the tool of a call.
    fn retry_rule(&self, slot: &Slot, request: &Request<'_>) -> RetryRule {
        let Some(tool) = request.tool_name() else { return RetryRule::default() };
        self.snapshot_of(slot, request).spec_of(slot).tool_rules(&tool).retry
    }
}

/// Rejects a result that is no object: every result of MCP is one, and clients rely on that.
fn require_object_result(outcome: RpcOutcome) -> Result<RpcOutcome, Fault> {
    match &outcome {
        RpcOutcome::Result(body) if !body.trim_ascii_start().starts_with(b"{") => {
            let kind = FaultKind::Malformed("`result` is not an object".into());
            Err(Fault { delivery: Delivery::Answered, kind })
        }
        _ => Ok(outcome),
    }
}

/// Returns whether this attempt can't have made the request run.
fn is_unexecuted(fault: &Fault) -> bool {
    matches!(fault.delivery, Delivery::NotSent | Delivery::Rejected)
}

/// Classifies an attempt for the breaker and the supervisor. An answered list proves that the session works and does
/// not count for the breaker: a server may list its tools well and fail at every one of them.
fn classify_result(
    request: &Request<'_>,
    result: &Result<RpcOutcome, Fault>,
    is_short: bool,
) -> Classification {
    let mut weight = classify(&to_classifiable_outcome(result, is_short));
    if request.is_list() && weight.signal == HealthSignal::Success {
        weight = Classification { signal: HealthSignal::Neutral, effect: SessionEffect::MarkProven };
    }
    weight
}

fn to_classifiable_outcome<'a>(
    result: &'a Result<RpcOutcome, Fault>,
    is_short: bool,
) -> classify::AttemptOutcome<'a> {
    match result {
        Ok(RpcOutcome::Result(_)) => classify::AttemptOutcome::Result,
        Ok(RpcOutcome::Error(_)) => classify::AttemptOutcome::RpcError,
        Err(Fault { kind: FaultKind::TimedOut(_), .. }) if is_short => classify::AttemptOutcome::TimeRanOut,
        Err(fault) => classify::AttemptOutcome::Fault(&fault.kind),
    }
}

fn describe_attempt(
    retry: RetryRule,
    request: &Request<'_>,
    fault: &Fault,
    has_doubt: bool,
) -> FailedAttempt {
    // A congested session stays full for longer than a retry takes.
    let is_congested = fault.kind == FaultKind::Congested;
    FailedAttempt {
        delivery: if is_congested { Delivery::Rejected } else { fault.delivery },
        kind: request.method_kind(),
        retry,
        is_trusted_idempotent: false,
        is_continuation: request.params.is_continuation(),
        retries_after_unknown: u32::from(has_doubt),
        has_rejection_cause_changed: false,
    }
}

fn to_answer(slot: &Slot, generation: u64, outcome: RpcOutcome) -> Result<Answer, CallError> {
    match outcome {
        RpcOutcome::Result(body) => Ok(Answer::received(slot.key.server.clone(), generation, body)),
        RpcOutcome::Error(error) => Err(CallError::Rpc(UpstreamRpcError {
            server: slot.key.server.clone(),
            code: error.code,
            message: error.message,
            raw: error.raw,
        })),
    }
}

/// Returns the error for an item that the server lacks, in the host's own words.
fn not_found_error(slot: &Slot, request: &Request<'_>) -> CallError {
    let code = match request.subject() {
        Ok(RequestSubject::Item(..)) => ostler_wire::RESOURCE_NOT_FOUND,
        _ => ostler_wire::METHOD_NOT_FOUND,
    };
    let error = RpcError::new(code, "not found");
    let server = slot.key.server.clone();
    CallError::Rpc(UpstreamRpcError { server, code, message: error.message, raw: error.raw })
}

/// Converts the last fault into the error that the caller gets.
fn to_call_error(slot: &Slot, request: &Request<'_>, fault: &Fault, clock: CallTimeLimits) -> CallError {
    sabotage!(
        FalseRefusal,
        if fault.delivery == Delivery::Unknown {
            return slot.congested_error();
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
        (FaultKind::Congested, _) => slot.congested_error(),
        (FaultKind::NeedsAuth { .. }, Delivery::Rejected) => {
            slot.paused_error(UnavailableState::NeedsAuth, fault, None)
        }
        (FaultKind::RetryAfter { wait, .. }, Delivery::Rejected) => {
            slot.paused_error(UnavailableState::BreakerOpen, fault, Some(*wait))
        }
        (FaultKind::Unreachable(why) | FaultKind::Denied(why), Delivery::NotSent | Delivery::Rejected) => {
            let (state, cause) = (UnavailableState::OutOfReach, why.clone());
            slot.unavailable_error(state, cause, None)
        }
        (_, Delivery::Unknown) if request.method_kind() == MethodKind::Call => {
            let tool = request.tool_name().map(|name| name.into_owned());
            CallError::OutcomeUnknown { server, tool, cause: fault.to_string() }
        }
        _ => slot.lost_error(fault),
    }
}
