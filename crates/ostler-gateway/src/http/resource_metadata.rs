//! Metadata of RFC 9728: names the authorization servers of the endpoints.
//!
//! It needs no credential, since a client without a token reads it, and it is the same for a server that exists and one
//! that does not.

use http::request::Parts;
use http::{Method, StatusCode};
use serde_json::json;

use super::response::{Response, body, refuse};
use super::route::METADATA;
use super::{get_only, origin};
use crate::gateway::Gateway;
use crate::options::ResourceMetadata;

/// Returns the URL of an endpoint's metadata.
pub(super) fn metadata_url(metadata: &ResourceMetadata, host: &str, path: &str) -> String {
    format!("{}{METADATA}{path}", base_url(Some(metadata), host))
}

/// Answers with the metadata of the endpoint at this path, or of the whole host.
pub(super) fn respond(gateway: &Gateway, path: &str, parts: &Parts) -> Response {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return get_only();
    }
    let Some(metadata) = &gateway.0.options.resource_metadata else {
        return refuse(StatusCode::NOT_FOUND, "there is nothing to tell about tokens");
    };
    let host = origin::request_host(&parts.uri, &parts.headers).unwrap_or_default();
    let told = json!({
        // The resource has the name that was requested, which clients compare.
        "resource": format!("{}{path}", base_url(Some(metadata), host)),
        "authorization_servers": metadata.authorization_servers,
        "bearer_methods_supported": ["header"],
    });
    body(StatusCode::OK, told.to_string().into_bytes())
}

/// Returns the base URL of this host as clients see it, without a path.
pub(super) fn base_url(metadata: Option<&ResourceMetadata>, host: &str) -> String {
    match metadata.and_then(|metadata| metadata.base_url.as_ref()) {
        Some(base) => base.trim_end_matches('/').to_owned(),
        None => format!("http://{host}"),
    }
}
