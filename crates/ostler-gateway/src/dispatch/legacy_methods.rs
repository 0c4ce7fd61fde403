//! Methods of legacy clients only: the log level, and subscriptions to resources for a whole session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;
use ostler_host::LogLevel;
use ostler_wire::Era;

use super::forward;
use super::subscriptions::{self, ClientSubscription};
use crate::client_request::{ClientEra, ClientRequest, GatewayReply};
use crate::client_session::ClientSession;
use crate::gateway::Gateway;
use ostler_host::Scope;

/// Resources that one session may subscribe to; bounds the memory of one session.
const MAX_PER_SESSION: usize = 1_024;

/// Subscriptions of legacy sessions, by session and URI.
#[derive(Default)]
pub(crate) struct SessionSubscriptions(Mutex<HashMap<Box<str>, SubscribedResources>>);

/// Resources of a session, each with the server that announces its changes.
type SubscribedResources = HashMap<Arc<str>, (ServerName, ClientSubscription)>;

impl SessionSubscriptions {
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, SubscribedResources>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a session is subscribed to a server's resource.
    pub(crate) fn is_subscribed(&self, session: &str, server: &ServerName, uri: &str) -> bool {
        let all = self.lock();
        let held = all.get(session).and_then(|uris| uris.get(uri));
        held.is_some_and(|(from, _)| from == server)
    }

    /// Returns the resources that a session is subscribed to, with their servers.
    pub(crate) fn resources_of(&self, session: &str) -> Vec<(ServerName, Arc<str>)> {
        let all = self.lock();
        let uris = all.get(session).into_iter().flatten();
        uris.map(|(uri, (server, _))| (server.clone(), Arc::clone(uri))).collect()
    }

    /// Removes the subscriptions of a session.
    pub(crate) fn remove_session(&self, session: &str) {
        let held = self.lock().remove(session);
        // Dropped outside the lock: each guard unsubscribes at its server's slot.
        drop(held);
    }
}

fn legacy_session(exchange: &ClientRequest) -> Option<&ClientSession> {
    match &exchange.client {
        ClientEra::Legacy(session) => Some(session),
        ClientEra::Modern => None,
    }
}

/// Answers `logging/setLevel`: stores the level in the session and requests it from the servers.
pub(crate) async fn set_log_level(gateway: &Gateway, exchange: &ClientRequest) -> GatewayReply {
    let name = ostler_wire::text_member(exchange.params.raw(), "level");
    let Some(level) = name.and_then(|name| LogLevel::parse(&name)) else {
        return GatewayReply::invalid_params(
            "`level` is none of debug, info, notice, warning, error, critical, alert, emergency",
        );
    };
    let host = &gateway.0.host;
    match &exchange.scope {
        Scope::Server(server) => {
            let hello = host.server_info(&exchange.caller, server.as_str()).await;
            match hello {
                Err(error) => return GatewayReply::from_call_error(&error, Era::Legacy),
                Ok(hello) if !hello.has_capability("logging") => {
                    return GatewayReply::method_not_found(exchange.method.as_str());
                }
                Ok(_) => host.request_log_level(&exchange.caller, server.as_str(), level),
            }
        }
        Scope::All => {
            for server in host.servers(&exchange.caller) {
                host.request_log_level(&exchange.caller, server.as_str(), level);
            }
        }
    }
    if let Some(session) = legacy_session(exchange) {
        session.set_log_level(level.as_str());
    }
    GatewayReply::result(&b"{}"[..])
}

/// Answers `resources/subscribe`.
pub(crate) async fn subscribe(gateway: &Gateway, exchange: &ClientRequest) -> GatewayReply {
    let (Some(session), Some(uri)) = (legacy_session(exchange), exchange.params.uri()) else {
        return GatewayReply::invalid_params("`uri` is missing or not a string");
    };
    let server = forward::resource_owner(gateway, exchange, &uri).await;
    let Some(server) = server else { return forward::resource_not_found(&uri, &exchange.client) };
    let is_full =
        gateway.0.subscriptions.lock().get(session.id()).is_some_and(|uris| uris.len() >= MAX_PER_SESSION);
    if is_full {
        return GatewayReply::invalid_params(&format!(
            "a session can subscribe to {MAX_PER_SESSION} resources"
        ));
    }
    let subscription = match subscriptions::subscribe(gateway, &exchange.caller, server.as_str(), &uri).await
    {
        Ok(subscription) => subscription,
        // Over all servers the gateway can't tell which server was asked.
        Err(CallError::UnknownResource { .. }) if exchange.scope == Scope::All => {
            return forward::resource_not_found(&uri, &exchange.client);
        }
        Err(error) => return GatewayReply::from_call_error(&error, Era::Legacy),
    };
    let before = {
        let mut all = gateway.0.subscriptions.lock();
        let uris = all.entry(session.id().into()).or_default();
        uris.insert(Arc::clone(subscription.uri()), (server, subscription))
    };
    // A second subscription replaces the first; in this drop order the server receives no request.
    drop(before);
    GatewayReply::result(&b"{}"[..])
}

/// Answers `resources/unsubscribe`. Succeeds for a resource without a subscription too.
pub(crate) fn unsubscribe(gateway: &Gateway, exchange: &ClientRequest) -> GatewayReply {
    let (Some(session), Some(uri)) = (legacy_session(exchange), exchange.params.uri()) else {
        return GatewayReply::invalid_params("`uri` is missing or not a string");
    };
    let held = {
        let mut all = gateway.0.subscriptions.lock();
        all.get_mut(session.id()).and_then(|uris| uris.remove(&*uri))
    };
    drop(held);
    GatewayReply::result(&b"{}"[..])
}
