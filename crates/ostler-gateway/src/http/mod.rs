//! MCP over HTTP: both eras on the same paths.
//!
//! ```text
//! request ─ origin.rs ─ route.rs ─ authenticate.rs ─ scope ─┬─ POST ─ request_body.rs ─ post.rs ─┬─ modern.rs
//!                                                           │                                    ├─ legacy.rs
//!                                                           │                                    └─ batch.rs
//!                                                           ├─ GET, DELETE ─ legacy.rs
//!                                                           └─ 405
//! ```
//!
//! Clients of the older HTTP+SSE transport use paths of their own (`sse_clients.rs`), after the same checks, and so do
//! readers of server cards (`server_cards.rs`). All of it is one function, [`respond`]: the [router](Gateway::router)
//! for other programs and the [service](crate::server::HttpService) of this crate both call it.

mod authenticate;
pub(crate) mod batch;
mod legacy;
mod modern;
mod origin;
mod post;
mod request_body;
mod resource_metadata;
mod response;
mod route;
mod server_cards;
mod sse;
mod sse_clients;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use ostler_core::caller::Caller;
use ostler_core::keyed_limit::KeyedPermit;
use ostler_core::server_name::ServerName;
use ostler_host::{DeniedRequest, Scope, UnresolvedRequest};
use ostler_wire::{LEGACY_VERSIONS, MethodName, Params, RequestId};

use self::request_body::Accepts;
use self::response::{PROTOCOL_VERSION, SESSION_ID, overloaded, refuse};
use self::route::EndpointTransport;
use crate::auth::Authenticated;
use crate::client_session::{ActiveSession, ClientSession};
use crate::credential_lifetime::CredentialLifetime;
use crate::gateway::Gateway;

pub(crate) use self::modern::ClientConnection;
pub use self::origin::{OriginCheck, OriginError};
pub use self::response::RefusalReason;
pub(crate) use self::response::{Payload, Response, no_connection, raw_no_connection};
pub(crate) use self::route::Route;
pub use self::sse::LongStream;
pub(crate) use self::sse_clients::SseClients;

impl Gateway {
    /// Refuses a request that a foreign page may have sent.
    pub(crate) fn check_origin(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Box<Response>> {
        let refused = |foreign: OriginError| Box::new(refuse(StatusCode::FORBIDDEN, foreign.message()));
        self.0.options.origin_check().check(uri, headers).map_err(refused)
    }
}

/// Remote side of a request, as far as it is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) connection: Option<Arc<ClientConnection>>,
}

/// HTTP request without its body, and its caller.
struct EndpointRequest {
    gateway: Gateway,
    connection: Option<Arc<ClientConnection>>,
    caller: Caller,
    /// Ends with the caller's credential.
    lifetime: Option<CredentialLifetime>,
    scope: Scope,
    /// True if the path names the server of the scope.
    names_server: bool,
    transport: EndpointTransport,
    method: Method,
    headers: HeaderMap,
    accepts: Accepts,
}

/// One JSON-RPC request.
struct RpcRequest {
    id: RequestId,
    method: MethodName,
    params: Params,
}

/// Answers a request to one of the gateway's paths whose origin was checked. `named` is the path that the client
/// requested, independent of the nesting of routers.
pub(crate) async fn respond<B>(
    gateway: Gateway,
    (route, named): (Route<'_>, &Uri),
    peer: Peer,
    request: Request<B>,
) -> Response
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let (parts, body) = request.into_parts();
    match route {
        Route::Mcp { server, transport: EndpointTransport::Streamable } => {
            let begun =
                check_head(gateway, (server.as_deref(), EndpointTransport::Streamable), peer, parts).await;
            let (visit, permit) = match begun {
                Ok(begun) => begun,
                Err(refusal) => return *refusal,
            };
            let response = match visit.method.clone() {
                Method::POST => post::post(visit, body).await,
                Method::GET => legacy::open_stream(visit),
                Method::DELETE => legacy::end_session(&visit),
                _ => method_not_allowed(),
            };
            response.map(|payload| payload.with_permit(permit))
        }
        // Boxed, so that the usual future stays small.
        Route::Mcp { server, transport: EndpointTransport::Sse } => {
            Box::pin(sse_clients::respond(gateway, (server.as_deref(), named), peer, (parts, body))).await
        }
        Route::Card { server } => {
            Box::pin(server_cards::get_card(gateway, (server.as_deref(), named), peer, parts)).await
        }
        Route::Catalog => Box::pin(server_cards::get_catalog(gateway, named, peer, parts)).await,
        Route::Metadata { path } => resource_metadata::respond(&gateway, path, &parts),
    }
}

/// Checks the head of a request: credential, caller's limit, and server. A POST that may contain a request skips the
/// policy check: the host asks policy when it resolves the request.
async fn check_head(
    gateway: Gateway,
    (server, transport): (Option<&str>, EndpointTransport),
    Peer { address, connection }: Peer,
    parts: http::request::Parts,
) -> Result<(EndpointRequest, KeyedPermit), Box<Response>> {
    let endpoint = (server, transport);
    let Authenticated { caller, lifetime: pass } =
        authenticate::authenticate(&gateway, endpoint, address, &parts).await?;
    let permit = acquire_permit(&gateway, &caller)?;
    let (method, headers) = (parts.method, parts.headers);
    let Some(scope) = scope(&gateway, server) else {
        record_unknown_server(&gateway, &caller, (server.unwrap_or_default(), transport), &method);
        return Err(Box::new(server_not_found()));
    };
    let (names_server, accepts) = (server.is_some(), Accepts::from_headers(&headers));
    let visit = EndpointRequest {
        gateway,
        connection,
        caller,
        lifetime: pass,
        scope,
        names_server,
        transport,
        method,
        headers,
        accepts,
    };
    if visit.method != Method::POST || transport == EndpointTransport::Sse {
        visit.check_server()?;
    }
    Ok((visit, permit))
}

/// Returns the refusal for a server that is missing or that the caller may not see.
fn server_not_found() -> Response {
    refuse(StatusCode::NOT_FOUND, "there is no such server here")
}

/// Acquires a permit of the caller, before the body is read and until the last byte of the answer.
fn acquire_permit(gateway: &Gateway, caller: &Caller) -> Result<KeyedPermit, Box<Response>> {
    let limit = &gateway.0.per_caller;
    limit.acquire(caller.principal()).map_err(|_| {
        let why = format!("this caller has {} requests and streams open", limit.max_per_key());
        Box::new(overloaded(&why, None))
    })
}

/// Returns the scope that a path names; `None` if its server name is invalid.
fn scope(gateway: &Gateway, server: Option<&str>) -> Option<Scope> {
    match server {
        None => Some(gateway.0.options.only_server.clone().map_or(Scope::All, Scope::Server)),
        Some(server) => ServerName::new(server).ok().map(Scope::Server),
    }
}

/// Records a server that was not found: hidden by a rule, or missing.
fn record_unknown_server(
    gateway: &Gateway,
    caller: &Caller,
    (server, transport): (&str, EndpointTransport),
    method: &Method,
) {
    let (host, what) = (&gateway.0.host, format!("{method} {}", transport.path(Some(server))));
    if !host.record_if_denied(caller, DeniedRequest { server, method: &what, item: None }) {
        let unknown = UnresolvedRequest { server, method: &what, subject: "", outcome: "unknown-server" };
        host.record_unresolved(caller, unknown);
    }
}

fn method_not_allowed() -> Response {
    let mut response =
        refuse(StatusCode::METHOD_NOT_ALLOWED, "use POST; legacy sessions also GET and DELETE");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
    response
}

/// Refuses methods other than GET and HEAD, for documents.
fn get_only() -> Response {
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "use GET");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

impl EndpointRequest {
    /// Returns the value of a header that occurs exactly once.
    fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Refuses the request if its path names a server that the caller may not see.
    fn check_server(&self) -> Result<(), Box<Response>> {
        let Some(server) = self.scope.server().filter(|_| self.names_server) else { return Ok(()) };
        if self.gateway.may_see(&self.caller, server) {
            return Ok(());
        }
        record_unknown_server(&self.gateway, &self.caller, (server.as_str(), self.transport), &self.method);
        Err(Box::new(server_not_found()))
    }

    /// Returns the refusal of a request that the host does not resolve, or the one for a missing server if the caller
    /// may not see it.
    fn refusal_unless_hidden(&self, refusal: Response) -> Response {
        self.check_server().err().map_or(refusal, |unfound| *unfound)
    }

    /// Returns the session that the request names. A session of another caller or of another endpoint looks like a
    /// missing one.
    fn session(&self) -> Result<ActiveSession, Box<Response>> {
        let Some(id) = self.headers.get(SESSION_ID) else {
            self.check_server()?;
            let why = "the header Mcp-Session-Id is missing; initialize first";
            return Err(Box::new(refuse(StatusCode::BAD_REQUEST, why)));
        };
        let sessions = &self.gateway.0.sessions;
        let found = id.to_str().ok().and_then(|id| sessions.find(id));
        let is_ours = |session: &Arc<ClientSession>| {
            session.caller().principal() == self.caller.principal() && *session.scope() == self.scope
        };
        let Some(session) = found.filter(is_ours) else {
            self.check_server()?;
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

    /// Records a session that does not belong to the caller. Its id may belong to another caller, and is left out.
    fn record_unknown_session(&self) {
        let server = self.scope.server().map(ServerName::as_str);
        let what = format!("{} {}", self.method, self.transport.path(server));
        let server = server.unwrap_or_default();
        let unknown = UnresolvedRequest { server, method: &what, subject: "", outcome: "unknown-session" };
        self.gateway.0.host.record_unresolved(&self.caller, unknown);
    }

    /// Returns the caller of a request of a session. Its credential may have another role by now, which then applies.
    fn session_caller(&self, session: &ClientSession) -> Caller {
        let known = session.caller();
        if known.role() == self.caller.role() {
            known.clone()
        } else {
            self.caller.clone().in_session_of(known)
        }
    }
}
