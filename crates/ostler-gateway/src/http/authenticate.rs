//! Authentication: from the head of a request to its caller, before its body is read.

use std::net::SocketAddr;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use ostler_core::name::ServerName;
use ostler_host::{Circle, VIA_HEADER};

use super::response::{Response, refuse};
use super::{Transport, metadata, origin};
use crate::auth::{Admitted, Check, Knock, Unauthorized};
use crate::exchange::Reply;
use crate::gateway::Gateway;
use crate::pass::Pass;

/// How long a credential may take to be checked. Its keys may have to be
/// fetched, which has a shorter limit of its own.
const LONGEST_CHECK: Duration = Duration::from_secs(5);

/// Returns the caller of a request. Refuses unknown credentials, and requests that this host has sent
/// itself.
pub(super) async fn authenticate(
    gateway: &Gateway,
    endpoint: (Option<&str>, Transport),
    peer: Option<SocketAddr>,
    parts: &Parts,
) -> Result<Admitted, Box<Response>> {
    let admitted = check(gateway, endpoint, peer, parts).await?;
    if let Some(via) = parts.headers.get(VIA_HEADER).and_then(|via| via.to_str().ok()) {
        let refused = |circle: Circle| Box::new(refuse(StatusCode::LOOP_DETECTED, &circle.to_string()));
        gateway.0.host.via().admit(via).map_err(refused)?;
    }
    Ok(admitted)
}

async fn check(
    gateway: &Gateway,
    (server, transport): (Option<&str>, Transport),
    peer: Option<SocketAddr>,
    parts: &Parts,
) -> Result<Admitted, Box<Response>> {
    // There is one, and it is served: that was checked.
    let host = origin::host(&parts.uri, &parts.headers).unwrap_or_default();
    let knock = Knock { headers: &parts.headers, peer, host };
    let checked = match gateway.0.options.authenticate.check(&knock) {
        Check::Admitted(admitted) => return Ok(admitted),
        Check::Refused(why) => Err(why),
        Check::Wait(waiting) => match tokio::time::timeout(LONGEST_CHECK, waiting).await {
            Ok(checked) => checked,
            Err(_) => return Err(Box::new(late())),
        },
    };
    checked.map_err(|why| {
        let metadata = gateway.0.options.resource_metadata.as_ref();
        let address = metadata.map(|metadata| metadata::address(metadata, host, &path(server, transport)));
        Box::new(unauthorized(&why, address.as_deref()))
    })
}

/// The path of the endpoint, without anything that a client has made up.
fn path(server: Option<&str>, transport: Transport) -> String {
    let server = server.and_then(|server| ServerName::new(server).ok());
    transport.path(server.as_ref().map(ServerName::as_str))
}

/// One answer for whoever has no credential that is good, whatever was asked for.
fn unauthorized(why: &Unauthorized, metadata: Option<&str>) -> Response {
    let mut challenge = String::from("Bearer realm=\"ostler\"");
    if let Some(code) = why.reason.code() {
        challenge.push_str(&format!(", error=\"{code}\""));
    }
    if let Some(address) = metadata {
        challenge.push_str(&format!(", resource_metadata=\"{address}\""));
    }
    let mut response = refuse(StatusCode::UNAUTHORIZED, &why.why);
    let challenge = HeaderValue::try_from(challenge).unwrap_or(HeaderValue::from_static("Bearer"));
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}

const TAKEN_BACK: &str = "the token was taken back";

/// Refuses a request whose credential was revoked before it was read.
pub(super) fn taken_back() -> Response {
    unauthorized(&Unauthorized::invalid(TAKEN_BACK), None)
}

/// Answers a request, or ends it when its credential is revoked. Whether its server has run it is not known then.
pub(super) async fn unless_revoked(pass: Option<Pass>, answering: impl Future<Output = Reply>) -> Reply {
    let Some(pass) = pass else { return answering.await };
    tokio::select! {
        biased;
        reply = answering => reply,
        () = pass.revoked() => Reply::revoked(),
    }
}

fn late() -> Response {
    let mut response =
        refuse(StatusCode::SERVICE_UNAVAILABLE, "the credential could not be checked in time; try again");
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}
