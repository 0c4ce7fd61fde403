//! Route that explains the rule in force for a role and an item.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::{error_response, reply};
use crate::command::explain::explain;
use crate::daemon::Daemon;

pub(super) async fn show(State(daemon): State<Arc<Daemon>>, RawQuery(query): RawQuery) -> Response {
    let (mut role, mut what) = (None, None);
    for (key, value) in form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes()) {
        match &*key {
            "role" => role = Some(value.into_owned()),
            "what" => what = Some(value.into_owned()),
            _ => {}
        }
    }
    let (Some(role), Some(what)) = (role, what) else {
        let message = "`role` and `what` say what is to be explained";
        return error_response(StatusCode::BAD_REQUEST, "invalid-argument", message);
    };
    let explained = daemon.config_state.with_config(|config, _, _| {
        explain(config, &role, &what, |caller, server, subject| daemon.host.explain(caller, server, subject))
    });
    reply(StatusCode::OK, &explained)
}
