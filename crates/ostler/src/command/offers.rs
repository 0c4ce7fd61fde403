//! `ostler prompts` and `ostler resources`: what servers offer beside tools.

use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_host::{Kind, ListedItem, ServerListing};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::offer;
use super::tools::error_of_list;
use crate::api::ServerError;
use crate::cli;
use crate::failure::Failure;
use crate::invocation::command;
use crate::output::{self, Style, tell};
use crate::reach::{self, Reach};
use crate::table::{Cell, Table};

pub(super) fn prompts(typed: &cli::Prompts, shared: &cli::Shared) -> Result<(), Failure> {
    match &typed.command {
        Some(cli::PromptsCommand::Get(get)) => offer::get(get, shared),
        None => list_prompts(&typed.list, shared),
    }
}

pub(super) fn resources(typed: &cli::Resources, shared: &cli::Shared) -> Result<(), Failure> {
    match &typed.command {
        Some(cli::ResourcesCommand::Read(read)) => offer::read(read, shared),
        None => list_resources(&typed.list, shared),
    }
}

fn list_prompts(typed: &cli::OfferList, shared: &cli::Shared) -> Result<(), Failure> {
    reach::run(reach::find(shared)?, async |reach| {
        let prompts = select(reach, typed, Kind::Prompts).await?;
        if typed.json {
            let shown = entries(&prompts)?;
            output::print_json(&PromptList { prompts: shown, errors: broken(&prompts) })?;
        } else {
            let mut table = Table::new(&["PROMPT", "DESCRIPTION"]);
            for (_, listed) in items(&prompts) {
                table.row([(&*listed.exposed).into(), Cell::from(describe(&listed.item.definition))]);
            }
            output::print(&table.render(Style::stdout(), output::width()))?;
        }
        judge(&prompts)?;
        tell_none(typed, Kind::Prompts, items(&prompts).count());
        Ok(())
    })
}

fn list_resources(typed: &cli::OfferList, shared: &cli::Shared) -> Result<(), Failure> {
    reach::run(reach::find(shared)?, async |reach| {
        let resources = select(reach, typed, Kind::Resources).await?;
        let templates = select(reach, typed, Kind::Templates).await?;
        let count = items(&resources).chain(items(&templates)).count();
        if typed.json {
            let (resources_shown, templates) = (entries(&resources)?, entries(&templates)?);
            let errors = broken(&resources);
            output::print_json(&ResourceList { resources: resources_shown, templates, errors })?;
        } else {
            let mut table = Table::new(&["RESOURCE", "SERVER", "DESCRIPTION"]);
            for (server, listed) in items(&resources).chain(items(&templates)) {
                let description = Cell::from(describe(&listed.item.definition));
                table.row([(&*listed.exposed).into(), server.as_str().into(), description]);
            }
            output::print(&table.render(Style::stdout(), output::width()))?;
        }
        judge(&resources)?;
        tell_none(typed, Kind::Resources, count);
        Ok(())
    })
}

/// What all servers offer, or the one that is meant.
async fn select(reach: &Reach, typed: &cli::OfferList, kind: Kind) -> Result<Vec<ServerListing>, Failure> {
    let Some(typed) = typed.server() else { return reach.offers(kind, None).await };
    let names = reach.names().await?;
    let Some(server) = names.iter().find(|name| name.as_str() == typed) else {
        if typed == "list" {
            return Err(super::tools::without_list(word(kind)));
        }
        return Err(Failure::unknown_server(typed, &names));
    };
    let mut offered = reach.offers(kind, Some(server)).await?;
    // A daemon of an earlier version lists all of them.
    offered.retain(|one| one.server == *server);
    Ok(offered)
}

/// Says that there is nothing to list.
fn tell_none(typed: &cli::OfferList, kind: Kind, count: usize) {
    if count == 0 {
        let who = typed.server().map_or("no server offers".into(), |server| format!("`{server}` offers no"));
        tell(&format!("{who} {}; {} lists what can be called", word(kind), command("tools")));
    }
}

fn word(kind: Kind) -> &'static str {
    if kind == Kind::Prompts { "prompts" } else { "resources" }
}

fn judge(offered: &[ServerListing]) -> Result<(), Failure> {
    let errors: Vec<&CallError> = offered.iter().filter_map(|one| one.error.as_ref()).collect();
    super::tools::judge(&errors, offered.len())
}

fn items(offered: &[ServerListing]) -> impl Iterator<Item = (&ServerName, &ListedItem)> {
    offered.iter().flat_map(|one| one.items.iter().map(|listed| (&one.server, listed)))
}

/// The first line of what a definition says about itself.
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
    prompts: Vec<Entry<'a>>,
    errors: Vec<ServerError>,
}

/// The stable shape of `ostler resources --json`.
#[derive(Serialize)]
struct ResourceList<'a> {
    resources: Vec<Entry<'a>>,
    templates: Vec<Entry<'a>>,
    errors: Vec<ServerError>,
}

#[derive(Serialize)]
struct Entry<'a> {
    /// As clients of all servers name it.
    name: &'a str,
    server: &'a ServerName,
    /// As the server wrote it.
    definition: &'a RawValue,
}

fn entries(offered: &[ServerListing]) -> Result<Vec<Entry<'_>>, Failure> {
    items(offered)
        .map(|(server, listed)| {
            let definition = serde_json::from_slice(&listed.item.definition)
                .map_err(|error| Failure::Output(error.into()))?;
            Ok(Entry { name: &listed.exposed, server, definition })
        })
        .collect()
}

fn broken(offered: &[ServerListing]) -> Vec<ServerError> {
    let broken = offered.iter().filter_map(|one| Some((&one.server, one.error.as_ref()?)));
    broken
        .map(|(server, error)| ServerError { server: server.clone(), error: error_of_list(error) })
        .collect()
}
