//! Built-in definitions of the tools.

use crate::options::ToolListOptions;
use crate::response::quote;

/// A tool as `tools/list` shows it.
struct FakeToolDefinition {
    name: &'static str,
    description: &'static str,
    /// Each argument as `name:type`, optional ones with a question mark.
    arguments: &'static [&'static str],
    /// The one annotation it carries, if any.
    annotation: Option<&'static str>,
}

const READ_ONLY: Option<&str> = Some("readOnlyHint");
const IDEMPOTENT: Option<&str> = Some("idempotentHint");

/// The arguments of recorded tools.
const RECORDED_ARGUMENTS: &[&str] = &["nonce?:integer", "ms?:integer"];

const fn define(
    name: &'static str,
    annotation: Option<&'static str>,
    arguments: &'static [&'static str],
    description: &'static str,
) -> FakeToolDefinition {
    FakeToolDefinition { name, description, arguments, annotation }
}

const DEFINITIONS: &[FakeToolDefinition] = &[
    define("echo", READ_ONLY, &[], "Answers its arguments, as text and as structured content"),
    define("add", READ_ONLY, &["a:number", "b:number"], "Answers a + b"),
    define("text", READ_ONLY, &["text:string"], "Answers that text"),
    define("sleep", READ_ONLY, &["ms:integer"], "Answers after ms; a cancelled call is never answered"),
    define("blob", READ_ONLY, &["size:integer"], "Answers that many bytes of text"),
    define("fail", None, &["text?:string"], "Answers with isError and that text"),
    define("rpc_error", None, &["code:integer", "message:string"], "Answers with that JSON-RPC error"),
    define("counter", None, &[], "Answers how many times this process has run it"),
    define("pid", READ_ONLY, &[], "Answers the process id"),
    define("env", READ_ONLY, &[], "Answers the environment"),
    define("fds", READ_ONLY, &[], "Answers the open descriptors and what they lead to"),
    define("hint", READ_ONLY, &["ttl_ms:integer", "scope?:string"], "Answers a new text with a caching hint"),
    define("exact", READ_ONLY, &[], "Answers the bytes of --print-exact"),
    define(
        "crash",
        None,
        &["when?:string", "once?:string"],
        "Exits 1 before, after or in the middle of its answer",
    ),
    define(
        "crash_safe",
        IDEMPOTENT,
        &["when?:string", "once?:string"],
        "Like crash, and claims to be idempotent",
    ),
    define("exit", None, &["code?:integer"], "Exits with that code, without an answer"),
    define("stderr", None, &["bytes:integer"], "Writes that much to stderr, then answers"),
    define(
        "flood_notifications",
        None,
        &["count:integer"],
        "Sends that many log notifications, then answers",
    ),
    define(
        "huge_line",
        None,
        &["bytes:integer", "id?:string", "newline?:boolean"],
        "Answers with one long line",
    ),
    define("garbage", None, &[], "Writes rubbish to stdout, then answers"),
    define("twice", None, &[], "Answers twice"),
    define("foreign_id", None, &[], "Answers an id nobody asked with, then its own"),
    define("string_id", None, &[], "Answers with its id turned into a string"),
    define(
        "ask",
        None,
        &["method?:string", "id?:string", "params?:object", "count?:integer"],
        "Asks the client, then answers what came",
    ),
    define("progress", None, &["count:integer", "ms?:integer"], "Reports progress, then answers"),
    define("input", None, &[], "Asks for input first, then answers what it was given"),
    define("stop_self", None, &[], "Stops its own process with SIGSTOP before it answers"),
    define("hang", None, &[], "Never answers"),
    define("close_stdout", None, &[], "Closes stdout and lives on"),
    define("list_changed", None, &["count:integer"], "Sends that many tools/list_changed, then answers"),
    define(
        "notify",
        None,
        &["method?:string", "params?:object", "when?:string"],
        "Sends that notification before or after it answers",
    ),
    define("news", READ_ONLY, &[], "Answers what the client wants to hear of"),
    define("touch_tools", None, &[], "Sends tools/list_changed if the file of --change-tools differs"),
];

/// Listed only with `--executions`.
const RECORDED_TOOLS: &[FakeToolDefinition] = &[
    define(
        "deed",
        None,
        RECORDED_ARGUMENTS,
        "Answers its nonce and a stamp after ms, and stands in --executions",
    ),
    define("misdeed", None, RECORDED_ARGUMENTS, "Like deed, under a name to be forbidden"),
    define(
        "sick",
        None,
        RECORDED_ARGUMENTS,
        "Like deed, and is not answered while the file of --sick-while is there",
    ),
    define(
        "secret",
        None,
        &["ttl_ms:integer", "ms?:integer", "nonce?:integer"],
        "Like deed, with a private caching hint",
    ),
];

/// Listed only with `--tasks`.
const TASKS: &[FakeToolDefinition] =
    &[define("task", None, &["text:string"], "Answers with a task whose result is that text")];

/// Returns every definition as JSON, in a fixed order. `suffix` is appended to the description of
/// `echo`.
pub(crate) fn definitions(listing: &ToolListOptions, suffix: &str) -> Vec<String> {
    let deeds = if listing.has_recorded_tools { RECORDED_TOOLS } else { &[] };
    let tasks = if listing.has_tasks { TASKS } else { &[] };
    let mut tools: Vec<String> =
        DEFINITIONS.iter().chain(deeds).chain(tasks).map(|tool| tool.json(listing, suffix)).collect();
    if listing.has_bad_tool {
        tools.insert(1, r#"{"name":42,"description":["not","text"],"inputSchema":"none"}"#.into());
    }
    let forged = forged(listing);
    tools.extend((1..=listing.extra_tools).map(|number| {
        let name = extra_name(number);
        format!(r#"{{"name":"{name}","description":"Echoes","inputSchema":{{"type":"object"}}{forged}}}"#)
    }));
    tools
}

/// Returns whether `name` is one of the extra tools of `--tools`.
pub(crate) fn is_extra(name: &str, listing: &ToolListOptions) -> bool {
    let number = name.strip_prefix("tool_").and_then(|digits| digits.parse::<usize>().ok());
    number.is_some_and(|number| (1..=listing.extra_tools).contains(&number) && extra_name(number) == name)
}

fn extra_name(number: usize) -> String {
    format!("tool_{number:04}")
}

fn forged(listing: &ToolListOptions) -> &'static str {
    if !listing.forges_origin {
        return "";
    }
    r#","server":"somebody-else","_meta":{"dev.ostler/server":"somebody-else","dev.ostler/pinned":true,"dev.ostler/host":true}"#
}

impl FakeToolDefinition {
    fn json(&self, listing: &ToolListOptions, suffix: &str) -> String {
        let suffix = if self.name == "echo" { suffix } else { "" };
        let description = quote(&format!("{}{suffix}", self.description));
        let annotation =
            self.annotation.map_or(String::new(), |hint| format!(r#","annotations":{{"{hint}":true}}"#));
        format!(
            r#"{{"name":"{}","description":{description},"inputSchema":{}{annotation}{}}}"#,
            self.name,
            self.schema(),
            forged(listing)
        )
    }

    fn schema(&self) -> String {
        if self.arguments.is_empty() {
            return r#"{"type":"object","additionalProperties":true}"#.into();
        }
        let (mut properties, mut required) = (Vec::new(), Vec::new());
        for argument in self.arguments {
            let (name, kind) = argument.split_once(':').unwrap_or((argument, "string"));
            let key = name.trim_end_matches('?');
            properties.push(format!(r#""{key}":{{"type":"{kind}"}}"#));
            if key == name {
                required.push(format!(r#""{key}""#));
            }
        }
        let (properties, required) = (properties.join(","), required.join(","));
        format!(r#"{{"type":"object","properties":{{{properties}}},"required":[{required}]}}"#)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::ToolCall;

    #[test]
    fn every_definition_is_json_and_names_a_tool_that_exists() {
        let listing = ToolListOptions {
            extra_tools: 2,
            forges_origin: true,
            has_recorded_tools: true,
            ..ToolListOptions::default()
        };
        for raw in definitions(&listing, "\n\"changed\"") {
            let tool: serde_json::Value = serde_json::from_str(&raw).unwrap();
            let name = tool["name"].as_str().unwrap();
            let given = r#"{"a":1,"b":2,"text":"t","ms":1,"size":1,"code":1,"message":"m","ttl_ms":1,"bytes":1,"count":1}"#;
            assert!(ToolCall::parse(name, given, &listing).is_ok(), "{name}");
            assert_eq!(tool["server"], "somebody-else", "{name}");
        }
    }

    #[test]
    fn only_the_numbered_names_are_extra_tools() {
        let listing = ToolListOptions { extra_tools: 12, ..ToolListOptions::default() };
        assert!(is_extra("tool_0012", &listing));
        for name in ["tool_0013", "tool_0000", "tool_12", "tool_+012", "echo"] {
            assert!(!is_extra(name, &listing), "{name}");
        }
    }
}
