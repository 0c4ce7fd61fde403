//! Request records: one per call, also when the caller goes away.

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

/// Record of one finished request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord<'a> {
    /// Principal of the caller.
    pub principal: &'a str,
    /// Role of the caller.
    pub role: &'a str,
    /// Client session of the caller, if it has one.
    pub session: Option<&'a str>,
    /// Server of the request.
    pub server: &'a str,
    /// MCP method.
    pub method: &'a str,
    /// Tool, prompt or resource.
    pub subject: &'a str,
    /// Result: `ok`, `tool-error` if the tool reports a failure, `cached`, `cancelled`, or the code of the error.
    pub outcome: &'static str,
    /// Delivery at the server; `None` where the request never was on its way, and where its caller left before that was
    /// known.
    pub delivery: Option<Delivery>,
    /// Session of the server that answered.
    pub generation: Option<u64>,
    /// Rule that refused it, if one did; the caller got the error for a missing item.
    pub denied_by: Option<&'a str>,
    /// Further detail: the exhausted budget and its size, or a revoked token.
    pub detail: Option<&'a str>,
    /// Arguments as they came.
    pub arguments: Option<&'a [u8]>,
    /// Time from the request to its end.
    pub took: Duration,
    /// Buffer that holds `arguments`.
    pub(crate) raw_params: Option<&'a Bytes>,
}

impl RequestRecord<'_> {
    /// Returns the arguments in a form that outlives the call. Copies arguments shorter than `copied`; longer ones keep
    /// the buffer that they came in, which holds little else.
    pub fn owned_arguments(&self, copied: usize) -> Option<Bytes> {
        let arguments = self.arguments?;
        Some(match self.raw_params {
            Some(text) if arguments.len() >= copied => text.slice_ref(arguments),
            _ => Bytes::copy_from_slice(arguments),
        })
    }
}

/// Receiver of records. Called on the path of a call, so it must not block.
pub type Recorder = Arc<dyn Fn(&RequestRecord<'_>) + Send + Sync>;

/// Backpressure of the record store: returns a future that waits for room for the caller's records, or `None` if there
/// is room. Awaited before a call is sent, so it must end within a bounded time.
pub type RecordBackpressure = Arc<dyn Fn(&Caller) -> Option<BoxFuture<'static, ()>> + Send + Sync>;

/// Outcome of a request whose caller left.
const CANCELLED: &str = "cancelled";

/// Unfinished record; dropping it records that the caller left.
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

    /// Sets the rule that hides the subject.
    pub(crate) fn set_denied_by(&mut self, rule: Option<String>) {
        self.denied_by = rule;
    }

    /// Sets the detail, if a recorder is set.
    pub(crate) fn set_detail(&mut self, detail: impl FnOnce() -> String) {
        self.detail = self.recorder.is_some().then(detail);
    }

    pub(crate) fn finish(mut self, result: &Result<Answer, CallError>) {
        (self.outcome, self.delivery) = match result {
            Ok(answer) if answer.is_cached() => ("cached", None),
            // The answer is inspected only for a recorder.
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
        // Lists are no calls, but a list that a rule refuses is recorded.
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

/// A request that a front end refused before it resolved to a target.
#[derive(Debug, Clone, Copy)]
pub struct DeniedRequest<'a> {
    /// Server of the request.
    pub server: &'a str,
    /// MCP method.
    pub method: &'a str,
    /// Kind and name of the item; absent if the request was for the server itself.
    pub item: Option<(Kind, &'a str)>,
}

/// A request for something that does not exist for any caller.
#[derive(Debug, Clone, Copy)]
pub struct UnresolvedRequest<'a> {
    /// Its server; empty if that is not known.
    pub server: &'a str,
    /// MCP method, or HTTP method and path.
    pub method: &'a str,
    /// Subject; empty if that is the server or the method itself.
    pub subject: &'a str,
    /// Code of the caller's error, such as `unknown-tool`.
    pub outcome: &'static str,
}

impl Host {
    /// Records that a caller asked for something that does not exist and that no rule hides. For front ends that
    /// resolve names before they call the host.
    pub fn record_unresolved(&self, caller: &Caller, unknown: UnresolvedRequest<'_>) {
        let UnresolvedRequest { server, method, subject, outcome } = unknown;
        self.record_brief(caller, BriefRecord { server, method, subject, outcome, rule: None });
    }

    /// Records a denial if a rule hides the subject, and returns whether one does. For front ends that resolve names
    /// before they call the host: requests that reach [`send`](Self::send) are recorded there.
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

/// Record of something that never became a request.
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
