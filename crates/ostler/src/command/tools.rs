//! `ostler tools`: the tools of servers.

use std::cmp::Reverse;

use ostler_core::error::CallError;
use ostler_core::policy::glob;
use ostler_core::server_name::ServerName;
use ostler_host::{ListedTool, ServerTools};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::item_names;
use crate::api::{ErrorBody, ServerError};
use crate::arguments::schema::InputSchema;
use crate::client::{self, Backend, ListPurpose, RequestFailure};
use crate::failure::{CommandFailure, list_hint};
use crate::invocation::command;
use crate::output::{self, Style, Tint, escape_line, print_stderr};
use crate::text_table::{TableCell, TextTable};
use crate::{cli, config_file};

pub(super) fn run(typed: &cli::ToolsArgs, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    client::run_with_backend(client::choose_backend(shared)?, async |reach| {
        let meant = ToolSelection::read(reach, typed).await?;
        let found = list_tools(reach, &meant).await?;
        let mut tools: Vec<&ListedTool> =
            found.iter().filter_map(|one| one.tools.as_ref().ok()).flatten().collect();
        let mut left_out = 0;
        if !typed.search.is_empty() {
            tools = search(tools, &typed.search.join(" "));
            left_out = tools.len().saturating_sub(MAX_HITS);
            tools.truncate(MAX_HITS);
        }
        let errors: Vec<(&ServerName, &CallError)> = found
            .iter()
            .filter_map(|one| one.tools.as_ref().err().map(|error| (&one.server, error)))
            .collect();
        if typed.json {
            print_json(&tools, &errors)?;
        } else if typed.full || matches!(meant, ToolSelection::Tool(_)) {
            output::print(&render_full(&tools, Style::stdout()))?;
        } else {
            output::print(&render(&tools).render(Style::stdout(), output::stdout_columns()))?;
        }
        match &meant {
            ToolSelection::Everything if found.is_empty() => {
                config_file::print_no_servers(shared.config.as_deref(), &reach.all_servers().await?)
            }
            ToolSelection::Pattern(_) if tools.is_empty() => {
                print_stderr(&format!("no tool has such a name; {} lists all", command("tools")))
            }
            _ if !typed.search.is_empty() && tools.is_empty() => print_stderr("no tool fits these words"),
            _ if left_out > 0 => {
                print_stderr(&format!("{left_out} more fit less well; more words narrow it down"))
            }
            _ => {}
        }
        reach.warn_refused_change().await;
        tell_unapproved(reach, &found).await?;
        let errors: Vec<&CallError> = errors.into_iter().map(|(_, error)| error).collect();
        require_all_listed(&errors, found.len())
    })
}

/// Limit of the tools that a search shows.
const MAX_HITS: usize = 20;

/// Returns the tools that have a word of the search in their name, title or description, best ones first: those with
/// more of the words, then those that have them in their name.
fn search<'a>(tools: Vec<&'a ListedTool>, words: &str) -> Vec<&'a ListedTool> {
    let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
    let mut hits: Vec<((usize, usize), &ListedTool)> = Vec::new();
    for tool in tools {
        let definition: Value = serde_json::from_slice(&tool.tool.definition).unwrap_or_default();
        let text = |key: &str| definition.get(key).and_then(Value::as_str).unwrap_or_default().to_lowercase();
        let places = [(tool.exposed_name.to_lowercase(), 4), (text("title"), 2), (text("description"), 1)];
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

/// Reports unapproved tools: they are missing from the list, or need a review.
async fn tell_unapproved(reach: &Backend, found: &[ServerTools]) -> Result<(), CommandFailure> {
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
            print_stderr(&format!("`{name}` has tools that nobody has approved: {words}; {diff} shows them"));
        }
    }
    Ok(())
}

/// Lists the selected tools. Asks one server, or all of them as far as that is needed to know their tools.
async fn list_tools(reach: &Backend, meant: &ToolSelection) -> Result<Vec<ServerTools>, CommandFailure> {
    match meant {
        ToolSelection::Everything => reach.list_all_tools().await,
        ToolSelection::Servers(servers) => {
            let mut found = Vec::new();
            for server in servers {
                let tools = match reach.list_tools(server.as_str(), ListPurpose::Show).await {
                    Ok(tools) => Ok(tools),
                    Err(RequestFailure::Call(error)) => Err(error),
                    Err(RequestFailure::Daemon(failure)) => return Err(failure),
                };
                found.push(ServerTools { server: server.clone(), tools });
            }
            Ok(found)
        }
        ToolSelection::Tool(name) => {
            let servers = reach.all_servers().await?;
            let is_near = item_names::is_near_server(&servers, name);
            let is_bare = item_names::is_bare(name);
            let refuse = |trouble| match trouble {
                RequestFailure::Call(CallError::UnknownTool { .. }) if name == "list" => {
                    no_list_subcommand("tools")
                }
                // A bare word is first taken for the name of a server, whichever tools are known.
                RequestFailure::Call(CallError::UnknownTool { .. })
                | RequestFailure::Daemon(CommandFailure::UnknownName { .. })
                    if is_near =>
                {
                    CommandFailure::unknown_server(name, &servers)
                }
                // Neither a server nor a tool: reported like the unknown server of other commands.
                RequestFailure::Call(CallError::UnknownTool { nearest: None, .. }) if is_bare => {
                    unknown_name(CommandFailure::unknown_server(name, &servers), "no tool has that name")
                }
                RequestFailure::Daemon(CommandFailure::UnknownName {
                    error: CallError::UnknownTool { nearest: None, .. },
                    cause,
                }) if is_bare => unknown_name(CommandFailure::unknown_server(name, &servers), &cause),
                trouble => CommandFailure::from_list(trouble, None),
            };
            let tool = item_names::find_tool(reach, name, (None, ListPurpose::Show)).await.map_err(refuse)?;
            Ok(vec![ServerTools { server: tool.server.clone(), tools: Ok(vec![tool]) }])
        }
        ToolSelection::Pattern(pattern) => {
            let mut found = reach.list_all_tools().await?;
            let is_reached = |server: &ServerName| {
                item_names::spellings(server, "")
                    .iter()
                    .any(|beginning| glob::matches_some_with_prefix(pattern, beginning))
            };
            found.retain(|one| is_reached(&one.server));
            for tools in found.iter_mut().filter_map(|one| one.tools.as_mut().ok()) {
                tools.retain(|tool| is_match(pattern, tool));
            }
            Ok(found)
        }
    }
}

/// Adds the known names to the failure of an unknown server name.
fn unknown_name(failure: CommandFailure, known: &str) -> CommandFailure {
    match failure {
        CommandFailure::UnknownName { error, cause } => {
            CommandFailure::UnknownName { error, cause: format!("{cause}; {known}") }
        }
        failure => failure,
    }
}

/// Returns the failure of `ostler tools list`: the command lists without a subcommand.
pub(super) fn no_list_subcommand(what: &str) -> CommandFailure {
    let hint = Some(format!("write {} without `list`", command(what)));
    CommandFailure::Usage { what: format!("`{what}` has no command `list`"), hint }
}

fn is_match(pattern: &str, tool: &ListedTool) -> bool {
    let spellings = item_names::spellings(&tool.server, &tool.tool.name);
    spellings.iter().chain([&tool.exposed_name]).any(|name| glob::is_match(pattern, name))
}

/// Selection of tools by the names on the command line.
enum ToolSelection {
    Everything,
    Servers(Vec<ServerName>),
    /// One tool, as it was typed.
    Tool(String),
    /// Glob over the names of tools.
    Pattern(String),
}

impl ToolSelection {
    async fn read(reach: &Backend, typed: &cli::ToolsArgs) -> Result<Self, CommandFailure> {
        if typed.names.is_empty() {
            return Ok(Self::Everything);
        }
        let text = typed.names.join(" ");
        let known = reach.all_servers().await?;
        let server = |name: &String| known.iter().find(|server| server.as_str() == name).cloned();
        Ok(match typed.names.iter().map(server).collect() {
            Some(servers) => Self::Servers(servers),
            None if text.contains(['*', '?']) => Self::Pattern(text),
            None => Self::Tool(text),
        })
    }
}

/// Reports every server that failed, and fails if there is one. The lists of the others are printed.
pub(super) fn require_all_listed(errors: &[&CallError], asked: usize) -> Result<(), CommandFailure> {
    if let ([only], 1) = (errors, asked) {
        return Err(CommandFailure::ListFailed((*only).clone()));
    }
    for error in errors {
        print_stderr(&CommandFailure::ListFailed((*error).clone()).render(Style::stderr()));
    }
    CommandFailure::require_all(errors.len(), asked)
}

fn render(tools: &[&ListedTool]) -> TextTable {
    let mut table = TextTable::new(&["TOOL", "DESCRIPTION"]);
    for tool in tools {
        let description = describe(tool);
        let line = description.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        table.row([tool.exposed_name.as_str().into(), TableCell::from(line)]);
    }
    table
}

fn render_full(tools: &[&ListedTool], style: Style) -> String {
    let mut text = String::new();
    for tool in tools {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&style.paint(Tint::Heading, &escape_line(&tool.exposed_name)));
        text.push('\n');
        for line in describe(tool).lines() {
            text.push_str(format!("  {}", escape_line(line)).trim_end());
            text.push('\n');
        }
        text.push_str(&render_arguments(tool, style));
    }
    text
}

fn render_arguments(tool: &ListedTool, style: Style) -> String {
    let mut table = TextTable::new(&["  ARGUMENT", "TYPE", "NEEDED", "DESCRIPTION"]);
    for argument in InputSchema::from_tool(&tool.tool.definition).arguments() {
        let needed = if argument.is_required { "yes" } else { "no" };
        let description = argument.description.split_whitespace().collect::<Vec<_>>().join(" ");
        table.row([
            format!("  {}", argument.name).into(),
            argument.kind.into(),
            needed.into(),
            TableCell::from(description),
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
struct ToolsOutput<'a> {
    tools: Vec<ToolEntry<'a>>,
    errors: Vec<ServerError>,
}

#[derive(Serialize)]
struct ToolEntry<'a> {
    name: &'a str,
    server: &'a ServerName,
    tool: &'a str,
    /// Definition as the server wrote it.
    definition: &'a RawValue,
}

/// Returns the error of a list for programs.
pub(super) fn list_error_body(error: &CallError) -> ErrorBody {
    let mut told = ErrorBody::from(error);
    told.hint = list_hint(error);
    told
}

fn print_json(tools: &[&ListedTool], errors: &[(&ServerName, &CallError)]) -> Result<(), CommandFailure> {
    let entries = tools.iter().map(|listed| {
        let definition = serde_json::from_slice(&listed.tool.definition)
            .map_err(|error| CommandFailure::Output(error.into()))?;
        Ok(ToolEntry {
            name: &listed.exposed_name,
            server: &listed.server,
            tool: &listed.tool.name,
            definition,
        })
    });
    let tools = entries.collect::<Result<_, CommandFailure>>()?;
    let errors = errors
        .iter()
        .map(|(server, error)| ServerError { server: (*server).clone(), error: list_error_body(error) })
        .collect();
    output::print_json(&ToolsOutput { tools, errors })
}
