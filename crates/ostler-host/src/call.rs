//! The steps of one call, in the order in which they happen. The order is part of the contract.

use std::sync::Arc;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::fault::Delivery;
use ostler_wire::{ResultHead, ResultKind};

use crate::admission::describe_exhausted_budget;
use crate::answer::Answer;
use crate::catalog::Target;
use crate::host::Host;
use crate::in_flight::InFlight;
use crate::lists::Kind;
use crate::recall::restrict_cache_scope;
use crate::record::PendingRecord;
use crate::registry::RegistrySnapshot;
use crate::request::{CallArguments, Request};
use crate::server::Server;
use crate::server::slot::Slot;

/// Bounds how often one call follows a replaced server: replacements are rare, and a loop must end.
const MAX_REPLACEMENTS: usize = 16;

impl Host {
    /// Calls a tool.
    pub async fn call(
        &self,
        caller: &Caller,
        server: &str,
        tool: &str,
        arguments: impl Into<CallArguments>,
    ) -> Result<Answer, CallError> {
        self.send_to(server, Request::tool_call(caller, tool, arguments.into())?).await
    }

    /// Sends a request to one server, whose own names the request uses.
    pub async fn send_to(&self, server: &str, request: Request<'_>) -> Result<Answer, CallError> {
        self.send(self.authorize(server, request)?).await
    }

    /// Sends a resolved request. Dropping the future cancels the request.
    pub async fn send(&self, target: Target<'_>) -> Result<Answer, CallError> {
        let Target { request, server, slot, hidden_by: rule } = self.reauthorize(target)?;
        let mut recording = PendingRecord::begin(&request, self.recorder());
        recording.set_denied_by(rule);
        self.inner().telemetry.wait_for_recorder(request.caller()).await;
        let mut result = self.execute(&server, &slot, &request, &mut recording).await;
        let mut judged_anew = None;
        if self.is_for_replacement(&server, &request, &result) {
            let (judged, outcome) =
                Box::pin(self.send_to_replacement(&request, server, &mut recording)).await;
            (judged_anew, result) = (Some(judged), outcome);
        }
        let request = judged_anew.as_ref().unwrap_or(&request);
        let result = result
            .map(|answer| self.seal_answer(request, answer))
            .map_err(|error| self.conceal_missing(request, error));
        recording.finish(&result);
        result
            .map(|answer| self.without_unapproved_instructions(request, answer))
            .map_err(|error| self.snapshot_for(request).without_details(request.caller(), error))
    }

    /// Sends a request to the server that replaced its own. No byte of the request has left. Returns the request with
    /// its latest authorization.
    async fn send_to_replacement<'a>(
        &self,
        request: &Request<'a>,
        mut before: Arc<Server>,
        recording: &mut PendingRecord<'_, '_>,
    ) -> (Request<'a>, Result<Answer, CallError>) {
        let mut replacement = 0;
        loop {
            replacement += 1;
            let mut request = request.clone().with_snapshot(&self.current());
            let (server, slot, rule) = match self.authorize_opened(&mut request) {
                Ok(judged) => judged,
                Err((error, rule)) => {
                    recording.set_denied_by(rule);
                    return (request, Err(error));
                }
            };
            recording.set_denied_by(rule);
            let result = self.execute(&server, &slot, &request, recording).await;
            let is_same = before.registration == server.registration;
            if is_same
                || replacement >= MAX_REPLACEMENTS
                || !self.is_for_replacement(&server, &request, &result)
            {
                return (request, result);
            }
            before = server;
        }
    }

    /// Returns whether a request was not sent because its server was replaced meanwhile.
    fn is_for_replacement(
        &self,
        server: &Arc<Server>,
        request: &Request<'_>,
        result: &Result<Answer, CallError>,
    ) -> bool {
        let is_unsent = matches!(result, Err(error @ CallError::Unavailable(_)) if was_not_sent(error));
        let current = self.current();
        let now = current.server(server.spec.name.as_str());
        is_unsent
            && !request.params.is_continuation()
            && now.is_some_and(|now| now.registration != server.registration)
    }

    async fn execute(
        &self,
        server: &Server,
        slot: &Arc<Slot>,
        request: &Request<'_>,
        recording: &mut PendingRecord<'_, '_>,
    ) -> Result<Answer, CallError> {
        let (current, admission) = (self.snapshot_for(request), &self.inner().admission);
        let limits = &current.limits;
        let charge = admission.charge(limits, request).inspect_err(|error| {
            recording.set_detail(|| describe_exhausted_budget(limits, request.caller(), error))
        })?;
        if let Some(answer) = self.lookup_cached(slot, request) {
            return Ok(answer);
        }
        let result = self.validate_and_send(server, slot, request, &current).await;
        if let Err(error @ CallError::InvalidArguments { .. }) = &result {
            recording.set_detail(|| error.cause().unwrap_or_default());
        }
        if result.as_ref().is_err_and(was_not_sent) {
            admission.refund(request.caller(), charge);
        }
        result
    }

    /// Validates the arguments and sends the request, alone or coalesced with equal reads.
    async fn validate_and_send(
        &self,
        server: &Server,
        slot: &Arc<Slot>,
        request: &Request<'_>,
        current: &RegistrySnapshot,
    ) -> Result<Answer, CallError> {
        let in_flight =
            self.inner().admission.acquire_in_flight(&current.limits, request.caller(), request.class())?;
        let known = slot.cached_list_for(request.caller(), Kind::Tools);
        if !self.tool_exists(slot, request).await? {
            return Err(self.unknown_tool_error(request, server, known.as_deref()));
        }
        if current.is_restricted(request.caller()) {
            Box::pin(self.check_listed(slot, request)).await?;
        }
        self.validate_arguments(slot, request).await?;
        self.redeem_state(request)?;
        if !self.may_coalesce(slot, request) {
            return self.send_and_cache(slot, request).await;
        }
        // Boxed, like every step that a tool call skips: the future of a call is moved and allocated as a whole.
        Box::pin(self.send_coalesced(slot, request, in_flight)).await
    }

    async fn send_coalesced(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
        in_flight: InFlight,
    ) -> Result<Answer, CallError> {
        let shared = self.coalesce(slot, request, in_flight).await;
        match depends_on_caller(request, &shared) {
            // The shared read spoke for the host; the answer depends on the caller, so the caller's own request is
            // sent.
            true => {
                let _in_flight = self.acquire_in_flight(request.caller(), request.class())?;
                self.send_and_cache(slot, request).await
            }
            false => shared,
        }
    }

    /// Sends a request to the server and caches the answer if that is allowed.
    pub(crate) async fn send_and_cache(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
    ) -> Result<Answer, CallError> {
        let epoch = slot.cache_epoch();
        let answer = self.send_with_retries(slot, request).await?;
        let answer = restrict_cache_scope(self.current().spec_of(slot), answer);
        Ok(self.cache_answer(slot, request, answer, epoch))
    }
}

/// Returns the error for a prompt or resource that the rules hide.
pub(crate) fn unknown_item(kind: Kind, name: &str) -> CallError {
    match kind {
        Kind::Tools => CallError::unknown_tool(name, std::iter::empty()),
        Kind::Prompts => CallError::UnknownPrompt { name: name.to_owned() },
        Kind::Resources | Kind::Templates => CallError::UnknownResource { uri: name.to_owned() },
    }
}

/// Returns whether an answer to a read in the host's name can't serve its readers: the server asks a question and
/// expects one reply, or says that its client lacks a capability.
fn depends_on_caller(request: &Request<'_>, answer: &Result<Answer, CallError>) -> bool {
    match answer {
        Ok(answer) => {
            ResultHead::parse(&answer.body).is_ok_and(|head| head.kind == ResultKind::InputRequired)
        }
        Err(CallError::Rpc(error)) => {
            request.is_for_client() && error.code == ostler_wire::MISSING_CAPABILITY
        }
        Err(_) => false,
    }
}

/// Returns whether a failed call was never sent to its server.
fn was_not_sent(error: &CallError) -> bool {
    matches!(error.delivery(), None | Some(Delivery::NotSent))
}
