//! The tools that behave.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use crate::asks::Waiting;
use crate::deeds;
use crate::era::Era;
use crate::faults;
use crate::ledger::execution;
use crate::message::Params;
use crate::reply::{self, Outcome, Refusal, quote};
use crate::serve::Server;
use crate::tool::{Tool, When};

/// What `input` hands out and expects back unchanged: characters that careless copying would spoil.
const STATE: &str = "fake/state+== \"é\" \\ 1";
const FORM: &str = r#"{"mode":"form","message":"Go on?","requestedSchema":{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}}"#;

/// One `tools/call` that has been admitted.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// The raw JSON of its id.
    pub(crate) id: &'a str,
    pub(crate) era: Era,
    pub(crate) params: &'a Params<'a>,
}

impl Call<'_> {
    pub(crate) fn text(&self, text: &str) -> Vec<u8> {
        Outcome::text(text).line(self.id, self.era)
    }
}

/// Executes a call: understood first, then entered in the ledger, then run.
pub(crate) fn call(server: &mut Server, call: &Call<'_>) {
    let (name, arguments) = (call.params.subject(), call.params.arguments());
    let tool = match Tool::parse(name, arguments, &server.script.listing) {
        Ok(tool) => tool,
        Err(refusal) => return server.delivery.answer(call.id, reply::error(call.id, &refusal)),
    };
    // The first round of a modern `input` only asks; nothing is executed yet.
    let asks_first =
        matches!(tool, Tool::Input) && call.era == Era::Modern && call.params.input_responses.is_none();
    if let Some(ledger) = &server.ledger
        && !asks_first
    {
        ledger.append(&execution(name, call.params.idempotency_key(), arguments));
    }
    run(server, call, tool);
}

fn run(server: &mut Server, call: &Call<'_>, tool: Tool) {
    let line = match tool {
        Tool::Echo => Outcome::object(call.params.arguments()).line(call.id, call.era),
        Tool::Add(a, b) => call.text(&(a + b).to_string()),
        Tool::Text(text) => call.text(&text),
        Tool::Sleep(delay) => return server.delivery.after(delay, call.id, call.text("slept")),
        Tool::Blob(size) => call.text(&"x".repeat(size)),
        Tool::Fail(text) => Outcome { is_error: true, ..Outcome::text(&text) }.line(call.id, call.era),
        Tool::RpcError(refusal) => reply::error(call.id, &refusal),
        Tool::Counter => {
            server.counter += 1;
            call.text(&server.counter.to_string())
        }
        Tool::Pid => call.text(&std::process::id().to_string()),
        Tool::Env => Outcome::object(&environment()).line(call.id, call.era),
        Tool::Fds => Outcome::object(&descriptors()).line(call.id, call.era),
        Tool::Hint(hint) => {
            server.hints += 1;
            let text = format!("hinted {}", server.hints);
            Outcome { hint: Some(&hint), ..Outcome::text(&text) }.line(call.id, call.era)
        }
        Tool::Exact => reply::result(call.id, reply::EXACT),
        Tool::Progress { count, every } => return progress(server, call, count, every),
        Tool::Input => return input(server, call),
        Tool::Ask { method, id, params, count } => {
            let id = id.as_deref().unwrap_or(call.id);
            return ask(server, call, &method, id, params.as_deref(), count);
        }
        Tool::ListChanged(count) => {
            (0..count).for_each(|_| server.send_list_changed());
            call.text("sent")
        }
        Tool::TouchTools => {
            server.notice_change();
            call.text("touched")
        }
        Tool::Notify { method, params, when } => {
            let params = params.unwrap_or_else(|| r#"{"level":"info","data":"said"}"#.into());
            if when == When::After {
                server.delivery.answer(call.id, call.text("told"));
                return server.delivery.send(&reply::notification(&method, &params));
            }
            server.delivery.send(&reply::notification(&method, &params));
            call.text("told")
        }
        Tool::Task(text) => server.tasks.make(call, text),
        Tool::News => Outcome::object(&server.news.shown()).line(call.id, call.era),
        Tool::Deed(deed) => return deeds::run(server, call, &deed),
        fault => return faults::run(server, call, fault),
    };
    server.delivery.answer(call.id, line);
}

fn progress(server: &Server, call: &Call<'_>, count: u32, every: Duration) {
    let token = call.params.meta.as_ref().and_then(|meta| meta.progress_token);
    for step in 1..=count {
        let Some(token) = token else { break };
        let params = format!(r#"{{"progressToken":{},"progress":{step},"total":{count}}}"#, token.get());
        let line = reply::notification("notifications/progress", &params);
        server.delivery.after(every * step, call.id, line);
    }
    server.delivery.after(every * count, call.id, call.text("done"));
}

/// Sends a request to the client, so many times, one after the other; answers come back through [`received`].
fn ask(server: &mut Server, call: &Call<'_>, method: &str, id: &str, params: Option<&str>, count: u32) {
    let params = params.map_or(String::new(), |params| format!(r#","params":{params}"#));
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{}{params}}}\n", quote(method));
    server.delivery.send(line.as_bytes());
    let again = count.saturating_sub(1);
    server.asks.add(id, Waiting { call_id: call.id.to_owned(), era: call.era, line, again });
}

/// The client answered: the call that asked passes the whole last message on, as text and as structured content.
pub(crate) fn received(server: &mut Server, id: &str, message: &str) {
    let Some(waiting) = server.asks.take(id) else { return };
    if let Some(again) = waiting.again.checked_sub(1) {
        server.delivery.send(waiting.line.as_bytes());
        return server.asks.add(id, Waiting { again, ..waiting });
    }
    let line = Outcome::object(message).line(&waiting.call_id, waiting.era);
    server.delivery.answer(&waiting.call_id, line);
}

/// Modern: two rounds. Legacy: a question during the call, with an id of its own.
fn input(server: &mut Server, call: &Call<'_>) {
    if call.era == Era::Legacy {
        return ask(server, call, "elicitation/create", "\"fake-input\"", Some(FORM), 1);
    }
    let line = match (call.params.input_responses, &call.params.request_state) {
        (None, _) => reply::result(
            call.id,
            &format!(
                r#"{{"resultType":"input_required","inputRequests":{{"confirm":{{"method":"elicitation/create","params":{FORM}}}}},"requestState":{}}}"#,
                quote(STATE)
            ),
        ),
        (Some(responses), Some(state)) if state.0 == STATE => {
            Outcome::object(responses.get()).line(call.id, call.era)
        }
        (Some(_), _) => {
            reply::error(call.id, &Refusal::bad_params("requestState is not what was handed out"))
        }
    };
    server.delivery.answer(call.id, line);
}

fn environment() -> String {
    let variables = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
    object(variables.collect())
}

/// Descriptors that are gone by the time they are looked at are left out: the directory's own is one.
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
