//! MCP over HTTP: both eras on the same paths.
//!
//! ```text
//! request ─ gate.rs ─ enter.rs ─ scope ─┬─ POST ─ body.rs ─ post.rs ─┬─ modern.rs
//!                                          ├─ GET, DELETE ─ get.rs      ├─ legacy.rs ─ events.rs
//!                                          └─ 405                       └─ batch.rs
//! ```
//!
//! Clients of the older HTTP+SSE transport come to paths of their own (`sse_clients.rs`), past the same checks, and so
//! do those that read server cards (`card.rs`).

mod accept;
pub(crate) mod batch;
mod body;
mod card;
mod connection;
mod enter;
mod events;
mod gate;
mod get;
mod hold;
mod legacy;
mod long;
mod metadata;
mod modern;
mod payload;
mod post;
mod refuse;
mod serve;
mod sse;
mod sse_clients;
mod wait;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, OriginalUri, Path, State};
use axum::routing::any;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use ostler_core::caller::Caller;
use ostler_core::name::ServerName;
use ostler_host::{Refused, Unknown};
use ostler_wire::{Id, LEGACY_VERSIONS, Params, Text};

use self::accept::Accepts;
use self::connection::ClientConnection;
use self::payload::{Payload, Response};
use self::refuse::{PROTOCOL_VERSION, SESSION_ID, refuse};
use crate::auth::Admitted;
use crate::gateway::Gateway;
use crate::pass::Pass;
use crate::session::{InUse, Session};
use crate::shares::Share;
use ostler_host::Scope;

pub use self::long::LongStream;
pub use self::refuse::Refusal;
pub use self::serve::{Limits, OnRefusal, Privilege, Privileged, Site, serve};
pub(crate) use self::sse_clients::SseClients;

impl Gateway {
    /// The endpoints `/mcp` and `/servers/{name}/mcp`, and `sse` beside each for clients of 2024-11-05, to be served
    /// alone or merged into another router; and what clients are told about tokens for
    /// them, if there is anything to tell; and their server cards, with a catalog of these.
    pub fn router(&self) -> Router {
        let routes = Router::new()
            .route("/mcp", any(all))
            .route("/servers/{name}/mcp", any(one))
            .route("/sse", any(all_by_sse))
            .route("/servers/{name}/sse", any(one_by_sse));
        let routes = match self.0.options.resource_metadata {
            Some(_) => metadata::add(routes),
            None => routes,
        };
        card::add(routes).with_state(self.clone())
    }

    /// Refuses a request that a stranger's page makes, as the endpoints do: for
    /// routes that are served beside them.
    pub fn admit(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Box<axum::response::Response>> {
        gate::check(&self.0.options, uri, headers)
            .map_err(|refusal| Box::new(refusal.map(Payload::into_body)))
    }
}

async fn all(State(gateway): State<Gateway>, request: axum::extract::Request) -> axum::response::Response {
    routed(gateway, None, request).await
}

async fn one(
    State(gateway): State<Gateway>,
    Path(name): Path<String>,
    request: axum::extract::Request,
) -> axum::response::Response {
    routed(gateway, Some(&name), request).await
}

async fn all_by_sse(
    State(gateway): State<Gateway>,
    OriginalUri(uri): OriginalUri,
    request: axum::extract::Request,
) -> axum::response::Response {
    sse_endpoint(gateway, None, &uri, request).await.map(Payload::into_body)
}

async fn one_by_sse(
    State(gateway): State<Gateway>,
    Path(name): Path<String>,
    OriginalUri(uri): OriginalUri,
    request: axum::extract::Request,
) -> axum::response::Response {
    sse_endpoint(gateway, Some(&name), &uri, request).await.map(Payload::into_body)
}

/// A request that has come through a router.
async fn routed(
    gateway: Gateway,
    server: Option<&str>,
    request: axum::extract::Request,
) -> axum::response::Response {
    let origin = Origin::of(&request);
    endpoint(gateway, server, origin, request).await.map(Payload::into_body)
}

/// Where a request comes from, as far as it is known.
#[derive(Debug, Clone, Default)]
struct Origin {
    peer: Option<SocketAddr>,
    connection: Option<Arc<ClientConnection>>,
}

impl Origin {
    /// The origin of a request that has come through a router.
    fn of(request: &axum::extract::Request) -> Self {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
        Self { peer, connection: request.extensions().get().cloned() }
    }
}

/// One HTTP request, from its headers on.
struct Visit {
    gateway: Gateway,
    connection: Option<Arc<ClientConnection>>,
    caller: Caller,
    /// Ends with the caller's credential.
    pass: Option<Pass>,
    scope: Scope,
    transport: Transport,
    method: Method,
    headers: HeaderMap,
    accepts: Accepts,
}

/// One JSON-RPC request.
struct Ask {
    id: Id,
    method: Text,
    params: Params,
}

async fn endpoint<B>(gateway: Gateway, server: Option<&str>, origin: Origin, request: Request<B>) -> Response
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let (parts, body) = request.into_parts();
    let (visit, share) = match begin(gateway, (server, Transport::Streamable), origin, parts).await {
        Ok(begun) => begun,
        Err(refusal) => return *refusal,
    };
    let response = match visit.method.clone() {
        Method::POST => post::post(visit, body).await,
        Method::GET => get::get(visit),
        Method::DELETE => get::delete(&visit),
        _ => not_allowed(),
    };
    hold::keep(response, share)
}

/// One request of a client of 2024-11-05. `uri` is the one that the client named, whatever this router is nested in.
async fn sse_endpoint(
    gateway: Gateway,
    server: Option<&str>,
    uri: &Uri,
    request: axum::extract::Request,
) -> Response {
    let origin = Origin::of(&request);
    let (parts, body) = request.into_parts();
    let (visit, share) = match begin(gateway, (server, Transport::Sse), origin, parts).await {
        Ok(begun) => begun,
        Err(refusal) => return *refusal,
    };
    let response = match visit.method.clone() {
        Method::POST => match visit.pass.clone() {
            None => sse_clients::post(visit, uri.query(), body).await,
            Some(pass) => tokio::select! {
                biased;
                response = sse_clients::post(visit, uri.query(), body) => response,
                () = pass.revoked() => enter::taken_back(),
            },
        },
        Method::GET => sse_clients::open(visit, uri.path()),
        _ => sse_clients::not_allowed(),
    };
    hold::keep(response, share)
}

/// Which transport a path speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Streamable,
    /// That of 2024-11-05.
    Sse,
}

impl Transport {
    /// The path of an endpoint, without anything that a client has made up.
    fn path(self, server: Option<&str>) -> String {
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

/// Checks the head of a request: page, credential, room, and the server it names.
async fn begin(
    gateway: Gateway,
    (server, transport): (Option<&str>, Transport),
    Origin { peer, connection }: Origin,
    parts: http::request::Parts,
) -> Result<(Visit, Share), Box<Response>> {
    let Admitted { caller, pass } = enter::enter(&gateway, (server, transport), peer, &parts).await?;
    let share = hold::place(&gateway, &caller)?;
    let Some(scope) = scope(&gateway, &caller, server) else {
        record_unfound(&gateway, &caller, (server.unwrap_or_default(), transport), &parts.method);
        return Err(Box::new(refuse(StatusCode::NOT_FOUND, "there is no such server here")));
    };
    let accepts = Accepts::of(&parts.headers);
    let (method, headers) = (parts.method, parts.headers);
    Ok((Visit { gateway, connection, caller, pass, scope, transport, method, headers, accepts }, share))
}

/// What the path shows. A server that the caller may not see looks like none.
fn scope(gateway: &Gateway, caller: &Caller, server: Option<&str>) -> Option<Scope> {
    let Some(server) = server else {
        return Some(gateway.0.options.only.clone().map_or(Scope::All, Scope::Server));
    };
    let name = ServerName::new(server).ok()?;
    gateway.may_see(caller, &name).then_some(Scope::Server(name))
}

/// Lets the record know of a server that was not found: because a rule hides
/// it, or because there is none.
fn record_unfound(
    gateway: &Gateway,
    caller: &Caller,
    (server, transport): (&str, Transport),
    method: &Method,
) {
    let (host, what) = (&gateway.0.host, format!("{method} {}", transport.path(Some(server))));
    if !host.record_refusal(caller, Refused { server, method: &what, item: None }) {
        let unknown = Unknown { server, method: &what, subject: "", outcome: "unknown-server" };
        host.record_unknown(caller, unknown);
    }
}

fn not_allowed() -> Response {
    let mut response =
        refuse(StatusCode::METHOD_NOT_ALLOWED, "use POST; legacy sessions also GET and DELETE");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
    response
}

impl Visit {
    /// The value of a header that is there once.
    fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The session that the request names. One of another caller or of
    /// another endpoint looks like one that does not exist.
    fn session(&self) -> Result<InUse, Box<Response>> {
        let Some(id) = self.headers.get(SESSION_ID) else {
            let why = "the header Mcp-Session-Id is missing; initialize first";
            return Err(Box::new(refuse(StatusCode::BAD_REQUEST, why)));
        };
        let sessions = &self.gateway.0.sessions;
        let found = id.to_str().ok().and_then(|id| sessions.find(id));
        let is_ours = |session: &Arc<Session>| {
            session.caller().principal() == self.caller.principal() && *session.scope() == self.scope
        };
        let Some(session) = found.filter(is_ours) else {
            self.record_unknown_session();
            return Err(Box::new(refuse(
                StatusCode::NOT_FOUND,
                "there is no such session; initialize again",
            )));
        };
        if let Some(version) = self.headers.get(PROTOCOL_VERSION)
            && !LEGACY_VERSIONS.iter().any(|known| known.as_bytes() == version.as_bytes())
        {
            let why = format!(
                "MCP-Protocol-Version names no version of a session; known: {}",
                LEGACY_VERSIONS.join(", ")
            );
            return Err(Box::new(refuse(StatusCode::BAD_REQUEST, &why)));
        }
        Ok(session.touch(sessions.now()))
    }

    /// Lets the record know of a session that is none of the caller's. Its id
    /// may be somebody else's, and stays out.
    fn record_unknown_session(&self) {
        let server = self.scope.server().map(ServerName::as_str);
        let what = format!("{} {}", self.method, self.transport.path(server));
        let server = server.unwrap_or_default();
        let unknown = Unknown { server, method: &what, subject: "", outcome: "unknown-session" };
        self.gateway.0.host.record_unknown(&self.caller, unknown);
    }

    /// The caller of a request of a session. Its credential may have another
    /// role by now, which then holds.
    fn caller_of(&self, session: &Session) -> Caller {
        let known = session.caller();
        if known.role() == self.caller.role() {
            known.clone()
        } else {
            self.caller.clone().in_session_of(known)
        }
    }
}
