//! Who has called how often.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use ostler_host::BudgetStatus;
use serde::Serialize;

use super::reply;
use crate::daemon::Daemon;

#[derive(Serialize)]
struct Shown {
    budgets: Vec<BudgetStatus>,
    /// Whether a restart would keep what was charged.
    kept: bool,
}

pub(super) async fn show(State(daemon): State<Arc<Daemon>>) -> Response {
    let shown = Shown { budgets: daemon.host.budgets(), kept: !daemon.host.is_forgetting_charges() };
    reply(StatusCode::OK, &shown)
}
