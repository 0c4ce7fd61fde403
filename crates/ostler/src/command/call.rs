//! `ostler call`: one call of one tool.

use bytes::Bytes;
use ostler_core::catalog::exposed_name;
use ostler_core::error::{CallError, Remedy, Unavailable, UnavailableState};
use ostler_core::fault::Delivery;
use ostler_core::server_name::ServerName;
use ostler_core::status::ServerState;
use ostler_host::{ItemDefinition, ListedTool};
use ostler_wire::{ResultHead, ResultKind};
use serde_json::value::RawValue;

use super::item_names;
use crate::arguments::{self, TypedArguments};
use crate::call_events::{ELICITATION, quote_question};
use crate::cli;
use crate::client::{self, Backend, CallRequest, CallResponse, Deadline, ListPurpose, RequestFailure};
use crate::content;
use crate::failure::CommandFailure;
use crate::output::{self, print_stderr};
use crate::terminal::Terminal;

pub(super) fn run(typed: &cli::CallArgs, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    let way = client::choose_backend(shared)?;
    // Reads stdin and files first, so that no server starts for invalid arguments.
    let words = CallTarget::read(typed);
    let given = TypedArguments::read(words.pairs, typed.args.as_deref())?;
    client::run_with_backend(way, async |reach| {
        let deadline = typed.timeout.map(Deadline::after);
        words.check(&typed.tool, &reach.all_servers().await?)?;
        let mut guess = None;
        let tool = match item_names::find_tool(reach, &words.name, (deadline, ListPurpose::Call)).await {
            Ok(tool) => tool,
            Err(trouble) => match guess_tool(reach, &words.name, &trouble).await {
                Some(tool) => {
                    guess = nearest_tool(trouble);
                    tool
                }
                None => {
                    let starting = pending_start_failure(reach, &trouble).await;
                    return Err(starting.unwrap_or_else(|| CommandFailure::from_list(trouble, deadline)));
                }
            },
        };
        let arguments = given.tool_object(&tool.tool.definition)?;
        let wish = CallRequest {
            server: tool.server.to_string(),
            tool: Some(tool.tool.name.clone()),
            arguments: Some(
                RawValue::from_string(arguments).map_err(|error| CommandFailure::Output(error.into()))?,
            ),
            ..CallRequest::default()
        };
        match reach.request(wish, deadline, Terminal::open(shared)).await {
            Ok(response) => print_result(typed, &tool.exposed_name, &response),
            Err(RequestFailure::Call(error @ CallError::OutcomeUnknown { .. })) => {
                Err(CommandFailure::ServerLost { error, last_lines: reach.last_stderr(&tool.server).await })
            }
            Err(RequestFailure::Call(CallError::UnknownServer { name, .. })) => {
                Err(CommandFailure::unknown_server(&name, &reach.all_servers().await?))
            }
            Err(RequestFailure::Call(CallError::UnknownTool { name, nearest })) => {
                // The host reports the requested name, and looks for near ones among its own.
                let nearest = nearest.or(guess);
                Err(CallError::UnknownTool { name, nearest }.into())
            }
            Err(other) => {
                let starting = pending_start_failure(reach, &other).await;
                Err(starting.unwrap_or_else(|| CommandFailure::from_call(other, deadline)))
            }
        }
    })
}

/// Returns the nearest known name.
fn nearest_tool(trouble: RequestFailure) -> Option<String> {
    match trouble {
        RequestFailure::Call(CallError::UnknownTool { nearest, .. }) => nearest,
        _ => None,
    }
}

/// Returns the failure of a start that a call has waited for until its deadline. Nothing was sent.
async fn pending_start_failure(reach: &Backend, trouble: &RequestFailure) -> Option<CommandFailure> {
    let RequestFailure::Call(CallError::TimedOut { server, delivery: Delivery::NotSent, .. }) = trouble
    else {
        return None;
    };
    let statuses = reach.statuses().await.ok()?;
    let status = statuses.into_iter().find(|status| status.name == *server)?;
    let hint = status.start.as_ref().and_then(|start| start.hint.clone());
    let (state, cause) = match (status.start, status.last_error) {
        (Some(start), _) if status.state == ServerState::Fetching => {
            (UnavailableState::Fetching, format!("it {start}"))
        }
        (Some(start), None) => (UnavailableState::Starting, format!("it {start}")),
        (_, Some(error)) if matches!(status.state, ServerState::Backoff | ServerState::Starting) => {
            let words = error.cause.map(|line| format!("\"{line}\", ")).unwrap_or_default();
            (UnavailableState::StartFailed, format!("{words}{}", error.message))
        }
        _ => return None,
    };
    let action = "it is being started again".into();
    let remedy = hint.map(|text| Box::new(Remedy::new(text, false)));
    let unavailable = Unavailable { action, remedy, ..Unavailable::new(server.clone(), state, cause, None) };
    Some(CommandFailure::TimedOut(CallError::Unavailable(unavailable)))
}

/// Guesses the tool that an unknown name means. The host is asked all the same: it distinguishes a missing tool from
/// one that a rule or a pin refuses, and records that.
async fn guess_tool(reach: &Backend, name: &str, trouble: &RequestFailure) -> Option<ListedTool> {
    let is_unknown = match trouble {
        RequestFailure::Call(error) | RequestFailure::Daemon(CommandFailure::UnknownName { error, .. }) => {
            matches!(error, CallError::UnknownTool { .. } | CallError::UnknownServer { .. })
        }
        RequestFailure::Daemon(_) => false,
    };
    let servers = reach.all_servers().await.ok().filter(|_| is_unknown)?;
    let (server, tool) = item_names::implied_item(&servers, name)?;
    let exposed = exposed_name(&server, &tool);
    Some(ListedTool {
        server,
        exposed_name: exposed,
        tool: ItemDefinition { name: tool, definition: Bytes::new() },
    })
}

/// Target of a call: the name of the tool, and the arguments behind it. `wx forecast` is a name of two words.
struct CallTarget<'a> {
    name: String,
    pairs: &'a [String],
    /// Second word, which is an argument without a value if the first is no server.
    second: Option<&'a str>,
}

impl<'a> CallTarget<'a> {
    fn read(typed: &'a cli::CallArgs) -> Self {
        let is_word = |text: &str| !text.contains('=') && !text.starts_with(['{', '[', '@', '-']);
        match typed.pairs.split_first() {
            Some((second, pairs)) if is_word(second) && ServerName::new(&typed.tool).is_ok() => {
                Self { name: format!("{} {second}", typed.tool), pairs, second: Some(second) }
            }
            _ => Self { name: typed.tool.clone(), pairs: &typed.pairs, second: None },
        }
    }

    /// Refuses a second word if the first is no server.
    fn check(&self, first: &str, servers: &[ServerName]) -> Result<(), CommandFailure> {
        match self.second {
            Some(second) if !servers.iter().any(|server| server.as_str() == first) => {
                Err(arguments::invalid_pair(second))
            }
            _ => Ok(()),
        }
    }
}

fn print_result(typed: &cli::CallArgs, tool: &str, response: &CallResponse) -> Result<(), CommandFailure> {
    let CallResponse { result, unanswered } = response;
    let head = ResultHead::parse(result).unwrap_or_default();
    if typed.json {
        output::print_bytes(result)?;
        output::print("\n")?;
    } else {
        let shown = content::render(result);
        let text = if output::is_terminal() { output::escape_text(&shown.text) } else { shown.text };
        output::print(&text)?;
        shown.non_text.iter().for_each(|line| print_stderr(line));
        if !shown.non_text.is_empty() {
            print_stderr("  hint: `--json` prints the whole result");
        }
    }
    let what = format!("the tool `{}`", output::escape_line(tool));
    match (head.is_error, unanswered) {
        (true, Some(asked)) => Err(CommandFailure::InputRequired { what, asked: asked.clone() }),
        (true, None) => Err(CommandFailure::ToolError(output::escape_line(tool))),
        (false, unanswered) => {
            if let Some(asked) = unanswered {
                print_stderr(&format!("warning: {what} asked {asked}, and went on without an answer"));
            }
            require_complete(&what, result)
        }
    }
}

/// Fails unless a result is complete.
pub(super) fn require_complete(what: &str, result: &Bytes) -> Result<(), CommandFailure> {
    let what = what.to_owned();
    match ResultHead::parse(result).unwrap_or_default().kind {
        ResultKind::Complete => Ok(()),
        ResultKind::InputRequired => {
            Err(CommandFailure::InputRequired { what, asked: describe_input_requests(result) })
        }
        ResultKind::Task => Err(CommandFailure::Unfinished { what, kind: "task".into() }),
        ResultKind::Other(kind) => Err(CommandFailure::Unfinished { what, kind: output::escape_line(&kind) }),
    }
}

/// Describes the requests for input in a result.
fn describe_input_requests(result: &Bytes) -> String {
    let requests = ostler_wire::member(result, "inputRequests").and_then(ostler_wire::all_members);
    let one = |(_, request): (String, &[u8])| {
        let params = ostler_wire::member(request, "params").unwrap_or(b"{}");
        let method = ostler_wire::text_member(request, "method").unwrap_or_default();
        let message = ostler_wire::text_member(params, "message").filter(|_| method == ELICITATION);
        match message {
            Some(_) => quote_question(params),
            None => format!("for `{}`, which `ostler call` does not offer", output::escape_line(&method)),
        }
    };
    let asked: Vec<String> = requests.unwrap_or_default().into_iter().map(one).collect();
    if asked.is_empty() { "to be asked again later".into() } else { asked.join(", ") }
}
