//! What is served: routes, and endpoints that need none.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::ConnectInfo;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::super::payload::{Payload, Response};
use super::super::{Origin, Refusal, endpoint};
use crate::gateway::Gateway;

/// Hears of requests to the endpoints that were answered with 401 or 403: what
/// was asked for, and why it was refused.
pub type OnRefusal = Arc<dyn Fn(&Method, &str, StatusCode, &str) + Send + Sync>;

/// Whether a request may use a connection that is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// It may not.
    None,
    /// It comes before a privileged one, as the first request of its connection.
    Prelude,
    /// It may.
    Full,
}

/// Tells the privilege of a request by its head.
pub type Privileged = Arc<dyn Fn(&Uri, &HeaderMap) -> Privilege + Send + Sync>;

/// What is served: routes, and perhaps the endpoints of a gateway beside them.
pub struct Site {
    routes: TowerToHyperService<Router>,
    endpoints: Option<Endpoints>,
    privileged: Option<Privileged>,
}

struct Endpoints {
    gateway: Gateway,
    on_refusal: Option<OnRefusal>,
}

impl From<Router> for Site {
    fn from(routes: Router) -> Self {
        Self { routes: TowerToHyperService::new(routes), endpoints: None, privileged: None }
    }
}

impl Site {
    /// Answers the endpoints of the gateway without going through the routes,
    /// where a request is boxed and moved from layer to layer. No layer of the
    /// routes sees these requests.
    #[must_use]
    pub fn with_endpoints(self, gateway: Gateway, on_refusal: Option<OnRefusal>) -> Self {
        Self { endpoints: Some(Endpoints { gateway, on_refusal }), ..self }
    }

    /// Lets some requests use the connections that are reserved.
    #[must_use]
    pub fn with_privileged(self, privileged: Privileged) -> Self {
        Self { privileged: Some(privileged), ..self }
    }

    /// Returns whether a request may use a reserved connection.
    pub(super) fn privilege_of<B>(&self, request: &Request<B>) -> Privilege {
        let privileged = self.privileged.as_ref();
        privileged.map_or(Privilege::None, |privileged| privileged(request.uri(), request.headers()))
    }

    pub(super) async fn answer(&self, origin: Origin, mut request: Request<Incoming>) -> Response {
        if let Some(endpoints) = &self.endpoints
            && let Some(server) = endpoint_of(request.uri().path())
        {
            // Boxed: what it needs is needed only while there is a request, and
            // most connections have none.
            let server = server.map(Box::from);
            return Box::pin(endpoints.answer(server, origin, request)).await;
        }
        let Origin { peer, connection } = origin;
        let extensions = request.extensions_mut();
        peer.map(|peer| extensions.insert(ConnectInfo(peer)));
        connection.map(|connection| extensions.insert(connection));
        let response = self.routes.call(request).await.unwrap_or_else(|never| match never {});
        response.map(Payload::stream)
    }
}

impl Endpoints {
    async fn answer(&self, server: Option<Box<str>>, origin: Origin, request: Request<Incoming>) -> Response {
        let asked = self.on_refusal.as_ref().map(|_| (request.method().clone(), request.uri().clone()));
        let response = endpoint(self.gateway.clone(), server.as_deref(), origin, request).await;
        let is_refused = matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if let (true, Some(on_refusal), Some((method, uri))) = (is_refused, &self.on_refusal, asked) {
            let why = response.extensions().get::<Refusal>().map_or("", |refusal| &refusal.0);
            on_refusal(&method, uri.path(), response.status(), why);
        }
        response
    }
}

/// The server of an endpoint's path, or `None` within for all of them. A name
/// that is written in another way is left to the routes.
fn endpoint_of(path: &str) -> Option<Option<&str>> {
    if path == "/mcp" {
        return Some(None);
    }
    let name = path.strip_prefix("/servers/")?.strip_suffix("/mcp")?;
    (!name.is_empty() && !name.contains(['/', '%'])).then_some(Some(name))
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("has_endpoints", &self.endpoints.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_told_by_their_paths() {
        assert_eq!(endpoint_of("/mcp"), Some(None));
        assert_eq!(endpoint_of("/servers/time/mcp"), Some(Some("time")));
        let others = [
            "/",
            "/mcp/",
            "/MCP",
            "//mcp",
            "/servers//mcp",
            "/servers/a/b/mcp",
            "/servers/mcp",
            "/servers/%61/mcp",
        ];
        for path in others {
            assert_eq!(endpoint_of(path), None, "{path}");
        }
    }
}
