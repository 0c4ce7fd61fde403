//! The seam to the gateway: how connections are served, and what is mounted.

use axum::Router;
use ostler_gateway::{Face, Gateway, Limits};
use ostler_host::Caller;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

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
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    ostler_gateway::serve(listener, app, Limits::default(), shutdown).await;
}
