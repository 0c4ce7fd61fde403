//! The core: one request of a client, answered.
//!
//! ```text
//! mod.rs      the table of methods
//! hello.rs    initialize, server/discover
//! commands.rs requests of the program's own commands
//! lists.rs    lists of all servers, and of one
//! forward.rs  requests to one server: resolved and sent by the host
//!   voice.rs    what the client hears meanwhile
//!   rounds.rs   a modern server asks a legacy client
//!   parked.rs   a legacy server asks a modern client
//! listen.rs   subscriptions of modern clients
//! status.rs   the states of servers as a resource
//! legacy.rs   what only legacy clients ask: log level, subscriptions of resources
//! subscribed.rs  subscriptions of both, bounded
//! hub.rs      events of servers → listens and sessions
//! ```

mod commands;
mod first_root;
mod forward;
mod headers;
mod hello;
mod hub;
mod legacy;
mod listen;
mod lists;
mod parked;
mod reply;
mod rounds;
mod status;
mod subscribed;
mod voice;

use bytes::Bytes;
use ostler_core::caller::Caller;
use ostler_host::Kind;
use ostler_wire::LISTEN;

use crate::exchange::{Client, Exchange, Reply};
use crate::gateway::Gateway;
use crate::session::Session;
use ostler_host::Scope;

pub(crate) use first_root::in_first_root;
pub(crate) use hello::initialize;
pub(crate) use hub::{Hub, follow_events};
pub(crate) use legacy::Subscriptions;
pub(crate) use listen::closed;
pub(crate) use parked::Lot;
pub(crate) use subscribed::SubscriptionRoom;

/// Answers one request; dropping the future cancels it upstream.
///
/// What is not a call is boxed: the future of a call is allocated for every
/// one of them, and would be as large as the largest of all.
pub(crate) async fn answer(gateway: &Gateway, exchange: &mut Exchange) -> Reply {
    let is_legacy = matches!(exchange.client, Client::Legacy(_));
    if let Some(readiness) = &gateway.0.options.readiness
        && wants_servers(exchange.method.as_str())
        && let Some(waiting) = readiness()
        && let Err(error) = waiting.await
    {
        return Reply::failed(&error, exchange.client.era());
    }
    if let Err(error) = ostler_host::check_naming(exchange.method.as_str(), &exchange.params) {
        return forward::refused(gateway, exchange, &error);
    }
    if let Some(commands) = exchange.commands.clone()
        && let Some(reply) = Box::pin(commands::answer(gateway, exchange, &commands)).await
    {
        return reply;
    }
    match exchange.method.as_str() {
        "tools/call" | "prompts/get" | "resources/read" | "completion/complete" => {
            forward::answer(gateway, exchange).await
        }
        "tools/list" => Box::pin(lists::answer(gateway, exchange, Kind::Tools)).await,
        "prompts/list" => Box::pin(lists::answer(gateway, exchange, Kind::Prompts)).await,
        "resources/list" => Box::pin(lists::answer(gateway, exchange, Kind::Resources)).await,
        "resources/templates/list" => Box::pin(lists::answer(gateway, exchange, Kind::Templates)).await,
        "ping" if is_legacy => Reply::result(&b"{}"[..]),
        "logging/setLevel" if is_legacy => Box::pin(legacy::set_level(gateway, exchange)).await,
        "resources/subscribe" if is_legacy => Box::pin(legacy::subscribe(gateway, exchange)).await,
        "resources/unsubscribe" if is_legacy => legacy::unsubscribe(gateway, exchange),
        "server/discover" if !is_legacy => Box::pin(hello::discover(gateway, exchange)).await,
        LISTEN if !is_legacy => Box::pin(listen::listen(gateway, exchange)).await,
        // What the modern era has done away with does not exist in it.
        "initialize"
        | "ping"
        | "logging/setLevel"
        | "resources/subscribe"
        | "resources/unsubscribe"
        | "server/discover"
        | LISTEN => forward::no_method(gateway, exchange),
        _ => Box::pin(forward::forward(gateway, exchange)).await,
    }
}

/// Whether a request can only be answered by whoever knows the servers.
fn wants_servers(method: &str) -> bool {
    !matches!(method, "ping" | "server/discover" | "logging/setLevel" | LISTEN)
}

/// Returns whether [`answer`] asks policy about a request to one server, by resolving or listing.
pub(crate) fn is_judged(method: &str) -> bool {
    !matches!(
        method,
        "initialize"
            | "ping"
            | "logging/setLevel"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "server/discover"
            | LISTEN
    )
}

/// Takes a notification of a client; the refusal of what is none.
pub(crate) fn notified(
    gateway: &Gateway,
    caller: &Caller,
    scope: &Scope,
    method: &str,
    params: Option<&Bytes>,
) -> Result<(), Reply> {
    let host = &gateway.0.host;
    let taken = match scope {
        Scope::Server(server) => host.notify(caller, server.as_str(), method, params.cloned()),
        Scope::All => host.notify_all(caller, method, params.cloned()),
    };
    taken.map_err(|error| Reply::of_table(&error))
}

/// A legacy session is over: what it held is given back.
pub(crate) fn ended(gateway: &Gateway, session: &Session) {
    gateway.0.subscriptions.end(session.id());
    gateway.0.host.end_session(session.caller());
}
