//! The walk of one call, top to bottom. Order is meaning here.

use std::sync::Arc;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::fault::Delivery;
use ostler_wire::{ResultHead, ResultKind};

use crate::admission::whose_budget;
use crate::answer::Answer;
use crate::catalog::Target;
use crate::host::Host;
use crate::in_flight::InFlight;
use crate::lists::Kind;
use crate::recall::as_told;
use crate::record::Recording;
use crate::registry::Current;
use crate::request::{Arguments, Request};
use crate::server::Server;
use crate::server::slot::Slot;

/// How often one call goes on to the next server under its name.
const MAX_REPLACEMENTS: usize = 16;

impl Host {
    /// Calls a tool.
    pub async fn call(
        &self,
        caller: &Caller,
        server: &str,
        tool: &str,
        arguments: impl Into<Arguments>,
    ) -> Result<Answer, CallError> {
        self.ask(server, Request::tool(caller, tool, arguments.into())?).await
    }

    /// Sends a request to a server of which the caller knows the own names.
    pub async fn ask(&self, server: &str, request: Request<'_>) -> Result<Answer, CallError> {
        self.send(self.judge(server, request)?).await
    }

    /// Sends a resolved request. Dropping the future cancels.
    pub async fn send(&self, target: Target<'_>) -> Result<Answer, CallError> {
        let Target { request, server, slot, rule } = self.rejudge(target)?;
        let mut recording = Recording::begin(&request, self.recorder());
        recording.denied(rule);
        self.shared().telemetry.record_room().await;
        let mut result = self.walk(&server, &slot, &request, &mut recording).await;
        let mut judged_anew = None;
        if self.is_for_next(&server, &request, &result) {
            let (judged, outcome) = Box::pin(self.walk_on(&request, server, &mut recording)).await;
            (judged_anew, result) = (Some(judged), outcome);
        }
        let request = judged_anew.as_ref().unwrap_or(&request);
        let result = result
            .map(|answer| self.seal_answer(request, answer))
            .map_err(|error| self.hide_missing(request, error));
        recording.end(&result);
        result
            .map(|answer| self.without_advice(request, answer))
            .map_err(|error| self.current_of(request).without_details(request.caller(), error))
    }

    /// Sends a request to the server that has taken the place of its own. No byte of it has left. Returns it as it was
    /// judged last.
    async fn walk_on<'a>(
        &self,
        request: &Request<'a>,
        mut before: Arc<Server>,
        recording: &mut Recording<'_, '_>,
    ) -> (Request<'a>, Result<Answer, CallError>) {
        let mut replacement = 0;
        loop {
            replacement += 1;
            let mut request = request.clone().judged_by(&self.current());
            let (server, slot, rule) = match self.judge_opened(&mut request) {
                Ok(judged) => judged,
                Err((error, rule)) => {
                    recording.denied(rule);
                    return (request, Err(error));
                }
            };
            recording.denied(rule);
            let result = self.walk(&server, &slot, &request, recording).await;
            let is_same = Arc::ptr_eq(&before, &server);
            if is_same || replacement >= MAX_REPLACEMENTS || !self.is_for_next(&server, &request, &result) {
                return (request, result);
            }
            before = server;
        }
    }

    /// Returns whether a request was not sent because its server lost its place to another one meanwhile.
    fn is_for_next(
        &self,
        server: &Arc<Server>,
        request: &Request<'_>,
        result: &Result<Answer, CallError>,
    ) -> bool {
        let is_unsent = matches!(result, Err(error @ CallError::Unavailable(_)) if has_not_left(error));
        let current = self.current();
        is_unsent
            && !request.params.is_continuation()
            && !current.holds(server)
            && current.server(server.spec.name.as_str()).is_some()
    }

    async fn walk(
        &self,
        server: &Server,
        slot: &Arc<Slot>,
        request: &Request<'_>,
        recording: &mut Recording<'_, '_>,
    ) -> Result<Answer, CallError> {
        let (current, admission) = (self.current_of(request), &self.shared().admission);
        let limits = &current.limits;
        let charge = admission
            .charge(limits, request)
            .inspect_err(|error| recording.detail(|| whose_budget(limits, request.caller(), error)))?;
        if let Some(answer) = self.recall(slot, request) {
            return Ok(answer);
        }
        let result = self.reach(server, slot, request, &current).await;
        if let Err(error @ CallError::InvalidArguments { .. }) = &result {
            recording.detail(|| error.cause().unwrap_or_default());
        }
        if result.as_ref().is_err_and(has_not_left) {
            admission.refund(request.caller(), charge);
        }
        result
    }

    /// Asks the server, alone or together with others who ask the same.
    async fn reach(
        &self,
        server: &Server,
        slot: &Arc<Slot>,
        request: &Request<'_>,
        current: &Current,
    ) -> Result<Answer, CallError> {
        let in_flight =
            self.shared().admission.count_in(&current.limits, request.caller(), request.errand())?;
        let known = slot.known_to(request.caller(), Kind::Tools);
        if !self.exists(slot, request).await? {
            return Err(self.unknown(request, server, known.as_deref()));
        }
        if current.is_restricted(request.caller()) {
            Box::pin(self.check_listed(slot, request)).await?;
        }
        self.check_arguments(slot, request).await?;
        self.redeem_state(request)?;
        if !self.may_share(slot, request) {
            return self.perform_and_remember(slot, request).await;
        }
        // Boxed, like all that a call of a tool does not go through: the
        // future of a call is moved and allocated as a whole.
        Box::pin(self.ask_together(slot, request, in_flight)).await
    }

    async fn ask_together(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
        in_flight: InFlight,
    ) -> Result<Answer, CallError> {
        let shared = self.share(slot, request, in_flight).await;
        match depends_on_reader(request, &shared) {
            // Asked in the host's name, asked again in the reader's.
            true => {
                let _in_flight = self.count_in(request.caller(), request.errand())?;
                self.perform_and_remember(slot, request).await
            }
            false => shared,
        }
    }

    /// Asks the server, and keeps the answer where it may be kept.
    pub(crate) async fn perform_and_remember(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
    ) -> Result<Answer, CallError> {
        let epoch = slot.epoch();
        let answer = as_told(slot, self.perform(slot, request).await?);
        Ok(self.remember(slot, request, answer, epoch))
    }
}

/// The error for a prompt or resource that the rules hide.
pub(crate) fn unknown_item(kind: Kind, name: &str) -> CallError {
    match kind {
        Kind::Tools => CallError::unknown_tool(name, std::iter::empty()),
        Kind::Prompts => CallError::UnknownPrompt { name: name.to_owned() },
        Kind::Resources | Kind::Templates => CallError::UnknownResource { uri: name.to_owned() },
    }
}

/// Returns whether an answer that was asked for in the host's name is no answer to
/// one of its readers: the server asks a question, and expects one reply to it, or
/// says that its client can't do enough.
fn depends_on_reader(request: &Request<'_>, answer: &Result<Answer, CallError>) -> bool {
    match answer {
        Ok(answer) => ResultHead::open(&answer.body).is_ok_and(|head| head.kind == ResultKind::InputRequired),
        Err(CallError::Rpc(error)) => {
            request.is_for_client() && error.code == ostler_wire::MISSING_CAPABILITY
        }
        Err(_) => false,
    }
}

/// Whether a failed call has cost its server nothing.
fn has_not_left(error: &CallError) -> bool {
    matches!(error.delivery(), None | Some(Delivery::NotSent))
}
