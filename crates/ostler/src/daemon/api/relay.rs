//! Route of the relay's status.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use ostler_relay::service::Service;

use super::reply;
use crate::api::RelayResponse;
use crate::daemon::Daemon;

pub(super) async fn show(State(daemon): State<Arc<Daemon>>) -> Response {
    reply(StatusCode::OK, &RelayResponse { relay: daemon.relay.get().map(Service::status) })
}
