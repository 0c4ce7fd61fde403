//! The config as it is applied.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::query::Query;
use super::reply;
use crate::api::{AppliedConfig, Outcome};
use crate::command::list;
use crate::daemon::Daemon;
use crate::daemon::apply::Cause;

pub(super) async fn show(State(daemon): State<Arc<Daemon>>) -> Response {
    let shown = daemon.roster.with_config(|config, problems, last| AppliedConfig {
        file: daemon.roster.file.clone(),
        watch: config.watch,
        servers: list::entries(config, |spec| daemon.host.status_of(spec.name.as_str()).ok()?.card),
        problems: problems.to_vec(),
        last_change: last.cloned(),
    });
    reply(StatusCode::OK, &shown)
}

/// Reads the config again. One that can't be used is told and changes nothing. With `keep_lock` the lock file on disk
/// is not taken up.
pub(super) async fn reload(State(daemon): State<Arc<Daemon>>, RawQuery(query): RawQuery) -> Response {
    let keeps_lock = Query(query.as_deref().unwrap_or_default()).is_set("keep_lock");
    let reload = daemon.reload(if keeps_lock { Cause::File } else { Cause::Operator }).await;
    let status = match reload.outcome {
        Outcome::Applied { .. } => StatusCode::OK,
        Outcome::Broken { .. } | Outcome::Unreadable { .. } | Outcome::Untrusted { .. } => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
    };
    reply(status, &reload)
}
