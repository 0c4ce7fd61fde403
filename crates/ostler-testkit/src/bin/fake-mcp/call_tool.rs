//! `tools/call`, and the tools that behave.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::time::Duration;

use crate::era::RequestEra;
use crate::executions::execution_line;
use crate::faults;
use crate::message::FakeParams;
use crate::recorded_tools;
use crate::response::{self, ErrorReply, FakeToolResult, quote};
use crate::server::FakeServer;
use crate::tool::{AnswerTiming, ToolCall};

/// The state that `input` hands out and expects back unchanged: characters that careless copying
/// would spoil.
const REQUEST_STATE: &str = "fake/state+== \"é\" \\ 1";
const FORM: &str = r#"{"mode":"form","message":"Go on?","requestedSchema":{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}}"#;

/// An admitted `tools/call`.
#[derive(Debug)]
pub(crate) struct AdmittedCall<'a> {
    /// The raw JSON of its id.
    pub(crate) id: &'a str,
    pub(crate) era: RequestEra,
    pub(crate) params: &'a FakeParams<'a>,
}

impl AdmittedCall<'_> {
    pub(crate) fn text(&self, text: &str) -> Vec<u8> {
        FakeToolResult::text(text).line(self.id, self.era)
    }
}

/// Executes a call: parses it, enters it in the ledger, then runs it.
pub(crate) fn execute(server: &mut FakeServer, call: &AdmittedCall<'_>) {
    let (name, arguments) = (call.params.subject(), call.params.arguments());
    let tool = match ToolCall::parse(name, arguments, &server.options.listing) {
        Ok(tool) => tool,
        Err(refusal) => return server.output.send_answer(call.id, response::error(call.id, &refusal)),
    };
    // The first round of a modern `input` only asks; nothing is executed yet.
    let asks_first = matches!(tool, ToolCall::Input)
        && call.era == RequestEra::Modern
        && call.params.input_responses.is_none();
    if let Some(ledger) = &server.ledger
        && !asks_first
    {
        ledger.append(&execution_line(name, call.params.idempotency_key(), arguments));
    }
    run(server, call, tool);
}

fn run(server: &mut FakeServer, call: &AdmittedCall<'_>, tool: ToolCall) {
    let line = match tool {
        ToolCall::Echo => FakeToolResult::object(call.params.arguments()).line(call.id, call.era),
        ToolCall::Add(a, b) => call.text(&(a + b).to_string()),
        ToolCall::Text(text) => call.text(&text),
        ToolCall::Sleep(delay) => return server.output.send_after(delay, call.id, call.text("slept")),
        ToolCall::Blob(size) => call.text(&"x".repeat(size)),
        ToolCall::Fail(text) => {
            FakeToolResult { is_error: true, ..FakeToolResult::text(&text) }.line(call.id, call.era)
        }
        ToolCall::RpcError(refusal) => response::error(call.id, &refusal),
        ToolCall::Counter => {
            server.counter += 1;
            call.text(&server.counter.to_string())
        }
        ToolCall::Pid => call.text(&std::process::id().to_string()),
        ToolCall::Env => FakeToolResult::object(&environment()).line(call.id, call.era),
        ToolCall::Fds => FakeToolResult::object(&descriptors()).line(call.id, call.era),
        ToolCall::Hint(hint) => {
            server.hints += 1;
            let text = format!("hinted {}", server.hints);
            FakeToolResult { hint: Some(&hint), ..FakeToolResult::text(&text) }.line(call.id, call.era)
        }
        ToolCall::Exact => response::result(call.id, response::EXACT),
        ToolCall::Progress { count, every } => return progress(server, call, count, every),
        ToolCall::Input => return input(server, call),
        ToolCall::Ask { method, id, params, count } => {
            let id = id.as_deref().unwrap_or(call.id);
            return send_server_request(server, call, &method, id, params.as_deref(), count);
        }
        ToolCall::ListChanged(count) => {
            (0..count).for_each(|_| server.send_list_changed());
            call.text("sent")
        }
        ToolCall::TouchTools => {
            server.notify_if_changed();
            call.text("touched")
        }
        ToolCall::Notify { method, params, when } => {
            let params = params.unwrap_or_else(|| r#"{"level":"info","data":"said"}"#.into());
            if when == AnswerTiming::After {
                server.output.send_answer(call.id, call.text("told"));
                return server.output.send(&response::notification(&method, &params));
            }
            server.output.send(&response::notification(&method, &params));
            call.text("told")
        }
        ToolCall::Task(text) => server.tasks.make(call, text),
        ToolCall::Subscriptions => {
            FakeToolResult::object(&server.subscriptions.to_json()).line(call.id, call.era)
        }
        ToolCall::Recorded(tool) => return recorded_tools::run(server, call, &tool),
        fault => return faults::run(server, call, fault),
    };
    server.output.send_answer(call.id, line);
}

fn progress(server: &FakeServer, call: &AdmittedCall<'_>, count: u32, every: Duration) {
    let token = call.params.meta.as_ref().and_then(|meta| meta.progress_token);
    for step in 1..=count {
        let Some(token) = token else { break };
        let params = format!(r#"{{"progressToken":{},"progress":{step},"total":{count}}}"#, token.get());
        let line = response::notification("notifications/progress", &params);
        server.output.send_after(every * step, call.id, line);
    }
    server.output.send_after(every * count, call.id, call.text("done"));
}

/// Sends a request to the client `count` times, one after the other; answers arrive in
/// [`on_client_response`].
fn send_server_request(
    server: &mut FakeServer,
    call: &AdmittedCall<'_>,
    method: &str,
    id: &str,
    params: Option<&str>,
    count: u32,
) {
    let params = params.map_or(String::new(), |params| format!(r#","params":{params}"#));
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{}{params}}}\n", quote(method));
    server.output.send(line.as_bytes());
    let again = count.saturating_sub(1);
    server
        .server_requests
        .add(id, FakeSuspendedCall { call_id: call.id.to_owned(), era: call.era, line, repeats_left: again });
}

/// Handles an answer of the client: the suspended call passes the whole last message on, as text
/// and as structured content.
pub(crate) fn on_client_response(server: &mut FakeServer, id: &str, message: &str) {
    let Some(suspended) = server.server_requests.take(id) else { return };
    if let Some(again) = suspended.repeats_left.checked_sub(1) {
        server.output.send(suspended.line.as_bytes());
        return server.server_requests.add(id, FakeSuspendedCall { repeats_left: again, ..suspended });
    }
    let line = FakeToolResult::object(message).line(&suspended.call_id, suspended.era);
    server.output.send_answer(&suspended.call_id, line);
}

/// Runs `input`: in the modern era two rounds, in the legacy era a request to the client during the
/// call, with an id of its own.
fn input(server: &mut FakeServer, call: &AdmittedCall<'_>) {
    if call.era == RequestEra::Legacy {
        return send_server_request(server, call, "elicitation/create", "\"fake-input\"", Some(FORM), 1);
    }
    let line = match (call.params.input_responses, &call.params.request_state) {
        (None, _) => response::result(
            call.id,
            &format!(
                r#"{{"resultType":"input_required","inputRequests":{{"confirm":{{"method":"elicitation/create","params":{FORM}}}}},"requestState":{}}}"#,
                quote(REQUEST_STATE)
            ),
        ),
        (Some(responses), Some(state)) if state.0 == REQUEST_STATE => {
            FakeToolResult::object(responses.get()).line(call.id, call.era)
        }
        (Some(_), _) => {
            response::error(call.id, &ErrorReply::bad_params("requestState is not what was handed out"))
        }
    };
    server.output.send_answer(call.id, line);
}

fn environment() -> String {
    let variables = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
    object(variables.collect())
}

/// Returns the open descriptors. Those closed meanwhile are left out: the directory's own is one.
fn descriptors() -> String {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    let links = names.into_iter().filter_map(|name| {
        let link = fs::read_link(format!("/proc/self/fd/{}", name.display())).ok()?;
        Some((name.to_string_lossy().into_owned(), link.to_string_lossy().into_owned()))
    });
    object(links.collect())
}

fn object(members: BTreeMap<String, String>) -> String {
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!("{}:{}", quote(name), quote(value))).collect();
    format!("{{{}}}", members.join(","))
}

/// A call that waits for the client's answer.
#[derive(Debug)]
pub(crate) struct FakeSuspendedCall {
    pub(crate) call_id: String,
    pub(crate) era: RequestEra,
    /// The request as it was sent, and how often it is sent again.
    pub(crate) line: String,
    pub(crate) repeats_left: u32,
}

/// Open requests to the client, by their raw id. Two calls may use the same id; the first request
/// is answered first.
#[derive(Debug, Default)]
pub(crate) struct OpenServerRequests {
    open: HashMap<String, VecDeque<FakeSuspendedCall>>,
}

impl OpenServerRequests {
    pub(crate) fn add(&mut self, request_id: &str, suspended: FakeSuspendedCall) {
        self.open.entry(request_id.to_owned()).or_default().push_back(suspended);
    }

    /// Takes the call that an answer belongs to.
    pub(crate) fn take(&mut self, request_id: &str) -> Option<FakeSuspendedCall> {
        let queue = self.open.get_mut(request_id)?;
        let suspended = queue.pop_front();
        if queue.is_empty() {
            self.open.remove(request_id);
        }
        suspended
    }

    /// Forgets the requests of a cancelled call.
    pub(crate) fn cancel(&mut self, call_id: &str) {
        self.open.retain(|_, queue| {
            queue.retain(|suspended| suspended.call_id != call_id);
            !queue.is_empty()
        });
    }
}
