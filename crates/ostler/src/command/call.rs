//! `ostler call`: one call of one tool.

use bytes::Bytes;
use ostler_core::catalog::exposed_name;
use ostler_core::error::{CallError, Remedy, Unavailable, UnavailableState};
use ostler_core::fault::Delivery;
use ostler_core::name::ServerName;
use ostler_core::status::State;
use ostler_host::{ListedTool, Tool};
use ostler_wire::{ResultHead, ResultKind};
use serde_json::value::RawValue;

use super::names;
use crate::arguments::{self, Given};
use crate::call_events::ELICITATION;
use crate::cli;
use crate::content;
use crate::failure::Failure;
use crate::output::{self, tell};
use crate::reach::{self, CallRequest, Deadline, Reach, Trouble};
use crate::table::cut;
use crate::terminal::Terminal;

pub(super) fn run(typed: &cli::Call, shared: &cli::Shared) -> Result<(), Failure> {
    let way = reach::find(shared)?;
    // Stdin and files are read before any server is started for nothing.
    let words = Typed::read(typed);
    let given = Given::read(words.pairs, typed.args.as_deref())?;
    reach::run(way, async |reach| {
        let deadline = typed.timeout.map(Deadline::after);
        words.check(&typed.tool, &reach.known().await?)?;
        let mut guess = None;
        let tool = match names::tool(reach, &words.name, deadline).await {
            Ok(tool) => tool,
            Err(trouble) => match namesake(reach, &words.name, &trouble).await {
                Some(tool) => {
                    guess = guessed(trouble);
                    tool
                }
                None => {
                    let starting = starting(reach, &trouble).await;
                    return Err(starting.unwrap_or_else(|| Failure::of_list(trouble, deadline)));
                }
            },
        };
        let arguments = given.for_tool(&tool.tool.definition)?;
        let wish = CallRequest {
            server: tool.server.to_string(),
            tool: Some(tool.tool.name.clone()),
            arguments: Some(RawValue::from_string(arguments).map_err(|error| Failure::Output(error.into()))?),
            ..CallRequest::default()
        };
        match reach.ask(wish, deadline, Terminal::of(shared)).await {
            Ok(result) => show(typed, &tool.exposed, &result),
            Err(Trouble::Call(error @ CallError::OutcomeUnknown { .. })) => {
                Err(Failure::Lost { error, last_words: reach.last_words(&tool.server).await })
            }
            Err(Trouble::Call(CallError::UnknownServer { name, .. })) => {
                Err(Failure::unknown_server(&name, &reach.known().await?))
            }
            Err(Trouble::Call(CallError::UnknownTool { name, nearest })) => {
                // The host tells the name that was asked for, and looks for near ones among its own.
                let nearest = nearest.or(guess);
                Err(CallError::UnknownTool { name, nearest }.into())
            }
            Err(other) => {
                let starting = starting(reach, &other).await;
                Err(starting.unwrap_or_else(|| Failure::of_call(other, deadline)))
            }
        }
    })
}

/// Returns the name that was probably meant.
fn guessed(trouble: Trouble) -> Option<String> {
    match trouble {
        Trouble::Call(CallError::UnknownTool { nearest, .. }) => nearest,
        _ => None,
    }
}

/// Tells of the start that a call has waited for in vain. Nothing was sent.
async fn starting(reach: &Reach, trouble: &Trouble) -> Option<Failure> {
    let Trouble::Call(CallError::TimedOut { server, delivery: Delivery::NotSent, .. }) = trouble else {
        return None;
    };
    let statuses = reach.statuses().await.ok()?;
    let status = statuses.into_iter().find(|status| status.name == *server)?;
    let hint = status.start.as_ref().and_then(|start| start.hint.clone());
    let (state, cause) = match (status.start, status.last_error) {
        (Some(start), _) if status.state == State::Fetching => {
            (UnavailableState::Fetching, format!("it {start}"))
        }
        (Some(start), None) => (UnavailableState::Starting, format!("it {start}")),
        (_, Some(error)) if matches!(status.state, State::Backoff | State::Starting) => {
            let words = error.cause.map(|line| format!("\"{line}\", ")).unwrap_or_default();
            (UnavailableState::StartFailed, format!("{words}{}", error.message))
        }
        _ => return None,
    };
    let action = "it is being started again".into();
    let remedy = hint.map(|text| Box::new(Remedy::new(text, false)));
    let unavailable = Unavailable { action, remedy, ..Unavailable::new(server.clone(), state, cause, None) };
    Some(Failure::Late(CallError::Unavailable(unavailable)))
}

/// Returns the tool that a name which nothing was found under would be the name of. The host is asked all the
/// same: it knows whether there is no such tool, or a rule or a pin keeps it from the caller, and puts that on
/// record.
async fn namesake(reach: &Reach, name: &str, trouble: &Trouble) -> Option<ListedTool> {
    let is_unknown = match trouble {
        Trouble::Call(error) | Trouble::Daemon(Failure::UnknownName { error, .. }) => {
            matches!(error, CallError::UnknownTool { .. } | CallError::UnknownServer { .. })
        }
        Trouble::Daemon(_) => false,
    };
    let servers = reach.known().await.ok().filter(|_| is_unknown)?;
    let (server, tool) = names::namesake(&servers, name)?;
    let exposed = exposed_name(&server, &tool);
    Some(ListedTool { server, exposed, tool: Tool { name: tool, definition: Bytes::new() } })
}

/// The name of the tool, and the arguments behind it. `wx forecast` is a name of two words.
struct Typed<'a> {
    name: String,
    pairs: &'a [String],
    /// The second word, which is an argument without a value if the first is no server.
    second: Option<&'a str>,
}

impl<'a> Typed<'a> {
    fn read(typed: &'a cli::Call) -> Self {
        let is_word = |text: &str| !text.contains('=') && !text.starts_with(['{', '[', '@', '-']);
        match typed.pairs.split_first() {
            Some((second, pairs)) if is_word(second) && ServerName::new(&typed.tool).is_ok() => {
                Self { name: format!("{} {second}", typed.tool), pairs, second: Some(second) }
            }
            _ => Self { name: typed.tool.clone(), pairs: &typed.pairs, second: None },
        }
    }

    /// Refuses a second word behind what is no server.
    fn check(&self, first: &str, servers: &[ServerName]) -> Result<(), Failure> {
        match self.second {
            Some(second) if !servers.iter().any(|server| server.as_str() == first) => {
                Err(arguments::not_a_pair(second))
            }
            _ => Ok(()),
        }
    }
}

fn show(typed: &cli::Call, tool: &str, result: &Bytes) -> Result<(), Failure> {
    let head = ResultHead::open(result).unwrap_or_default();
    if typed.json {
        output::print_bytes(result)?;
        output::print("\n")?;
    } else {
        let shown = content::show(result);
        let text = if output::is_terminal() { output::tame(&shown.text) } else { shown.text };
        output::print(&text)?;
        shown.others.iter().for_each(|line| tell(line));
        if !shown.others.is_empty() {
            tell("  hint: `--json` prints the whole result");
        }
    }
    match head.is_error {
        true => Err(Failure::ToolError(output::clean(tool))),
        false => finished(&format!("the tool `{}`", output::clean(tool)), result),
    }
}

/// Fails for a result that is none yet.
pub(super) fn finished(what: &str, result: &Bytes) -> Result<(), Failure> {
    let what = what.to_owned();
    match ResultHead::open(result).unwrap_or_default().kind {
        ResultKind::Complete => Ok(()),
        ResultKind::InputRequired => Err(Failure::InputRequired { what, asked: asked(result) }),
        ResultKind::Task => Err(Failure::Unfinished { what, kind: "task".into() }),
        ResultKind::Other(kind) => Err(Failure::Unfinished { what, kind: output::clean(&kind) }),
    }
}

/// Says what a server asks in its result.
fn asked(result: &Bytes) -> String {
    let requests = ostler_wire::member(result, "inputRequests").and_then(ostler_wire::all_members);
    let one = |(_, request): (String, &[u8])| {
        let params = ostler_wire::member(request, "params").unwrap_or(b"{}");
        let method = ostler_wire::text_member(request, "method").unwrap_or_default();
        let message = ostler_wire::text_member(params, "message").filter(|_| method == ELICITATION);
        match message {
            Some(message) => format!("\"{}\"", cut(&output::clean(&message), Some(200))),
            None => format!("for `{}`, which `ostler call` does not offer", output::clean(&method)),
        }
    };
    let asked: Vec<String> = requests.unwrap_or_default().into_iter().map(one).collect();
    if asked.is_empty() { "to be asked again later".into() } else { asked.join(", ") }
}
