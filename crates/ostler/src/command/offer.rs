//! `ostler prompts get` and `ostler resources read`: one prompt, one resource.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_host::{Kind, ListedItem, ServerListing};
use serde::Deserialize;

use super::call;
use super::names::{self, Named};
use crate::arguments::Given;
use crate::failure::Failure;
use crate::output::{self, clean, size, tell};
use crate::reach::{self, CallRequest, Deadline, Reach, Trouble};
use crate::terminal::Terminal;
use crate::{cli, content};

pub(super) fn get(typed: &cli::GetPrompt, shared: &cli::Shared) -> Result<(), Failure> {
    let way = reach::find(shared)?;
    let arguments = Given::read(&typed.pairs, None)?.as_texts()?;
    reach::run(way, async |reach| {
        let deadline = typed.timeout.map(Deadline::after);
        let (server, prompt) = find_prompt(reach, &typed.prompt).await?;
        let wish = CallRequest {
            server: server.to_string(),
            prompt: Some(prompt),
            arguments: Some(arguments),
            ..CallRequest::default()
        };
        let result = ask(reach, wish, deadline, shared).await?;
        if typed.json {
            return print_raw(&result);
        }
        let shown = content::show_prompt(&result);
        let text = if output::is_terminal() { output::tame(&shown.text) } else { shown.text };
        output::print(&text)?;
        shown.others.iter().for_each(|line| tell(line));
        Ok(())
    })
}

pub(super) fn read(typed: &cli::ReadResource, shared: &cli::Shared) -> Result<(), Failure> {
    reach::run(reach::find(shared)?, async |reach| {
        let deadline = typed.timeout.map(Deadline::after);
        let server = match &typed.server {
            Some(server) => named(reach, server).await?,
            None => owner_of(reach, &typed.uri).await?,
        };
        let wish = CallRequest {
            server: server.to_string(),
            uri: Some(typed.uri.clone()),
            ..CallRequest::default()
        };
        let result = ask(reach, wish, deadline, shared).await?;
        match (&typed.out, typed.json) {
            (_, true) => print_raw(&result),
            (Some(file), _) => write(file, &decode(&server, &result)?.bytes),
            (None, _) => show(&decode(&server, &result)?),
        }
    })
}

async fn ask(
    reach: &Reach,
    wish: CallRequest,
    deadline: Option<Deadline>,
    shared: &cli::Shared,
) -> Result<Bytes, Failure> {
    let what = if wish.prompt.is_some() { "the prompt" } else { "the resource" };
    let result = reach.ask(wish, deadline, Terminal::of(shared)).await;
    let result = result.map_err(|trouble| Failure::of_call(trouble, deadline))?;
    call::finished(what, &result)?;
    Ok(result)
}

fn print_raw(result: &Bytes) -> Result<(), Failure> {
    output::print_bytes(result)?;
    output::print("\n")
}

/// Finds the prompt that a name means, by the rules for tools.
async fn find_prompt(reach: &Reach, text: &str) -> Result<(ServerName, String), Failure> {
    let servers = reach.names().await?;
    let offered = reach.offers(Kind::Prompts, None).await?;
    let is_owner = |one: &&ServerListing| {
        names::readings(&servers, text).iter().any(|(server, _)| **server == one.server)
    };
    fn row<'a>(server: &'a ServerName, ListedItem { exposed, item }: &'a ListedItem) -> Named<'a> {
        Named { exposed, server, item: &item.name }
    }
    let rows: Vec<Named<'_>> =
        offered.iter().flat_map(|one| one.items.iter().map(|listed| row(&one.server, listed))).collect();
    if let Some(at) = names::find(&rows, &servers, text)? {
        return Ok((rows[at].server.clone(), rows[at].item.to_owned()));
    }
    if let Some(error) = offered.iter().find(is_owner).and_then(|one| one.error.clone()) {
        return Err(Failure::Unlisted(error));
    }
    // The host is asked all the same: it knows whether a rule keeps the prompt from the caller, and records that.
    if let Some((server, prompt)) =
        names::namesake(&servers, text).filter(|(server, _)| servers.contains(server))
    {
        return Ok((server, prompt));
    }
    let cause = match names::unknown(&rows, text) {
        CallError::UnknownTool { nearest: Some(near), .. } => {
            format!("there is none of that name, but `{}`", clean(&near))
        }
        _ => "no server lists it".to_owned(),
    };
    Err(Failure::UnknownName { error: CallError::UnknownPrompt { name: text.to_owned() }, cause })
}

async fn named(reach: &Reach, server: &str) -> Result<ServerName, Failure> {
    let names = reach.names().await?;
    let found = names.iter().find(|name| name.as_str() == server).cloned();
    found.ok_or_else(|| Failure::unknown_server(server, &names))
}

/// Finds the server that answers for a URI among all. The only server of a config is asked in any case.
async fn owner_of(reach: &Reach, uri: &str) -> Result<ServerName, Failure> {
    if let [only] = reach.names().await?.as_slice() {
        return Ok(only.clone());
    }
    let error = match reach.owner_of(uri).await {
        Err(Trouble::Call(error @ CallError::UnknownResource { .. })) => error,
        owner => return Ok(owner?),
    };
    let listed = reach.offers(Kind::Resources, None).await?;
    let silent = listed.iter().filter(|one| one.error.is_some()).map(|one| one.server.as_str());
    let silent = output::names(silent);
    let cause = match silent.is_empty() {
        true => "no server lists it or has a template for it; `--server NAME` asks one all the same".into(),
        false => format!("no server that answered lists it; {silent} did not answer"),
    };
    Err(Failure::UnknownName { error, cause })
}

/// A resource as bytes.
struct Contents {
    bytes: Vec<u8>,
    /// Whether all of it came as text.
    is_text: bool,
}

fn decode(server: &ServerName, result: &[u8]) -> Result<Contents, Failure> {
    #[derive(Deserialize)]
    struct Body {
        contents: Vec<Part>,
    }
    #[derive(Deserialize)]
    struct Part {
        text: Option<String>,
        blob: Option<String>,
    }
    let wrong = |detail: String| CallError::UpstreamProtocol { server: server.clone(), detail };
    let body: Body =
        serde_json::from_slice(result).map_err(|error| wrong(format!("no contents: {error}")))?;
    let mut contents = Contents { bytes: Vec::new(), is_text: true };
    for part in body.contents {
        match part {
            Part { text: Some(text), .. } => contents.bytes.extend_from_slice(text.as_bytes()),
            Part { blob: Some(blob), .. } => {
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

fn show(contents: &Contents) -> Result<(), Failure> {
    if !output::is_terminal() {
        return output::print_bytes(&contents.bytes);
    }
    if !contents.is_text {
        tell(&format!("[{} that are no text]", size(contents.bytes.len())));
        tell("  hint: `--out FILE` writes them into a file");
        return Ok(());
    }
    let text = output::tame(&String::from_utf8_lossy(&contents.bytes));
    output::print(&text)?;
    if text.is_empty() || text.ends_with('\n') { Ok(()) } else { output::print("\n") }
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(file, bytes).map_err(|why| Failure::Unwritable { file: file.to_owned(), why })?;
    tell(&format!("wrote {} into {}", size(bytes.len()), clean(&file.display().to_string())));
    Ok(())
}
