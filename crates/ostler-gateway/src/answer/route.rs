//! Whose request it is.

use std::borrow::Cow;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::sabotage;
use ostler_host::upstream::SharedVoice;
use ostler_host::{Kind, Refused, Unknown};
use ostler_wire::{Change, INVALID_PARAMS, METHOD_NOT_FOUND, Params, RESOURCE_NOT_FOUND, is_name, is_uri};

use super::relay::{self, Route};
use super::voice::ClientVoice;
use super::{state, status};
use crate::exchange::{Client, Exchange, Reply};
use crate::face::Face;
use crate::gateway::Gateway;

/// How often one request looks at all lists while servers are being replaced.
const SWEEPS: usize = 3;

/// Answers a request that is for one server.
pub(crate) async fn answer(gateway: &Gateway, exchange: &mut Exchange) -> Reply {
    // A server may take this for its own failure, and callers must not make servers fail.
    let is_wrong = |arguments: &[u8]| !arguments.starts_with(b"{") && arguments != b"null";
    if exchange.params.arguments().is_some_and(is_wrong) {
        return Reply::invalid("`arguments` is not an object");
    }
    if let Face::One(server) = &exchange.face {
        sabotage!(PolicyHole, exchange.caller = Caller::local());
        let route = Route::to_only(server.clone(), take(&mut exchange.params));
        return relay::relay(gateway, exchange, route).await;
    }
    match exchange.method.as_str() {
        "tools/call" => named(gateway, exchange, Kind::Tools).await,
        "prompts/get" => named(gateway, exchange, Kind::Prompts).await,
        "resources/read" => Box::pin(resource(gateway, exchange)).await,
        _ => Box::pin(completion(gateway, exchange)).await,
    }
}

/// Answers a request of any other method. One server's endpoint passes it on;
/// over all servers only a task tells whose it is.
pub(crate) async fn answer_other(gateway: &Gateway, exchange: &mut Exchange) -> Reply {
    let params = take(&mut exchange.params);
    let is_task = exchange.method.as_str().starts_with("tasks/");
    let server = match (&exchange.face, params.task_id().filter(|_| is_task)) {
        (Face::One(server), _) => server.clone(),
        (Face::All, None) => return no_method(gateway, exchange),
        (Face::All, Some(task)) => match gateway.0.host.task_server(&exchange.caller, &task) {
            Ok(server) => server,
            Err(error) => {
                let (server, method, outcome) = ("", exchange.method.as_str(), error.code());
                let unknown = Unknown { server, method, subject: "", outcome };
                gateway.0.host.record_unknown(&exchange.caller, unknown);
                return Reply::failed(&error, exchange.client.era());
            }
        },
    };
    relay::relay(gateway, exchange, Route::to(server, params)).await
}

fn take(params: &mut Params) -> Params {
    std::mem::take(params)
}

/// The parameters with one member of another value.
fn changed(params: &Params, key: &str, value: &[u8]) -> Params {
    let text = ostler_wire::edit(params.raw(), &[(key, Change::Set(value))]);
    text.and_then(|text| Params::parse(text.into()).ok()).unwrap_or_else(|| params.clone())
}

/// A tool or a prompt under its exposed name.
async fn named(gateway: &Gateway, exchange: &mut Exchange, kind: Kind) -> Reply {
    let params = take(&mut exchange.params);
    let exposed = params.name().unwrap_or_default();
    match find(gateway, exchange, (kind, &exposed), &params).await {
        Ok(Some((server, name))) => {
            let route = Route::to(server, params.with_name(&name));
            relay::relay(gateway, exchange, route).await
        }
        Ok(None) => unknown(gateway, exchange, kind, &exposed),
        Err(error) => Reply::failed(&error, exchange.client.era()),
    }
}

/// Looks a name up; one that is not known makes the servers that it may belong
/// to say once more what they have. What the caller may not use is not found,
/// and is looked for like what does not exist; a server whose list was never
/// known says why.
async fn find(
    gateway: &Gateway,
    exchange: &Exchange,
    (kind, exposed): (Kind, &str),
    params: &Params,
) -> Result<Option<(ServerName, String)>, CallError> {
    let (shared, caller) = (&gateway.0, &exchange.caller);
    if !is_name(exposed) {
        record_nameless(gateway, exchange, "", kind, exposed);
        return Ok(None);
    }
    let look = || {
        let tables = shared.names.tables(&shared.host);
        let table = if kind == Kind::Tools { &tables.tools } else { &tables.prompts };
        let (server, name) = table.resolve(exposed)?;
        let is_usable = shared.host.may_use(caller, server.as_str(), kind, name);
        is_usable.then(|| (server.clone(), name.to_owned()))
    };
    let mut found = look();
    for _ in 0..SWEEPS {
        if found.is_some() {
            break;
        }
        let patience = shared.options.list_patience;
        let sweep = shared.names.sweep_for(&shared.host, caller, (kind, exposed), patience);
        let (is_news, error) = Box::pin(sweep).await;
        // Also where there was nothing to sweep: somebody may have since the first look.
        found = look();
        if let (None, Some(error)) = (&found, error) {
            let server = error.server().filter(|_| error.is_start_under_way()).cloned();
            match server {
                // The call waits for the start as one for a known name does.
                Some(server) if wait_for_start(gateway, exchange, &server, params).await => continue,
                _ => return Err(error),
            }
        }
        if !is_news {
            break;
        }
    }
    if found.is_none() {
        record_unfound(gateway, exchange, kind, exposed);
    }
    Ok(found)
}

/// Waits for a start that is under way, and tells the client how far it has come. False if it is not over in time.
async fn wait_for_start(
    gateway: &Gateway,
    exchange: &Exchange,
    server: &ServerName,
    params: &Params,
) -> bool {
    let route = Route::to(server.clone(), params.clone());
    let voice = ClientVoice::of(gateway, exchange, &route).map(|(voice, _)| voice as SharedVoice);
    gateway.0.host.wait_for_start(&exchange.caller, server.as_str(), voice.as_ref()).await
}

/// Lets the record know of a name that was not found: because a rule hides it,
/// or because there is nothing of that name.
fn record_unfound(gateway: &Gateway, exchange: &Exchange, kind: Kind, exposed: &str) {
    let host = &gateway.0.host;
    let tables = gateway.0.names.tables(host);
    let table = if kind == Kind::Tools { &tables.tools } else { &tables.prompts };
    if let Some((server, name)) = table.resolve(exposed)
        && record_hidden(gateway, exchange, server, (kind, name))
    {
        return;
    }
    // What a server has that nobody asked yet is in no table.
    let servers = host.servers(&Caller::operator());
    let owner = |server: &'_ ServerName| {
        exposed.strip_prefix(server.as_str()).and_then(|rest| rest.strip_prefix("__")).map(str::to_owned)
    };
    let owned: Vec<(&ServerName, String)> =
        servers.iter().filter_map(|server| Some((server, owner(server)?))).collect();
    let mut is_hidden = false;
    for (server, name) in &owned {
        is_hidden |= record_hidden(gateway, exchange, server, (kind, name));
    }
    if !is_hidden {
        let (server, subject) = match owned.first() {
            Some((server, name)) => (server.as_str(), name.as_str()),
            None => ("", exposed),
        };
        record_nameless(gateway, exchange, server, kind, subject);
    }
}

fn record_nameless(gateway: &Gateway, exchange: &Exchange, server: &str, kind: Kind, subject: &str) {
    let outcome = if kind == Kind::Tools { "unknown-tool" } else { "unknown-prompt" };
    let unknown = Unknown { server, method: exchange.method.as_str(), subject, outcome };
    gateway.0.host.record_unknown(&exchange.caller, unknown);
}

/// The host knows whether a rule hides it; if none does, nothing is recorded.
fn record_hidden(gateway: &Gateway, exchange: &Exchange, server: &ServerName, item: (Kind, &str)) -> bool {
    let (server, method) = (server.as_str(), exchange.method.as_str());
    gateway.0.host.record_refusal(&exchange.caller, Refused { server, method, item: Some(item) })
}

/// The answer to a method that does not exist, which is put on record.
pub(crate) fn no_method(gateway: &Gateway, exchange: &Exchange) -> Reply {
    let method = exchange.method.as_str().to_owned();
    refused(gateway, exchange, &CallError::UnknownMethod { method })
}

/// The answer to a request that is refused before its server is known, which is put on record.
pub(crate) fn refused(gateway: &Gateway, exchange: &Exchange, error: &CallError) -> Reply {
    let (method, server) = (exchange.method.as_str(), exchange.face.server().map_or("", ServerName::as_str));
    let unknown = Unknown { server, method, subject: "", outcome: error.code() };
    gateway.0.host.record_unknown(&exchange.caller, unknown);
    Reply::of_table(error)
}

fn unknown(gateway: &Gateway, exchange: &Exchange, kind: Kind, exposed: &str) -> Reply {
    let shared = &gateway.0;
    let tables = shared.names.tables(&shared.host);
    if kind == Kind::Prompts {
        return Reply::of_table(&CallError::UnknownPrompt { name: exposed.to_owned() });
    }
    let (host, caller) = (&shared.host, &exchange.caller);
    let may = |server: &ServerName, tool: &str| {
        let server = server.as_str();
        host.may_use(caller, server, kind, tool)
            && host.may_suggest(caller, server, tool)
            && !host.is_quarantined(caller, server, tool)
    };
    let visible = tables.tools.iter().filter(|row| may(&row.server, &row.tool));
    let error = CallError::unknown_tool(exposed, visible.map(|row| &*row.exposed));
    Reply::failed(&error, exchange.client.era())
}

/// A resource: its owner is asked, and no other server hears of it.
async fn resource(gateway: &Gateway, exchange: &mut Exchange) -> Reply {
    let params = take(&mut exchange.params);
    let uri = params.uri().map(Cow::into_owned).unwrap_or_default();
    // An answer to a question goes to the server that asked.
    let asker = match state::open(gateway, exchange, &params) {
        Some((server, _)) => Some(server),
        None => gateway.0.host.state_server(&exchange.caller, &params),
    };
    if let Some(server) = asker {
        return relay::relay(gateway, exchange, Route::to(server, params)).await;
    }
    if uri == status::URI {
        return status::read(gateway, exchange);
    }
    let owner = match only_server(gateway, exchange) {
        Some(only) => Some(only),
        None => owner_of(gateway, exchange, &uri).await,
    };
    let Some(server) = owner else { return not_found(&uri, &exchange.client) };
    let reply = relay::relay(gateway, exchange, Route::to(server, params)).await;
    match &reply {
        // Whom something may be hidden from can't tell who was asked.
        Reply::Error { code: RESOURCE_NOT_FOUND | INVALID_PARAMS | METHOD_NOT_FOUND, .. }
            if gateway.0.host.is_restricted(&exchange.caller) =>
        {
            not_found(&uri, &exchange.client)
        }
        _ => reply,
    }
}

/// Returns the server that is asked for every URI, listed or not: there is no other, and no rule holds the caller
/// back.
fn only_server(gateway: &Gateway, exchange: &Exchange) -> Option<ServerName> {
    let host = &gateway.0.host;
    match &host.servers(&Caller::operator())[..] {
        [only] if !host.is_restricted(&exchange.caller) => Some(only.clone()),
        _ => None,
    }
}

/// Finds the server that answers for a URI: the owner among those that claim it and that the caller may ask.
pub(crate) async fn owner_of(gateway: &Gateway, exchange: &Exchange, uri: &str) -> Option<ServerName> {
    let (shared, caller) = (&gateway.0, &exchange.caller);
    let may = |server: &ServerName| shared.host.may_use(caller, server.as_str(), Kind::Resources, uri);
    if !is_uri(uri) {
        record_unlisted(gateway, exchange, uri);
        return None;
    }
    let patience = shared.options.list_patience;
    shared.names.complete(&shared.host, caller, patience).await;
    if let Some(server) = shared.names.tables(&shared.host).resources.claimants(uri).owner(may) {
        return Some(server.clone());
    }
    shared.names.sweep(&shared.host, caller, Kind::Resources, patience).await;
    shared.names.sweep(&shared.host, caller, Kind::Templates, patience).await;
    let tables = shared.names.tables(&shared.host);
    let claimants = tables.resources.claimants(uri);
    if let Some(server) = claimants.owner(may) {
        return Some(server.clone());
    }
    // A URI that the rules hide goes the way of one that is missing: to the server with a template for both, where
    // the host says of both that there is none.
    let may_reach = |server: &ServerName, template: &str| shared.host.may_reach(caller, server, template);
    if let Some(server) = claimants.owner_by_template(may_reach) {
        return Some(server.clone());
    }
    let mut is_hidden = false;
    for server in claimants.servers() {
        is_hidden |= record_hidden(gateway, exchange, server, (Kind::Resources, uri));
    }
    if !is_hidden {
        record_unlisted(gateway, exchange, uri);
    }
    None
}

fn record_unlisted(gateway: &Gateway, exchange: &Exchange, uri: &str) {
    let method = exchange.method.as_str();
    let unknown = Unknown { server: "", method, subject: uri, outcome: "unknown-resource" };
    gateway.0.host.record_unknown(&exchange.caller, unknown);
}

pub(crate) fn not_found(uri: &str, client: &Client) -> Reply {
    let code = match client {
        Client::Modern => INVALID_PARAMS,
        Client::Legacy(_) => RESOURCE_NOT_FOUND,
    };
    let mut data = b"{\"uri\":".to_vec();
    ostler_wire::push_text(&mut data, uri);
    data.push(b'}');
    Reply::error(code, "resource not found", Some(&data))
}

/// A completion: the prompt or the template that it is for says whose it is.
async fn completion(gateway: &Gateway, exchange: &mut Exchange) -> Reply {
    let params = take(&mut exchange.params);
    let reference = params.reference().unwrap_or_default();
    if ostler_wire::member(reference, "name").is_some() && ostler_wire::member(reference, "uri").is_some() {
        return Reply::invalid("`ref` has both `name` and `uri`");
    }
    if let Some(exposed) = ostler_wire::text_member(reference, "name") {
        let (server, name) = match find(gateway, exchange, (Kind::Prompts, &exposed), &params).await {
            Ok(Some(found)) => found,
            Ok(None) => return unknown(gateway, exchange, Kind::Prompts, &exposed),
            Err(error) => return Reply::failed(&error, exchange.client.era()),
        };
        let mut value = Vec::new();
        ostler_wire::push_text(&mut value, &name);
        let Some(inner) = ostler_wire::edit(reference, &[("name", Change::Set(&value))]) else {
            return Reply::invalid("`ref` is not an object");
        };
        let route = Route::to(server, changed(&params, "ref", &inner));
        return relay::relay(gateway, exchange, route).await;
    }
    let Some(uri) = ostler_wire::text_member(reference, "uri") else {
        return Reply::invalid("`ref` names neither a prompt nor a resource");
    };
    let host = &gateway.0.host;
    let may = |server: &ServerName| host.may_use(&exchange.caller, server.as_str(), Kind::Templates, &uri);
    gateway.0.names.complete(host, &exchange.caller, gateway.0.options.list_patience).await;
    let template = gateway.0.names.tables(host).resources.owner_of_template(&uri, may).cloned();
    let server = match template {
        Some(server) => Some(server),
        None => owner_of(gateway, exchange, &uri).await,
    };
    let Some(server) = server else { return not_found(&uri, &exchange.client) };
    let reply = relay::relay(gateway, exchange, Route::to(server, params.clone())).await;
    match &reply {
        // Whom something may be hidden from can't tell who was asked.
        Reply::Error { code: INVALID_PARAMS, .. } if host.is_restricted(&exchange.caller) => {
            not_found(&uri, &exchange.client)
        }
        _ => reply,
    }
}
