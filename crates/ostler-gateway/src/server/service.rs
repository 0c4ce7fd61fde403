//! HttpService: what a listener answers. Every request takes one way through it.
//!
//! ```text
//! request ─ Host and Origin ─┬─ a path of the gateway ─▶ http::respond
//!                            └─ any other ─────────────▶ routes
//!   around both: activity is counted, refusals are told
//! ```
//!
//! The gateway comes first and is asked by a look at the path. Behind a router each layer would box the request and its
//! answer, which costs more than all else that an endpoint does before the host is asked.

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

/// Hears of requests that were answered with 401 or 403: what was asked for, and why it was refused.
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
pub type PrivilegeCheck = Arc<dyn Fn(&Uri, &HeaderMap) -> Privilege + Send + Sync>;

/// Makes the answer to a request that a foreign page may have sent.
pub type RefusalHandler = fn() -> axum::response::Response;

/// What a listener answers: the paths of a gateway, and other routes beside them.
pub struct HttpService {
    gateway: Option<Gateway>,
    routes: TowerToHyperService<Router>,
    /// The beginning of the paths for loopback alone, and how others are refused there.
    loopback_only: Option<(&'static str, RefusalHandler)>,
    privileged: Option<PrivilegeCheck>,
    on_refusal: Option<OnRefusal>,
    activity: Option<(Arc<Activity>, &'static [&'static str])>,
}

impl From<Router> for HttpService {
    /// Serves routes alone.
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
    /// Serves the paths of a gateway.
    pub fn new(gateway: Gateway) -> Self {
        Self { gateway: Some(gateway), ..Self::from(Router::new()) }
    }

    /// Serves routes too, for paths that are none of the gateway's, and to the hosts and pages that it serves. Layers of
    /// theirs see these requests alone.
    #[must_use]
    pub fn with_routes(self, routes: Router) -> Self {
        Self { routes: TowerToHyperService::new(routes), ..self }
    }

    /// Serves paths that begin with `prefix` to names and pages of loopback alone, whatever else the gateway serves.
    #[must_use]
    pub fn with_loopback_only(self, prefix: &'static str, refusal: RefusalHandler) -> Self {
        Self { loopback_only: Some((prefix, refusal)), ..self }
    }

    /// Lets some requests use the connections that are reserved.
    #[must_use]
    pub fn with_privileged(self, privileged: PrivilegeCheck) -> Self {
        Self { privileged: Some(privileged), ..self }
    }

    /// Tells of every request that was refused.
    #[must_use]
    pub fn with_on_refusal(self, on_refusal: OnRefusal) -> Self {
        Self { on_refusal: Some(on_refusal), ..self }
    }

    /// Counts requests as activity until the last byte of their answer, except those for some paths.
    #[must_use]
    pub fn with_activity(self, activity: Arc<Activity>, except: &'static [&'static str]) -> Self {
        Self { activity: Some((activity, except)), ..self }
    }

    /// Returns whether a request may use a reserved connection.
    pub(super) fn privilege_of<B>(&self, request: &Request<B>) -> Privilege {
        let privileged = self.privileged.as_ref();
        privileged.map_or(Privilege::None, |privileged| privileged(request.uri(), request.headers()))
    }

    /// Counts a request.
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
            // Boxed: what it needs is needed only while there is a request, and
            // most connections have none.
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

    /// Refuses a request that a foreign page may have sent, wherever it goes. Services without a gateway serve all.
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
