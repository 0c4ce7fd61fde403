//! One call of a tool, one prompt or one resource.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use ostler_core::error::CallError;
use ostler_host::{Answer, Caller};

use super::{fail, refuse, reply};
use crate::api::{CallRequest, CallResponse};
use crate::daemon::Daemon;
use crate::workspace;

/// The longest body of a call; that of an MCP request is the same.
const LONGEST: usize = 4 << 20;
/// How long it may take to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn call(State(daemon): State<Arc<Daemon>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let caller = workspace::caller_of(&head.headers, daemon.local.clone()).await;
    let arriving = axum::body::to_bytes(body, LONGEST);
    let body = match tokio::time::timeout(BODY_PATIENCE, arriving).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "the body is longer than 4 MiB");
        }
        Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "too-slow", "the body did not arrive in 30s"),
    };
    let wish: CallRequest = match serde_json::from_slice(&body) {
        Ok(wish) => wish,
        Err(error) => {
            return fail(&CallError::Invalid {
                what: format!("the body is not a call: {error}"),
                hint: r#"send {"server": "…", "tool": "…", "arguments": {…}}"#.into(),
            });
        }
    };
    match send(&daemon, &caller, &wish).await {
        Ok(answer) => match serde_json::from_slice(&answer.body) {
            Ok(result) => {
                let cached = answer.is_cached();
                reply(StatusCode::OK, &CallResponse { server: answer.server, cached, result })
            }
            // Results are read as JSON when they arrive.
            Err(error) => {
                fail(&CallError::UpstreamProtocol { server: answer.server, detail: error.to_string() })
            }
        },
        Err(error) => fail(&error),
    }
}

async fn send(daemon: &Daemon, caller: &Caller, wish: &CallRequest) -> Result<Answer, CallError> {
    if let Some(error) = daemon.roster.refusal(&wish.server) {
        return Err(error);
    }
    daemon.host.ask(&wish.server, wish.request(caller)?).await
}
