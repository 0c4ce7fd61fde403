//! `ostler prompts get` and `ostler resources read`: one prompt, one resource.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;
use ostler_host::{Kind, ListedItem, ServerListing};
use serde::Deserialize;

use super::call;
use super::item_names::{self, NamedItem};
use crate::arguments::TypedArguments;
use crate::client::{self, Backend, CallRequest, CallResponse, Deadline, RequestFailure};
use crate::failure::CommandFailure;
use crate::output::{self, escape_line, print_stderr, size};
use crate::terminal::Terminal;
use crate::{cli, content};

pub(super) fn get_prompt(
    typed: &cli::GetPromptArgs,
    shared: &cli::GlobalOptions,
) -> Result<(), CommandFailure> {
    let way = client::choose_backend(shared)?;
    let arguments = TypedArguments::read(&typed.pairs, None)?.prompt_object()?;
    client::run_with_backend(way, async |reach| {
        let deadline = typed.timeout.map(Deadline::after);
        let (server, prompt) = find_prompt(reach, &typed.prompt).await?;
        let wish = CallRequest {
            server: server.to_string(),
            prompt: Some(prompt),
            arguments: Some(arguments),
            ..CallRequest::default()
        };
        let result = request(reach, wish, deadline, shared).await?;
        if typed.json {
            return print_raw(&result);
        }
        let shown = content::render_prompt(&result);
        let text = if output::is_terminal() { output::escape_text(&shown.text) } else { shown.text };
        output::print(&text)?;
        shown.non_text.iter().for_each(|line| print_stderr(line));
        Ok(())
    })
}

pub(super) fn read_resource(
    typed: &cli::ReadResourceArgs,
    shared: &cli::GlobalOptions,
) -> Result<(), CommandFailure> {
    client::run_with_backend(client::choose_backend(shared)?, async |reach| {
        let deadline = typed.timeout.map(Deadline::after);
        let server = match &typed.server {
            Some(server) => find_server(reach, server).await?,
            None => find_resource_server(reach, &typed.uri).await?,
        };
        let wish = CallRequest {
            server: server.to_string(),
            uri: Some(typed.uri.clone()),
            ..CallRequest::default()
        };
        let result = request(reach, wish, deadline, shared).await?;
        match (&typed.out, typed.json) {
            (_, true) => print_raw(&result),
            (Some(file), _) => write(file, &decode(&server, &result)?.bytes),
            (None, _) => print_contents(&decode(&server, &result)?),
        }
    })
}

async fn request(
    reach: &Backend,
    wish: CallRequest,
    deadline: Option<Deadline>,
    shared: &cli::GlobalOptions,
) -> Result<Bytes, CommandFailure> {
    let what = if wish.prompt.is_some() { "the prompt" } else { "the resource" };
    let result = reach.request(wish, deadline, Terminal::open(shared)).await;
    let CallResponse { result, .. } =
        result.map_err(|trouble| CommandFailure::from_call(trouble, deadline))?;
    call::require_complete(what, &result)?;
    Ok(result)
}

fn print_raw(result: &Bytes) -> Result<(), CommandFailure> {
    output::print_bytes(result)?;
    output::print("\n")
}

/// Finds the prompt of a name, by the rules for tools.
async fn find_prompt(reach: &Backend, text: &str) -> Result<(ServerName, String), CommandFailure> {
    let servers = reach.enabled_servers().await?;
    let offered = reach.list_items(Kind::Prompts, None).await?;
    let is_owner = |one: &&ServerListing| {
        item_names::split_candidates(&servers, text).iter().any(|(server, _)| **server == one.server)
    };
    fn row<'a>(
        server: &'a ServerName,
        ListedItem { exposed_name: exposed, item }: &'a ListedItem,
    ) -> NamedItem<'a> {
        NamedItem { exposed, server, item: &item.name }
    }
    let rows: Vec<NamedItem<'_>> =
        offered.iter().flat_map(|one| one.items.iter().map(|listed| row(&one.server, listed))).collect();
    if let Some(at) = item_names::find_item(&rows, &servers, text)? {
        return Ok((rows[at].server.clone(), rows[at].item.to_owned()));
    }
    if let Some(error) = offered.iter().find(is_owner).and_then(|one| one.error.clone()) {
        return Err(CommandFailure::ListFailed(error));
    }
    // The host is asked all the same: it knows whether a rule refuses the prompt to the caller, and records that.
    if let Some((server, prompt)) =
        item_names::implied_item(&servers, text).filter(|(server, _)| servers.contains(server))
    {
        return Ok((server, prompt));
    }
    let cause = match item_names::unknown_item(&rows, text) {
        CallError::UnknownTool { nearest: Some(near), .. } => {
            format!("there is none of that name, but `{}`", escape_line(&near))
        }
        _ => "no server lists it".to_owned(),
    };
    Err(CommandFailure::UnknownName { error: CallError::UnknownPrompt { name: text.to_owned() }, cause })
}

async fn find_server(reach: &Backend, server: &str) -> Result<ServerName, CommandFailure> {
    let names = reach.enabled_servers().await?;
    let found = names.iter().find(|name| name.as_str() == server).cloned();
    found.ok_or_else(|| CommandFailure::unknown_server(server, &names))
}

/// Finds the server of a URI among all. The only server of a config is asked in any case.
async fn find_resource_server(reach: &Backend, uri: &str) -> Result<ServerName, CommandFailure> {
    if let [only] = reach.enabled_servers().await?.as_slice() {
        return Ok(only.clone());
    }
    let error = match reach.resource_owner(uri).await {
        Err(RequestFailure::Call(error @ CallError::UnknownResource { .. })) => error,
        owner => return Ok(owner?),
    };
    let listed = reach.list_items(Kind::Resources, None).await?;
    let silent = listed.iter().filter(|one| one.error.is_some()).map(|one| one.server.as_str());
    let silent = output::quote_names(silent);
    let cause = match silent.is_empty() {
        true => "no server lists it or has a template for it; `--server NAME` asks one all the same".into(),
        false => format!("no server that answered lists it; {silent} did not answer"),
    };
    Err(CommandFailure::UnknownName { error, cause })
}

/// Content of a resource.
struct ResourceBytes {
    bytes: Vec<u8>,
    /// All of it came as text.
    is_text: bool,
}

fn decode(server: &ServerName, result: &[u8]) -> Result<ResourceBytes, CommandFailure> {
    #[derive(Deserialize)]
    struct ReadResourceResult {
        contents: Vec<ResourcePart>,
    }
    #[derive(Deserialize)]
    struct ResourcePart {
        text: Option<String>,
        blob: Option<String>,
    }
    let wrong = |detail: String| CallError::UpstreamProtocol { server: server.clone(), detail };
    let body: ReadResourceResult =
        serde_json::from_slice(result).map_err(|error| wrong(format!("no contents: {error}")))?;
    let mut contents = ResourceBytes { bytes: Vec::new(), is_text: true };
    for part in body.contents {
        match part {
            ResourcePart { text: Some(text), .. } => contents.bytes.extend_from_slice(text.as_bytes()),
            ResourcePart { blob: Some(blob), .. } => {
                contents.is_text = false;
                let bytes =
                    STANDARD.decode(&blob).map_err(|error| wrong(format!("`blob` is no base64: {error}")))?;
                contents.bytes.extend_from_slice(&bytes);
            }
            _ => return Err(wrong("a part has neither `text` nor `blob`".into()).into()),
        }
    }
    Ok(contents)
}

fn print_contents(contents: &ResourceBytes) -> Result<(), CommandFailure> {
    if !output::is_terminal() {
        return output::print_bytes(&contents.bytes);
    }
    if !contents.is_text {
        print_stderr(&format!("[{} that are no text]", size(contents.bytes.len())));
        print_stderr("  hint: `--out FILE` writes them into a file");
        return Ok(());
    }
    let text = output::escape_text(&String::from_utf8_lossy(&contents.bytes));
    output::print(&text)?;
    if text.is_empty() || text.ends_with('\n') { Ok(()) } else { output::print("\n") }
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), CommandFailure> {
    std::fs::write(file, bytes).map_err(|why| CommandFailure::Unwritable { file: file.to_owned(), why })?;
    print_stderr(&format!("wrote {} into {}", size(bytes.len()), escape_line(&file.display().to_string())));
    Ok(())
}
