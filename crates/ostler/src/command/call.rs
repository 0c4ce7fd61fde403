//! `ostler call`: one call of one tool.

use bytes::Bytes;
use ostler_core::catalog::{Table, exposed_name};
use ostler_core::error::{CallError, Unavailable, UnavailableState};
use ostler_core::fault::Delivery;
use ostler_core::name::ServerName;
use ostler_core::status::State;
use ostler_host::{ListedTool, Tool};
use ostler_wire::{ResultHead, ResultKind};

use crate::arguments::Given;
use crate::cli;
use crate::content;
use crate::failure::Failure;
use crate::output::{self, tell};
use crate::reach::{self, Deadline, Reach, Trouble};

pub(super) fn run(typed: &cli::Call, shared: &cli::Shared) -> Result<(), Failure> {
    let way = reach::find(shared)?;
    // Stdin and files are read before any server is started for nothing.
    let given = Given::read(typed)?;
    reach::run(way, async |reach| {
        let deadline = typed.timeout.map(Deadline::after);
        let tool = match resolve(reach, &typed.tool, deadline).await {
            Ok(tool) => tool,
            Err(trouble) => match namesake(reach, &typed.tool, &trouble).await {
                Some(tool) => tool,
                None => {
                    let starting = starting(reach, &trouble).await;
                    return Err(starting.unwrap_or_else(|| Failure::of_list(trouble, deadline)));
                }
            },
        };
        let arguments = given.for_tool(&tool.tool.definition)?;
        match reach.call(&tool, arguments, deadline).await {
            Ok(result) => show(typed, &result),
            Err(Trouble::Call(error @ CallError::OutcomeUnknown { .. })) => {
                Err(Failure::Lost { error, last_words: reach.last_words(&tool.server).await })
            }
            Err(other) => {
                let starting = starting(reach, &other).await;
                Err(starting.unwrap_or_else(|| Failure::of_call(other, deadline)))
            }
        }
    })
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

/// Asks the servers that a name can belong to what it means.
async fn resolve(reach: &Reach, name: &str, deadline: Option<Deadline>) -> Result<ListedTool, Trouble> {
    let mut listed: Vec<ListedTool> = Vec::new();
    let mut failure = None;
    for server in owners(&reach.names().await?, name)? {
        match Deadline::bound(deadline, server, reach.tools(server.as_str())).await {
            Ok(tools) => listed.extend(tools),
            Err(trouble) => failure = failure.or(Some(trouble)),
        }
    }
    find(name, listed).map_err(|unknown| failure.unwrap_or(unknown.into()))
}

/// What a name that nothing was found under would be the name of. The host is
/// asked all the same: it knows whether there is no such tool, or a rule or a
/// pin keeps it from the caller, and puts that on record.
async fn namesake(reach: &Reach, name: &str, trouble: &Trouble) -> Option<ListedTool> {
    if !matches!(trouble, Trouble::Call(CallError::UnknownTool { .. } | CallError::UnknownServer { .. })) {
        return None;
    }
    let servers = reach.names().await.ok()?;
    let server = match owners(&servers, name) {
        Ok(owners) if owners.len() == 1 => owners.first().copied()?.clone(),
        // It could be one or the other, and means neither.
        Ok(_) => return None,
        Err(_) => ServerName::new(name.split_once("__")?.0).ok()?,
    };
    let tool = name.strip_prefix(server.as_str())?.strip_prefix("__")?.to_owned();
    // The whole of a name that is shown shortened is not its name.
    let exposed = Some(exposed_name(&server, &tool)).filter(|exposed| exposed == name)?;
    Some(ListedTool { server, exposed, tool: Tool { name: tool, definition: Bytes::new() } })
}

/// Finds what a name means. It may be shortened, and servers called `a` and
/// `a_` can both have an `a___b`, so a table decides and the name is not taken
/// apart.
fn find(name: &str, listed: Vec<ListedTool>) -> Result<ListedTool, CallError> {
    let table = Table::new(listed.iter().map(|tool| (tool.server.clone(), vec![tool.tool.name.clone()])));
    let unknown = || CallError::unknown_tool(name, table.iter().map(|listed| &*listed.exposed));
    let (server, tool) = table.resolve(name).ok_or_else(unknown)?;
    let is_it = |listed: &ListedTool| listed.server == *server && listed.tool.name == tool;
    listed.into_iter().find(is_it).ok_or_else(unknown)
}

/// The servers that a name can belong to: usually one.
fn owners<'a>(servers: &'a [ServerName], name: &str) -> Result<Vec<&'a ServerName>, CallError> {
    let is_owner =
        |server: &&ServerName| name.strip_prefix(server.as_str()).is_some_and(|rest| rest.starts_with("__"));
    let owners: Vec<&ServerName> = servers.iter().filter(is_owner).collect();
    match name.split_once("__") {
        _ if !owners.is_empty() => Ok(owners),
        Some((server, _)) => Err(CallError::unknown_server(server, servers.iter().map(ServerName::as_str))),
        None => Err(CallError::unknown_tool(name, std::iter::empty())),
    }
}

fn show(typed: &cli::Call, result: &Bytes) -> Result<(), Failure> {
    let head = ResultHead::open(result).unwrap_or_default();
    if typed.raw {
        output::print_bytes(result)?;
        output::print("\n")?;
    } else {
        let shown = content::show(result);
        let text = if output::is_terminal() { output::tame(&shown.text) } else { shown.text };
        output::print(&text)?;
        shown.others.iter().for_each(|line| tell(line));
        if !shown.others.is_empty() {
            tell("  hint: `--raw` prints the whole result");
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

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(server: &str, tool: &str) -> ListedTool {
        let server = ServerName::new(server).unwrap();
        let exposed = exposed_name(&server, tool);
        ListedTool { server, exposed, tool: Tool { name: tool.into(), definition: Default::default() } }
    }

    fn meant(name: &str, tools: &[(&str, &str)]) -> Option<(String, String)> {
        let tools = tools.iter().map(|(server, tool)| listed(server, tool)).collect();
        find(name, tools).ok().map(|found| (found.server.to_string(), found.tool.name))
    }

    #[test]
    fn a_shortened_name_is_looked_up_and_not_taken_apart() {
        let long = "x".repeat(100);
        let short = listed("time", &long).exposed;
        assert_eq!(meant(&short, &[("time", "now"), ("time", &long)]), Some(("time".into(), long.clone())));
        assert_eq!(meant(&format!("time__{long}"), &[("time", &long)]), None);
    }

    #[test]
    fn a_name_that_two_servers_could_have_means_neither() {
        assert_eq!(meant("a___b", &[("a", "_b"), ("a_", "c")]), Some(("a".into(), "_b".into())));
        assert_eq!(meant("a___b", &[("a", "_c"), ("a_", "b")]), Some(("a_".into(), "b".into())));
        assert_eq!(meant("a___b", &[("a", "_b"), ("a_", "b")]), None);
    }
}
