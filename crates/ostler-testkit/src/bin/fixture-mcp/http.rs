//! Any number of clients, on one port.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use rmcp::model::{ErrorData, InitializeRequestParams, InitializeResultMethod, RequestId};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::era::Era;
use crate::server::Fixture;
use crate::world::World;

pub(crate) const PATH: &str = "/mcp";
/// What `rmcp` accepts too.
const BODY_LIMIT: usize = 4 << 20;

pub(crate) struct Bound {
    listener: tokio::net::TcpListener,
    pub(crate) address: SocketAddr,
}

pub(crate) async fn bind(listen: SocketAddr, port_file: Option<&Path>) -> std::io::Result<Bound> {
    let listener = tokio::net::TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    if let Some(port_file) = port_file {
        // Renamed into place, so that a reader sees all of it or nothing.
        let unfinished = port_file.with_extension("unfinished");
        std::fs::write(&unfinished, address.to_string())?;
        std::fs::rename(&unfinished, port_file)?;
    }
    Ok(Bound { listener, address })
}

pub(crate) async fn serve(bound: Bound, world: Arc<World>, era: Era) -> std::io::Result<()> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(era != Era::ModernOnly)
        .with_stateless_protocol_metadata_required(era == Era::ModernOnly)
        .with_allowed_origins(["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"]);
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(Fixture::new(world.clone(), era)), sessions, config);
    let router = Router::new().route_service(PATH, service).layer(middleware::from_fn_with_state(era, admit));
    axum::serve(bound.listener, router).await
}

/// What a server of one era answers where `rmcp` would not.
async fn admit(State(era): State<Era>, request: Request, next: Next) -> Response {
    let version = request.headers().get("mcp-protocol-version");
    let is_known = version.map(|version| version.to_str().is_ok_and(|version| era.knows(version)));
    match (era, is_known) {
        // Before it looks at the message, and in words of its own time.
        (Era::LegacyOnly, Some(false)) => {
            let error = json!({ "code": -32000, "message": "Bad Request: Unsupported protocol version" });
            refuse(json!({ "jsonrpc": "2.0", "error": error, "id": null }))
        }
        (Era::ModernOnly, None | Some(false)) => admit_without_handshake(request, next).await,
        _ => next.run(request).await,
    }
}

/// Answers an older client's handshake with what it would have to speak.
async fn admit_without_handshake(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_LIMIT).await else {
        return refuse(
            json!({ "jsonrpc": "2.0", "error": { "code": -32700, "message": "Body too long" }, "id": null }),
        );
    };
    match serde_json::from_slice(&body) {
        Ok(Handshake { id, params, .. }) => {
            let versions = Era::ModernOnly.versions();
            let error = ErrorData::unsupported_protocol_version(params.protocol_version, &versions);
            refuse(json!({ "jsonrpc": "2.0", "error": error, "id": id }))
        }
        Err(_) => next.run(Request::from_parts(head, Body::from(body))).await,
    }
}

#[derive(Deserialize)]
struct Handshake {
    #[expect(dead_code, reason = "being there is all it has to say")]
    method: InitializeResultMethod,
    id: RequestId,
    params: InitializeRequestParams,
}

fn refuse(body: Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}
