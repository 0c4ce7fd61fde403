//! Servers: how they are, and what an operator does with them.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use ostler_core::error::CallError;
use ostler_core::status::ServerStatus;

use super::{fail, reply};
use crate::api::{ErrorBody, Server, Servers};
use crate::daemon::Daemon;

pub(super) async fn list(State(daemon): State<Arc<Daemon>>) -> Response {
    let names = daemon.roster.names();
    let names = names.into_iter().chain(daemon.roster.disabled().into_iter().map(|server| server.spec.name));
    let servers = names.filter_map(|name| daemon.show(name.as_str()).ok()).collect();
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
    let read = match daemon.roster.refusal(&name) {
        Some(error) => Err(error),
        None => daemon.host.card(&name).await,
    };
    match read {
        Ok(report) => reply(StatusCode::OK, &report),
        Err(error) => fail(&error),
    }
}

pub(super) async fn start(State(daemon): State<Arc<Daemon>>, Path(name): Path<String>) -> Response {
    let done = match daemon.roster.refusal(&name) {
        Some(error) => Err(error),
        None => daemon.host.start(&name).await,
    };
    daemon.after(&name, done)
}

pub(super) async fn stop(State(daemon): State<Arc<Daemon>>, Path(name): Path<String>) -> Response {
    let done = match daemon.roster.refusal(&name) {
        Some(error) => Err(error),
        None => daemon.host.stop(&name).await,
    };
    daemon.after(&name, done)
}

pub(super) async fn reload(State(daemon): State<Arc<Daemon>>, Path(name): Path<String>) -> Response {
    let done = match daemon.roster.refusal(&name) {
        Some(error) => Err(error),
        None => daemon.host.reload(&name).await,
    };
    daemon.after(&name, done)
}

impl Daemon {
    fn show(&self, name: &str) -> Result<Server, CallError> {
        let disabled = self.roster.disabled().into_iter().find(|server| server.spec.name.as_str() == name);
        if let Some(server) = disabled {
            let error = Some(ErrorBody::from(&server.error()));
            return Ok(Server { status: ServerStatus::disabled(&server), error });
        }
        let error = self.roster.refusal(name);
        let status = match (&error, self.roster.specs().iter().find(|spec| spec.name.as_str() == name)) {
            (Some(_), Some(spec)) => ServerStatus::registered(spec),
            _ => self.host.status_of(name)?,
        };
        Ok(Server { status, error: error.as_ref().map(ErrorBody::from) })
    }

    /// How a server is after something was done with it.
    fn after(&self, name: &str, done: Result<(), CallError>) -> Response {
        match done.and_then(|()| self.show(name)) {
            Ok(shown) => reply(StatusCode::OK, &shown),
            Err(error) => fail(&error),
        }
    }
}
