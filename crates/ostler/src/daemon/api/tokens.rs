//! The tokens of callers, without anything that would make one.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{refuse, reply};
use crate::daemon::Daemon;

/// When tokens were last used.
#[derive(Serialize, Deserialize)]
pub(crate) struct Used {
    pub(crate) tokens: Vec<Use>,
}

/// When a token was last used.
#[derive(Serialize, Deserialize)]
pub(crate) struct Use {
    pub(crate) name: String,
    pub(crate) last_used: Option<u64>,
}

pub(super) async fn list(State(daemon): State<Arc<Daemon>>) -> Response {
    let mut tokens: Vec<Use> =
        daemon.keeper.last_used().into_iter().map(|(name, last_used)| Use { name, last_used }).collect();
    tokens.sort_by(|a, b| a.name.cmp(&b.name));
    reply(StatusCode::OK, &Used { tokens })
}

/// Reads the tokens again. A file that can't be read is told and changes nothing.
pub(super) async fn reload(State(daemon): State<Arc<Daemon>>) -> Response {
    match daemon.reload_tokens().await {
        Ok(tokens) => reply(StatusCode::OK, &json!({ "tokens": tokens })),
        Err(error) => {
            let what = format!("the tokens can't be read, so those from before stay: {error}");
            refuse(StatusCode::UNPROCESSABLE_ENTITY, "unreadable-tokens", &what)
        }
    }
}
