//! A tool with its arguments understood. Arguments that make no sense are refused before anything is executed.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::catalog;
use crate::deeds::{Deed, Kind};
use crate::reply::Refusal;
use crate::script::{Hint, Listing};

/// When `crash` ends the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Before,
    After,
    Middle,
}

/// Where `huge_line` puts its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdPlace {
    First,
    Last,
    Nowhere,
}

/// Which broken answer a tool gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quirk {
    Garbage,
    Twice,
    ForeignId,
    StringId,
}

/// What one `tools/call` asks for.
#[derive(Debug)]
pub(crate) enum Tool {
    Echo,
    Add(f64, f64),
    Text(String),
    Sleep(Duration),
    Blob(usize),
    Fail(String),
    RpcError(Refusal),
    Counter,
    Pid,
    Env,
    Fds,
    Hint(Hint),
    Exact,
    /// `once` names a file: whoever creates it crashes, everybody later gets an answer.
    Crash {
        when: When,
        once: Option<String>,
    },
    Exit(i32),
    Stderr(usize),
    Flood(u64),
    HugeLine {
        bytes: usize,
        id: IdPlace,
        has_newline: bool,
    },
    Quirk(Quirk),
    /// Writes this instead of an answer, with the call's id for `ID`.
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
        when: When,
    },
    News,
    /// Makes a task with this result.
    Task(String),
    Deed(Deed),
}

/// The arguments of all tools together.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Given {
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

impl Tool {
    /// Understands a call, or says why it can't be one.
    pub(crate) fn parse(name: &str, arguments: &str, listing: &Listing) -> Result<Self, Refusal> {
        // Echo takes anything and is what benchmarks call, so its arguments are not even looked at.
        if name == "echo" || catalog::is_extra(name, listing) {
            return Ok(Self::Echo);
        }
        let given = || -> Result<Given, Refusal> {
            serde_json::from_str(arguments).map_err(|problem| Refusal::bad_params(problem.to_string()))
        };
        Ok(match name {
            "counter" => Self::Counter,
            "pid" => Self::Pid,
            "env" => Self::Env,
            "fds" => Self::Fds,
            "exact" => Self::Exact,
            "garbage" => Self::Quirk(Quirk::Garbage),
            "twice" => Self::Quirk(Quirk::Twice),
            "foreign_id" => Self::Quirk(Quirk::ForeignId),
            "string_id" => Self::Quirk(Quirk::StringId),
            "input" => Self::Input,
            "stop_self" => Self::StopSelf,
            "hang" => Self::Hang,
            "close_stdout" => Self::CloseStdout,
            "touch_tools" => Self::TouchTools,
            "news" => Self::News,
            "add" | "text" | "sleep" | "blob" | "fail" | "rpc_error" | "hint" | "progress"
            | "list_changed" => given()?.into_plain(name)?,
            "deed" | "misdeed" | "sick" | "secret" => Self::Deed(given()?.into_deed(name)?),
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
            _ => return Err(Refusal::bad_params(format!("unknown tool `{name}`"))),
        })
    }
}

impl Given {
    fn into_plain(self, name: &str) -> Result<Tool, Refusal> {
        let count = || required(self.count, "count");
        Ok(match name {
            "add" => Tool::Add(required(self.a, "a")?, required(self.b, "b")?),
            "text" => Tool::Text(required(self.text, "text")?),
            "sleep" => Tool::Sleep(Duration::from_millis(required(self.ms, "ms")?)),
            "blob" => Tool::Blob(required(self.size, "size")?),
            "fail" => Tool::Fail(self.text.unwrap_or_else(|| "failed on request".into())),
            "rpc_error" => {
                Tool::RpcError(Refusal::new(required(self.code, "code")?, required(self.message, "message")?))
            }
            "hint" => Tool::Hint(Hint { ttl_ms: required(self.ttl_ms, "ttl_ms")?, scope: self.scope }),
            "progress" => {
                Tool::Progress { count: count()?, every: Duration::from_millis(self.ms.unwrap_or_default()) }
            }
            _ => Tool::ListChanged(count()?.into()),
        })
    }

    fn into_deed(self, name: &str) -> Result<Deed, Refusal> {
        let kind = match name {
            "sick" => Kind::Sick,
            "secret" => Kind::Secret { ttl_ms: required(self.ttl_ms, "ttl_ms")? },
            _ => Kind::Plain,
        };
        let takes = Duration::from_millis(self.ms.unwrap_or_default());
        Ok(Deed { kind, nonce: self.nonce, takes })
    }

    fn into_fault(self, name: &str) -> Result<Tool, Refusal> {
        Ok(match name {
            "crash" | "crash_safe" => Tool::Crash { when: when(self.when.as_deref())?, once: self.once },
            "exit" => {
                let code = self.code.unwrap_or_default();
                Tool::Exit(code.try_into().map_err(|_| Refusal::bad_params("`code` is out of range"))?)
            }
            "stderr" => Tool::Stderr(required(self.bytes, "bytes")?),
            "flood_notifications" => Tool::Flood(required(self.count, "count")?.into()),
            "huge_line" => Tool::HugeLine {
                bytes: required(self.bytes, "bytes")?,
                id: place(self.id.as_deref())?,
                has_newline: self.newline.unwrap_or(true),
            },
            "notify" => Tool::Notify {
                method: self.method.unwrap_or_else(|| "notifications/message".into()),
                params: self.params.map(|raw| raw.get().into()),
                when: when(self.when.as_deref())?,
            },
            _ => Tool::Ask {
                method: self.method.unwrap_or_else(|| "roots/list".into()),
                id: self.id.map(|raw| raw.get().into()),
                params: self.params.map(|raw| raw.get().into()),
                count: self.count.unwrap_or(1),
            },
        })
    }
}

fn required<T>(value: Option<T>, name: &str) -> Result<T, Refusal> {
    value.ok_or_else(|| Refusal::bad_params(format!("`{name}` is missing")))
}

fn when(value: Option<&str>) -> Result<When, Refusal> {
    match value {
        None | Some("before") => Ok(When::Before),
        Some("after") => Ok(When::After),
        Some("middle") => Ok(When::Middle),
        Some(_) => Err(Refusal::bad_params("`when` is before, after or middle")),
    }
}

fn place(value: Option<&RawValue>) -> Result<IdPlace, Refusal> {
    match value.map(RawValue::get) {
        None | Some("\"first\"") => Ok(IdPlace::First),
        Some("\"last\"") => Ok(IdPlace::Last),
        Some("\"none\"") => Ok(IdPlace::Nowhere),
        Some(_) => Err(Refusal::bad_params("`id` is first, last or none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_make_no_sense_are_refused() {
        let listing = Listing::default();
        for (name, arguments) in [
            ("add", r#"{"a":1}"#),
            ("sleep", r#"{"ms":-1}"#),
            ("crash", r#"{"when":"later"}"#),
            ("huge_line", r#"{"bytes":1,"id":"middle"}"#),
            ("exit", r#"{"code":9999999999}"#),
            ("nobody", "{}"),
        ] {
            assert!(Tool::parse(name, arguments, &listing).is_err(), "{name}");
        }
    }
}
