//! HTTP transport: any number of clients on one port.

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

use crate::era::ServedEras;
use crate::server::FixtureServer;
use crate::shared_state::FixtureState;

pub(crate) const PATH: &str = "/mcp";
/// The limit that `rmcp` has too.
const BODY_LIMIT: usize = 4 << 20;

pub(crate) struct BoundListener {
    listener: tokio::net::TcpListener,
    pub(crate) address: SocketAddr,
}

pub(crate) async fn bind(listen: SocketAddr, port_file: Option<&Path>) -> std::io::Result<BoundListener> {
    let listener = tokio::net::TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    if let Some(port_file) = port_file {
        // Renamed into place, so that a reader sees the whole file or none.
        let unfinished = port_file.with_extension("unfinished");
        std::fs::write(&unfinished, address.to_string())?;
        std::fs::rename(&unfinished, port_file)?;
    }
    Ok(BoundListener { listener, address })
}

pub(crate) async fn serve(
    bound: BoundListener,
    shared: Arc<FixtureState>,
    era: ServedEras,
) -> std::io::Result<()> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(era != ServedEras::ModernOnly)
        .with_stateless_protocol_metadata_required(era == ServedEras::ModernOnly)
        .with_allowed_origins(["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"]);
    let sessions = Arc::new(LocalSessionManager::default());
    let service =
        StreamableHttpService::new(move || Ok(FixtureServer::new(shared.clone(), era)), sessions, config);
    let router =
        Router::new().route_service(PATH, service).layer(middleware::from_fn_with_state(era, check_version));
    axum::serve(bound.listener, router).await
}

/// Refuses what a server of one era refuses and `rmcp` would accept.
async fn check_version(State(era): State<ServedEras>, request: Request, next: Next) -> Response {
    let version = request.headers().get("mcp-protocol-version");
    let is_known = version.map(|version| version.to_str().is_ok_and(|version| era.supports(version)));
    match (era, is_known) {
        // Refused before the message is read, with an error of the older revisions.
        (ServedEras::LegacyOnly, Some(false)) => {
            let error = json!({ "code": -32000, "message": "Bad Request: Unsupported protocol version" });
            bad_request(json!({ "jsonrpc": "2.0", "error": error, "id": null }))
        }
        (ServedEras::ModernOnly, None | Some(false)) => refuse_handshake(request, next).await,
        _ => next.run(request).await,
    }
}

/// Answers an older client's handshake with the supported versions.
async fn refuse_handshake(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_LIMIT).await else {
        return bad_request(
            json!({ "jsonrpc": "2.0", "error": { "code": -32700, "message": "Body too long" }, "id": null }),
        );
    };
    match serde_json::from_slice(&body) {
        Ok(InitializeMessage { id, params, .. }) => {
            let versions = ServedEras::ModernOnly.versions();
            let error = ErrorData::unsupported_protocol_version(params.protocol_version, &versions);
            bad_request(json!({ "jsonrpc": "2.0", "error": error, "id": id }))
        }
        Err(_) => next.run(Request::from_parts(head, Body::from(body))).await,
    }
}

#[derive(Deserialize)]
struct InitializeMessage {
    #[expect(dead_code, reason = "being there is all it has to say")]
    method: InitializeResultMethod,
    id: RequestId,
    params: InitializeRequestParams,
}

fn bad_request(body: Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}
