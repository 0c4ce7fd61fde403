//! Requests of the program's own commands: results byte for byte as servers sent them, errors with all their parts.
//!
//! Only a connection that [`Gateway::serve_commands`] serves has them: its caller has checked that the client is the
//! operator. `_meta` of a request carries what MCP has no field for, and is not forwarded:
//!
//! | key | meaning |
//! |---|---|
//! | `dev.ostler/server` | the server, whose own names the request uses; all servers without it, for lists alone |
//! | `dev.ostler/forCall` | true if a list of tools precedes a call, and waits over failed starts like the call |
//! | `dev.ostler/timeoutMs` | the time that the request has |
//! | `dev.ostler/elicitation` | true if a person can answer; `"unanswered"`: the client refuses server requests |
//!
//! The method `dev.ostler/owner` names the server that owns a `uri` among all servers.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use memchr::memmem::Finder;
use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;
use ostler_host::upstream::SharedCallObserver;
use ostler_host::{Answer, Kind, ListWait, Request, Scope, ServerListing};
use ostler_wire::{MemberEdit, Params};

use super::observer::ClientObserver;
use crate::client_request::{ClientEra, ClientRequest, GatewayReply};
use crate::command_extensions::{CommandExtensions, SharedCommandExtensions};
use crate::gateway::Gateway;

const SERVER: &str = "dev.ostler/server";
/// Method that names the server which owns a URI.
const OWNER: &str = "dev.ostler/owner";
const FOR_CALL: &str = "dev.ostler/forCall";
const TIMEOUT: &str = "dev.ostler/timeoutMs";
const ELICITATION: &str = "dev.ostler/elicitation";
/// The client receives server requests and refuses them.
const UNANSWERED: &[u8] = b"\"unanswered\"";
/// Key of `_meta` under which a list names its servers, each with the number of its items, their names among those of
/// all servers, and its error.
const SERVERS: &str = "dev.ostler/servers";
/// Key of `_meta` for the text of a result that is not on one line.
const TEXT: &str = "dev.ostler/text";

/// Answers a list or a request to one server; `None` for other methods.
pub(crate) async fn answer_command(
    gateway: &Gateway,
    exchange: &mut ClientRequest,
    commands: &SharedCommandExtensions,
) -> Option<GatewayReply> {
    let params = std::mem::take(&mut exchange.params);
    let result = match exchange.method.as_str() {
        "tools/call" | "prompts/get" | "resources/read" => {
            send(gateway, exchange, params).await.map(|answer| answer.body)
        }
        "tools/list" => list(gateway, exchange, &**commands, (Kind::Tools, &params)).await,
        "prompts/list" => list(gateway, exchange, &**commands, (Kind::Prompts, &params)).await,
        "resources/list" => list(gateway, exchange, &**commands, (Kind::Resources, &params)).await,
        OWNER => owner(gateway, exchange, &**commands, &params).await,
        "resources/templates/list" => list(gateway, exchange, &**commands, (Kind::Templates, &params)).await,
        _ => {
            exchange.params = params;
            return None;
        }
    };
    Some(match result {
        Ok(body) => GatewayReply::Result(escape_line_breaks(body)),
        Err(error) => {
            GatewayReply::error(error.rpc_code(), &error.to_string(), Some(&commands.error_data(&error)))
        }
    })
}

async fn send(gateway: &Gateway, exchange: &ClientRequest, params: Params) -> Result<Answer, CallError> {
    let server = meta_entry(&params, SERVER).and_then(json_string).ok_or_else(|| CallError::Invalid {
        what: format!("`_meta` does not name a server in `{SERVER}`"),
        hint: "commands of the same version as the daemon name one".into(),
    })?;
    let timeout = meta_entry(&params, TIMEOUT).and_then(|raw| serde_json::from_slice(raw).ok());
    let elicitation = meta_entry(&params, ELICITATION);
    let can_answer = elicitation.is_some_and(|raw| raw == b"true");
    let is_asked = can_answer || elicitation.is_some_and(|raw| raw == UNANSWERED);
    let is_followed = params.progress_token().is_some();
    let observer =
        (is_followed || is_asked).then(|| ClientObserver::for_command(exchange, &params, is_asked)).flatten();
    let mut request = Request::new(&exchange.caller, exchange.method.as_str(), without_meta(params));
    if let Some(ms) = timeout {
        request = request.with_timeout(Duration::from_millis(ms));
    }
    if let (Some(observer), ClientEra::Legacy(session)) = (observer, &exchange.client) {
        request = request.with_call_observer(observer as SharedCallObserver);
        if is_followed {
            let meta = if can_answer { session.meta() } else { session.meta_without_capabilities() };
            request = request.from_session(meta);
        }
    }
    gateway.0.host.send_to(&server, request).await
}

async fn owner(
    gateway: &Gateway,
    exchange: &ClientRequest,
    commands: &dyn CommandExtensions,
    params: &Params,
) -> Result<Bytes, CallError> {
    let uri = params.uri().unwrap_or_default();
    let owner = gateway
        .0
        .host
        .find_resource_owner(&exchange.caller, "resources/read", &uri, commands.list_patience())
        .await;
    match owner {
        Some(server) => Ok(format!("{{\"server\":\"{server}\"}}").into()),
        None => Err(CallError::UnknownResource { uri: uri.into_owned() }),
    }
}

async fn list(
    gateway: &Gateway,
    exchange: &ClientRequest,
    commands: &dyn CommandExtensions,
    (kind, params): (Kind, &Params),
) -> Result<Bytes, CallError> {
    let host = &gateway.0.host;
    let scope = match meta_entry(params, SERVER).and_then(json_string) {
        None => Scope::All,
        Some(name) => Scope::Server(
            ServerName::new(&name).map_err(|_| CallError::unknown_server(&name, [].into_iter()))?,
        ),
    };
    let patience = match kind {
        Kind::Tools if meta_entry(params, FOR_CALL).is_some_and(|raw| raw == b"true") => ListWait::ForCall,
        Kind::Tools => ListWait::UntilListed,
        _ => ListWait::AtMost(commands.list_patience()),
    };
    let mut listings = host.list(&exchange.caller, &scope, kind, patience).await;
    if let [ServerListing { error: Some(error @ CallError::UnknownServer { .. }), .. }] = listings.as_slice()
    {
        return Err(error.clone());
    }
    if scope != Scope::All {
        host.assign_exposed_names(kind, &mut listings).await;
    }
    Ok(list_result(kind, &listings, commands).into())
}

/// Writes the items of all servers, one server after the other, and the server of each.
fn list_result(kind: Kind, listings: &[ServerListing], commands: &dyn CommandExtensions) -> Vec<u8> {
    let mut out = b"{".to_vec();
    let items = listings.iter().flat_map(|listing| &listing.items);
    ostler_wire::push_array_member(&mut out, kind.member(), items.map(|listed| &listed.item.definition[..]));
    out.extend_from_slice(b",\"_meta\":{");
    ostler_wire::push_json_string(&mut out, SERVERS);
    out.extend_from_slice(b":[");
    for (at, listing) in listings.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"server\":");
        ostler_wire::push_json_string(&mut out, listing.server.as_str());
        out.extend_from_slice(format!(",\"items\":{},\"names\":[", listing.items.len()).as_bytes());
        for (at, listed) in listing.items.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            ostler_wire::push_json_string(&mut out, &listed.exposed_name);
        }
        out.push(b']');
        if let Some(error) = &listing.error {
            out.extend_from_slice(b",\"error\":");
            out.extend_from_slice(&commands.error_data(error));
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"]}}");
    out
}

/// Sends a result that has line breaks between its tokens as a JSON string, since a frame can't contain them: its bytes
/// stay as they are. A result that could be mistaken for such a string is sent that way too.
fn escape_line_breaks(body: Bytes) -> Bytes {
    static MARK: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(TEXT));
    if memchr::memchr2(b'\n', b'\r', &body).is_none() && MARK.find(&body).is_none() {
        return body;
    }
    let Ok(text) = std::str::from_utf8(&body) else { return body };
    let mut out = b"{\"_meta\":{".to_vec();
    ostler_wire::push_json_string(&mut out, TEXT);
    out.push(b':');
    ostler_wire::push_json_string(&mut out, text);
    out.extend_from_slice(b"}}");
    out.into()
}

/// Returns the value of an entry of `_meta`.
fn meta_entry<'p>(params: &'p Params, key: &str) -> Option<&'p [u8]> {
    ostler_wire::member(params.meta()?, key)
}

fn json_string(raw: &[u8]) -> Option<String> {
    serde_json::from_slice(raw).ok()
}

/// Removes `_meta`: all of it is addressed to the gateway.
fn without_meta(params: Params) -> Params {
    let edited = ostler_wire::edit(params.raw(), &[("_meta", MemberEdit::Remove)]);
    edited.and_then(|text| Params::parse(text.into()).ok()).unwrap_or(params)
}
