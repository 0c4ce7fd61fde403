//! Health endpoints `/healthz` and `/readyz`, for supervisors and monitors.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::Daemon;
use super::api::reply;
use crate::api::{Confirmation, ReadinessResponse};

/// Reports that the process is up.
pub(super) async fn healthz() -> Response {
    reply(StatusCode::OK, &Confirmation { ok: true })
}

/// Reports whether every eager server has come up or failed.
pub(super) async fn readyz(State(daemon): State<Arc<Daemon>>) -> Response {
    // The number and not the names: this endpoint authenticates no client.
    let waiting = daemon.config_state.pending_starts();
    let status = if waiting == 0 { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    reply(status, &ReadinessResponse { ready: waiting == 0, waiting })
}
