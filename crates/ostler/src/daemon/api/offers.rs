//! Prompts, resources and templates of resources.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use ostler_host::{Kind, Scope, ServerListing};

use super::query::Query;
use super::{fail, reply};
use crate::api::{ErrorBody, Offer, Offers, ServerError};
use crate::daemon::Daemon;
use crate::reach::LIST_PATIENCE;
use crate::workspace;

pub(super) async fn prompts(
    State(daemon): State<Arc<Daemon>>,
    query: RawQuery,
    headers: HeaderMap,
) -> Response {
    list(&daemon, &headers, &query, Kind::Prompts).await
}

pub(super) async fn resources(
    State(daemon): State<Arc<Daemon>>,
    query: RawQuery,
    headers: HeaderMap,
) -> Response {
    list(&daemon, &headers, &query, Kind::Resources).await
}

pub(super) async fn templates(
    State(daemon): State<Arc<Daemon>>,
    query: RawQuery,
    headers: HeaderMap,
) -> Response {
    list(&daemon, &headers, &query, Kind::Templates).await
}

async fn list(daemon: &Daemon, headers: &HeaderMap, RawQuery(query): &RawQuery, kind: Kind) -> Response {
    let caller = workspace::caller_of(headers, daemon.local.clone()).await;
    let named = Query(query.as_deref().unwrap_or_default()).get("server").filter(|name| !name.is_empty());
    let named = match named.map(|name| daemon.visible_name(&caller, name)).transpose() {
        Ok(named) => named,
        Err(error) => return fail(&error),
    };
    let listings = match &named {
        Some(server) if daemon.roster.refusal(server.as_str()).is_some() => Vec::new(),
        _ => {
            let scope = named.clone().map_or(Scope::All, Scope::Server);
            daemon.host.list(&caller, &scope, kind, LIST_PATIENCE).await
        }
    };
    let failed = listings.iter().filter_map(|listing| {
        let error = ErrorBody::from(listing.error.as_ref()?);
        Some(ServerError { server: listing.server.clone(), error })
    });
    let names = named.clone().map_or_else(|| daemon.roster.names(), |server| vec![server]);
    let refused = names.into_iter().filter_map(|server| {
        let error = ErrorBody::from(&daemon.roster.refusal(server.as_str())?);
        Some(ServerError { server, error })
    });
    let listing = Offers {
        servers: listings.iter().map(|listing| listing.server.clone()).collect(),
        items: listings.iter().flat_map(entries).collect(),
        errors: failed.chain(refused).collect(),
    };
    reply(StatusCode::OK, &listing)
}

fn entries(listing: &ServerListing) -> impl Iterator<Item = Offer> {
    listing.items.iter().map(|listed| Offer {
        server: listing.server.clone(),
        name: listed.item.name.to_string(),
        definition: serde_json::from_slice(&listed.item.definition).ok(),
    })
}
