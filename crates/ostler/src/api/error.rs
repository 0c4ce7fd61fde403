//! Errors of the admin API: the wire form of `CallError`.
//!
//! A command prints the same message with a daemon as without one, so a `CallError` keeps its variant and all fields
//! over the wire.

use std::time::Duration;

use ostler_core::argument_schema::Mistake;
use ostler_core::error::{BudgetOwner, CallError, Remedy, Unavailable, UnavailableState, UpstreamRpcError};
use ostler_core::fault::Delivery;
use ostler_core::server_name::ServerName;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// An error: its stable code, words for people, and the parts of the error itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct ErrorBody {
    /// The stable name of the error.
    pub(crate) code: String,
    /// What happened.
    pub(crate) message: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<String>,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// The exit code of the command that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exit: Option<u8>,
    /// The server it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    /// The tool it is about, in the server's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    /// What keeps a server that is unavailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    /// What became of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delivery: Option<Delivery>,
    /// When trying again makes sense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// The time that has run out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after_ms: Option<u64>,
    /// What was asked for and is unknown, what is wrong, or which limit is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// What is done about a server that is unavailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    action: Option<String>,
    /// What a person can do about the cause of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
    /// Whether an operator has to reload the server then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    needs_reload: bool,
    /// What was probably meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nearest: Option<String>,
    /// What is wrong with arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    mistakes: Vec<Mistake>,
    /// The server's own JSON-RPC error, byte for byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<serde_json::Map<String, serde_json::Value>>"))]
    rpc: Option<Box<RawValue>>,
}

/// The shape of every error: of the admin API, and of commands with `--json`.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ErrorResponse {
    pub(crate) error: ErrorBody,
}

/// All states in which a server can't be called.
const STATES: [UnavailableState; 12] = [
    UnavailableState::Starting,
    UnavailableState::Fetching,
    UnavailableState::Backoff,
    UnavailableState::BreakerOpen,
    UnavailableState::Ejected,
    UnavailableState::CannotStart,
    UnavailableState::Stopped,
    UnavailableState::NeedsAuth,
    UnavailableState::StartFailed,
    UnavailableState::Lost,
    UnavailableState::OutOfReach,
    UnavailableState::Disabled,
];

impl From<&CallError> for ErrorBody {
    fn from(error: &CallError) -> Self {
        let mut told = Self {
            code: error.code().to_owned(),
            message: error.to_string(),
            cause: error.cause(),
            hint: error.hint(),
            server: error.server().map(ToString::to_string),
            delivery: error.delivery(),
            retry_after_ms: error.retry_after().map(millis_rounded_up),
            ..Self::default()
        };
        match error {
            CallError::UnknownTool { name, nearest } | CallError::UnknownServer { name, nearest } => {
                (told.subject, told.nearest) = (Some(name.clone()), nearest.clone());
            }
            CallError::UnknownPrompt { name: subject }
            | CallError::UnknownResource { uri: subject }
            | CallError::UnknownMethod { method: subject } => {
                told.subject = Some(subject.clone());
            }
            CallError::Unavailable(it) => {
                told.state = Some(it.state.as_str().to_owned());
                told.subject = Some(it.cause.clone());
                told.action = Some(it.action.to_string()).filter(|action| !action.is_empty());
                told.remedy = it.remedy.as_ref().map(|remedy| remedy.text.clone());
                told.needs_reload = it.remedy.as_ref().is_some_and(|remedy| remedy.needs_reload);
            }
            CallError::OutcomeUnknown { tool, .. } => told.tool.clone_from(tool),
            CallError::DefinitionChanged { tool, .. } => told.tool = Some(tool.clone()),
            CallError::InvalidArguments { tool, mistakes, .. } => {
                (told.tool, told.mistakes) = (Some(tool.clone()), mistakes.clone());
            }
            CallError::TimedOut { after, .. } => told.after_ms = Some(millis_rounded_up(*after)),
            CallError::Overloaded { what, .. } | CallError::Invalid { what, .. } => {
                told.subject = Some(what.clone());
            }
            CallError::Rpc(answer) => told.rpc = serde_json::from_slice(&answer.raw).ok(),
            CallError::OverBudget { owner: of, .. } => told.subject = Some(of.as_str().to_owned()),
            CallError::UpstreamProtocol { .. } | CallError::CardUnreadable { .. } => {}
        }
        told
    }
}

impl ErrorBody {
    /// Returns an error that belongs to no call.
    pub(crate) fn new(code: &str, message: &str) -> Self {
        Self { code: code.to_owned(), message: message.to_owned(), ..Self::default() }
    }

    /// Returns the `CallError` that the daemon sent; `None` if this version does not know it.
    pub(crate) fn into_call_error(self) -> Option<CallError> {
        let server = self.server.as_deref().and_then(|name| ServerName::new(name).ok());
        let retry_after = self.retry_after_ms.map(Duration::from_millis);
        let cause = self.cause.unwrap_or_default();
        Some(match self.code.as_str() {
            "unknown-tool" => CallError::UnknownTool { name: self.subject?, nearest: self.nearest },
            "unknown-server" => CallError::UnknownServer { name: self.subject?, nearest: self.nearest },
            "unknown-prompt" => CallError::UnknownPrompt { name: self.subject? },
            "unknown-resource" => CallError::UnknownResource { uri: self.subject? },
            "unknown-method" => CallError::UnknownMethod { method: self.subject? },
            "over-budget" => {
                let word = self.subject?;
                let of = BudgetOwner::ALL.into_iter().find(|of| of.as_str() == word)?;
                CallError::OverBudget { owner: of, reset_after: retry_after }
            }
            "server-unavailable" => {
                let word = self.state?;
                let state = STATES.into_iter().find(|state| state.as_str() == word)?;
                let (cause, action) = (self.subject.unwrap_or(cause), self.action.unwrap_or_default().into());
                let needs_reload = self.needs_reload;
                let remedy = self.remedy.map(|text| Box::new(Remedy::new(text, needs_reload)));
                Unavailable { server: server?, state, cause, action, remedy, retry_after }.into()
            }
            "outcome-unknown" => CallError::OutcomeUnknown { server: server?, tool: self.tool, cause },
            "timed-out" => CallError::TimedOut {
                server: server?,
                after: Duration::from_millis(self.after_ms?),
                delivery: self.delivery?,
            },
            "overloaded" => CallError::Overloaded { what: self.subject?, retry_after: retry_after? },
            "definition-changed" => CallError::DefinitionChanged { server: server?, tool: self.tool? },
            "invalid-arguments" => {
                CallError::InvalidArguments { server: server?, tool: self.tool?, mistakes: self.mistakes }
            }
            "upstream-protocol" => CallError::UpstreamProtocol { server: server?, detail: cause },
            "card-unreadable" => {
                CallError::CardUnreadable { server: server?, why: cause, hint: self.hint.unwrap_or_default() }
            }
            "upstream-error" => CallError::Rpc(parse_rpc_error(server?, &self.rpc?)?),
            "invalid-argument" => {
                CallError::Invalid { what: self.subject?, hint: self.hint.unwrap_or_default() }
            }
            _ => return None,
        })
    }
}

fn parse_rpc_error(server: ServerName, raw: &RawValue) -> Option<UpstreamRpcError> {
    #[derive(Deserialize)]
    struct Error {
        code: i64,
        #[serde(default)]
        message: String,
    }
    let Error { code, message } = serde_json::from_str(raw.get()).ok()?;
    Some(UpstreamRpcError { server, code, message, raw: bytes::Bytes::copy_from_slice(raw.get().as_bytes()) })
}

/// Returns milliseconds, rounded up, so that a caller that waits exactly that long is not too early.
fn millis_rounded_up(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All outcomes of a request.
    const DELIVERIES: [Delivery; 4] =
        [Delivery::NotSent, Delivery::Rejected, Delivery::Unknown, Delivery::Answered];

    fn server() -> ServerName {
        ServerName::new("time").unwrap()
    }

    fn unavailable(state: UnavailableState) -> CallError {
        let retry_after = Some(Duration::from_millis(1_500));
        let (cause, action) = ("it said \u{1b}no".into(), "it waits".into());
        let remedy = Some(Box::new(Remedy::new("do it".into(), true)));
        Unavailable { server: server(), state, cause, action, remedy, retry_after }.into()
    }

    /// Returns one error of each variant, and of each kind within.
    fn errors() -> Vec<CallError> {
        let mut errors = vec![
            CallError::UnknownTool { name: "x\n".into(), nearest: Some("y".into()) },
            CallError::UnknownServer { name: "x".into(), nearest: None },
            CallError::UnknownPrompt { name: "p".into() },
            CallError::UnknownResource { uri: "file:///x".into() },
            CallError::UnknownMethod { method: "vendor/do".into() },
            CallError::OverBudget { owner: BudgetOwner::Role, reset_after: Some(Duration::from_secs(60)) },
            CallError::OverBudget { owner: BudgetOwner::Token, reset_after: Some(Duration::from_secs(60)) },
            CallError::OverBudget { owner: BudgetOwner::Dispatch, reset_after: None },
            CallError::OutcomeUnknown { server: server(), tool: Some("t".into()), cause: "gone".into() },
            CallError::OutcomeUnknown { server: server(), tool: None, cause: String::new() },
            CallError::Overloaded { what: "64 calls".into(), retry_after: Duration::from_secs(1) },
            CallError::DefinitionChanged { server: server(), tool: "t".into() },
            CallError::InvalidArguments {
                server: server(),
                tool: "t".into(),
                mistakes: vec![Mistake { path: "/a".into(), problem: "the value is not a number".into() }],
            },
            CallError::UpstreamProtocol { server: server(), detail: "rubbish".into() },
            CallError::CardUnreadable { server: server(), why: "no card".into(), hint: "h".into() },
            CallError::Invalid { what: "w".into(), hint: "h".into() },
            CallError::Rpc(UpstreamRpcError {
                server: server(),
                code: -32_000,
                message: "no".into(),
                raw: (&br#"{"code": -32000, "message":"no","data":12345678901234567890}"#[..]).into(),
            }),
        ];
        errors.extend(STATES.map(unavailable));
        errors.extend(DELIVERIES.map(|delivery| CallError::TimedOut {
            server: server(),
            after: Duration::from_secs(3),
            delivery,
        }));
        errors
    }

    #[test]
    fn the_error_that_arrives_says_what_the_one_that_left_said() {
        for error in errors() {
            let text = serde_json::to_string(&ErrorBody::from(&error)).unwrap();
            let told: ErrorBody = serde_json::from_str(&text).unwrap();
            let arrived = told.into_call_error().unwrap_or_else(|| panic!("{text}"));
            assert_eq!(arrived.render(), error.render(), "{text}");
            assert_eq!(arrived.exit_code(), error.exit_code(), "{text}");
            assert_eq!(arrived.data(), error.data(), "{text}");
        }
    }

    #[test]
    fn an_error_of_another_version_is_not_taken_for_one_of_this() {
        let told: ErrorBody = serde_json::from_str(r#"{"code":"moon-phase","message":"full"}"#).unwrap();
        assert!(told.into_call_error().is_none());
    }
}
