//! Replies of a scripted server.

use std::time::Duration;

use bytes::Bytes;
use ostler_core::fault::{Delivery, Exit, Fault, FaultKind};
use ostler_wire::{RpcError, RpcOutcome};
use serde_json::{Value, json};

/// The reply to one request: steps, a delay, and the answer or its failure.
#[derive(Debug, Clone)]
pub struct ScriptedReply {
    pub(crate) after: Duration,
    /// The steps before the answer, in order.
    pub(crate) steps: Vec<ReplyStep>,
    pub(crate) action: ReplyAction,
}

/// A step of a server between a request and its answer.
#[derive(Debug, Clone)]
pub(crate) enum ReplyStep {
    /// Progress: the members beside the token, a piece of a JSON object.
    Progress(String),
    /// A notification that belongs to the request: method and parameters.
    Notify(String, String),
    /// A request to the caller, which is waited for: method and parameters.
    RequestClient(String, String),
    /// A pause.
    Pause(Duration),
}

#[derive(Debug, Clone)]
pub(crate) enum ReplyAction {
    /// The server answers.
    Answer(RpcOutcome),
    /// The attempt fails with this fault; the session lives on.
    Fail(Fault),
    /// The server ends, and all its requests end with it.
    Crash,
    /// The server is found dead before any byte of the request is sent.
    CrashBeforeRead,
    /// The server never answers.
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

    /// Answers with one text part that may be cached.
    pub fn cacheable(text: &str, ttl: Duration, scope: &str) -> Self {
        let content = json!([{"type": "text", "text": text}]);
        Self::result(json!({"content": content, "ttlMs": ttl.as_millis(), "cacheScope": scope}).to_string())
    }

    /// Answers with an error of the tool (`isError`).
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

    /// Fails this attempt with a fault; the session lives on.
    pub fn fault(fault: Fault) -> Self {
        Self::immediate(ReplyAction::Fail(fault))
    }

    /// Answers with text that is not JSON.
    pub fn malformed() -> Self {
        Self::fault(Fault::unknown(FaultKind::Malformed("not JSON".into())))
    }

    /// Crashes the server after it has received the request.
    pub fn crash() -> Self {
        Self::immediate(ReplyAction::Crash)
    }

    /// Crashes the server before any byte of the request is sent.
    pub fn crash_before_read() -> Self {
        Self::immediate(ReplyAction::CrashBeforeRead)
    }

    /// Never answers.
    pub fn never() -> Self {
        Self::immediate(ReplyAction::Never)
    }

    /// Returns whether the server receives the request.
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

    /// Sends a request to the caller first; the server's history records the answer.
    #[must_use]
    pub fn asking(self, method: &str, params: Value) -> Self {
        self.with_step(ReplyStep::RequestClient(method.into(), params.to_string()))
    }

    /// Reports progress first: the text of a JSON object's members, to which the token is added.
    #[must_use]
    pub fn reporting(self, members: &str) -> Self {
        self.with_step(ReplyStep::Progress(members.into()))
    }

    /// Sends a log notification first.
    #[must_use]
    pub fn logging(self, level: &str, line: &str) -> Self {
        let params = json!({"level": level, "data": line});
        self.with_step(ReplyStep::Notify("notifications/message".into(), params.to_string()))
    }

    /// Pauses between the steps before and after.
    #[must_use]
    pub fn pausing(self, time: Duration) -> Self {
        self.with_step(ReplyStep::Pause(time))
    }

    /// Returns whether the caller gets a request; the call's deadline is extended meanwhile.
    pub(crate) fn asks_client(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, ReplyStep::RequestClient(..)))
    }

    /// Delays the reply.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = delay;
        self
    }
}

/// The exit of a scripted server that crashes.
pub(crate) const CRASH_EXIT: FaultKind = FaultKind::Exited(Exit::Code(1));
