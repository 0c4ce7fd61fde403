//! `ostler tools`: what can be called.

use std::cmp::Reverse;

use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::policy::glob;
use ostler_host::{Discovered, ListedTool};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::names;
use crate::api::{ErrorBody, ServerError};
use crate::arguments::schema::Schema;
use crate::failure::{Failure, hint_of_list};
use crate::invocation::command;
use crate::output::{self, Style, Tint, clean, tell};
use crate::reach::{self, Reach, Trouble};
use crate::table::{Cell, Table};
use crate::{cli, config_file};

pub(super) fn run(typed: &cli::Tools, shared: &cli::Shared) -> Result<(), Failure> {
    reach::run(reach::find(shared)?, async |reach| {
        let meant = Meant::read(reach, typed).await?;
        let found = find(reach, &meant).await?;
        let mut tools: Vec<&ListedTool> =
            found.iter().filter_map(|one| one.tools.as_ref().ok()).flatten().collect();
        let mut left_out = 0;
        if !typed.search.is_empty() {
            tools = search(tools, &typed.search.join(" "));
            left_out = tools.len().saturating_sub(MOST_HITS);
            tools.truncate(MOST_HITS);
        }
        let errors: Vec<(&ServerName, &CallError)> = found
            .iter()
            .filter_map(|one| one.tools.as_ref().err().map(|error| (&one.server, error)))
            .collect();
        if typed.json {
            print_json(&tools, &errors)?;
        } else if typed.full || matches!(meant, Meant::Tool(_)) {
            output::print(&render_full(&tools, Style::stdout()))?;
        } else {
            output::print(&render(&tools).render(Style::stdout(), output::width()))?;
        }
        match &meant {
            Meant::Everything if found.is_empty() => {
                config_file::tell_no_servers(shared.config.as_deref(), &reach.known().await?)
            }
            Meant::Pattern(_) if tools.is_empty() => {
                tell(&format!("no tool has such a name; {} lists all", command("tools")))
            }
            _ if !typed.search.is_empty() && tools.is_empty() => tell("no tool fits these words"),
            _ if left_out > 0 => tell(&format!("{left_out} more fit less well; more words narrow it down")),
            _ => {}
        }
        reach.tell_refused_change().await;
        tell_unapproved(reach, &found).await?;
        let errors: Vec<&CallError> = errors.into_iter().map(|(_, error)| error).collect();
        judge(&errors, found.len())
    })
}

/// Most tools that a search shows.
const MOST_HITS: usize = 20;

/// Returns the tools that have a word of the search in their name, title or description, best ones first: those
/// with more of the words, then those that have them in their name.
fn search<'a>(tools: Vec<&'a ListedTool>, words: &str) -> Vec<&'a ListedTool> {
    let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
    let mut hits: Vec<((usize, usize), &ListedTool)> = Vec::new();
    for tool in tools {
        let definition: Value = serde_json::from_slice(&tool.tool.definition).unwrap_or_default();
        let text = |key: &str| definition.get(key).and_then(Value::as_str).unwrap_or_default().to_lowercase();
        let places = [(tool.exposed.to_lowercase(), 4), (text("title"), 2), (text("description"), 1)];
        let weights = words.iter().map(|word| {
            let found = places.iter().filter(|(text, _)| text.contains(word));
            found.map(|(text, weight)| weight * if is_whole_word(text, word) { 2 } else { 1 }).sum()
        });
        let weights: Vec<usize> = weights.filter(|weight| *weight > 0).collect();
        if !weights.is_empty() {
            hits.push(((weights.len(), weights.iter().sum()), tool));
        }
    }
    // Equally good ones stay in the order of the list.
    hits.sort_by_key(|(weight, _)| Reverse(*weight));
    hits.into_iter().map(|(_, tool)| tool).collect()
}

fn is_whole_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric()).any(|part| part == word)
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
            let diff = command(&format!("diff {name}"));
            tell(&format!("`{name}` has tools that nobody has approved: {words}; {diff} shows them"));
        }
    }
    Ok(())
}

/// Lists what is meant. One server is asked; all of them as far as that is needed to know their tools.
async fn find(reach: &Reach, meant: &Meant) -> Result<Vec<Discovered>, Failure> {
    match meant {
        Meant::Everything => reach.discover().await,
        Meant::Servers(servers) => {
            let mut found = Vec::new();
            for server in servers {
                let tools = match reach.tools(server.as_str()).await {
                    Ok(tools) => Ok(tools),
                    Err(Trouble::Call(error)) => Err(error),
                    Err(Trouble::Daemon(failure)) => return Err(failure),
                };
                found.push(Discovered { server: server.clone(), tools });
            }
            Ok(found)
        }
        Meant::Tool(name) => {
            let servers = reach.known().await?;
            let is_near = names::is_near_server(&servers, name);
            let refuse = |trouble| match trouble {
                Trouble::Call(CallError::UnknownTool { .. }) if name == "list" => without_list("tools"),
                // A word alone is sooner the name of a server here, whichever tools are known.
                Trouble::Call(CallError::UnknownTool { .. })
                | Trouble::Daemon(Failure::UnknownName { .. })
                    if is_near =>
                {
                    Failure::unknown_server(name, &servers)
                }
                trouble => Failure::of_list(trouble, None),
            };
            let tool = names::tool(reach, name, None).await.map_err(refuse)?;
            Ok(vec![Discovered { server: tool.server.clone(), tools: Ok(vec![tool]) }])
        }
        Meant::Pattern(pattern) => {
            let mut found = reach.discover().await?;
            let is_reached = |server: &ServerName| {
                names::spellings(server, "").iter().any(|beginning| glob::reaches(pattern, beginning))
            };
            found.retain(|one| is_reached(&one.server));
            for tools in found.iter_mut().filter_map(|one| one.tools.as_mut().ok()) {
                tools.retain(|tool| is_match(pattern, tool));
            }
            Ok(found)
        }
    }
}

/// The failure of `ostler tools list`: the command lists by itself.
pub(super) fn without_list(what: &str) -> Failure {
    let hint = Some(format!("write {} without `list`", command(what)));
    Failure::Usage { what: format!("`{what}` has no command `list`"), hint }
}

fn is_match(pattern: &str, tool: &ListedTool) -> bool {
    let spellings = names::spellings(&tool.server, &tool.tool.name);
    spellings.iter().chain([&tool.exposed]).any(|name| glob::is_match(pattern, name))
}

/// The tools that the names on the command line mean.
enum Meant {
    Everything,
    Servers(Vec<ServerName>),
    /// One tool, as it was typed.
    Tool(String),
    /// A glob over the names of tools.
    Pattern(String),
}

impl Meant {
    async fn read(reach: &Reach, typed: &cli::Tools) -> Result<Self, Failure> {
        if typed.names.is_empty() {
            return Ok(Self::Everything);
        }
        let text = typed.names.join(" ");
        let known = reach.known().await?;
        let server = |name: &String| known.iter().find(|server| server.as_str() == name).cloned();
        Ok(match typed.names.iter().map(server).collect() {
            Some(servers) => Self::Servers(servers),
            None if text.contains(['*', '?']) => Self::Pattern(text),
            None => Self::Tool(text),
        })
    }
}

/// Tells of every server that failed. What the others have is printed, and the command has failed all the same.
pub(super) fn judge(errors: &[&CallError], asked: usize) -> Result<(), Failure> {
    if let ([only], 1) = (errors, asked) {
        return Err(Failure::Unlisted((*only).clone()));
    }
    for error in errors {
        tell(&Failure::Unlisted((*error).clone()).render(Style::stderr()));
    }
    Failure::of_servers(errors.len(), asked)
}

fn render(tools: &[&ListedTool]) -> Table {
    let mut table = Table::new(&["TOOL", "DESCRIPTION"]);
    for tool in tools {
        let description = describe(tool);
        let line = description.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        table.row([tool.exposed.as_str().into(), Cell::from(line)]);
    }
    table
}

fn render_full(tools: &[&ListedTool], style: Style) -> String {
    let mut text = String::new();
    for tool in tools {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&style.paint(Tint::Heading, &clean(&tool.exposed)));
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
    errors: Vec<ServerError>,
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    server: &'a ServerName,
    tool: &'a str,
    /// As the server wrote it.
    definition: &'a RawValue,
}

/// The error of a list as programs see it.
pub(super) fn error_of_list(error: &CallError) -> ErrorBody {
    let mut told = ErrorBody::from(error);
    told.hint = hint_of_list(error);
    told
}

fn print_json(tools: &[&ListedTool], errors: &[(&ServerName, &CallError)]) -> Result<(), Failure> {
    let entries = tools.iter().map(|listed| {
        let definition =
            serde_json::from_slice(&listed.tool.definition).map_err(|error| Failure::Output(error.into()))?;
        Ok(Entry { name: &listed.exposed, server: &listed.server, tool: &listed.tool.name, definition })
    });
    let tools = entries.collect::<Result<_, Failure>>()?;
    let errors = errors
        .iter()
        .map(|(server, error)| ServerError { server: (*server).clone(), error: error_of_list(error) })
        .collect();
    output::print_json(&Listing { tools, errors })
}
