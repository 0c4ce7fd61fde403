//! Attached clients: MCP over an upgraded connection. Clients are MCP clients on pipes, through `ostler stdio`, and
//! commands of this program.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use hyper_util::rt::TokioIo;
use ostler_core::error::CallError;
use ostler_gateway::{AuthOutcome, Authenticated, CommandExtensions, Unauthorized};
use ostler_host::{Caller, VIA_HEADER};

use super::error_response;
use crate::api::ErrorBody;
use crate::client::LIST_TIMEOUT;
use crate::daemon::{Daemon, gateway_setup};
use crate::stdio::{COMMANDS_HEADER, FAREWELL, FAREWELL_HEADER, MAX_MESSAGE_HEADER, PROTOCOL, TOKEN_HEADER};
use crate::workspace;

pub(super) async fn attach(State(daemon): State<Arc<Daemon>>, mut request: Request) -> Response {
    if !is_upgrade_to(request.headers(), PROTOCOL) {
        let what = "this is where `ostler stdio` attaches; ask for the upgrade to `ostler-stdio`";
        return error_response(StatusCode::UPGRADE_REQUIRED, "upgrade-required", what);
    }
    if request.headers().contains_key(COMMANDS_HEADER) {
        return attach_command(daemon, request).await;
    }
    let admitted = match authenticate_caller(&daemon, request.headers()).await {
        Ok(Authenticated { caller, lifetime: pass }) => {
            // The admin token has authorized the client, so its roots may name a directory as well.
            let caller =
                workspace::caller_in_named_workspace(request.headers(), caller.allow_naming_workspace())
                    .await;
            Authenticated { caller, lifetime: pass }
        }
        Err(Unauthorized { message: why, .. }) => {
            return error_response(StatusCode::FORBIDDEN, "token-refused", &why);
        }
    };
    let via = request.headers().get(VIA_HEADER).and_then(|via| via.to_str().ok()).unwrap_or_default();
    let behind = match daemon.host.loop_detector().attach(via) {
        Ok(behind) => behind,
        Err(circle) => return error_response(StatusCode::LOOP_DETECTED, "loop", &circle.to_string()),
    };
    let leaves_when_told = request.headers().contains_key(FAREWELL_HEADER);
    let attached = daemon.attached_clients.attach(leaves_when_told);
    // Counted before the check: either the shutdown waits for the client, or the client sees the shutdown here.
    if daemon.is_shutting_down() {
        return error_response(StatusCode::SERVICE_UNAVAILABLE, "ending", "this daemon is ending");
    }
    let upgrade = hyper::upgrade::on(&mut request);
    let max_message = daemon.gateway.max_body();
    tokio::spawn(async move {
        match upgrade.await {
            Ok(connection) => {
                let farewell = farewell_line(Arc::clone(&daemon), leaves_when_told);
                gateway_setup::serve_stream(&daemon.gateway, TokioIo::new(connection), admitted, farewell)
                    .await;
            }
            Err(error) => tracing::debug!(%error, "a client left before it was attached"),
        }
        drop((attached, behind));
    });
    let mut response = switching_protocols(PROTOCOL);
    response.headers_mut().insert(MAX_MESSAGE_HEADER, max_message.into());
    response
}

/// Attaches a command of this program with the caller of all commands.
async fn attach_command(daemon: Arc<Daemon>, mut request: Request) -> Response {
    let caller = workspace::caller_in_named_workspace(request.headers(), daemon.local_caller.clone()).await;
    let attached = daemon.attached_clients.attach(true);
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(connection) => {
                let (reader, writer) = tokio::io::split(TokioIo::new(connection));
                let gateway = daemon.gateway.clone();
                gateway.serve_commands(reader, writer, caller, daemon).await;
            }
            Err(error) => tracing::debug!(%error, "a command left before it was attached"),
        }
        drop(attached);
    });
    switching_protocols(PROTOCOL)
}

impl CommandExtensions for Daemon {
    fn list_patience(&self) -> Duration {
        LIST_TIMEOUT
    }

    fn error_data(&self, error: &CallError) -> Vec<u8> {
        // Texts, numbers and JSON: serializing them can't fail.
        serde_json::to_vec(&ErrorBody::from(error)).unwrap_or_default()
    }
}

/// Returns the response after which the connection belongs to another protocol.
pub(super) fn switching_protocols(protocol: &'static str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(header::UPGRADE, header::HeaderValue::from_static(protocol));
    response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("upgrade"));
    response
}

/// Returns whether a request asks for an upgrade to a protocol.
pub(super) fn is_upgrade_to(headers: &HeaderMap, protocol: &str) -> bool {
    let asked = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok());
    asked.is_some_and(|asked| asked.eq_ignore_ascii_case(protocol))
}

/// Waits for the shutdown, and returns the line that announces it to a client.
async fn farewell_line(daemon: Arc<Daemon>, leaves_when_told: bool) -> Bytes {
    if !leaves_when_told {
        std::future::pending::<()>().await;
    }
    daemon.until_shutdown().await;
    Bytes::from_static(FAREWELL.as_bytes())
}

/// Returns the client's caller: the owner of the token it sends beside the admin token, which only authorizes the
/// connection. Without a token it is `local`, as on its own machine.
async fn authenticate_caller(daemon: &Daemon, headers: &HeaderMap) -> Result<Authenticated, Unauthorized> {
    let Some(shown) = headers.get(TOKEN_HEADER) else { return Ok(Caller::local().into()) };
    match daemon.authenticator.check_token(shown.to_str().unwrap_or_default()) {
        AuthOutcome::Accepted(admitted) => Ok(admitted),
        AuthOutcome::Refused(why) => Err(why),
        // Bounded by the timeout of the key fetch.
        AuthOutcome::Pending(waiting) => waiting.await,
    }
}
