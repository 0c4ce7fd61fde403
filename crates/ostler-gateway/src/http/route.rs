//! Routes: the paths of the gateway, and the router over all of them.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, OriginalUri, Request, State};
use axum::routing::any;
use http::StatusCode;
use ostler_core::card;
use percent_encoding::percent_decode_str;

use super::response::{Payload, refuse};
use super::{ClientConnection, Peer, respond};
use crate::gateway::Gateway;

/// Path of the catalog of server cards.
pub(super) const CATALOG: &str = "/.well-known/mcp/catalog.json";

/// Path of the metadata of RFC 9728, followed by the path of an endpoint.
pub(super) const METADATA: &str = "/.well-known/oauth-protected-resource";

/// Route of a path. `None` as its server means the endpoint of all servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// Endpoint of MCP clients.
    Mcp { server: Option<Cow<'a, str>>, transport: EndpointTransport },
    /// Card of an endpoint.
    Card { server: Option<Cow<'a, str>> },
    /// Catalog of all cards.
    Catalog,
    /// Metadata of an endpoint, or of the whole host.
    Metadata { path: &'a str },
}

/// Transport of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndpointTransport {
    Streamable,
    /// HTTP+SSE of revision 2024-11-05.
    Sse,
}

impl EndpointTransport {
    /// Returns the path of an endpoint, without any part that a client has made up.
    pub(super) fn path(self, server: Option<&str>) -> String {
        let last = match self {
            Self::Streamable => "mcp",
            Self::Sse => "sse",
        };
        match server {
            Some(server) => format!("/servers/{server}/{last}"),
            None => format!("/{last}"),
        }
    }
}

impl<'a> Route<'a> {
    /// Parses a path; `None` if it is none of the gateway's.
    fn parse(path: &'a str) -> Option<Self> {
        // The usual path first.
        if path == "/mcp" {
            return Some(Self::Mcp { server: None, transport: EndpointTransport::Streamable });
        }
        if path == CATALOG {
            return Some(Self::Catalog);
        }
        if let Some(path) = path.strip_prefix(METADATA) {
            let is_known = path.is_empty() || matches!(Self::parse_endpoint(path), Some(Self::Mcp { .. }));
            return is_known.then_some(Self::Metadata { path });
        }
        Self::parse_endpoint(path)
    }

    /// Parses the path of an endpoint or of its card.
    fn parse_endpoint(path: &'a str) -> Option<Self> {
        let (server, rest) = match path.strip_prefix("/servers/") {
            Some(path) => {
                let (name, rest) = path.split_once('/')?;
                (Some(decode_name(name)?), rest)
            }
            None => (None, path.strip_prefix('/')?),
        };
        match rest {
            "mcp" => Some(Self::Mcp { server, transport: EndpointTransport::Streamable }),
            "sse" => Some(Self::Mcp { server, transport: EndpointTransport::Sse }),
            rest if rest.strip_prefix("mcp/") == Some(card::PATH) => Some(Self::Card { server }),
            _ => None,
        }
    }
}

/// Decodes the name in a path. A name that is not UTF-8 matches no server, and stays as it is.
fn decode_name(name: &str) -> Option<Cow<'_, str>> {
    let decoded = || percent_decode_str(name).decode_utf8().unwrap_or(Cow::Borrowed(name));
    match name.contains('%') {
        _ if name.is_empty() => None,
        true => Some(decoded()),
        false => Some(Cow::Borrowed(name)),
    }
}

impl Gateway {
    /// Returns the route of a path; `None` if it is none of the gateway's, or its document is not configured.
    pub(crate) fn route<'a>(&self, path: &'a str) -> Option<Route<'a>> {
        let has_metadata = self.0.options.resource_metadata.is_some();
        Route::parse(path).filter(|route| has_metadata || !matches!(route, Route::Metadata { .. }))
    }

    /// Makes a router of all paths, to be served alone or merged into another router: `/mcp` and `/servers/{name}/mcp`,
    /// `sse` beside each for clients of 2024-11-05, the server cards with their catalog, and the metadata about tokens
    /// if it is configured.
    pub fn router(&self) -> Router {
        let endpoints = ["/mcp", "/servers/{name}/mcp", "/sse", "/servers/{name}/sse"];
        let cards = ["/mcp", "/servers/{name}/mcp"].map(|path| format!("{path}/{}", card::PATH));
        let mut paths: Vec<String> = endpoints.map(str::to_owned).into_iter().chain(cards).collect();
        paths.push(CATALOG.to_owned());
        if self.0.options.resource_metadata.is_some() {
            paths.extend([""].iter().chain(&endpoints).map(|path| format!("{METADATA}{path}")));
        }
        let routes = paths.iter().fold(Router::new(), |routes, path| routes.route(path, any(handle_routed)));
        routes.with_state(self.clone())
    }
}

/// Answers a request that arrives through a router.
async fn handle_routed(
    State(gateway): State<Gateway>,
    OriginalUri(named): OriginalUri,
    request: Request,
) -> axum::response::Response {
    let peer = Peer {
        address: request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0),
        connection: request.extensions().get::<Arc<ClientConnection>>().cloned(),
    };
    let uri = request.uri().clone();
    let response = match (gateway.check_origin(&uri, request.headers()), gateway.route(uri.path())) {
        (Err(refusal), _) => *refusal,
        (Ok(()), Some(route)) => respond(gateway.clone(), (route, &named), peer, request).await,
        (Ok(()), None) => refuse(StatusCode::NOT_FOUND, "there is no such path here"),
    };
    response.map(Payload::into_body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(path: &str) -> String {
        match Route::parse(path) {
            Some(Route::Mcp { server, transport }) => transport.path(server.as_deref()),
            Some(Route::Card { server }) => format!("card {}", server.unwrap_or_default()),
            Some(Route::Catalog) => "catalog".into(),
            Some(Route::Metadata { path }) => format!("metadata {path}"),
            None => String::new(),
        }
    }

    #[test]
    fn paths_of_the_gateway_are_told_from_others() {
        let table = [
            ("/mcp", "/mcp"),
            ("/sse", "/sse"),
            ("/servers/time/mcp", "/servers/time/mcp"),
            ("/servers/time/sse", "/servers/time/sse"),
            ("/servers/%74ime/mcp", "/servers/time/mcp"),
            ("/servers/..%2Fmcp/mcp", "/servers/../mcp/mcp"),
            ("/servers/%ff/mcp", "/servers/%ff/mcp"),
            ("/mcp/server-card", "card "),
            ("/servers/time/mcp/server-card", "card time"),
            ("/.well-known/mcp/catalog.json", "catalog"),
            ("/.well-known/oauth-protected-resource", "metadata "),
            ("/.well-known/oauth-protected-resource/mcp", "metadata /mcp"),
            ("/.well-known/oauth-protected-resource/servers/time/sse", "metadata /servers/time/sse"),
            ("/", ""),
            ("", ""),
            ("/mcp/", ""),
            ("/MCP", ""),
            ("//mcp", ""),
            ("/servers//mcp", ""),
            ("/servers/a/b/mcp", ""),
            ("/servers/mcp", ""),
            ("/sse/server-card", ""),
            ("/servers/time/mcp/", ""),
            ("/.well-known/oauth-protected-resource/nowhere", ""),
            ("/.well-known/oauth-protected-resource/mcp/server-card", ""),
            ("/.well-known/oauth-protected-resourcemcp", ""),
            ("/api/v1/servers", ""),
        ];
        for (path, expected) in table {
            assert_eq!(describe(path), expected, "{path}");
        }
    }
}
