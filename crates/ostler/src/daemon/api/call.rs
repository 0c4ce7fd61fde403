//! One call of a tool, one prompt or one resource.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use hyper_util::rt::TokioIo;
use ostler_core::error::CallError;
use ostler_host::{Answer, Caller};

use super::attach::{asks_for, switch_to};
use super::{fail, observed, refuse, reply_with};
use crate::call_events::{Observer, PROTOCOL};
use crate::daemon::Daemon;
use crate::wish::Wish;
use crate::workspace;

/// The longest body of a call; that of an MCP request is the same.
const LONGEST: usize = 4 << 20;
/// How long it may take to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn call(State(daemon): State<Arc<Daemon>>, mut request: Request) -> Response {
    let upgrade = asks_for(request.headers(), PROTOCOL).then(|| hyper::upgrade::on(&mut request));
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
    let wish: Wish = match serde_json::from_slice(&body) {
        Ok(wish) => wish,
        Err(error) => {
            return fail(&CallError::Invalid {
                what: format!("the body is not a call: {error}"),
                hint: r#"send {"server": "…", "tool": "…", "arguments": {…}}"#.into(),
            });
        }
    };
    let Some(upgrade) = upgrade else { return perform(&daemon, &caller, &wish, None).await };
    let attached = daemon.attendance.attach(true);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(connection) => {
                let work = async |observer: Observer| perform(&daemon, &caller, &wish, Some(&observer)).await;
                observed::serve(TokioIo::new(connection), wish.elicitation, work).await;
            }
            Err(error) => tracing::debug!(%error, "a caller left before its call began"),
        }
        drop(attached);
    });
    switch_to(PROTOCOL)
}

async fn perform(daemon: &Daemon, caller: &Caller, wish: &Wish, observer: Option<&Observer>) -> Response {
    match send(daemon, caller, wish, observer).await {
        Ok(answer) => reply_with(StatusCode::OK, Body::from(wrap(&answer))),
        Err(error) => fail(&error),
    }
}

async fn send(
    daemon: &Daemon,
    caller: &Caller,
    wish: &Wish,
    observer: Option<&Observer>,
) -> Result<Answer, CallError> {
    if let Some(error) = daemon.roster.refusal(&wish.server) {
        return Err(error);
    }
    let mut request = wish.request(caller)?;
    if let Some(observer) = observer {
        request = observer.observe(request);
    }
    daemon.host.ask(&wish.server, request).await
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
