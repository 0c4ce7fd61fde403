//! Routes of the config as it is applied.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::query::QueryString;
use super::reply;
use crate::api::{AppliedConfig, ReloadOutcome};
use crate::command::list;
use crate::daemon::Daemon;
use crate::daemon::apply::ReloadCause;

pub(super) async fn show(State(daemon): State<Arc<Daemon>>) -> Response {
    let shown = daemon.config_state.with_config(|config, problems, last| AppliedConfig {
        file: daemon.config_state.file.clone(),
        watch: config.watch,
        servers: list::entries(config, |spec| daemon.host.status_of(spec.name.as_str()).ok()?.card),
        problems: problems.to_vec(),
        last_change: last.cloned(),
    });
    reply(StatusCode::OK, &shown)
}

/// Reloads the config. A refused config is reported and changes nothing. With `keep_lock` the lock file on disk is not
/// taken up.
pub(super) async fn reload(State(daemon): State<Arc<Daemon>>, RawQuery(query): RawQuery) -> Response {
    let keeps_lock = QueryString(query.as_deref().unwrap_or_default()).is_set("keep_lock");
    let reload = daemon.reload(if keeps_lock { ReloadCause::File } else { ReloadCause::Operator }).await;
    let status = match reload.outcome {
        ReloadOutcome::Applied { .. } => StatusCode::OK,
        ReloadOutcome::Broken { .. } | ReloadOutcome::Unreadable { .. } | ReloadOutcome::Untrusted { .. } => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
    };
    reply(status, &reload)
}
