//! `ostler call`: one call of one tool.

use bytes::Bytes;
use ostler_core::catalog::exposed_name;
use ostler_core::error::{CallError, Unavailable, UnavailableState};
use ostler_core::fault::Delivery;
use ostler_core::name::ServerName;
use ostler_core::status::State;
use ostler_host::{ListedTool, Tool};
use ostler_wire::{ResultHead, ResultKind};
use serde_json::value::RawValue;

use super::names;
use crate::arguments::{self, Given};
use crate::cli;
use crate::content;
use crate::failure::Failure;
use crate::output::{self, tell};
use crate::reach::{self, Deadline, Reach, Trouble};
use crate::wish::Wish;

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
        let wish = Wish {
            server: tool.server.to_string(),
            tool: Some(tool.tool.name.clone()),
            arguments: Some(RawValue::from_string(arguments).map_err(|error| Failure::Output(error.into()))?),
            ..Wish::default()
        };
        match reach.ask(wish, deadline).await {
            Ok(result) => show(typed, &result),
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
    let (server, action) = (server.clone(), "it is being started again".to_owned());
    let unavailable = Unavailable { server, state, cause, action, retry_after: None };
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

fn show(typed: &cli::Call, result: &Bytes) -> Result<(), Failure> {
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
    let tool = || output::clean(&typed.tool);
    match head.kind {
        _ if head.is_error => Err(Failure::ToolError(tool())),
        ResultKind::Complete => Ok(()),
        ResultKind::InputRequired => Err(Failure::Unfinished { tool: tool(), kind: "input_required".into() }),
        ResultKind::Task => Err(Failure::Unfinished { tool: tool(), kind: "task".into() }),
        ResultKind::Other(kind) => Err(Failure::Unfinished { tool: tool(), kind: output::clean(&kind) }),
    }
}
