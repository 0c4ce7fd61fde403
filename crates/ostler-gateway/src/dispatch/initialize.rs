//! `initialize` and `server/discover`: server info, capabilities and instructions for a client.

use std::time::Duration;

use bytes::Bytes;
use ostler_core::caller::Caller;
use ostler_core::error::{CallError, Unavailable, UnavailableState};
use ostler_core::server_name::ServerName;
use ostler_host::UnavailableServer;
use ostler_wire::{Era, MODERN_VERSION, MemberEdit, ServerInfo};
use tokio::time::Instant;

use super::forward;
use super::status;
use crate::client_request::{ClientRequest, GatewayReply};
use crate::gateway::Gateway;
use ostler_host::Scope;

/// Capabilities of the endpoint over all servers. They are the same for any set of servers, so that `initialize` starts
/// no server.
const CAPABILITIES: &[u8] = b"{\"tools\":{\"listChanged\":true},\"resources\":{\"subscribe\":true,\
\"listChanged\":true},\"prompts\":{\"listChanged\":true},\"logging\":{},\"completions\":{}}";

/// Key of `_meta` in which modern servers put their identity.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// Bytes of servers' own instructions that are passed on, over all servers; a model reads them in every session.
const MAX_INSTRUCTIONS: usize = 8 << 10;

/// Unavailable servers that are named. The others are counted.
const MAX_NAMED_MISSING: usize = 8;

/// Poll interval while a server whose start has failed is waited for.
const SERVER_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Answers `initialize`.
pub(crate) async fn initialize(
    gateway: &Gateway,
    caller: &Caller,
    scope: &Scope,
    version: &'static str,
) -> GatewayReply {
    let said = match endpoint_info(gateway, caller, scope).await {
        Ok(said) => said,
        Err(reply) => return reply,
    };
    let mut out = b"{\"protocolVersion\":".to_vec();
    ostler_wire::push_json_string(&mut out, version);
    out.extend_from_slice(b",\"capabilities\":");
    out.extend_from_slice(&said.capabilities);
    out.extend_from_slice(b",\"serverInfo\":");
    out.extend_from_slice(&said.server_info);
    push_instructions(&mut out, said.instructions.as_deref());
    out.push(b'}');
    GatewayReply::result(out)
}

/// Answers `server/discover`. A modern server answers for itself.
pub(crate) async fn discover(gateway: &Gateway, exchange: &mut ClientRequest) -> GatewayReply {
    if let Scope::Server(server) = &exchange.scope
        && let Ok(hello) = fetch_server_info(gateway, &exchange.caller, server).await
        && hello.era == Era::Modern
    {
        let is_silent = gateway.0.host.is_restricted_at(&exchange.caller, server.as_str());
        let reply = forward::forward(gateway, exchange).await;
        return if is_silent { without_instructions(reply) } else { reply };
    }
    let said = match endpoint_info(gateway, &exchange.caller, &exchange.scope).await {
        Ok(said) => said,
        Err(reply) => return reply,
    };
    let mut out = b"{\"resultType\":\"complete\",\"supportedVersions\":[".to_vec();
    ostler_wire::push_json_string(&mut out, MODERN_VERSION);
    out.extend_from_slice(b"],\"capabilities\":");
    out.extend_from_slice(&without_tasks(&said.capabilities));
    push_instructions(&mut out, said.instructions.as_deref());
    out.extend_from_slice(b",\"ttlMs\":0,\"cacheScope\":\"private\",\"_meta\":{");
    ostler_wire::push_json_string(&mut out, SERVER_INFO);
    out.push(b':');
    out.extend_from_slice(&said.server_info);
    out.extend_from_slice(b"}}");
    GatewayReply::result(out)
}

/// Removes instructions: they are the server's own words, which may name what is hidden.
fn without_instructions(reply: GatewayReply) -> GatewayReply {
    let GatewayReply::Result(result) = reply else { return reply };
    let changed = ostler_wire::edit(&result, &[("instructions", MemberEdit::Remove)]);
    GatewayReply::Result(changed.map_or(result, Bytes::from))
}

/// Removes tasks: those of the legacy era differ from those of the modern one.
fn without_tasks(capabilities: &Bytes) -> Bytes {
    let changed = ostler_wire::edit(capabilities, &[("tasks", MemberEdit::Remove)]);
    changed.map_or_else(|| capabilities.clone(), Bytes::from)
}

struct EndpointInfo {
    capabilities: Bytes,
    /// A JSON object.
    server_info: Bytes,
    /// A JSON string.
    instructions: Option<Bytes>,
}

async fn endpoint_info(
    gateway: &Gateway,
    caller: &Caller,
    scope: &Scope,
) -> Result<EndpointInfo, GatewayReply> {
    match scope {
        Scope::All => Ok(EndpointInfo {
            capabilities: Bytes::from_static(CAPABILITIES),
            server_info: own_server_info(gateway),
            instructions: instructions(gateway, caller),
        }),
        Scope::Server(server) => {
            let hello = fetch_server_info(gateway, caller, server).await;
            let is_shared = gateway.0.host.is_shared(server.as_str());
            let is_silent = gateway.0.host.is_restricted_at(caller, server.as_str());
            let ServerInfo { capabilities, implementation: server, instructions, .. } =
                hello.map_err(|error| GatewayReply::from_call_error(&error, Era::Legacy))?;
            let capabilities = if is_shared { without_task_list(capabilities) } else { capabilities };
            let instructions = instructions.filter(|_| !is_silent).map(|advice| advice.raw().clone());
            Ok(EndpointInfo {
                capabilities,
                server_info: server.unwrap_or_else(|| own_server_info(gateway)),
                instructions,
            })
        }
    }
}

/// Returns capabilities of a legacy server without the list of tasks.
fn without_task_list(capabilities: Bytes) -> Bytes {
    let changed = ostler_wire::member(&capabilities, "tasks").and_then(|tasks| {
        let tasks = ostler_wire::edit(tasks, &[("list", MemberEdit::Remove)])?;
        ostler_wire::edit(&capabilities, &[("tasks", MemberEdit::Set(&tasks))])
    });
    changed.map_or(capabilities, Bytes::from)
}

/// Returns the server info of one server. Waits for a server whose start has failed, for at most `initialize_patience`.
async fn fetch_server_info(
    gateway: &Gateway,
    caller: &Caller,
    server: &ServerName,
) -> Result<ServerInfo, CallError> {
    let end = Instant::now() + gateway.0.options.initialize_patience;
    loop {
        match gateway.0.host.server_info(caller, server.as_str()).await {
            Err(CallError::Unavailable(Unavailable { state: UnavailableState::StartFailed, .. }))
                if Instant::now() < end =>
            {
                tokio::time::sleep(SERVER_POLL_INTERVAL).await;
            }
            hello => return hello,
        }
    }
}

fn own_server_info(gateway: &Gateway) -> Bytes {
    let mut out = b"{\"name\":\"ostler\",\"title\":\"Ostler\",\"version\":".to_vec();
    ostler_wire::push_json_string(&mut out, &gateway.0.options.version);
    out.push(b'}');
    out.into()
}

/// Lists the servers, with the instructions of those that have been started, as a JSON string that quotes them
/// unchanged. Their own words may name what is hidden from the caller, so only callers that may use all of a server get
/// them.
fn instructions(gateway: &Gateway, caller: &Caller) -> Option<Bytes> {
    let host = &gateway.0.host;
    let servers = host.servers(caller);
    let names: Vec<&str> = servers.iter().map(ServerName::as_str).collect();
    let count = match names.len() {
        // The servers may not be known yet, and none is asked twice.
        0 => return None,
        1 => "1 server".to_owned(),
        count => format!("{count} servers"),
    };
    let names = names.join(", ");
    let mut text = vec![b'"'];
    if let Some(notice) = &gateway.0.options.notice {
        let mut quoted = Vec::new();
        ostler_wire::push_json_string(&mut quoted, notice);
        text.extend_from_slice(&quoted[1..quoted.len() - 1]);
        text.extend_from_slice(b"\\n\\n");
    }
    text.extend(format!("Tools and prompts of {count}, named server__name. Servers: {names}.").into_bytes());
    for server in servers.iter().filter(|server| !host.is_restricted_at(caller, server.as_str())) {
        let advice = host.known_server_info(caller, server.as_str()).and_then(|hello| hello.instructions);
        let advice = advice.map(|advice| advice.json_fragment());
        if let Some(advice) = advice.filter(|advice| text.len() + advice.len() < MAX_INSTRUCTIONS) {
            text.extend_from_slice(format!("\\n\\n{server}: ").as_bytes());
            text.extend_from_slice(&advice);
        }
    }
    // Last, so that it takes no space from the servers' instructions.
    push_missing(&mut text, &host.unavailable_servers(caller));
    text.push(b'"');
    Some(text.into())
}

/// Appends the servers that are unavailable now, so that a model can say so instead of guessing. Appends nothing if all
/// are available.
fn push_missing(text: &mut Vec<u8>, missing: &[UnavailableServer]) {
    if missing.is_empty() {
        return;
    }
    let mut named: Vec<String> = missing
        .iter()
        .take(MAX_NAMED_MISSING)
        .map(|UnavailableServer { server, reason: why }| format!("{server} ({why})"))
        .collect();
    if missing.len() > MAX_NAMED_MISSING {
        named.push(format!("{} more", missing.len() - MAX_NAMED_MISSING));
    }
    let told = format!(
        "\n\nNot available now: {}. If one of them is needed, tell the user; the resource {} says more.",
        named.join(", "),
        status::URI
    );
    let quoted = serde_json::Value::from(told).to_string();
    text.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
}

fn push_instructions(out: &mut Vec<u8>, instructions: Option<&[u8]>) {
    if let Some(instructions) = instructions {
        out.extend_from_slice(b",\"instructions\":");
        out.extend_from_slice(instructions);
    }
}
