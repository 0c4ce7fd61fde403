//! Headers that repeat arguments of a tool must say the same.

use http::HeaderMap;
use ostler_host::Target;
use ostler_wire::HEADER_MISMATCH;
use ostler_wire::headers::ParamHeader;

use crate::client_request::{ClientRequest, GatewayReply};
use crate::gateway::Gateway;

/// How headers that repeat arguments begin.
const PREFIX: &str = "mcp-param-";

/// Compares `Mcp-Param-*` headers with the arguments they repeat. A proxy may
/// have decided by the one what the server does by the other.
pub(crate) async fn check(
    gateway: &Gateway,
    exchange: &ClientRequest,
    target: &Target<'_>,
) -> Result<(), GatewayReply> {
    let Some(headers) = exchange.headers.as_ref().filter(|_| exchange.method.as_str() == "tools/call") else {
        return Ok(());
    };
    let marks = gateway.0.host.param_headers(target).await;
    let arguments = target.params().arguments().unwrap_or(b"{}");
    match marks.iter().find(|mark| !header_matches(mark, headers, arguments)) {
        None => Ok(()),
        Some(mark) => {
            let why = format!("the header {} does not say what the arguments say", mark.name);
            Err(GatewayReply::error(HEADER_MISMATCH, &why, None))
        }
    }
}

/// What the client's headers say of arguments, to be passed on: a server may
/// know marks that are not in the list we know. Most requests have none.
pub(crate) fn param_header_values(exchange: &ClientRequest) -> Vec<(String, String)> {
    let all = exchange.headers.iter().flatten();
    let params = all.filter(|(name, _)| name.as_str().starts_with(PREFIX));
    params
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
        .collect()
}

fn header_matches(mark: &ParamHeader, headers: &HeaderMap, arguments: &[u8]) -> bool {
    let mut values = headers.get_all(&mark.name).iter();
    match (values.next(), values.next()) {
        (None, _) => mark.value(arguments).is_none(),
        (Some(value), None) => {
            value.to_str().is_ok_and(|value| mark.matches_argument(value, arguments).unwrap_or(false))
        }
        (Some(_), Some(_)) => false,
    }
}
