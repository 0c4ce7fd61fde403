//! Errors of calls, as callers and people see them.
//!
//! Every variant has a stable [`code`](CallError::code). The tables to JSON-RPC, to exit codes and to text
//! exist once, here.

mod quote;
mod unavailable;

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use self::quote::Quoted;
pub use self::quote::needs_escape;
pub(crate) use self::quote::truncate;
pub use self::unavailable::{Remedy, Unavailable, UnavailableState};
use crate::argument_schema::Mistake;
use crate::catalog::nearest;
use crate::fault::{Delivery, HumanDuration};
use crate::server_name::ServerName;

/// Reason why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The tool does not exist, or the caller may not see it: the same error, byte for byte, made by
    /// [`unknown_tool`](Self::unknown_tool).
    #[error("unknown tool `{}`", Quoted(.name))]
    UnknownTool {
        /// The requested name.
        name: String,
        /// The name that was probably meant, among those the caller may see.
        nearest: Option<String>,
    },
    /// The server does not exist, or the caller may not see it; made by
    /// [`unknown_server`](Self::unknown_server).
    #[error("unknown server `{}`", Quoted(.name))]
    UnknownServer {
        /// The requested name.
        name: String,
        /// The name that was probably meant, among those the caller may see.
        nearest: Option<String>,
    },
    /// The prompt does not exist for the caller.
    #[error("unknown prompt `{}`", Quoted(.name))]
    UnknownPrompt {
        /// The requested name.
        name: String,
    },
    /// The resource does not exist for the caller.
    #[error("resource not found: `{}`", Quoted(.uri))]
    UnknownResource {
        /// The requested URI.
        uri: String,
    },
    /// The method does not exist for the caller.
    #[error("no such method: {}", Quoted(.method))]
    UnknownMethod {
        /// The requested method.
        method: String,
    },
    /// The caller has no calls left.
    #[error("the call budget {} is used up", .owner.possessive())]
    OverBudget {
        /// The exhausted budget.
        owner: BudgetOwner,
        /// Time until the next call fits; `None` if the budget does not refill.
        reset_after: Option<Duration>,
    },
    /// The server can't be called now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The request was sent and no answer came; it may have been executed.
    #[error("the outcome of {} on server `{server}` is unknown: it may have been executed", call_label(.tool))]
    OutcomeUnknown {
        /// The server it was sent to.
        server: ServerName,
        /// The server's own name of the tool, for tool calls.
        tool: Option<String>,
        /// The failure.
        cause: String,
    },
    /// The call timed out.
    #[error("server `{server}` did not answer within {}", HumanDuration(*.after))]
    TimedOut {
        /// The server that did not answer.
        server: ServerName,
        /// The time the call had.
        after: Duration,
        /// Delivery of the request.
        delivery: Delivery,
    },
    /// A limit is reached; nothing was sent.
    #[error("overloaded: {}", Quoted(.what))]
    Overloaded {
        /// The limit, for people.
        what: String,
        /// Time after which a retry makes sense.
        retry_after: Duration,
    },
    /// The tool, prompt or resource differs from its approved definition.
    #[error("the definition of `{}` on server `{server}` is not the approved one", Quoted(.tool))]
    DefinitionChanged {
        /// The server that has the tool.
        server: ServerName,
        /// The server's own name for it.
        tool: String,
    },
    /// The arguments do not fit the tool's own schema; nothing was sent.
    #[error("the arguments of tool `{}` on server `{server}` do not fit its schema", Quoted(.tool))]
    InvalidArguments {
        /// The server that has the tool.
        server: ServerName,
        /// The server's own name for it.
        tool: String,
        /// The mistakes; at least one.
        mistakes: Vec<Mistake>,
    },
    /// The answer is invalid: malformed, too long, or of the wrong shape.
    #[error("server `{server}` answered outside the protocol")]
    UpstreamProtocol {
        /// The server that answered.
        server: ServerName,
        /// The problem of the answer.
        detail: String,
    },
    /// The server's own error, passed through unchanged.
    #[error("server `{}` answered with error {}: {}", .0.server, .0.code, Quoted(&.0.message))]
    Rpc(UpstreamRpcError),
    /// The server's card can't be read; only the card is affected.
    #[error("the card of server `{server}` can't be read")]
    CardUnreadable {
        /// The server of the card.
        server: ServerName,
        /// The reason.
        why: String,
        /// The next step.
        hint: String,
    },
    /// The request itself is wrong.
    #[error("invalid argument: {}", Quoted(.what))]
    Invalid {
        /// The problem.
        what: String,
        /// The next step.
        hint: String,
    },
}

/// Callers that share a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum BudgetOwner {
    /// All callers of the caller's role.
    Role,
    /// All callers with the caller's credential.
    Token,
    /// The caller and its clones, in a program that embeds the host.
    Dispatch,
}

impl BudgetOwner {
    /// All owners.
    pub const ALL: [Self; 3] = [Self::Role, Self::Token, Self::Dispatch];

    /// Returns the word in errors and status output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Role => "role",
            Self::Token => "token",
            Self::Dispatch => "dispatch",
        }
    }

    /// Returns the owner as a possessive for the caller itself; it names no other caller.
    fn possessive(self) -> &'static str {
        match self {
            Self::Role => "of your role",
            Self::Token => "of your token",
            Self::Dispatch => "of this dispatch",
        }
    }
}

/// A JSON-RPC error as the server sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamRpcError {
    /// The server that sent it.
    pub server: ServerName,
    /// Its code.
    pub code: i64,
    /// Its message.
    pub message: String,
    /// The whole error object, byte for byte, as the caller receives it.
    pub raw: Bytes,
}

/// The entry of a result's `_meta` that holds the code of an error of ours.
const ERROR_META: &str = "dev.ostler/error";

/// The first step after a request that may have been executed.
const CHECK_FIRST: &str = "check whether it took effect before trying again";

fn call_label(tool: &Option<String>) -> String {
    tool.as_deref().map_or_else(|| "the request".into(), |tool| format!("tool `{}`", Quoted(tool)))
}

impl CallError {
    /// Creates the error for a tool that does not exist and for one the caller may not use; `visible` are the
    /// names it may see.
    pub fn unknown_tool<'a>(name: &str, visible: impl Iterator<Item = &'a str>) -> Self {
        Self::UnknownTool { name: name.to_owned(), nearest: nearest(name, visible).map(str::to_owned) }
    }

    /// Creates the error for a server that does not exist and for one the caller may not use; `visible` are
    /// the names it may see.
    pub fn unknown_server<'a>(name: &str, visible: impl Iterator<Item = &'a str>) -> Self {
        Self::UnknownServer { name: name.to_owned(), nearest: nearest(name, visible).map(str::to_owned) }
    }

    /// Returns the stable name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownTool { .. } => "unknown-tool",
            Self::UnknownServer { .. } => "unknown-server",
            Self::UnknownPrompt { .. } => "unknown-prompt",
            Self::UnknownResource { .. } => "unknown-resource",
            Self::UnknownMethod { .. } => "unknown-method",
            Self::OverBudget { .. } => "over-budget",
            Self::Unavailable(_) => "server-unavailable",
            Self::OutcomeUnknown { .. } => "outcome-unknown",
            Self::TimedOut { .. } => "timed-out",
            Self::Overloaded { .. } => "overloaded",
            Self::DefinitionChanged { .. } => "definition-changed",
            Self::InvalidArguments { .. } => "invalid-arguments",
            Self::UpstreamProtocol { .. } => "upstream-protocol",
            Self::Rpc(_) => "upstream-error",
            Self::CardUnreadable { .. } => "card-unreadable",
            Self::Invalid { .. } => "invalid-argument",
        }
    }

    /// Returns the code of the JSON-RPC error.
    pub fn rpc_code(&self) -> i64 {
        match self {
            Self::UnknownTool { .. }
            | Self::UnknownServer { .. }
            | Self::UnknownPrompt { .. }
            | Self::UnknownResource { .. }
            | Self::InvalidArguments { .. }
            | Self::Invalid { .. } => -32602,
            Self::UnknownMethod { .. } => -32601,
            Self::OverBudget { .. } => -31001,
            Self::Unavailable(_) => -31002,
            Self::OutcomeUnknown { .. } => -31003,
            Self::TimedOut { .. } => -31004,
            Self::Overloaded { .. } => -31005,
            Self::DefinitionChanged { .. } => -31006,
            Self::UpstreamProtocol { .. } | Self::CardUnreadable { .. } => -31007,
            Self::Rpc(answer) => answer.code,
        }
    }

    /// Returns the exit code of the command line.
    ///
    /// Every call that may have been executed without a usable answer exits 8, late and malformed answers
    /// included: a script must know that before it retries.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Invalid { .. } | Self::InvalidArguments { .. } => 2,
            Self::UnknownTool { .. }
            | Self::UnknownServer { .. }
            | Self::UnknownPrompt { .. }
            | Self::UnknownResource { .. }
            | Self::UnknownMethod { .. }
            | Self::DefinitionChanged { .. } => 5,
            Self::OutcomeUnknown { .. } | Self::UpstreamProtocol { .. } => 8,
            Self::TimedOut { delivery, .. } => match delivery {
                Delivery::NotSent | Delivery::Rejected => 6,
                Delivery::Unknown | Delivery::Answered => 8,
            },
            Self::Unavailable(_) | Self::Overloaded { .. } | Self::CardUnreadable { .. } => 6,
            Self::Rpc(_) => 7,
            Self::OverBudget { .. } => 9,
        }
    }

    /// Returns the cause, if there is more to say than the headline.
    pub fn cause(&self) -> Option<String> {
        let cause = match self {
            Self::InvalidArguments { mistakes, .. } => {
                let texts: Vec<String> =
                    mistakes.iter().map(|mistake| Quoted(&mistake.to_string()).to_string()).collect();
                return Some(texts.join("; ")).filter(|texts| !texts.is_empty());
            }
            Self::Unavailable(unavailable) => unavailable.second_line(),
            Self::OutcomeUnknown { cause, .. } => cause,
            Self::UpstreamProtocol { detail, .. } => detail,
            Self::CardUnreadable { why, .. } => why,
            Self::TimedOut { delivery, .. } => match delivery {
                Delivery::NotSent => "the request was not sent",
                Delivery::Rejected => "the server had not accepted the request",
                Delivery::Unknown => "the request was sent and may have been executed",
                Delivery::Answered => "its answer came too late",
            },
            Self::UnknownTool { .. }
            | Self::UnknownServer { .. }
            | Self::UnknownPrompt { .. }
            | Self::UnknownResource { .. }
            | Self::UnknownMethod { .. }
            | Self::OverBudget { .. }
            | Self::Overloaded { .. }
            | Self::DefinitionChanged { .. }
            | Self::Rpc(_)
            | Self::Invalid { .. } => return None,
        };
        Some(Quoted(cause).to_string()).filter(|cause| !cause.is_empty())
    }

    /// Returns the cause in one piece, without the name of the server.
    pub fn reason(&self) -> String {
        match self {
            Self::Unavailable(Unavailable { cause, .. }) if !cause.is_empty() => Quoted(cause).to_string(),
            other => other.cause().unwrap_or_else(|| other.to_string()),
        }
    }

    /// Returns the next step.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::UnknownTool { nearest: Some(name), .. }
            | Self::UnknownServer { nearest: Some(name), .. } => {
                format!("did you mean `{}`?", Quoted(name))
            }
            Self::UnknownTool { .. } => "list the tools to see what can be called (`ostler tools`)".into(),
            Self::UnknownPrompt { .. } => {
                "list the prompts to see what can be used (`ostler prompts`)".into()
            }
            Self::UnknownResource { .. } => {
                "list the resources to see what can be read (`ostler resources`)".into()
            }
            Self::UnknownMethod { .. } => "the server offers other methods, or none to this caller".into(),
            Self::UnknownServer { .. } => "list the servers to see what can be used (`ostler list`)".into(),
            Self::OverBudget { reset_after: Some(wait), .. } => {
                format!("the next call fits in {}", HumanDuration(*wait))
            }
            Self::OverBudget { reset_after: None, .. } => "whoever made the caller sets its budget".into(),
            Self::Unavailable(unavailable) => unavailable.hint(),
            Self::OutcomeUnknown { tool: Some(_), .. } => {
                format!("{CHECK_FIRST}; with `retry = \"safe\"` for the tool Ostler repeats it")
            }
            Self::OutcomeUnknown { tool: None, .. } => CHECK_FIRST.into(),
            Self::TimedOut { server, delivery, .. } => match delivery {
                Delivery::NotSent | Delivery::Rejected => {
                    format!("try again, or raise `call_timeout` of `{server}`")
                }
                Delivery::Unknown | Delivery::Answered => {
                    format!("{CHECK_FIRST}; a longer `call_timeout` of `{server}` may help")
                }
            },
            Self::Overloaded { retry_after, .. } => format!("try again in {}", HumanDuration(*retry_after)),
            Self::DefinitionChanged { server, tool } => {
                format!("review `{}` of `{server}`, then approve it", Quoted(tool))
            }
            Self::InvalidArguments { .. } => {
                "correct the arguments and call again; the tool was not called".into()
            }
            Self::UpstreamProtocol { .. } => format!("{CHECK_FIRST}; the fault is the server's"),
            Self::Rpc(_) => return None,
            Self::CardUnreadable { hint, .. } | Self::Invalid { hint, .. } => Quoted(hint).to_string(),
        };
        Some(hint).filter(|hint| !hint.is_empty())
    }

    /// Returns the server it is about, unless the server itself is unknown.
    pub fn server(&self) -> Option<&ServerName> {
        match self {
            Self::Unavailable(Unavailable { server, .. })
            | Self::OutcomeUnknown { server, .. }
            | Self::TimedOut { server, .. }
            | Self::DefinitionChanged { server, .. }
            | Self::InvalidArguments { server, .. }
            | Self::UpstreamProtocol { server, .. }
            | Self::CardUnreadable { server, .. }
            | Self::Rpc(UpstreamRpcError { server, .. }) => Some(server),
            Self::UnknownTool { .. }
            | Self::UnknownServer { .. }
            | Self::UnknownPrompt { .. }
            | Self::UnknownResource { .. }
            | Self::UnknownMethod { .. }
            | Self::OverBudget { .. }
            | Self::Overloaded { .. }
            | Self::Invalid { .. } => None,
        }
    }

    /// Returns the time after which a retry makes sense, if waiting alone can help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::OverBudget { reset_after: wait, .. }
            | Self::Unavailable(Unavailable { retry_after: wait, .. }) => *wait,
            Self::Overloaded { retry_after, .. } => Some(*retry_after),
            Self::UnknownTool { .. }
            | Self::UnknownServer { .. }
            | Self::UnknownPrompt { .. }
            | Self::UnknownResource { .. }
            | Self::UnknownMethod { .. }
            | Self::OutcomeUnknown { .. }
            | Self::TimedOut { .. }
            | Self::DefinitionChanged { .. }
            | Self::InvalidArguments { .. }
            | Self::UpstreamProtocol { .. }
            | Self::CardUnreadable { .. }
            | Self::Rpc(_)
            | Self::Invalid { .. } => None,
        }
    }

    /// Returns whether the server is starting, so that waiting longer is the only remedy.
    pub fn is_starting(&self) -> bool {
        matches!(
            self,
            Self::Unavailable(Unavailable {
                state: UnavailableState::Starting | UnavailableState::Fetching,
                ..
            })
        )
    }

    /// Returns the delivery of the request; `None` if it was never sent.
    pub fn delivery(&self) -> Option<Delivery> {
        match self {
            Self::OutcomeUnknown { .. }
            | Self::Unavailable(Unavailable { state: UnavailableState::Lost, .. }) => Some(Delivery::Unknown),
            Self::Unavailable(Unavailable { state: UnavailableState::OutOfReach, .. }) => {
                Some(Delivery::NotSent)
            }
            Self::TimedOut { delivery, .. } => Some(*delivery),
            Self::UpstreamProtocol { .. } | Self::Rpc(_) => Some(Delivery::Answered),
            Self::UnknownTool { .. }
            | Self::UnknownServer { .. }
            | Self::UnknownPrompt { .. }
            | Self::UnknownResource { .. }
            | Self::UnknownMethod { .. }
            | Self::OverBudget { .. }
            | Self::Unavailable(_)
            | Self::Overloaded { .. }
            | Self::DefinitionChanged { .. }
            | Self::InvalidArguments { .. }
            | Self::CardUnreadable { .. }
            | Self::Invalid { .. } => None,
        }
    }

    /// Returns `error.data` of the JSON-RPC error.
    pub fn data(&self) -> Value {
        let state = if let Self::Unavailable(it) = self { Some(it.state.as_str()) } else { None };
        let budget = if let Self::OverBudget { owner: of, .. } = self { Some(of.as_str()) } else { None };
        let mistakes = if let Self::InvalidArguments { mistakes, .. } = self { Some(mistakes) } else { None };
        let fields = [
            ("code", Some(json!(self.code()))),
            ("server", self.server().map(|server| json!(server))),
            ("state", state.map(Value::from)),
            ("budget", budget.map(Value::from)),
            ("mistakes", mistakes.map(|mistakes| json!(mistakes))),
            ("retryAfterMs", self.retry_after().map(|wait| json!(whole_millis(wait)))),
            ("delivery", self.delivery().map(|delivery| json!(delivery))),
            ("hint", self.hint().map(Value::from)),
        ];
        let present = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(present.collect::<Map<_, _>>())
    }

    /// Returns the whole JSON-RPC error object. A server's own error passes unchanged.
    pub fn rpc_object(&self) -> Vec<u8> {
        if let Self::Rpc(answer) = self {
            return answer.raw.to_vec();
        }
        let message = self.to_string();
        let message = match self.cause() {
            Some(action) if self.has_cause_in_headline() => format!("{message}; {action}"),
            Some(cause) => format!("{message}: {cause}"),
            None => message,
        };
        let data = self.data().to_string();
        ostler_wire::error_object(self.rpc_code(), &message, Some(data.as_bytes()))
    }

    /// Returns a `tools/call` result that reports the error, if the model caused it and can correct it:
    /// models see results, and rarely errors.
    pub fn tool_result(&self) -> Option<Vec<u8>> {
        let Self::InvalidArguments { .. } = self else { return None };
        let lines = [Some(self.to_string()), self.cause(), self.hint()];
        let text = lines.into_iter().flatten().collect::<Vec<_>>().join("\n");
        let result = json!({
            "content": [{ "type": "text", "text": text }],
            "isError": true,
            "_meta": { ERROR_META: self.data() },
        });
        Some(result.to_string().into_bytes())
    }

    fn has_cause_in_headline(&self) -> bool {
        matches!(self, Self::Unavailable(unavailable) if unavailable.has_cause_in_headline())
    }

    /// Returns the headline, the cause and the next step, on up to three lines for people.
    pub fn render(&self) -> String {
        let mut text = format!("error: {self}");
        for (label, line) in [("cause", self.cause()), ("hint", self.hint())] {
            if let Some(line) = line {
                text.push_str(&format!("\n  {label}: {line}"));
            }
        }
        text
    }
}

/// Rounds up, so that a caller that waits exactly that long is not too early.
fn whole_millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
