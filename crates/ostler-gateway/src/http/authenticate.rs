//! Authentication: from the head of a request to its caller, before its body is read.

use std::net::SocketAddr;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use ostler_core::server_name::ServerName;
use ostler_host::{LoopDetected, VIA_HEADER};

use super::response::{Response, refuse};
use super::{EndpointTransport, origin, resource_metadata};
use crate::auth::{AuthOutcome, AuthRequest, Authenticated, Unauthorized};
use crate::gateway::Gateway;

/// Timeout of a credential check. A fetch of its keys has a shorter timeout of its own.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the caller of a request. Refuses unknown credentials, and requests that this host has sent itself.
pub(super) async fn authenticate(
    gateway: &Gateway,
    endpoint: (Option<&str>, EndpointTransport),
    peer: Option<SocketAddr>,
    parts: &Parts,
) -> Result<Authenticated, Box<Response>> {
    let admitted = check_credential(gateway, endpoint, peer, parts).await?;
    if let Some(via) = parts.headers.get(VIA_HEADER).and_then(|via| via.to_str().ok()) {
        let refused = |circle: LoopDetected| Box::new(refuse(StatusCode::LOOP_DETECTED, &circle.to_string()));
        gateway.0.host.loop_detector().admit(via).map_err(refused)?;
    }
    Ok(admitted)
}

async fn check_credential(
    gateway: &Gateway,
    (server, transport): (Option<&str>, EndpointTransport),
    peer: Option<SocketAddr>,
    parts: &Parts,
) -> Result<Authenticated, Box<Response>> {
    // The Host check has passed, so the request names a host.
    let host = origin::request_host(&parts.uri, &parts.headers).unwrap_or_default();
    let knock = AuthRequest { headers: &parts.headers, peer, host };
    let checked = match gateway.0.options.authenticate.check(&knock) {
        AuthOutcome::Accepted(admitted) => return Ok(admitted),
        AuthOutcome::Refused(why) => Err(why),
        AuthOutcome::Pending(waiting) => match tokio::time::timeout(CHECK_TIMEOUT, waiting).await {
            Ok(checked) => checked,
            Err(_) => return Err(Box::new(check_timed_out())),
        },
    };
    checked.map_err(|why| {
        let metadata = gateway.0.options.resource_metadata.as_ref();
        let address = metadata.map(|metadata| {
            resource_metadata::metadata_url(metadata, host, &endpoint_path(server, transport))
        });
        Box::new(unauthorized(&why, address.as_deref()))
    })
}

/// Returns the path of the endpoint, without any part that a client has made up.
fn endpoint_path(server: Option<&str>, transport: EndpointTransport) -> String {
    let server = server.and_then(|server| ServerName::new(server).ok());
    transport.path(server.as_ref().map(ServerName::as_str))
}

/// Returns the 401 for a missing or invalid credential; it is the same for every path.
fn unauthorized(why: &Unauthorized, metadata: Option<&str>) -> Response {
    let mut challenge = String::from("Bearer realm=\"ostler\"");
    if let Some(code) = why.reason.code() {
        challenge.push_str(&format!(", error=\"{code}\""));
    }
    if let Some(address) = metadata {
        challenge.push_str(&format!(", resource_metadata=\"{address}\""));
    }
    let mut response = refuse(StatusCode::UNAUTHORIZED, &why.message);
    let challenge = HeaderValue::try_from(challenge).unwrap_or(HeaderValue::from_static("Bearer"));
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}

const REVOKED: &str = "the token was taken back";

/// Refuses a request whose credential was revoked before it was read.
pub(super) fn revoked_response() -> Response {
    unauthorized(&Unauthorized::invalid(REVOKED), None)
}

fn check_timed_out() -> Response {
    let mut response =
        refuse(StatusCode::SERVICE_UNAVAILABLE, "the credential could not be checked in time; try again");
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}
