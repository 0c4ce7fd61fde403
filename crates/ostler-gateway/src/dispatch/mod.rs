//! Dispatch: answers one request of a client.
//!
//! ```text
//! mod.rs                the table of methods
//! initialize.rs         initialize, server/discover
//! commands.rs           requests of the program's own commands
//! list.rs               lists of all servers, and of one
//! forward.rs            requests to one server: resolved and sent by the host
//!   param_headers.rs      headers that repeat arguments
//!   observer.rs           notifications and server requests during the call
//!   input_required.rs     a modern server asks a legacy client
//!   suspended.rs          a legacy server asks a modern client
//! listen.rs             subscriptions of modern clients
//! status.rs             the states of servers as a resource
//! legacy_methods.rs     methods of legacy clients only: log level, subscriptions to resources
//! first_root.rs         the workspace of a legacy client
//! subscriptions.rs      limits for subscriptions of both eras
//! notifications.rs      events of servers → listens and sessions
//! error_replies.rs      errors and results as replies
//! ```

mod commands;
mod error_replies;
mod first_root;
mod forward;
mod initialize;
mod input_required;
mod legacy_methods;
mod list;
mod listen;
mod notifications;
mod observer;
mod param_headers;
mod status;
mod subscriptions;
mod suspended;

use bytes::Bytes;
use ostler_core::caller::Caller;
use ostler_host::Kind;
use ostler_wire::SUBSCRIPTIONS_LISTEN;

use crate::client_request::{ClientEra, ClientRequest, GatewayReply};
use crate::client_session::ClientSession;
use crate::gateway::Gateway;
use ostler_host::Scope;

pub(crate) use first_root::in_first_root;
pub(crate) use initialize::initialize;
pub(crate) use legacy_methods::SessionSubscriptions;
pub(crate) use listen::closed_reply;
pub(crate) use notifications::{ClientNotifications, spawn_event_task};
pub(crate) use subscriptions::SubscriptionLimits;
pub(crate) use suspended::SuspendedCalls;

/// Answers one request; dropping the future cancels it upstream.
///
/// Requests other than calls are boxed: the future of a call is allocated for each call, and would be as large as the
/// largest of all.
pub(crate) async fn dispatch_request(gateway: &Gateway, exchange: &mut ClientRequest) -> GatewayReply {
    let is_legacy = matches!(exchange.client, ClientEra::Legacy(_));
    if let Some(readiness) = &gateway.0.options.readiness
        && needs_servers(exchange.method.as_str())
        && let Some(waiting) = readiness()
        && let Err(error) = waiting.await
    {
        return GatewayReply::from_call_error(&error, exchange.client.era());
    }
    if let Err(error) = ostler_host::check_item_param(exchange.method.as_str(), &exchange.params) {
        return forward::recorded_refusal(gateway, exchange, &error);
    }
    if let Some(commands) = exchange.command_extensions.clone()
        && let Some(reply) = Box::pin(commands::answer_command(gateway, exchange, &commands)).await
    {
        return reply;
    }
    match exchange.method.as_str() {
        "tools/call" | "prompts/get" | "resources/read" | "completion/complete" => {
            forward::answer_named(gateway, exchange).await
        }
        "tools/list" => Box::pin(list::answer_list(gateway, exchange, Kind::Tools)).await,
        "prompts/list" => Box::pin(list::answer_list(gateway, exchange, Kind::Prompts)).await,
        "resources/list" => Box::pin(list::answer_list(gateway, exchange, Kind::Resources)).await,
        "resources/templates/list" => Box::pin(list::answer_list(gateway, exchange, Kind::Templates)).await,
        "ping" if is_legacy => GatewayReply::result(&b"{}"[..]),
        "logging/setLevel" if is_legacy => Box::pin(legacy_methods::set_log_level(gateway, exchange)).await,
        "resources/subscribe" if is_legacy => Box::pin(legacy_methods::subscribe(gateway, exchange)).await,
        "resources/unsubscribe" if is_legacy => legacy_methods::unsubscribe(gateway, exchange),
        "server/discover" if !is_legacy => Box::pin(initialize::discover(gateway, exchange)).await,
        SUBSCRIPTIONS_LISTEN if !is_legacy => Box::pin(listen::listen(gateway, exchange)).await,
        // Methods that the modern era has removed do not exist in it.
        "initialize"
        | "ping"
        | "logging/setLevel"
        | "resources/subscribe"
        | "resources/unsubscribe"
        | "server/discover"
        | SUBSCRIPTIONS_LISTEN => forward::method_not_found(gateway, exchange),
        _ => Box::pin(forward::forward(gateway, exchange)).await,
    }
}

/// Returns whether the reply to a method depends on the servers.
fn needs_servers(method: &str) -> bool {
    !matches!(method, "ping" | "server/discover" | "logging/setLevel" | SUBSCRIPTIONS_LISTEN)
}

/// Returns whether [`dispatch_request`] asks policy about a request to one server, by resolving or listing.
pub(crate) fn is_policy_checked(method: &str) -> bool {
    !matches!(
        method,
        "initialize"
            | "ping"
            | "logging/setLevel"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "server/discover"
            | SUBSCRIPTIONS_LISTEN
    )
}

/// Returns whether a method lists; its reply may be a whole page.
pub(crate) fn is_list(method: &str) -> bool {
    matches!(method, "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list")
}

/// Takes a notification of a client; returns a refusal if the message is not a valid notification.
pub(crate) fn handle_notification(
    gateway: &Gateway,
    caller: &Caller,
    scope: &Scope,
    method: &str,
    params: Option<&Bytes>,
) -> Result<(), GatewayReply> {
    let host = &gateway.0.host;
    let taken = match scope {
        Scope::Server(server) => host.notify(caller, server.as_str(), method, params.cloned()),
        Scope::All => host.notify_all(caller, method, params.cloned()),
    };
    taken.map_err(|error| GatewayReply::from_own_error(&error))
}

/// Releases the subscriptions of a legacy session that has ended.
pub(crate) fn release_session(gateway: &Gateway, session: &ClientSession) {
    gateway.0.subscriptions.remove_session(session.id());
    gateway.0.host.end_session(session.caller());
}
