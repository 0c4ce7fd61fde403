//! Metadata of RFC 9728: where tokens for the endpoints come from.
//!
//! It is told to whoever asks, since who has no token yet needs it, and it is
//! the same for a server that is there and one that is not.

use http::request::Parts;
use http::{Method, StatusCode};
use serde_json::json;

use super::response::{Response, body, refuse};
use super::route::METADATA;
use super::{get_only, origin};
use crate::gateway::Gateway;
use crate::options::ResourceMetadata;

/// Where the metadata of an endpoint is told.
pub(super) fn metadata_url(metadata: &ResourceMetadata, host: &str, path: &str) -> String {
    format!("{}{METADATA}{path}", base_url(Some(metadata), host))
}

/// Tells the metadata of the endpoint with this path, or of the whole host.
pub(super) fn respond(gateway: &Gateway, path: &str, parts: &Parts) -> Response {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return get_only();
    }
    let Some(metadata) = &gateway.0.options.resource_metadata else {
        return refuse(StatusCode::NOT_FOUND, "there is nothing to tell about tokens");
    };
    let host = origin::request_host(&parts.uri, &parts.headers).unwrap_or_default();
    let told = json!({
        // The resource is named as it was asked for, which is what its clients compare.
        "resource": format!("{}{path}", base_url(Some(metadata), host)),
        "authorization_servers": metadata.authorization_servers,
        "bearer_methods_supported": ["header"],
    });
    body(StatusCode::OK, told.to_string().into_bytes())
}

/// Returns the address of this host as clients see it, without a path.
pub(super) fn base_url(metadata: Option<&ResourceMetadata>, host: &str) -> String {
    match metadata.and_then(|metadata| metadata.base_url.as_ref()) {
        Some(base) => base.trim_end_matches('/').to_owned(),
        None => format!("http://{host}"),
    }
}
