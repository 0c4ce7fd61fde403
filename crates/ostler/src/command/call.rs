//! `ostler call`: one call of one tool.

use std::path::Path;

use ostler_core::catalog::Table;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_host::{Answer, Arguments, ListedTool};
use ostler_wire::{ResultHead, ResultKind};

use crate::arguments::Given;
use crate::cli;
use crate::failure::Failure;
use crate::output::{self, tell};
use crate::reach::{self, Deadline, Reach};
use crate::{config_file, content};

pub(super) fn run(typed: &cli::Call, file: Option<&Path>) -> Result<(), Failure> {
    let config = config_file::load(file)?;
    // Stdin and files are read before any server is started for nothing.
    let given = Given::read(typed)?;
    reach::run(&config, async |reach| {
        let deadline = typed.timeout.map(Deadline::after);
        let tool = resolve(reach, &typed.tool, deadline).await;
        let tool = tool.map_err(|error| Failure::of_list(error, deadline))?;
        let arguments = Arguments::raw(given.for_tool(&tool.tool.definition)?);
        let answer = reach.call(&tool, arguments, deadline).await;
        let answer = answer.map_err(|error| match error {
            CallError::OutcomeUnknown { .. } => {
                Failure::Lost { error, last_words: reach.last_words(&tool.server) }
            }
            other => Failure::of_call(other, deadline),
        })?;
        show(typed, &answer)
    })
}

/// Asks the servers that a name can belong to what it means.
async fn resolve(reach: &Reach, name: &str, deadline: Option<Deadline>) -> Result<ListedTool, CallError> {
    let mut listed: Vec<ListedTool> = Vec::new();
    let mut failure = None;
    for server in owners(reach, name)? {
        match Deadline::bound(deadline, server, reach.tools(server.as_str())).await {
            Ok(tools) => listed.extend(tools),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    find(name, listed).map_err(|unknown| failure.unwrap_or(unknown))
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
fn owners<'a>(reach: &'a Reach, name: &str) -> Result<Vec<&'a ServerName>, CallError> {
    let known = || reach.specs().iter().map(|spec| &spec.name);
    let is_owner =
        |server: &&ServerName| name.strip_prefix(server.as_str()).is_some_and(|rest| rest.starts_with("__"));
    let owners: Vec<&ServerName> = known().filter(is_owner).collect();
    match name.split_once("__") {
        _ if !owners.is_empty() => Ok(owners),
        Some((server, _)) => Err(CallError::unknown_server(server, known().map(ServerName::as_str))),
        None => Err(CallError::unknown_tool(name, std::iter::empty())),
    }
}

fn show(typed: &cli::Call, answer: &Answer) -> Result<(), Failure> {
    let head = ResultHead::open(&answer.body).unwrap_or_default();
    if typed.raw {
        output::print_bytes(&answer.body)?;
        output::print("\n")?;
    } else {
        let shown = content::show(&answer.body);
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
    use ostler_core::catalog::exposed_name;
    use ostler_host::Tool;

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
