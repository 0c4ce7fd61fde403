//! Server cards of the endpoints, and the catalog of these cards (SEP-2127).
//!
//! They list only what the caller may see: a hidden server has the card of a missing one. Their text is Ostler's own; a
//! server describes itself in its own answers, which pins check.

use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, Uri, header};
use ostler_core::card::{MEDIA_TYPE, PATH, SCHEMA};
use ostler_core::loopback::split_port;
use ostler_core::server_name::ServerName;
use ostler_wire::{LEGACY_VERSIONS, MODERN_VERSION};
use serde_json::{Value, json};

use super::response::{Response, body, refuse};
use super::route::{CATALOG, EndpointTransport};
use super::{EndpointRequest, Peer, check_head, get_only, origin, resource_metadata};
use crate::gateway::Gateway;

/// Namespace of the names of the gateway's cards.
const NAMESPACE: &str = "dev.ostler";
/// Name of the endpoint of all servers.
const ALL: &str = "ostler";
/// The rights of a caller change with the config, and no other caller may read them.
const CACHE: HeaderValue = HeaderValue::from_static("private, max-age=60");
const VARY: HeaderValue = HeaderValue::from_static("authorization, origin");

/// Answers with the card of one endpoint.
pub(super) async fn get_card(
    gateway: Gateway,
    (server, uri): (Option<&str>, &Uri),
    peer: Peer,
    parts: Parts,
) -> Response {
    respond_document(gateway, server, (peer, parts), |visit, base| card_document(visit, base, uri, server))
        .await
}

/// Answers with the catalog of all cards.
pub(super) async fn get_catalog(gateway: Gateway, uri: &Uri, peer: Peer, parts: Parts) -> Response {
    respond_document(gateway, None, (peer, parts), |visit, base| catalog_document(visit, base, uri)).await
}

/// Answers a request that passes the checks of the endpoint with a document, made for the address of this host as the
/// client sees it.
async fn respond_document(
    gateway: Gateway,
    server: Option<&str>,
    (peer, parts): (Peer, Parts),
    document: impl FnOnce(&EndpointRequest, &str) -> (Value, HeaderValue),
) -> Response {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return get_only();
    }
    let host = origin::request_host(&parts.uri, &parts.headers).unwrap_or_default().to_owned();
    let (visit, permit) =
        match check_head(gateway, (server, EndpointTransport::Streamable), peer, parts).await {
            Ok(begun) => begun,
            Err(refusal) => return *refusal,
        };
    if let Some(readiness) = &visit.gateway.0.options.readiness
        && let Some(waiting) = readiness()
        && let Err(error) = waiting.await
    {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
    }
    let base = resource_metadata::base_url(visit.gateway.0.options.resource_metadata.as_ref(), &host);
    let (text, kind) = document(&visit, &base);
    let mut response = body(StatusCode::OK, text.to_string().into_bytes());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, CACHE);
    headers.insert(header::VARY, VARY);
    // The page of an allowed origin may read the answer.
    if let Some(origin) = visit.headers.get(header::ORIGIN) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    }
    response.map(|payload| payload.with_permit(permit))
}

/// Describes the endpoint of one server, or of all servers.
fn card_document(
    visit: &EndpointRequest,
    base: &str,
    uri: &Uri,
    named: Option<&str>,
) -> (Value, HeaderValue) {
    let server = visit.scope.server().map(ServerName::as_str);
    let endpoint = EndpointTransport::Streamable.path(named);
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
fn catalog_document(visit: &EndpointRequest, base: &str, uri: &Uri) -> (Value, HeaderValue) {
    let prefix = uri.path().strip_suffix(CATALOG).unwrap_or_default();
    let authority = base.split_once("://").map_or(base, |(_, authority)| authority);
    // Colons separate the parts of an identifier, so an IPv6 address can't be one.
    let publisher = Some(split_port(authority).0).filter(|name| !name.contains(':')).unwrap_or("localhost");
    let entry = |name: &str, title: &str, endpoint: String| {
        json!({
            "identifier": format!("urn:air:{publisher}:{name}"),
            "displayName": title,
            "type": MEDIA_TYPE,
            "url": format!("{base}{prefix}{endpoint}/{PATH}"),
        })
    };
    let seen = visit.gateway.0.host.servers(&visit.caller);
    let servers = seen.iter().map(|server| {
        let name = server.as_str();
        entry(name, name, EndpointTransport::Streamable.path(Some(name)))
    });
    let entries: Vec<Value> = std::iter::once(entry(ALL, "Ostler", EndpointTransport::Streamable.path(None)))
        .chain(servers)
        .collect();
    let catalog = json!({ "specVersion": "draft", "entries": entries });
    (catalog, HeaderValue::from_static("application/json"))
}
