//! `/healthz` and `/readyz`: for whoever started the daemon.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

use super::Daemon;
use super::api::reply;

/// The process is up.
pub(super) async fn alive() -> Response {
    reply(StatusCode::OK, &json!({ "ok": true }))
}

/// Every server that should be up has come up, or has failed to.
pub(super) async fn ready(State(daemon): State<Arc<Daemon>>) -> Response {
    let waiting = daemon.roster.unsettled();
    let status = if waiting.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    reply(status, &json!({ "ready": waiting.is_empty(), "waiting": waiting }))
}
