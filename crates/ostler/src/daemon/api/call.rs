//! One call of a tool, one prompt or one resource.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use ostler_core::error::CallError;
use ostler_host::Answer;

use super::{fail, refuse, reply_with};
use crate::daemon::Daemon;
use crate::wish::Wish;

/// The longest body of a call; that of an MCP request is the same.
const LONGEST: usize = 4 << 20;
/// How long it may take to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn call(State(daemon): State<Arc<Daemon>>, request: Request) -> Response {
    let arriving = axum::body::to_bytes(request.into_body(), LONGEST);
    let body = match tokio::time::timeout(BODY_PATIENCE, arriving).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "the body is longer than 4 MiB");
        }
        Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "too-slow", "the body did not arrive in 30s"),
    };
    match perform(&daemon, &body).await {
        Ok(answer) => reply_with(StatusCode::OK, Body::from(wrap(&answer))),
        Err(error) => fail(&error),
    }
}

async fn perform(daemon: &Daemon, body: &Bytes) -> Result<Answer, CallError> {
    let wish: Wish = serde_json::from_slice(body).map_err(|error| CallError::Invalid {
        what: format!("the body is not a call: {error}"),
        hint: r#"send {"server": "…", "tool": "…", "arguments": {…}}"#.into(),
    })?;
    if let Some(error) = daemon.roster.refusal(&wish.server) {
        return Err(error);
    }
    daemon.host.send(wish.request(&daemon.local)?).await
}

/// The result, byte for byte, with where it came from beside it.
fn wrap(answer: &Answer) -> Vec<u8> {
    let head = format!(
        r#"{{"server":"{}","cached":{},"result":"#,
        // The grammar of names has nothing that JSON would escape.
        answer.server,
        answer.is_cached()
    );
    let mut text = Vec::with_capacity(head.len() + answer.body.len() + 1);
    text.extend_from_slice(head.as_bytes());
    text.extend_from_slice(&answer.body);
    text.push(b'}');
    text
}
