//! Routes of servers: their status, and an operator's actions on them.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use ostler_core::error::CallError;

use super::{call_error_response, reply};
use crate::api::{ErrorBody, ServerResponse, ServersResponse};
use crate::daemon::Daemon;

pub(super) async fn list(State(daemon): State<Arc<Daemon>>) -> Response {
    let servers = daemon
        .config_state
        .known_names()
        .into_iter()
        .filter_map(|name| daemon.server_response(name.as_str()).ok())
        .collect();
    reply(StatusCode::OK, &ServersResponse { servers })
}

pub(super) async fn one(State(daemon): State<Arc<Daemon>>, Path(name): Path<String>) -> Response {
    match daemon.server_response(&name) {
        Ok(shown) => reply(StatusCode::OK, &shown),
        Err(error) => call_error_response(&error),
    }
}

/// Reads the card of a server without starting the server.
pub(super) async fn card(State(daemon): State<Arc<Daemon>>, Path(name): Path<String>) -> Response {
    match daemon.host.card(&name).await {
        Ok(report) => reply(StatusCode::OK, &report),
        Err(error) => call_error_response(&error),
    }
}

pub(super) async fn start(State(daemon): State<Arc<Daemon>>, Path(name): Path<String>) -> Response {
    let done = daemon.host.start(&name).await;
    daemon.respond_after(&name, done)
}

pub(super) async fn stop(State(daemon): State<Arc<Daemon>>, Path(name): Path<String>) -> Response {
    let done = daemon.host.stop(&name).await;
    daemon.respond_after(&name, done)
}

pub(super) async fn reload(State(daemon): State<Arc<Daemon>>, Path(name): Path<String>) -> Response {
    let done = daemon.host.reload(&name).await;
    daemon.respond_after(&name, done)
}

impl Daemon {
    fn server_response(&self, name: &str) -> Result<ServerResponse, CallError> {
        let status = self.host.status_of(name)?;
        Ok(ServerResponse { status, error: self.host.unusable_reason(name).as_ref().map(ErrorBody::from) })
    }

    /// Returns a server's status after an action.
    fn respond_after(&self, name: &str, done: Result<(), CallError>) -> Response {
        match done.and_then(|()| self.server_response(name)) {
            Ok(shown) => reply(StatusCode::OK, &shown),
            Err(error) => call_error_response(&error),
        }
    }
}
