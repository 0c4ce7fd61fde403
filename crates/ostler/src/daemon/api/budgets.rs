//! Route of the budgets: use by role and by token.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::reply;
use crate::api::BudgetsResponse;
use crate::daemon::Daemon;

pub(super) async fn show(State(daemon): State<Arc<Daemon>>) -> Response {
    let shown =
        BudgetsResponse { budgets: daemon.host.budgets(), kept: !daemon.host.is_budget_journal_failing() };
    reply(StatusCode::OK, &shown)
}
