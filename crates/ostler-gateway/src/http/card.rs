//! Cards of the endpoints, and the catalog of these cards (SEP-2127).
//!
//! They show what the caller may see and nothing else: a hidden server has the card of none. They are in Ostler's own
//! words; what a server says of itself is told by its own answers, which pins judge.

use axum::Router;
use axum::extract::{OriginalUri, Path, Request, State};
use axum::routing::get;
use http::{HeaderValue, StatusCode, Uri, header};
use ostler_core::card::{MEDIA_TYPE, PATH, SCHEMA};
use ostler_core::name::ServerName;
use ostler_wire::{LEGACY_VERSIONS, MODERN_VERSION};
use serde_json::{Value, json};

use super::payload::{Payload, Response};
use super::refuse::{body, refuse};
use super::{Origin, Transport, Visit, begin, gate, hold, metadata};
use crate::auth::split_port;
use crate::gateway::Gateway;

const CATALOG: &str = "/.well-known/mcp/catalog.json";
/// Namespace of the names of our cards.
const NAMESPACE: &str = "dev.ostler";
/// The name of the endpoint of all servers.
const ALL: &str = "ostler";
/// What a caller may see changes with the config, and is none of another caller's business.
const CACHE: HeaderValue = HeaderValue::from_static("private, max-age=60");
const VARY: HeaderValue = HeaderValue::from_static("authorization, origin");

/// Adds the routes of the cards and of their catalog.
pub(super) fn add(routes: Router<Gateway>) -> Router<Gateway> {
    routes
        .route(&format!("/mcp/{PATH}"), get(all))
        .route(&format!("/servers/{{name}}/mcp/{PATH}"), get(one))
        .route(CATALOG, get(catalog))
}

async fn all(
    State(gateway): State<Gateway>,
    OriginalUri(uri): OriginalUri,
    request: Request,
) -> axum::response::Response {
    answer(gateway, None, request, |visit, base| card_at(visit, base, &uri, None)).await
}

async fn one(
    State(gateway): State<Gateway>,
    Path(name): Path<String>,
    OriginalUri(uri): OriginalUri,
    request: Request,
) -> axum::response::Response {
    answer(gateway, Some(&name), request, |visit, base| card_at(visit, base, &uri, Some(&name))).await
}

async fn catalog(
    State(gateway): State<Gateway>,
    OriginalUri(uri): OriginalUri,
    request: Request,
) -> axum::response::Response {
    answer(gateway, None, request, |visit, base| catalog_at(visit, base, &uri)).await
}

/// Answers a request that passes the checks of the endpoint with a document, which is made for the address of this
/// host as the client sees it.
async fn answer(
    gateway: Gateway,
    server: Option<&str>,
    request: Request,
    document: impl FnOnce(&Visit, &str) -> (Value, HeaderValue),
) -> axum::response::Response {
    let origin = Origin::of(&request);
    let (parts, _) = request.into_parts();
    let host = gate::host(&parts.uri, &parts.headers).unwrap_or_default().to_owned();
    let begun = begin(gateway, (server, Transport::Streamable), origin, parts).await;
    let (visit, share) = match begun {
        Ok(begun) => begun,
        Err(refusal) => return refusal.map(Payload::into_body),
    };
    if let Some(readiness) = &visit.gateway.0.options.readiness
        && let Some(waiting) = readiness()
        && let Err(error) = waiting.await
    {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()).map(Payload::into_body);
    }
    let base = metadata::base(visit.gateway.0.options.resource_metadata.as_ref(), &host);
    let (text, kind) = document(&visit, &base);
    let mut response: Response = body(StatusCode::OK, text.to_string().into_bytes());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, CACHE);
    headers.insert(header::VARY, VARY);
    // The page of an origin that may talk to us may read the answer.
    if let Some(origin) = visit.headers.get(header::ORIGIN) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    }
    hold::keep(response, share).map(Payload::into_body)
}

/// Describes the endpoint whose path names a server, or none.
fn card_at(visit: &Visit, base: &str, uri: &Uri, named: Option<&str>) -> (Value, HeaderValue) {
    let server = visit.scope.server().map(ServerName::as_str);
    let endpoint = Transport::Streamable.path(named);
    // The router may be nested in another one.
    let segments = endpoint.matches('/').count() + 1;
    let prefix = uri.path().rsplitn(segments + 1, '/').last().unwrap_or_default();
    let description = match server {
        Some(server) => format!("The MCP server `{server}`, served by Ostler"),
        None => "The MCP servers that you may use, behind one endpoint of Ostler".into(),
    };
    let versions: Vec<&str> = std::iter::once(MODERN_VERSION).chain(LEGACY_VERSIONS).collect();
    let card = json!({
        "$schema": SCHEMA,
        "name": format!("{NAMESPACE}/{}", server.unwrap_or(ALL)),
        "title": server.unwrap_or("Ostler"),
        "description": description,
        "version": visit.gateway.0.options.version,
        "remotes": [{
            "type": "streamable-http",
            "url": format!("{base}{prefix}{endpoint}"),
            "supportedProtocolVersions": versions,
        }],
    });
    (card, HeaderValue::from_static(MEDIA_TYPE))
}

/// Lists the cards of all endpoints that the caller may see.
fn catalog_at(visit: &Visit, base: &str, uri: &Uri) -> (Value, HeaderValue) {
    let prefix = uri.path().strip_suffix(CATALOG).unwrap_or_default();
    let authority = base.split_once("://").map_or(base, |(_, authority)| authority);
    // Colons separate the parts of an identifier, so an address of IPv6 can't be one.
    let publisher = Some(split_port(authority).0).filter(|name| !name.contains(':')).unwrap_or("localhost");
    let entry = |name: &str, title: &str, endpoint: String| {
        json!({
            "identifier": format!("urn:air:{publisher}:{name}"),
            "displayName": title,
            "type": MEDIA_TYPE,
            "url": format!("{base}{prefix}{endpoint}/{PATH}"),
        })
    };
    let seen = visit.gateway.0.host.visible_status(&visit.caller);
    let servers = seen.iter().map(|status| {
        let name = status.name.as_str();
        entry(name, name, Transport::Streamable.path(Some(name)))
    });
    let entries: Vec<Value> =
        std::iter::once(entry(ALL, "Ostler", Transport::Streamable.path(None))).chain(servers).collect();
    let catalog = json!({ "specVersion": "draft", "entries": entries });
    (catalog, HeaderValue::from_static("application/json"))
}
