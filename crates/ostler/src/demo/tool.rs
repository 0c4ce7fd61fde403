//! The tools of the demo server.

use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::time_text;

/// Limit of a sleep.
const MAX_SLEEP_SECONDS: f64 = 3600.0;

/// Definitions, as the inside of a JSON list.
pub(super) const TOOLS: &str = concat!(
    r#"{"name":"echo","description":"Answer the text it is given","inputSchema":{"type":"object","properties":{"text":{"type":"string","description":"What to answer"}},"required":["text"],"additionalProperties":false},"annotations":{"readOnlyHint":true}},"#,
    r#"{"name":"add","description":"Add two numbers; whole ones exactly, up to 38 digits","inputSchema":{"type":"object","properties":{"a":{"type":"number","description":"The first"},"b":{"type":"number","description":"The second"}},"required":["a","b"],"additionalProperties":false},"annotations":{"readOnlyHint":true}},"#,
    r#"{"name":"sleep","description":"Answer after some time; can be cancelled","inputSchema":{"type":"object","properties":{"seconds":{"type":"number","minimum":0,"maximum":3600,"description":"How long"}},"required":["seconds"],"additionalProperties":false},"annotations":{"readOnlyHint":true}},"#,
    r#"{"name":"time","description":"Tell the current time in UTC","inputSchema":{"type":"object","properties":{},"additionalProperties":false},"annotations":{"readOnlyHint":true}}"#,
);

/// Outcome of a call.
#[derive(Debug, PartialEq)]
pub(super) enum DemoOutcome {
    /// A text result, at once.
    Text(String),
    /// An error of the tool.
    Failed(String),
    /// A text result after this long.
    Sleep(Duration),
    /// There is no such tool.
    Unknown,
}

/// Arguments of all tools together.
#[derive(Default, Deserialize)]
#[serde(default)]
struct DemoArguments<'a> {
    text: Option<String>,
    #[serde(borrow)]
    a: Option<&'a RawValue>,
    #[serde(borrow)]
    b: Option<&'a RawValue>,
    seconds: Option<f64>,
}

pub(super) fn call_tool(name: &str, arguments: Option<&RawValue>) -> DemoOutcome {
    let given: DemoArguments<'_> = match serde_json::from_str(arguments.map_or("{}", RawValue::get)) {
        Ok(given) => given,
        Err(error) => return DemoOutcome::Failed(format!("the arguments have another shape: {error}")),
    };
    let result = match name {
        "echo" => given.text.ok_or("`text` is missing"),
        "add" => match (given.a, given.b) {
            (Some(a), Some(b)) => add(a.get(), b.get()).ok_or("`a` and `b` must be numbers"),
            _ => Err("`a` or `b` is missing"),
        },
        "sleep" => match given.seconds {
            Some(seconds) if (0.0..=MAX_SLEEP_SECONDS).contains(&seconds) => {
                return DemoOutcome::Sleep(Duration::from_secs_f64(seconds));
            }
            Some(_) => Err("`seconds` must be from 0 to 3600"),
            None => Err("`seconds` is missing"),
        },
        "time" => Ok(time_text::rfc3339(SystemTime::now())),
        _ => return DemoOutcome::Unknown,
    };
    result.map_or_else(|why| DemoOutcome::Failed(why.to_owned()), DemoOutcome::Text)
}

/// Adds whole numbers exactly, others as floating point.
fn add(a: &str, b: &str) -> Option<String> {
    if let (Ok(a), Ok(b)) = (a.parse::<i128>(), b.parse::<i128>())
        && let Some(sum) = a.checked_add(b)
    {
        return Some(sum.to_string());
    }
    let number = |text: &str| serde_json::from_str::<f64>(text).ok();
    Some((number(a)? + number(b)?).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: &str) -> DemoOutcome {
        call_tool(name, Some(serde_json::from_str(arguments).unwrap()))
    }

    #[test]
    fn definitions_are_json_and_every_tool_is_known() {
        let tools: Vec<serde_json::Value> = serde_json::from_str(&format!("[{TOOLS}]")).unwrap();
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["echo", "add", "sleep", "time"]);
        for name in names {
            assert_ne!(call_tool(name, None), DemoOutcome::Unknown, "{name}");
        }
    }

    #[test]
    fn each_tool_answers_or_says_why_not() {
        let text = |text: &str| DemoOutcome::Text(text.into());
        let failed = |text: &str| DemoOutcome::Failed(text.into());
        let table = [
            ("echo", r#"{"text":"hi\n"}"#, text("hi\n")),
            ("echo", "{}", failed("`text` is missing")),
            ("add", r#"{"a":9007199254740993,"b":1}"#, text("9007199254740994")),
            ("add", r#"{"a":0.5,"b":1}"#, text("1.5")),
            ("add", r#"{"a":"1","b":1}"#, failed("`a` and `b` must be numbers")),
            ("add", r#"{"a":1}"#, failed("`a` or `b` is missing")),
            ("sleep", r#"{"seconds":0.25}"#, DemoOutcome::Sleep(Duration::from_millis(250))),
            ("sleep", r#"{"seconds":-1}"#, failed("`seconds` must be from 0 to 3600")),
            ("nothing", "{}", DemoOutcome::Unknown),
        ];
        for (name, arguments, want) in table {
            assert_eq!(call(name, arguments), want, "{name} {arguments}");
        }
    }
}
