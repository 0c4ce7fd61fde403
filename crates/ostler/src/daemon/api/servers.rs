//! Servers: how they are, and what an operator does with them.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use ostler_core::error::CallError;

use super::{fail, reply};
use crate::api::{ErrorBody, Server, Servers};
use crate::daemon::Daemon;

pub(super) async fn list(State(daemon): State<Arc<Daemon>>) -> Response {
    let servers =
        daemon.roster.known_names().into_iter().filter_map(|name| daemon.show(name.as_str()).ok()).collect();
    reply(StatusCode::OK, &Servers { servers })
}

pub(super) async fn one(State(daemon): State<Arc<Daemon>>, Path(name): Path<String>) -> Response {
    match daemon.show(&name) {
        Ok(shown) => reply(StatusCode::OK, &shown),
        Err(error) => fail(&error),
    }
}

/// Reads the card of a server, which is not started for it.
pub(super) async fn card(State(daemon): State<Arc<Daemon>>, Path(name): Path<String>) -> Response {
    match daemon.host.card(&name).await {
        Ok(report) => reply(StatusCode::OK, &report),
        Err(error) => fail(&error),
    }
}

pub(super) async fn start(State(daemon): State<Arc<Daemon>>, Path(name): Path<String>) -> Response {
    let done = daemon.host.start(&name).await;
    daemon.after(&name, done)
}

pub(super) async fn stop(State(daemon): State<Arc<Daemon>>, Path(name): Path<String>) -> Response {
    let done = daemon.host.stop(&name).await;
    daemon.after(&name, done)
}

pub(super) async fn reload(State(daemon): State<Arc<Daemon>>, Path(name): Path<String>) -> Response {
    let done = daemon.host.reload(&name).await;
    daemon.after(&name, done)
}

impl Daemon {
    fn show(&self, name: &str) -> Result<Server, CallError> {
        let status = self.host.status_of(name)?;
        Ok(Server { status, error: self.host.refusal(name).as_ref().map(ErrorBody::from) })
    }

    /// How a server is after something was done with it.
    fn after(&self, name: &str, done: Result<(), CallError>) -> Response {
        match done.and_then(|()| self.show(name)) {
            Ok(shown) => reply(StatusCode::OK, &shown),
            Err(error) => fail(&error),
        }
    }
}
