//! Health endpoints `/healthz` and `/readyz`, for supervisors and monitors.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;

use super::Daemon;
use super::api::reply;
use crate::api::{Confirmation, Readiness};

/// Checks Host and Origin as the endpoints of clients do: no foreign page learns how the daemon is.
pub(super) async fn check_origin(
    State(daemon): State<Arc<Daemon>>,
    request: Request,
    next: Next,
) -> Response {
    match daemon.gateway.admit(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => *refusal,
    }
}

/// The process is up.
pub(super) async fn alive() -> Response {
    reply(StatusCode::OK, &Confirmation { ok: true })
}

/// Every server that should be up has come up, or has failed to.
pub(super) async fn ready(State(daemon): State<Arc<Daemon>>) -> Response {
    // How many and not which: nobody has to say here who they are.
    let waiting = daemon.roster.unsettled();
    let status = if waiting == 0 { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    reply(status, &Readiness { ready: waiting == 0, waiting })
}
