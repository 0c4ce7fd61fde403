//! What only legacy clients ask: a log level and subscriptions of resources
//! for their whole session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_host::LogLevel;
use ostler_wire::Era;

use super::forward;
use super::subscribed::{self, Subscribed};
use crate::exchange::{Client, Exchange, Reply};
use crate::gateway::Gateway;
use crate::session::Session;
use ostler_host::Scope;

/// Resources that one session may subscribe to.
const PER_SESSION: usize = 1_024;

/// What legacy sessions have subscribed to, by session and URI.
#[derive(Default)]
pub(crate) struct Subscriptions(Mutex<HashMap<Box<str>, Resources>>);

/// The resources of a session, and the server that tells of each.
type Resources = HashMap<Arc<str>, (ServerName, Subscribed)>;

impl Subscriptions {
    fn all(&self) -> MutexGuard<'_, HashMap<Box<str>, Resources>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a session wants to hear of a server's resource.
    pub(crate) fn wants(&self, session: &str, server: &ServerName, uri: &str) -> bool {
        let all = self.all();
        let held = all.get(session).and_then(|uris| uris.get(uri));
        held.is_some_and(|(from, _)| from == server)
    }

    /// The resources that a session wants to hear of, and whose they are.
    pub(crate) fn of(&self, session: &str) -> Vec<(ServerName, Arc<str>)> {
        let all = self.all();
        let uris = all.get(session).into_iter().flatten();
        uris.map(|(uri, (server, _))| (server.clone(), Arc::clone(uri))).collect()
    }

    /// Gives back what a session held.
    pub(crate) fn end(&self, session: &str) {
        let held = self.all().remove(session);
        // Guards go outside the lock: each talks to its server's desk.
        drop(held);
    }
}

fn session(exchange: &Exchange) -> Option<&Session> {
    match &exchange.client {
        Client::Legacy(session) => Some(session),
        Client::Modern => None,
    }
}

/// `logging/setLevel`: kept in the session, and asked of the servers.
pub(crate) async fn set_level(gateway: &Gateway, exchange: &Exchange) -> Reply {
    let name = ostler_wire::text_member(exchange.params.raw(), "level");
    let Some(level) = name.and_then(|name| LogLevel::parse(&name)) else {
        return Reply::invalid(
            "`level` is none of debug, info, notice, warning, error, critical, alert, emergency",
        );
    };
    let host = &gateway.0.host;
    match &exchange.scope {
        Scope::Server(server) => {
            let hello = host.hello(&exchange.caller, server.as_str()).await;
            match hello {
                Err(error) => return Reply::failed(&error, Era::Legacy),
                Ok(hello) if !hello.has_capability("logging") => {
                    return Reply::no_method(exchange.method.as_str());
                }
                Ok(_) => host.want_log_level(&exchange.caller, server.as_str(), level),
            }
        }
        Scope::All => {
            for server in host.servers(&exchange.caller) {
                host.want_log_level(&exchange.caller, server.as_str(), level);
            }
        }
    }
    if let Some(session) = session(exchange) {
        session.set_log_level(level.as_str());
    }
    Reply::result(&b"{}"[..])
}

/// `resources/subscribe`.
pub(crate) async fn subscribe(gateway: &Gateway, exchange: &Exchange) -> Reply {
    let (Some(session), Some(uri)) = (session(exchange), exchange.params.uri()) else {
        return Reply::invalid("`uri` is missing or not a string");
    };
    let server = forward::owner_of(gateway, exchange, &uri).await;
    let Some(server) = server else { return forward::not_found(&uri, &exchange.client) };
    let is_full =
        gateway.0.subscriptions.all().get(session.id()).is_some_and(|uris| uris.len() >= PER_SESSION);
    if is_full {
        return Reply::invalid(&format!("a session can subscribe to {PER_SESSION} resources"));
    }
    let subscription = match subscribed::subscribe(gateway, &exchange.caller, server.as_str(), &uri).await {
        Ok(subscription) => subscription,
        // Over all servers nobody can tell who was asked.
        Err(CallError::UnknownResource { .. }) if exchange.scope == Scope::All => {
            return forward::not_found(&uri, &exchange.client);
        }
        Err(error) => return Reply::failed(&error, Era::Legacy),
    };
    let before = {
        let mut all = gateway.0.subscriptions.all();
        let uris = all.entry(session.id().into()).or_default();
        uris.insert(Arc::clone(subscription.uri()), (server, subscription))
    };
    // A second subscription replaces the first; dropped in this order the server hears nothing of it.
    drop(before);
    Reply::result(&b"{}"[..])
}

/// `resources/unsubscribe`. What was not subscribed to is not subscribed to afterwards either.
pub(crate) fn unsubscribe(gateway: &Gateway, exchange: &Exchange) -> Reply {
    let (Some(session), Some(uri)) = (session(exchange), exchange.params.uri()) else {
        return Reply::invalid("`uri` is missing or not a string");
    };
    let held = {
        let mut all = gateway.0.subscriptions.all();
        all.get_mut(session.id()).and_then(|uris| uris.remove(&*uri))
    };
    drop(held);
    Reply::result(&b"{}"[..])
}
