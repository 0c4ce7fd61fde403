//! One event per call, also when the caller goes away.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;

use crate::answer::Answer;
use crate::call::unknown_item;
use crate::host::Host;
use crate::lists::Kind;
use crate::request::Request;

/// What became of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// Who asked.
    pub principal: &'a str,
    /// In which role.
    pub role: &'a str,
    /// Which server.
    pub server: &'a str,
    /// Which method.
    pub method: &'a str,
    /// Which tool, prompt or resource.
    pub subject: &'a str,
    /// `ok`, `cached`, `cancelled`, or the code of the error.
    pub outcome: &'static str,
    /// The rule that refused it, where one did; the caller was told that there
    /// is nothing of that name.
    pub denied: Option<&'a str>,
    /// The arguments as they came.
    pub arguments: Option<&'a [u8]>,
    /// From the request to its end.
    pub took: Duration,
}

/// Takes records. Called on the path of a call, so it must not block.
pub type Recorder = Arc<dyn Fn(&Record<'_>) + Send + Sync>;

/// A record in the making; dropping it unfinished records that the caller left.
pub(crate) struct Recording<'r, 'a> {
    request: &'r Request<'a>,
    recorder: Option<Recorder>,
    outcome: &'static str,
    denied: Option<String>,
}

impl<'r, 'a> Recording<'r, 'a> {
    pub(crate) fn begin(request: &'r Request<'a>, recorder: Option<Recorder>) -> Self {
        Self { request, recorder, outcome: "cancelled", denied: None }
    }

    /// Notes the rule that hides what was asked for.
    pub(crate) fn denied(&mut self, rule: Option<String>) {
        self.denied = rule;
    }

    pub(crate) fn end(mut self, result: &Result<Answer, CallError>) {
        self.outcome = match result {
            Ok(answer) if answer.is_cached() => "cached",
            Ok(_) => "ok",
            Err(error) => error.code(),
        };
    }
}

impl Drop for Recording<'_, '_> {
    fn drop(&mut self) {
        let took = self.request.asked.elapsed();
        let Request { server, method, caller, .. } = self.request;
        tracing::debug!(server, method, outcome = self.outcome, ?took, "call");
        if let Some(recorder) = &self.recorder {
            let subject = self.request.subject();
            recorder(&Record {
                principal: caller.principal(),
                role: caller.role(),
                server,
                method,
                subject: &subject,
                outcome: self.outcome,
                denied: self.denied.as_deref(),
                arguments: self.request.params.arguments(),
                took,
            });
        }
    }
}

/// A request that was refused before it came to be one.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'a> {
    /// Which server.
    pub server: &'a str,
    /// Which method.
    pub method: &'a str,
    /// What kind of item, and which.
    pub item: (Kind, &'a str),
}

impl Host {
    /// Records that a caller was told that there is no such thing, if it is a
    /// rule that hides it. For whoever resolves names in front of the host:
    /// what reaches [`send`](Self::send) is recorded there.
    pub fn record_refusal(&self, caller: &Caller, refused: Refused<'_>) {
        let Some(recorder) = self.recorder() else { return };
        let (kind, subject) = refused.item;
        let Some(rule) = self.why_hidden(caller, refused.server, Some((kind, subject))) else { return };
        let outcome = unknown_item(kind, subject).code();
        recorder(&Record {
            principal: caller.principal(),
            role: caller.role(),
            server: refused.server,
            method: refused.method,
            subject,
            outcome,
            denied: Some(&rule),
            arguments: None,
            took: Duration::ZERO,
        });
    }
}

impl fmt::Debug for Recording<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}
