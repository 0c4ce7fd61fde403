//! Where tokens for the endpoints come from: the metadata of RFC 9728.
//!
//! It is told to whoever asks, since who has no token yet needs it, and it is
//! the same for a server that is there and one that is not.

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use serde_json::json;

use super::payload::Payload;
use super::{gate, refuse};
use crate::gateway::Gateway;
use crate::options::ResourceMetadata;

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// Adds the routes of the metadata: of the whole host, and of each endpoint.
pub(super) fn add(routes: Router<Gateway>) -> Router<Gateway> {
    let endpoints = ["", "/mcp", "/servers/{name}/mcp", "/sse", "/servers/{name}/sse"];
    endpoints.iter().fold(routes, |routes, path| routes.route(&format!("{WELL_KNOWN}{path}"), get(tell)))
}

/// Where the metadata of an endpoint is told.
pub(super) fn address(metadata: &ResourceMetadata, host: &str, path: &str) -> String {
    format!("{}{WELL_KNOWN}{path}", base(Some(metadata), host))
}

async fn tell(State(gateway): State<Gateway>, request: Request) -> Response {
    if let Err(refusal) = gateway.admit(request.uri(), request.headers()) {
        return *refusal;
    }
    let Some(metadata) = &gateway.0.options.resource_metadata else {
        let refusal = refuse::refuse(StatusCode::NOT_FOUND, "there is nothing to tell about tokens");
        return refusal.map(Payload::into_body);
    };
    let host = gate::host(request.uri(), request.headers()).unwrap_or_default();
    // The resource is named as it was asked for, which is what its clients compare.
    let path = request.uri().path().strip_prefix(WELL_KNOWN).unwrap_or_default();
    let told = json!({
        "resource": format!("{}{path}", base(Some(metadata), host)),
        "authorization_servers": metadata.authorization_servers,
        "bearer_methods_supported": ["header"],
    });
    refuse::body(StatusCode::OK, told.to_string().into_bytes()).map(Payload::into_body)
}

/// Returns the address of this host as clients see it, without a path.
pub(super) fn base(metadata: Option<&ResourceMetadata>, host: &str) -> String {
    match metadata.and_then(|metadata| metadata.base.as_ref()) {
        Some(base) => base.trim_end_matches('/').to_owned(),
        None => format!("http://{host}"),
    }
}
