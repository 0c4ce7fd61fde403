//! Prompts, resources and templates of resources.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use ostler_core::name::ServerName;
use ostler_host::{Kind, Offer};
use serde::Serialize;
use serde_json::value::RawValue;

use super::reply;
use crate::daemon::Daemon;
use crate::told::Told;

/// How long one server is waited for; the others don't wait for it longer.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Serialize)]
struct Listing<'a> {
    /// Every server that was asked.
    servers: Vec<&'a ServerName>,
    items: Vec<Entry<'a>>,
    errors: Vec<Broken>,
}

#[derive(Serialize)]
struct Entry<'a> {
    server: &'a ServerName,
    /// The server's own name for it, or its URI.
    name: &'a str,
    /// As the server wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    definition: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Broken {
    server: ServerName,
    error: Told,
}

pub(super) async fn prompts(State(daemon): State<Arc<Daemon>>) -> Response {
    list(&daemon, Kind::Prompts).await
}

pub(super) async fn resources(State(daemon): State<Arc<Daemon>>) -> Response {
    list(&daemon, Kind::Resources).await
}

pub(super) async fn templates(State(daemon): State<Arc<Daemon>>) -> Response {
    list(&daemon, Kind::Templates).await
}

async fn list(daemon: &Daemon, kind: Kind) -> Response {
    let offers = daemon.host.offers(&daemon.local, kind, PATIENCE).await;
    let failed = offers.iter().filter_map(|offer| {
        let error = Told::from(offer.error.as_ref()?);
        Some(Broken { server: offer.server.clone(), error })
    });
    let refused = daemon.roster.names().into_iter().filter_map(|server| {
        let error = Told::from(&daemon.roster.refusal(server.as_str())?);
        Some(Broken { server, error })
    });
    let listing = Listing {
        servers: offers.iter().map(|offer| &offer.server).collect(),
        items: offers.iter().flat_map(entries).collect(),
        errors: failed.chain(refused).collect(),
    };
    reply(StatusCode::OK, &listing)
}

fn entries(offer: &Offer) -> impl Iterator<Item = Entry<'_>> {
    offer.items.iter().map(|item| Entry {
        server: &offer.server,
        name: &item.name,
        definition: serde_json::from_slice(&item.definition).ok(),
    })
}
