//! One event per call, also when the caller goes away.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ostler_core::caller::{Caller, CredentialState};
use ostler_core::error::CallError;
use ostler_core::fault::Delivery;

use crate::answer::Answer;
use crate::call::unknown_item;
use crate::host::Host;
use crate::lists::Kind;
use crate::request::Request;
use crate::upstream::BoxFuture;

/// What became of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord<'a> {
    /// Who asked.
    pub principal: &'a str,
    /// In which role.
    pub role: &'a str,
    /// From which client session, where there is one.
    pub session: Option<&'a str>,
    /// Which server.
    pub server: &'a str,
    /// Which method.
    pub method: &'a str,
    /// Which tool, prompt or resource.
    pub subject: &'a str,
    /// `ok`, `tool-error` if the tool says that it failed, `cached`,
    /// `cancelled`, or the code of the error.
    pub outcome: &'static str,
    /// What became of the request at the server; `None` where it never was on
    /// its way, and where its caller left before that was known.
    pub delivery: Option<Delivery>,
    /// The session of the server that answered.
    pub generation: Option<u64>,
    /// The rule that refused it, where one did; the caller was told that there
    /// is nothing of that name.
    pub denied_by: Option<&'a str>,
    /// What else there is to say: whose budget was used up, and its size; that a token was revoked.
    pub detail: Option<&'a str>,
    /// The arguments as they came.
    pub arguments: Option<&'a [u8]>,
    /// From the request to its end.
    pub took: Duration,
    /// What `arguments` is a part of.
    pub(crate) raw_params: Option<&'a Bytes>,
}

impl RequestRecord<'_> {
    /// The arguments, for whoever wants them after the call. What is shorter
    /// than `copied` is copied; a longer one keeps the buffer that it came in,
    /// which holds little else.
    pub fn owned_arguments(&self, copied: usize) -> Option<Bytes> {
        let arguments = self.arguments?;
        Some(match self.raw_params {
            Some(text) if arguments.len() >= copied => text.slice_ref(arguments),
            _ => Bytes::copy_from_slice(arguments),
        })
    }
}

/// Takes records. Called on the path of a call, so it must not block.
pub type Recorder = Arc<dyn Fn(&RequestRecord<'_>) + Send + Sync>;

/// Tells whether records of a caller have room: a future that waits for it, or `None`. Awaited before a call is sent, so
/// it ends in a time of its own.
pub type RecordBackpressure = Arc<dyn Fn(&Caller) -> Option<BoxFuture<'static, ()>> + Send + Sync>;

/// Outcome of a request whose caller left.
const CANCELLED: &str = "cancelled";

/// A record in the making; dropping it unfinished records that the caller left.
pub(crate) struct PendingRecord<'r, 'a> {
    request: &'r Request<'a>,
    recorder: Option<Recorder>,
    outcome: &'static str,
    delivery: Option<Delivery>,
    generation: Option<u64>,
    denied_by: Option<String>,
    detail: Option<String>,
}

impl<'r, 'a> PendingRecord<'r, 'a> {
    pub(crate) fn begin(request: &'r Request<'a>, recorder: Option<Recorder>) -> Self {
        let (outcome, delivery, generation) = (CANCELLED, None, None);
        Self { request, recorder, outcome, delivery, generation, denied_by: None, detail: None }
    }

    /// Notes the rule that hides what was asked for.
    pub(crate) fn set_denied_by(&mut self, rule: Option<String>) {
        self.denied_by = rule;
    }

    /// Notes what else there is to say, where somebody wants to know.
    pub(crate) fn set_detail(&mut self, detail: impl FnOnce() -> String) {
        self.detail = self.recorder.is_some().then(detail);
    }

    pub(crate) fn finish(mut self, result: &Result<Answer, CallError>) {
        (self.outcome, self.delivery) = match result {
            Ok(answer) if answer.is_cached() => ("cached", None),
            // An answer is looked at only if somebody wants to know.
            Ok(answer) if self.recorder.is_some() && self.is_tool_error(answer) => {
                ("tool-error", Some(Delivery::Answered))
            }
            Ok(_) => ("ok", Some(Delivery::Answered)),
            Err(error) => (error.code(), error.delivery()),
        };
        self.generation = result.as_ref().ok().and_then(|answer| answer.generation);
    }

    fn is_tool_error(&self, answer: &Answer) -> bool {
        self.request.method() == "tools/call" && answer.is_error()
    }
}

impl Drop for PendingRecord<'_, '_> {
    fn drop(&mut self) {
        let took = self.request.received_at.elapsed();
        let (server, method, caller) = (self.request.server(), self.request.method(), self.request.caller());
        tracing::debug!(server, method, outcome = self.outcome, ?took, "call");
        let is_revoked = self.outcome == CANCELLED && caller.credential_state() == CredentialState::Revoked;
        let detail = self.detail.as_deref().or(is_revoked.then_some("the token was revoked"));
        // Lists are no calls; that a rule refuses one is told all the same.
        let is_list = Kind::ALL.iter().any(|kind| kind.method() == method);
        if let Some(recorder) = self.recorder.as_ref().filter(|_| !is_list || self.denied_by.is_some()) {
            let wanted = self.request.subject();
            recorder(&RequestRecord {
                principal: caller.principal(),
                role: caller.role(),
                session: caller.session(),
                server,
                method,
                subject: wanted.as_ref().map_or("", |wanted| wanted.item_name()),
                outcome: self.outcome,
                delivery: self.delivery,
                generation: self.generation,
                denied_by: self.denied_by.as_deref(),
                detail,
                arguments: self.request.params.arguments(),
                took,
                raw_params: Some(self.request.params.raw()),
            });
        }
    }
}

/// A request that was refused before it came to be one.
#[derive(Debug, Clone, Copy)]
pub struct DeniedRequest<'a> {
    /// Which server.
    pub server: &'a str,
    /// Which method.
    pub method: &'a str,
    /// What kind of item, and which; absent where it was the server itself.
    pub item: Option<(Kind, &'a str)>,
}

/// A request for something that does not exist, whoever asks for it.
#[derive(Debug, Clone, Copy)]
pub struct UnresolvedRequest<'a> {
    /// Which server it would be of; empty if that is not known.
    pub server: &'a str,
    /// Which method, or the HTTP method and path.
    pub method: &'a str,
    /// What was asked for; empty if that is the server or the method itself.
    pub subject: &'a str,
    /// The code of what the caller was told, such as `unknown-tool`.
    pub outcome: &'static str,
}

impl Host {
    /// Records that a caller was told that there is no such thing, where no
    /// rule hides any. For whoever resolves names in front of the host.
    pub fn record_unresolved(&self, caller: &Caller, unknown: UnresolvedRequest<'_>) {
        let UnresolvedRequest { server, method, subject, outcome } = unknown;
        self.record_brief(caller, BriefRecord { server, method, subject, outcome, rule: None });
    }

    /// Records that a caller was told that there is no such thing, if it is a
    /// rule that hides it. For whoever resolves names in front of the host:
    /// what reaches [`send`](Self::send) is recorded there. Whether one does.
    pub fn record_if_denied(&self, caller: &Caller, refused: DeniedRequest<'_>) -> bool {
        let Some(rule) = self.current().denial_reason(caller, refused.server, refused.item) else {
            return false;
        };
        let (subject, outcome) = match refused.item {
            Some((kind, subject)) => (subject, unknown_item(kind, subject).code()),
            None => ("", CallError::unknown_server(refused.server, std::iter::empty()).code()),
        };
        let DeniedRequest { server, method, .. } = refused;
        self.record_brief(caller, BriefRecord { server, method, subject, outcome, rule: Some(&rule) });
        true
    }

    pub(crate) fn record_brief(&self, caller: &Caller, aside: BriefRecord<'_>) {
        let Some(recorder) = self.recorder() else { return };
        recorder(&RequestRecord {
            principal: caller.principal(),
            role: caller.role(),
            session: caller.session(),
            server: aside.server,
            method: aside.method,
            subject: aside.subject,
            outcome: aside.outcome,
            delivery: None,
            generation: None,
            denied_by: aside.rule,
            detail: None,
            arguments: None,
            took: Duration::ZERO,
            raw_params: None,
        });
    }
}

/// What never became a request.
pub(crate) struct BriefRecord<'a> {
    pub(crate) server: &'a str,
    pub(crate) method: &'a str,
    pub(crate) subject: &'a str,
    pub(crate) outcome: &'static str,
    pub(crate) rule: Option<&'a str>,
}

impl fmt::Debug for PendingRecord<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}
