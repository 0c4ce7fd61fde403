//! `ostler prompts` and `ostler resources`: the prompts and resources of servers.

use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;
use ostler_host::{Kind, ListedItem, ServerListing};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::get_prompt_resource;
use super::tools::list_error_body;
use crate::api::ServerError;
use crate::cli;
use crate::client::{self, Backend};
use crate::failure::CommandFailure;
use crate::invocation::command;
use crate::output::{self, Style, print_stderr};
use crate::text_table::{TableCell, TextTable};

pub(super) fn prompts(typed: &cli::PromptsArgs, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    match &typed.command {
        Some(cli::PromptsCommand::Get(get)) => get_prompt_resource::get_prompt(get, shared),
        None => list_prompts(&typed.list, shared),
    }
}

pub(super) fn resources(
    typed: &cli::ResourcesArgs,
    shared: &cli::GlobalOptions,
) -> Result<(), CommandFailure> {
    match &typed.command {
        Some(cli::ResourcesCommand::Read(read)) => get_prompt_resource::read_resource(read, shared),
        None => list_resources(&typed.list, shared),
    }
}

fn list_prompts(typed: &cli::OfferList, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    client::run_with_backend(client::choose_backend(shared)?, async |reach| {
        let prompts = list_items(reach, typed, Kind::Prompts).await?;
        if typed.json {
            let shown = entries(&prompts)?;
            output::print_json(&PromptList { prompts: shown, errors: server_errors(&prompts) })?;
        } else {
            let mut table = TextTable::new(&["PROMPT", "DESCRIPTION"]);
            for (_, listed) in items(&prompts) {
                table.row([
                    (&*listed.exposed_name).into(),
                    TableCell::from(describe(&listed.item.definition)),
                ]);
            }
            output::print(&table.render(Style::stdout(), output::stdout_columns()))?;
        }
        require_all_listed(&prompts)?;
        print_nothing_listed(typed, Kind::Prompts, items(&prompts).count());
        Ok(())
    })
}

fn list_resources(typed: &cli::OfferList, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    client::run_with_backend(client::choose_backend(shared)?, async |reach| {
        let resources = list_items(reach, typed, Kind::Resources).await?;
        let templates = list_items(reach, typed, Kind::Templates).await?;
        let count = items(&resources).chain(items(&templates)).count();
        if typed.json {
            let (resources_shown, templates) = (entries(&resources)?, entries(&templates)?);
            let errors = server_errors(&resources);
            output::print_json(&ResourceList { resources: resources_shown, templates, errors })?;
        } else {
            let mut table = TextTable::new(&["RESOURCE", "SERVER", "DESCRIPTION"]);
            for (server, listed) in items(&resources).chain(items(&templates)) {
                let description = TableCell::from(describe(&listed.item.definition));
                table.row([(&*listed.exposed_name).into(), server.as_str().into(), description]);
            }
            output::print(&table.render(Style::stdout(), output::stdout_columns()))?;
        }
        require_all_listed(&resources)?;
        print_nothing_listed(typed, Kind::Resources, count);
        Ok(())
    })
}

/// Lists the items of all servers, or of the named one.
async fn list_items(
    reach: &Backend,
    typed: &cli::OfferList,
    kind: Kind,
) -> Result<Vec<ServerListing>, CommandFailure> {
    let Some(typed) = typed.server() else { return reach.list_items(kind, None).await };
    let names = reach.enabled_servers().await?;
    let Some(server) = names.iter().find(|name| name.as_str() == typed) else {
        if typed == "list" {
            return Err(super::tools::no_list_subcommand(kind_noun(kind)));
        }
        return Err(CommandFailure::unknown_server(typed, &names));
    };
    let mut offered = reach.list_items(kind, Some(server)).await?;
    // A daemon of an earlier version lists the items of all servers.
    offered.retain(|one| one.server == *server);
    Ok(offered)
}

/// Prints that there is nothing to list.
fn print_nothing_listed(typed: &cli::OfferList, kind: Kind, count: usize) {
    if count == 0 {
        let who = typed.server().map_or("no server offers".into(), |server| format!("`{server}` offers no"));
        print_stderr(&format!("{who} {}; {} lists what can be called", kind_noun(kind), command("tools")));
    }
}

fn kind_noun(kind: Kind) -> &'static str {
    if kind == Kind::Prompts { "prompts" } else { "resources" }
}

fn require_all_listed(offered: &[ServerListing]) -> Result<(), CommandFailure> {
    let errors: Vec<&CallError> = offered.iter().filter_map(|one| one.error.as_ref()).collect();
    super::tools::require_all_listed(&errors, offered.len())
}

fn items(offered: &[ServerListing]) -> impl Iterator<Item = (&ServerName, &ListedItem)> {
    offered.iter().flat_map(|one| one.items.iter().map(|listed| (&one.server, listed)))
}

/// Returns the first line of a definition's description.
fn describe(definition: &[u8]) -> String {
    let definition: Value = serde_json::from_slice(definition).unwrap_or_default();
    let text = |key: &str| {
        definition.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty())
    };
    let text = text("description").or_else(|| text("title")).or_else(|| text("name")).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

/// The stable shape of `ostler prompts --json`.
#[derive(Serialize)]
struct PromptList<'a> {
    prompts: Vec<ItemEntry<'a>>,
    errors: Vec<ServerError>,
}

/// The stable shape of `ostler resources --json`.
#[derive(Serialize)]
struct ResourceList<'a> {
    resources: Vec<ItemEntry<'a>>,
    templates: Vec<ItemEntry<'a>>,
    errors: Vec<ServerError>,
}

#[derive(Serialize)]
struct ItemEntry<'a> {
    /// Exposed name.
    name: &'a str,
    server: &'a ServerName,
    /// Definition as the server wrote it.
    definition: &'a RawValue,
}

fn entries(offered: &[ServerListing]) -> Result<Vec<ItemEntry<'_>>, CommandFailure> {
    items(offered)
        .map(|(server, listed)| {
            let definition = serde_json::from_slice(&listed.item.definition)
                .map_err(|error| CommandFailure::Output(error.into()))?;
            Ok(ItemEntry { name: &listed.exposed_name, server, definition })
        })
        .collect()
}

fn server_errors(offered: &[ServerListing]) -> Vec<ServerError> {
    let broken = offered.iter().filter_map(|one| Some((&one.server, one.error.as_ref()?)));
    broken
        .map(|(server, error)| ServerError { server: server.clone(), error: list_error_body(error) })
        .collect()
}
