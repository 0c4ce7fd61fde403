//! Routes of the daemon itself: its description, and its shutdown.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::query::QueryString;
use super::{error_response, reply};
use crate::daemon::Daemon;

/// Upper bound on the time for calls in flight at the shutdown.
const MAX_CALLS_TIME: Duration = Duration::from_secs(600);

pub(super) async fn show(State(daemon): State<Arc<Daemon>>) -> Response {
    reply(StatusCode::OK, &daemon.info())
}

/// Begins the shutdown. Calls in flight have `calls_ms` to finish, or as long as after a signal.
pub(super) async fn shut_down(State(daemon): State<Arc<Daemon>>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let calls = match QueryString(&query).get("calls_ms").map(|text| text.parse().map(Duration::from_millis))
    {
        None => None,
        Some(Ok(time)) if time <= MAX_CALLS_TIME => Some(time),
        Some(_) => {
            let what = "`calls_ms` is a number of milliseconds, at most 600000";
            return error_response(StatusCode::BAD_REQUEST, "invalid-argument", what);
        }
    };
    daemon.begin_shutdown(calls);
    reply(StatusCode::ACCEPTED, &daemon.info())
}
