//! HttpService: the service of a listener. Every request passes the same checks in the same order.
//!
//! ```text
//! request ─ Host and Origin ─┬─ a path of the gateway ─▶ http::respond
//!                            └─ any other ─────────────▶ routes
//!   around both: activity is counted, refusals are observed
//! ```
//!
//! The gateway comes first, and a look at the path decides. Behind a router each layer would box the request and its
//! answer, which costs more than all other work of an endpoint before the host is asked.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::ConnectInfo;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

use super::activity::{Activity, ActivityGuard};
use crate::gateway::Gateway;
use crate::http::{OriginCheck, Payload, Peer, RefusalReason, Response, respond};

/// Observer of requests that were answered with 401 or 403: method, path, status and reason.
pub type OnRefusal = Arc<dyn Fn(&Method, &str, StatusCode, &str) + Send + Sync>;

/// Privilege of a request on a reserved connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// Must not use it.
    None,
    /// Precedes a privileged request, as the first request of its connection.
    Prelude,
    /// May use it.
    Full,
}

/// Returns the privilege of a request by its head.
pub type PrivilegeCheck = Arc<dyn Fn(&Uri, &HeaderMap) -> Privilege + Send + Sync>;

/// Makes the response to a request that a foreign page may have sent.
pub type RefusalHandler = fn() -> axum::response::Response;

/// Service of a listener: the paths of a gateway, and other routes beside them.
pub struct HttpService {
    gateway: Option<Gateway>,
    routes: TowerToHyperService<Router>,
    /// Prefix of the paths for loopback alone, and the refusal of requests from others.
    loopback_only: Option<(&'static str, RefusalHandler)>,
    privileged: Option<PrivilegeCheck>,
    on_refusal: Option<OnRefusal>,
    activity: Option<(Arc<Activity>, &'static [&'static str])>,
}

impl From<Router> for HttpService {
    /// Makes a service of routes alone.
    fn from(routes: Router) -> Self {
        let routes = TowerToHyperService::new(routes);
        Self {
            gateway: None,
            routes,
            loopback_only: None,
            privileged: None,
            on_refusal: None,
            activity: None,
        }
    }
}

impl HttpService {
    /// Makes a service of the paths of a gateway.
    pub fn new(gateway: Gateway) -> Self {
        Self { gateway: Some(gateway), ..Self::from(Router::new()) }
    }

    /// Adds routes, for paths that are none of the gateway's, and for the hosts and pages that it serves. Their layers
    /// see only the requests to these routes.
    #[must_use]
    pub fn with_routes(self, routes: Router) -> Self {
        Self { routes: TowerToHyperService::new(routes), ..self }
    }

    /// Serves paths that begin with `prefix` only to names and pages of loopback, independent of the gateway's allowed
    /// hosts.
    #[must_use]
    pub fn with_loopback_only(self, prefix: &'static str, refusal: RefusalHandler) -> Self {
        Self { loopback_only: Some((prefix, refusal)), ..self }
    }

    /// Lets privileged requests use the reserved connections.
    #[must_use]
    pub fn with_privileged(self, privileged: PrivilegeCheck) -> Self {
        Self { privileged: Some(privileged), ..self }
    }

    /// Calls the observer for every refused request.
    #[must_use]
    pub fn with_on_refusal(self, on_refusal: OnRefusal) -> Self {
        Self { on_refusal: Some(on_refusal), ..self }
    }

    /// Counts requests as activity until the last byte of their answer, except those for some paths.
    #[must_use]
    pub fn with_activity(self, activity: Arc<Activity>, except: &'static [&'static str]) -> Self {
        Self { activity: Some((activity, except)), ..self }
    }

    /// Returns the privilege of a request.
    pub(super) fn privilege_of<B>(&self, request: &Request<B>) -> Privilege {
        let privileged = self.privileged.as_ref();
        privileged.map_or(Privilege::None, |privileged| privileged(request.uri(), request.headers()))
    }

    /// Counts a request as activity.
    pub(super) fn track_activity<B>(&self, request: &Request<B>) -> Option<ActivityGuard> {
        let (activity, except) = self.activity.as_ref()?;
        (!except.contains(&request.uri().path())).then(|| activity.begin())
    }

    pub(super) async fn handle(&self, peer: Peer, request: Request<Incoming>) -> Response {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let checked = self.check_origin(&uri, request.headers());
        let gateway = self.gateway.as_ref();
        let route = gateway.and_then(|gateway| Some((gateway, gateway.route(uri.path())?)));
        let response = match (checked, route) {
            (Err(refusal), _) => *refusal,
            // Boxed: its state is needed only during a request, and most connections have none.
            (Ok(()), Some((gateway, route))) => {
                Box::pin(respond(gateway.clone(), (route, &uri), peer, request)).await
            }
            (Ok(()), None) => self.call_routes(peer, request).await,
        };
        let is_refused = matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if let (true, Some(on_refusal)) = (is_refused, &self.on_refusal) {
            let why = response.extensions().get::<RefusalReason>().map_or("", |refusal| &refusal.0);
            on_refusal(&method, uri.path(), response.status(), why);
        }
        response
    }

    /// Refuses a request that a foreign page may have sent, on every path. Services without a gateway serve all.
    fn check_origin(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Box<Response>> {
        match self.loopback_only.filter(|(prefix, _)| uri.path().starts_with(prefix)) {
            Some((_, refusal)) => OriginCheck::LOOPBACK
                .check(uri, headers)
                .map_err(|_| Box::new(refusal().map(Payload::stream))),
            None => self.gateway.as_ref().map_or(Ok(()), |gateway| gateway.check_origin(uri, headers)),
        }
    }

    async fn call_routes(
        &self,
        Peer { address, connection }: Peer,
        mut request: Request<Incoming>,
    ) -> Response {
        let extensions = request.extensions_mut();
        address.map(|address| extensions.insert(ConnectInfo(address)));
        connection.map(|connection| extensions.insert(connection));
        let response = self.routes.call(request).await.unwrap_or_else(|never| match never {});
        response.map(Payload::stream)
    }
}

impl fmt::Debug for HttpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpService").field("gateway", &self.gateway).finish_non_exhaustive()
    }
}
