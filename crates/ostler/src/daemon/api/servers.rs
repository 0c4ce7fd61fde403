//! Servers: how they are, and what an operator does with them.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use ostler_core::error::CallError;
use ostler_core::status::ServerStatus;
use serde::Serialize;

use super::{fail, reply};
use crate::daemon::Daemon;
use crate::told::Told;

/// One server.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    status: ServerStatus,
    /// Why it can't be used at all.
    error: Option<Told>,
}

#[derive(Serialize)]
struct Listing {
    servers: Vec<Shown>,
}

pub(super) async fn list(State(daemon): State<Arc<Daemon>>) -> Response {
    let names = daemon.roster.names();
    let names = names.into_iter().chain(daemon.roster.disabled().into_iter().map(|server| server.spec.name));
    let servers = names.filter_map(|name| daemon.show(name.as_str()).ok()).collect();
    reply(StatusCode::OK, &Listing { servers })
}

pub(super) async fn one(State(daemon): State<Arc<Daemon>>, Path(name): Path<String>) -> Response {
    match daemon.show(&name) {
        Ok(shown) => reply(StatusCode::OK, &shown),
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
    fn show(&self, name: &str) -> Result<Shown, CallError> {
        let disabled = self.roster.disabled().into_iter().find(|server| server.spec.name.as_str() == name);
        if let Some(server) = disabled {
            let error = Some(Told::from(&server.error()));
            return Ok(Shown { status: ServerStatus::disabled(&server), error });
        }
        let error = self.roster.refusal(name);
        let status = match (&error, self.roster.specs().iter().find(|spec| spec.name.as_str() == name)) {
            (Some(_), Some(spec)) => ServerStatus::registered(spec),
            _ => self.host.status_of(name)?,
        };
        Ok(Shown { status, error: error.as_ref().map(Told::from) })
    }

    /// How a server is after something was done with it.
    fn after(&self, name: &str, done: Result<(), CallError>) -> Response {
        match done.and_then(|()| self.show(name)) {
            Ok(shown) => reply(StatusCode::OK, &shown),
            Err(error) => fail(&error),
        }
    }
}
