//! The seam to the gateway: how connections are served, and what is mounted.

use std::io;

use axum::Router;
use ostler_gateway::Gateway;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

/// The endpoints of MCP clients.
pub(super) fn routes(_gateway: &Gateway) -> Router {
    Router::new()
}

/// Speaks MCP with a client on a connection of bytes until either end closes it.
pub(super) async fn serve_stream(_gateway: &Gateway, connection: impl AsyncRead + AsyncWrite) {
    drop(connection);
}

/// Serves connections until the shutdown, and then what they have begun.
pub(super) async fn serve(
    listener: TcpListener,
    app: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, app).with_graceful_shutdown(shutdown).await
}
