//! A client that speaks MCP on its stdin and stdout, attached through
//! `ostler stdio`: after the upgrade the connection carries its bytes.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use hyper_util::rt::TokioIo;
use ostler_gateway::{Admitted, Check, Unauthorized};
use ostler_host::{Caller, VIA_HEADER};

use super::refuse;
use crate::daemon::{Daemon, edge};
use crate::stdio::{PROTOCOL, TOKEN_HEADER};

pub(super) async fn attach(State(daemon): State<Arc<Daemon>>, mut request: Request) -> Response {
    let asked = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
    if !asked.is_some_and(|asked| asked.eq_ignore_ascii_case(PROTOCOL)) {
        let what = "this is where `ostler stdio` attaches; ask for the upgrade to `ostler-stdio`";
        return refuse(StatusCode::UPGRADE_REQUIRED, "upgrade-required", what);
    }
    let admitted = match caller(&daemon, request.headers()).await {
        Ok(admitted) => admitted,
        Err(Unauthorized { why, .. }) => return refuse(StatusCode::FORBIDDEN, "token-refused", &why),
    };
    let via = request.headers().get(VIA_HEADER).and_then(|via| via.to_str().ok()).unwrap_or_default();
    let behind = match daemon.host.via().attach(via) {
        Ok(behind) => behind,
        Err(circle) => return refuse(StatusCode::LOOP_DETECTED, "loop", &circle.to_string()),
    };
    let visit = daemon.attendance.enter();
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(connection) => {
                edge::serve_stream(&daemon.gateway, TokioIo::new(connection), admitted).await;
            }
            Err(error) => tracing::debug!(%error, "a client left before it was attached"),
        }
        drop((visit, behind));
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let protocol = header::HeaderValue::from_static(PROTOCOL);
    response.headers_mut().insert(header::UPGRADE, protocol);
    response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("upgrade"));
    response
}

/// Who the client is: the owner of the token it shows beside the admin token,
/// which only lets it in. Without one it is `local`, as on its own machine.
async fn caller(daemon: &Daemon, headers: &HeaderMap) -> Result<Admitted, Unauthorized> {
    let Some(shown) = headers.get(TOKEN_HEADER) else { return Ok(Caller::local().into()) };
    match daemon.keeper.check_token(shown.to_str().unwrap_or_default()) {
        Check::Admitted(admitted) => Ok(admitted),
        Check::Refused(why) => Err(why),
        // Bounded by the wait for keys.
        Check::Wait(waiting) => waiting.await,
    }
}
