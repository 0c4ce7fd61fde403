//! Routes of the callers' tokens. Nothing in a response can make a token.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::{error_response, reply};
use crate::api::{TokenCount, TokenUse, TokensResponse};
use crate::daemon::Daemon;

pub(super) async fn list(State(daemon): State<Arc<Daemon>>) -> Response {
    let mut tokens: Vec<TokenUse> = daemon
        .authenticator
        .last_used()
        .into_iter()
        .map(|(name, last_used)| TokenUse { name, last_used })
        .collect();
    tokens.sort_by(|a, b| a.name.cmp(&b.name));
    reply(StatusCode::OK, &TokensResponse { tokens })
}

/// Reads the tokens again. An unreadable file is reported and changes nothing.
pub(super) async fn reload(State(daemon): State<Arc<Daemon>>) -> Response {
    match daemon.reload_tokens().await {
        Ok(tokens) => reply(StatusCode::OK, &TokenCount { tokens }),
        Err(error) => {
            let what = format!("the tokens can't be read, so those from before stay: {error}");
            error_response(StatusCode::UNPROCESSABLE_ENTITY, "unreadable-tokens", &what)
        }
    }
}
