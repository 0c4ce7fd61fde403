//! How the relay is doing.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use ostler_relay::service::{Service, ServiceStatus};
use serde::Serialize;

use super::reply;
use crate::daemon::Daemon;

#[derive(Serialize)]
struct Shown {
    /// Null where the config has none.
    relay: Option<ServiceStatus>,
}

pub(super) async fn show(State(daemon): State<Arc<Daemon>>) -> Response {
    reply(StatusCode::OK, &Shown { relay: daemon.relay.get().map(Service::status) })
}
