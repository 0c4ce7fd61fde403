//! The seam to the gateway: how connections are served, and what is mounted.

use axum::Router;
use ostler_core::config::{self, Config};
use ostler_gateway::{Face, Gateway, GatewayOptions, Limits};
use ostler_host::{Caller, Host};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

/// The gateway of a config. The key keeps what clients hold for us good over restarts.
pub(super) fn gateway(host: &Host, config: &Config, seal_key: [u8; 32]) -> Gateway {
    let config::Gateway { allowed_hosts, allowed_origins, .. } = config.gateway.clone();
    let options = GatewayOptions {
        allowed_hosts,
        allowed_origins,
        max_body: config.gateway.max_body,
        max_sessions: config.gateway.max_sessions,
        session_idle: config.gateway.session_idle,
        list_patience: config.gateway.list_patience,
        seal_key,
        ..GatewayOptions::default()
    };
    Gateway::new(host.clone(), options)
}

/// How many connections a config allows, and for how long.
pub(super) fn limits(config: &Config) -> Limits {
    Limits { max_connections: config.gateway.max_connections, ..Limits::default() }
}

/// The endpoints of MCP clients.
pub(super) fn routes(gateway: &Gateway) -> Router {
    gateway.router()
}

/// Speaks MCP with a client on a connection of bytes until either end closes it.
pub(super) async fn serve_stream(
    gateway: &Gateway,
    connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) {
    let (reader, writer) = tokio::io::split(connection);
    gateway.serve_stream(reader, writer, Caller::local(), Face::All).await;
}

/// Serves connections until the shutdown, and then what they have begun.
pub(super) async fn serve(
    listener: TcpListener,
    app: Router,
    limits: Limits,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    ostler_gateway::serve(listener, app, limits, shutdown).await;
}
