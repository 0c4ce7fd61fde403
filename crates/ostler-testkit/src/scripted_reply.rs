//! What a scripted server does about one request.

use std::time::Duration;

use bytes::Bytes;
use ostler_core::fault::{Delivery, Exit, Fault, FaultKind};
use ostler_wire::{RpcError, RpcOutcome};
use serde_json::{Value, json};

/// What a scripted server does about one request, and when.
#[derive(Debug, Clone)]
pub struct ScriptedReply {
    pub(crate) after: Duration,
    /// What it does before, in order.
    pub(crate) steps: Vec<ReplyStep>,
    pub(crate) action: ReplyAction,
}

/// What a server does while a request is in its hands.
#[derive(Debug, Clone)]
pub(crate) enum ReplyStep {
    /// It reports progress: the members beside the token, a piece of a JSON object.
    Progress(String),
    /// It sends a notification that belongs to the request.
    Notify(String, String),
    /// It asks the caller, and waits for what it says.
    RequestClient(String, String),
    /// It takes its time.
    Pause(Duration),
}

#[derive(Debug, Clone)]
pub(crate) enum ReplyAction {
    /// It answers.
    Answer(RpcOutcome),
    /// The attempt fails in this way; the session lives on.
    Fail(Fault),
    /// The server ends; all its requests end with it.
    Crash,
    /// The server is found dead: no byte of the request leaves.
    CrashBeforeRead,
    /// It never answers.
    Never,
}

impl ScriptedReply {
    fn immediate(action: ReplyAction) -> Self {
        Self { after: Duration::ZERO, steps: Vec::new(), action }
    }

    /// Answers with this JSON text as the result.
    pub fn result(json: impl Into<String>) -> Self {
        Self::immediate(ReplyAction::Answer(RpcOutcome::Result(Bytes::from(json.into()))))
    }

    /// Answers with one text part.
    pub fn text(text: &str) -> Self {
        Self::result(json!({"content": [{"type": "text", "text": text}]}).to_string())
    }

    /// Answers with one text part that may be remembered.
    pub fn cacheable(text: &str, ttl: Duration, scope: &str) -> Self {
        let content = json!([{"type": "text", "text": text}]);
        Self::result(json!({"content": content, "ttlMs": ttl.as_millis(), "cacheScope": scope}).to_string())
    }

    /// The tool says that it failed.
    pub fn tool_error(text: &str) -> Self {
        Self::result(json!({"content": [{"type": "text", "text": text}], "isError": true}).to_string())
    }

    /// Answers with a JSON-RPC error.
    pub fn error(code: i64, message: &str) -> Self {
        let raw = Bytes::from(json!({"code": code, "message": message}).to_string());
        Self::immediate(ReplyAction::Answer(RpcOutcome::Error(RpcError {
            code,
            message: message.into(),
            raw,
        })))
    }

    /// Fails this attempt, and nothing else.
    pub fn fault(fault: Fault) -> Self {
        Self::immediate(ReplyAction::Fail(fault))
    }

    /// An answer that is none.
    pub fn malformed() -> Self {
        Self::fault(Fault::unknown(FaultKind::Malformed("not JSON".into())))
    }

    /// The server ends with the request in its hands.
    pub fn crash() -> Self {
        Self::immediate(ReplyAction::Crash)
    }

    /// The server turns out to be dead before any byte of the request has left.
    pub fn crash_before_read() -> Self {
        Self::immediate(ReplyAction::CrashBeforeRead)
    }

    /// The request is never answered.
    pub fn never() -> Self {
        Self::immediate(ReplyAction::Never)
    }

    /// Whether the server has the request in its hands.
    pub(crate) fn is_received(&self) -> bool {
        match &self.action {
            ReplyAction::Answer(_) | ReplyAction::Crash | ReplyAction::Never => true,
            ReplyAction::Fail(fault) => fault.delivery != Delivery::NotSent,
            ReplyAction::CrashBeforeRead => false,
        }
    }

    fn with_step(mut self, step: ReplyStep) -> Self {
        self.steps.push(step);
        self
    }

    /// The same, but the caller is asked first; what it says is written down.
    #[must_use]
    pub fn asking(self, method: &str, params: Value) -> Self {
        self.with_step(ReplyStep::RequestClient(method.into(), params.to_string()))
    }

    /// The same, but progress is reported first: the text of a JSON object's
    /// members, to which the token is added.
    #[must_use]
    pub fn reporting(self, members: &str) -> Self {
        self.with_step(ReplyStep::Progress(members.into()))
    }

    /// The same, but a line goes into the log first.
    #[must_use]
    pub fn logging(self, level: &str, line: &str) -> Self {
        let params = json!({"level": level, "data": line});
        self.with_step(ReplyStep::Notify("notifications/message".into(), params.to_string()))
    }

    /// The same, but some time passes between what comes before and what follows.
    #[must_use]
    pub fn pausing(self, time: Duration) -> Self {
        self.with_step(ReplyStep::Pause(time))
    }

    /// Whether the caller is asked anything; its time stands still meanwhile.
    pub(crate) fn asks_client(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, ReplyStep::RequestClient(..)))
    }

    /// The same, but only so long after the request came.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = delay;
        self
    }
}

/// How a scripted server ends when it crashes.
pub(crate) const CRASH_EXIT: FaultKind = FaultKind::Exited(Exit::Code(1));
