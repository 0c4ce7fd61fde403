//! Setup of the gateway: its limits, and the endpoints it serves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ostler_core::config::{self, Config};
use ostler_gateway::{
    Authenticated, ConnectionLimits, Gateway, GatewayOptions, HttpService, ResourceMetadata, Scope,
};
use ostler_host::Host;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use crate::auth::Authenticator;

/// Returns the gateway of a config.
pub(super) fn build_gateway(
    host: &Host,
    config: &Config,
    keeper: Arc<Authenticator>,
    notice: Option<String>,
) -> Gateway {
    let config::GatewayConfig { allowed_hosts, allowed_origins, .. } = config.gateway.clone();
    let options = GatewayOptions {
        authenticate: keeper,
        resource_metadata: config.auth.jwt.as_ref().map(|jwt| ResourceMetadata {
            authorization_servers: vec![jwt.issuer.clone()],
            base_url: jwt.resource.clone(),
        }),
        allowed_hosts,
        allowed_origins,
        max_body: config.gateway.max_body,
        max_sessions: config.gateway.max_sessions,
        max_per_caller: config.gateway.max_connections.div_ceil(2),
        session_idle: config.gateway.session_idle,
        list_patience: config.gateway.list_patience,
        notice,
        ..GatewayOptions::default()
    };
    Gateway::new(host.clone(), options)
}

/// Connections reserved for the admin API beyond those of a config, so that a daemon whose connections are all in use
/// can be operated: some for people, one for a monitor.
const ADMIN_CONNECTIONS: usize = 8;

/// Returns the connection limits of a config.
pub(super) fn connection_limits(config: &Config) -> ConnectionLimits {
    // The daemon's shutdown bounds the drain, and may give calls in flight more time.
    let drain = Duration::from_secs(3_600);
    ConnectionLimits {
        max_connections: config.gateway.max_connections,
        reserved_connections: ADMIN_CONNECTIONS,
        drain_timeout: drain,
        ..ConnectionLimits::default()
    }
}

/// Serves MCP on a byte stream until either end closes it, or the client's credential ends.
pub(super) async fn serve_stream(
    gateway: &Gateway,
    connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    admitted: Authenticated,
    farewell: impl Future<Output = Bytes> + Send + 'static,
) {
    let (reader, writer) = tokio::io::split(connection);
    gateway.serve_stream_with(reader, writer, admitted, Scope::All, farewell).await;
}

/// Serves connections until the shutdown, and then finishes the responses that have begun.
pub(super) async fn serve(
    listener: TcpListener,
    service: HttpService,
    limits: ConnectionLimits,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    ostler_gateway::serve(listener, service, limits, shutdown).await;
}
