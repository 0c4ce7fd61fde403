//! The config as it is applied.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use ostler_core::config::Problem;
use serde::Serialize;

use super::query::Query;
use super::reply;
use crate::command::list::{self, Entry};
use crate::daemon::Daemon;
use crate::daemon::apply::Cause;
use crate::daemon::roster::{Outcome, Reload};

#[derive(Serialize)]
struct Shown {
    /// The main file; null for the built-in server.
    file: Option<PathBuf>,
    /// Whether an edit applies by itself.
    watch: bool,
    servers: Vec<Entry>,
    /// Warnings.
    problems: Vec<Problem>,
    /// What became of the last change; null if there was none.
    last_change: Option<Reload>,
}

pub(super) async fn show(State(daemon): State<Arc<Daemon>>) -> Response {
    let shown = daemon.roster.with_config(|config, problems, last| Shown {
        file: daemon.roster.file.clone(),
        watch: config.watch,
        servers: list::entries(config),
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
