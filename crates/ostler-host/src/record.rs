//! One event per call, also when the caller goes away.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::error::CallError;

use crate::answer::Answer;
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
}

impl<'r, 'a> Recording<'r, 'a> {
    pub(crate) fn begin(request: &'r Request<'a>, recorder: Option<Recorder>) -> Self {
        Self { request, recorder, outcome: "cancelled" }
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
                took,
            });
        }
    }
}

impl fmt::Debug for Recording<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}
