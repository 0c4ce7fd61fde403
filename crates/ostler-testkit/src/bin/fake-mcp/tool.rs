//! A tool with its parsed arguments. Bad arguments are refused before anything is executed.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::catalog;
use crate::options::{CacheHint, ToolListOptions};
use crate::recorded_tools::{RecordedKind, RecordedTool};
use crate::response::ErrorReply;

/// The moment relative to the answer: of a crash, or of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerTiming {
    Before,
    After,
    Middle,
}

/// The position of the id in the answer of `huge_line`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdPosition {
    First,
    Last,
    Absent,
}

/// A malformed answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BrokenAnswer {
    Garbage,
    Twice,
    ForeignId,
    StringId,
}

/// A parsed `tools/call`.
#[derive(Debug)]
pub(crate) enum ToolCall {
    Echo,
    Add(f64, f64),
    Text(String),
    Sleep(Duration),
    Blob(usize),
    Fail(String),
    RpcError(ErrorReply),
    Counter,
    Pid,
    Env,
    Fds,
    Hint(CacheHint),
    Exact,
    /// `once` names a file: the call that creates it crashes, every later call gets an answer.
    Crash {
        when: AnswerTiming,
        once: Option<String>,
    },
    Exit(i32),
    Stderr(usize),
    Flood(u64),
    HugeLine {
        bytes: usize,
        id: IdPosition,
        has_newline: bool,
    },
    Broken(BrokenAnswer),
    /// Writes this text instead of an answer, with the call's id for `ID`.
    Raw(String),
    /// `id` and `params` are raw JSON.
    Ask {
        method: String,
        id: Option<String>,
        params: Option<String>,
        count: u32,
    },
    Progress {
        count: u32,
        every: Duration,
    },
    Input,
    StopSelf,
    Hang,
    CloseStdout,
    ListChanged(u64),
    TouchTools,
    /// Sends this notification: a method and raw parameters.
    Notify {
        method: String,
        params: Option<String>,
        when: AnswerTiming,
    },
    Subscriptions,
    /// Makes a task with this result.
    Task(String),
    Recorded(RecordedTool),
}

/// The arguments of all tools together.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FakeToolArguments {
    a: Option<f64>,
    b: Option<f64>,
    ms: Option<u64>,
    nonce: Option<u64>,
    size: Option<usize>,
    bytes: Option<usize>,
    count: Option<u32>,
    code: Option<i64>,
    ttl_ms: Option<i64>,
    newline: Option<bool>,
    text: Option<String>,
    message: Option<String>,
    scope: Option<String>,
    when: Option<String>,
    once: Option<String>,
    method: Option<String>,
    id: Option<Box<RawValue>>,
    params: Option<Box<RawValue>>,
}

impl ToolCall {
    /// Parses a call, or says why it is refused.
    pub(crate) fn parse(name: &str, arguments: &str, listing: &ToolListOptions) -> Result<Self, ErrorReply> {
        // Echo takes anything, and benchmarks call it, so its arguments are not parsed.
        if name == "echo" || catalog::is_extra(name, listing) {
            return Ok(Self::Echo);
        }
        let given = || -> Result<FakeToolArguments, ErrorReply> {
            serde_json::from_str(arguments).map_err(|problem| ErrorReply::bad_params(problem.to_string()))
        };
        Ok(match name {
            "counter" => Self::Counter,
            "pid" => Self::Pid,
            "env" => Self::Env,
            "fds" => Self::Fds,
            "exact" => Self::Exact,
            "garbage" => Self::Broken(BrokenAnswer::Garbage),
            "twice" => Self::Broken(BrokenAnswer::Twice),
            "foreign_id" => Self::Broken(BrokenAnswer::ForeignId),
            "string_id" => Self::Broken(BrokenAnswer::StringId),
            "input" => Self::Input,
            "stop_self" => Self::StopSelf,
            "hang" => Self::Hang,
            "close_stdout" => Self::CloseStdout,
            "touch_tools" => Self::TouchTools,
            "news" => Self::Subscriptions,
            "add" | "text" | "sleep" | "blob" | "fail" | "rpc_error" | "hint" | "progress"
            | "list_changed" => given()?.into_plain(name)?,
            "deed" | "misdeed" | "sick" | "secret" => Self::Recorded(given()?.into_recorded(name)?),
            // Only a list of `--catalog` has it.
            "raw" => Self::Raw(required(given()?.text, "text")?),
            "task" if listing.has_tasks => Self::Task(required(given()?.text, "text")?),
            "crash"
            | "crash_safe"
            | "exit"
            | "stderr"
            | "flood_notifications"
            | "huge_line"
            | "ask"
            | "notify" => given()?.into_fault(name)?,
            _ if listing.echoes_unknown => Self::Echo,
            _ => return Err(ErrorReply::bad_params(format!("unknown tool `{name}`"))),
        })
    }
}

impl FakeToolArguments {
    fn into_plain(self, name: &str) -> Result<ToolCall, ErrorReply> {
        let count = || required(self.count, "count");
        Ok(match name {
            "add" => ToolCall::Add(required(self.a, "a")?, required(self.b, "b")?),
            "text" => ToolCall::Text(required(self.text, "text")?),
            "sleep" => ToolCall::Sleep(Duration::from_millis(required(self.ms, "ms")?)),
            "blob" => ToolCall::Blob(required(self.size, "size")?),
            "fail" => ToolCall::Fail(self.text.unwrap_or_else(|| "failed on request".into())),
            "rpc_error" => ToolCall::RpcError(ErrorReply::new(
                required(self.code, "code")?,
                required(self.message, "message")?,
            )),
            "hint" => {
                ToolCall::Hint(CacheHint { ttl_ms: required(self.ttl_ms, "ttl_ms")?, scope: self.scope })
            }
            "progress" => ToolCall::Progress {
                count: count()?,
                every: Duration::from_millis(self.ms.unwrap_or_default()),
            },
            _ => ToolCall::ListChanged(count()?.into()),
        })
    }

    fn into_recorded(self, name: &str) -> Result<RecordedTool, ErrorReply> {
        let kind = match name {
            "sick" => RecordedKind::Sick,
            "secret" => RecordedKind::Secret { ttl_ms: required(self.ttl_ms, "ttl_ms")? },
            _ => RecordedKind::Plain,
        };
        let takes = Duration::from_millis(self.ms.unwrap_or_default());
        Ok(RecordedTool { kind, nonce: self.nonce, duration: takes })
    }

    fn into_fault(self, name: &str) -> Result<ToolCall, ErrorReply> {
        Ok(match name {
            "crash" | "crash_safe" => {
                ToolCall::Crash { when: parse_timing(self.when.as_deref())?, once: self.once }
            }
            "exit" => {
                let code = self.code.unwrap_or_default();
                ToolCall::Exit(code.try_into().map_err(|_| ErrorReply::bad_params("`code` is out of range"))?)
            }
            "stderr" => ToolCall::Stderr(required(self.bytes, "bytes")?),
            "flood_notifications" => ToolCall::Flood(required(self.count, "count")?.into()),
            "huge_line" => ToolCall::HugeLine {
                bytes: required(self.bytes, "bytes")?,
                id: parse_id_position(self.id.as_deref())?,
                has_newline: self.newline.unwrap_or(true),
            },
            "notify" => ToolCall::Notify {
                method: self.method.unwrap_or_else(|| "notifications/message".into()),
                params: self.params.map(|raw| raw.get().into()),
                when: parse_timing(self.when.as_deref())?,
            },
            _ => ToolCall::Ask {
                method: self.method.unwrap_or_else(|| "roots/list".into()),
                id: self.id.map(|raw| raw.get().into()),
                params: self.params.map(|raw| raw.get().into()),
                count: self.count.unwrap_or(1),
            },
        })
    }
}

fn required<T>(value: Option<T>, name: &str) -> Result<T, ErrorReply> {
    value.ok_or_else(|| ErrorReply::bad_params(format!("`{name}` is missing")))
}

fn parse_timing(value: Option<&str>) -> Result<AnswerTiming, ErrorReply> {
    match value {
        None | Some("before") => Ok(AnswerTiming::Before),
        Some("after") => Ok(AnswerTiming::After),
        Some("middle") => Ok(AnswerTiming::Middle),
        Some(_) => Err(ErrorReply::bad_params("`when` is before, after or middle")),
    }
}

fn parse_id_position(value: Option<&RawValue>) -> Result<IdPosition, ErrorReply> {
    match value.map(RawValue::get) {
        None | Some("\"first\"") => Ok(IdPosition::First),
        Some("\"last\"") => Ok(IdPosition::Last),
        Some("\"none\"") => Ok(IdPosition::Absent),
        Some(_) => Err(ErrorReply::bad_params("`id` is first, last or none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_make_no_sense_are_refused() {
        let listing = ToolListOptions::default();
        for (name, arguments) in [
            ("add", r#"{"a":1}"#),
            ("sleep", r#"{"ms":-1}"#),
            ("crash", r#"{"when":"later"}"#),
            ("huge_line", r#"{"bytes":1,"id":"middle"}"#),
            ("exit", r#"{"code":9999999999}"#),
            ("nobody", "{}"),
        ] {
            assert!(ToolCall::parse(name, arguments, &listing).is_err(), "{name}");
        }
    }
}
