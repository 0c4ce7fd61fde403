//! `ostler tools`: what can be called.

use std::collections::HashMap;

use ostler_core::catalog::Table as Names;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_host::{Discovered, ListedTool};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::arguments::schema::Schema;
use crate::cli;
use crate::failure::{Failure, hint_of_list};
use crate::output::{self, Style, Tint, clean, tell};
use crate::reach::{self, Reach, Trouble};
use crate::table::{Cell, Table};

pub(super) fn run(typed: &cli::Tools, shared: &cli::Shared) -> Result<(), Failure> {
    reach::run(reach::find(shared)?, async |reach| {
        let found = find(reach, typed.server.as_deref()).await?;
        let tools = name(&found);
        let errors: Vec<(&ServerName, &CallError)> = found
            .iter()
            .filter_map(|one| one.tools.as_ref().err().map(|error| (&one.server, error)))
            .collect();
        if typed.json {
            print_json(&tools, &errors)?;
        } else if typed.full {
            output::print(&render_full(&tools, Style::stdout()))?;
        } else {
            output::print(&render(&tools).render(Style::stdout(), output::width()))?;
        }
        if found.is_empty() {
            tell("the config has no servers");
        }
        tell_unapproved(reach, &found).await?;
        judge(&errors, found.len())
    })
}

/// A tool that is not as it was approved is missing above, or should be looked at.
async fn tell_unapproved(reach: &Reach, found: &[Discovered]) -> Result<(), Failure> {
    for status in reach.statuses().await? {
        let is_shown = found.iter().any(|one| one.server == status.name && one.tools.is_ok());
        let counted = [(status.changed, "changed"), (status.new, "new")];
        let words: Vec<String> = counted
            .iter()
            .filter_map(|(number, word)| {
                number.filter(|number| *number > 0).map(|number| format!("{number} {word}"))
            })
            .collect();
        if is_shown && !words.is_empty() {
            let (name, words) = (&status.name, words.join(", "));
            tell(&format!(
                "`{name}` has tools that nobody has approved: {words}; `ostler diff {name}` shows them"
            ));
        }
    }
    Ok(())
}

/// One server is asked; all of them as far as that is needed to know their tools.
async fn find(reach: &Reach, server: Option<&str>) -> Result<Vec<Discovered>, Failure> {
    let Some(server) = server else { return reach.discover().await };
    let names = reach.names().await?;
    let Some(name) = names.iter().find(|name| name.as_str() == server) else {
        return Err(CallError::unknown_server(server, names.iter().map(ServerName::as_str)).into());
    };
    let tools = match reach.tools(server).await {
        Ok(tools) => Ok(tools),
        Err(Trouble::Call(error)) => Err(error),
        Err(Trouble::Daemon(failure)) => return Err(failure),
    };
    Ok(vec![Discovered { server: name.clone(), tools }])
}

/// The tools with the names under which they can be called beside each other.
pub(crate) fn name(found: &[Discovered]) -> Vec<(String, &ListedTool)> {
    let tools: Vec<&ListedTool> = found.iter().filter_map(|one| one.tools.as_ref().ok()).flatten().collect();
    let names = Names::new(tools.iter().map(|tool| (tool.server.clone(), vec![tool.tool.name.clone()])));
    let mut by_name = HashMap::with_capacity(tools.len());
    for tool in tools {
        by_name.entry((tool.server.as_str(), tool.tool.name.as_str())).or_insert(tool);
    }
    let named = names.iter().filter_map(|listed| {
        let tool = by_name.get(&(listed.server.as_str(), &*listed.tool))?;
        Some((listed.exposed.to_string(), *tool))
    });
    named.collect()
}

/// One broken server is told of and spoils nothing; if all are, the command has failed.
fn judge(errors: &[(&ServerName, &CallError)], asked: usize) -> Result<(), Failure> {
    if let ([(_, only)], 1) = (errors, asked) {
        return Err(Failure::Unlisted((*only).clone()));
    }
    for (_, error) in errors {
        tell(&Failure::Unlisted((*error).clone()).render(Style::stderr()));
    }
    if asked > 0 && errors.len() == asked { Err(Failure::NoneAnswered(asked)) } else { Ok(()) }
}

fn render(tools: &[(String, &ListedTool)]) -> Table {
    let mut table = Table::new(&["TOOL", "DESCRIPTION"]);
    for (name, tool) in tools {
        let description = describe(tool);
        let line = description.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        table.row([name.into(), Cell::from(line)]);
    }
    table
}

fn render_full(tools: &[(String, &ListedTool)], style: Style) -> String {
    let mut text = String::new();
    for (name, tool) in tools {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&style.paint(Tint::Heading, &clean(name)));
        text.push('\n');
        for line in describe(tool).lines() {
            text.push_str(format!("  {}", clean(line)).trim_end());
            text.push('\n');
        }
        text.push_str(&render_arguments(tool, style));
    }
    text
}

fn render_arguments(tool: &ListedTool, style: Style) -> String {
    let mut table = Table::new(&["  ARGUMENT", "TYPE", "NEEDED", "DESCRIPTION"]);
    for argument in Schema::of_tool(&tool.tool.definition).arguments() {
        let needed = if argument.is_required { "yes" } else { "no" };
        let description = argument.description.split_whitespace().collect::<Vec<_>>().join(" ");
        table.row([
            format!("  {}", argument.name).into(),
            argument.kind.into(),
            needed.into(),
            Cell::from(description),
        ]);
    }
    table.render(style, None)
}

fn describe(tool: &ListedTool) -> String {
    let definition: Value = serde_json::from_slice(&tool.tool.definition).unwrap_or_default();
    let text = |key: &str| definition.get(key).and_then(Value::as_str).unwrap_or_default().trim().to_owned();
    let description = text("description");
    if description.is_empty() { text("title") } else { description }
}

/// The stable shape of `--json`.
#[derive(Serialize)]
struct Listing<'a> {
    tools: Vec<Entry<'a>>,
    errors: Vec<Broken<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    server: &'a ServerName,
    tool: &'a str,
    /// As the server wrote it.
    definition: &'a RawValue,
}

#[derive(Serialize)]
struct Broken<'a> {
    server: &'a ServerName,
    error: Reason,
}

/// An error as programs see it.
#[derive(Serialize)]
pub(super) struct Reason {
    code: &'static str,
    message: String,
    cause: Option<String>,
    hint: Option<String>,
}

impl From<&CallError> for Reason {
    fn from(error: &CallError) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
            cause: error.cause(),
            hint: hint_of_list(error),
        }
    }
}

fn print_json(tools: &[(String, &ListedTool)], errors: &[(&ServerName, &CallError)]) -> Result<(), Failure> {
    let entries = tools.iter().map(|(name, listed)| {
        let definition =
            serde_json::from_slice(&listed.tool.definition).map_err(|error| Failure::Output(error.into()))?;
        Ok(Entry { name, server: &listed.server, tool: &listed.tool.name, definition })
    });
    let tools = entries.collect::<Result<_, Failure>>()?;
    let errors = errors.iter().map(|(server, error)| Broken { server, error: (*error).into() }).collect();
    output::print_json(&Listing { tools, errors })
}
