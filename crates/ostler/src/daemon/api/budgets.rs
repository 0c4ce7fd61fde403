//! Who has called how often.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::reply;
use crate::api::Budgets;
use crate::daemon::Daemon;

pub(super) async fn show(State(daemon): State<Arc<Daemon>>) -> Response {
    let shown = Budgets { budgets: daemon.host.budgets(), kept: !daemon.host.is_forgetting_charges() };
    reply(StatusCode::OK, &shown)
}
