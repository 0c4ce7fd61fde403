//! `Mcp-Param-*` headers: each must equal the tool argument it repeats.

use http::HeaderMap;
use ostler_host::Target;
use ostler_wire::HEADER_MISMATCH;
use ostler_wire::headers::ParamHeader;

use crate::client_request::{ClientRequest, GatewayReply};
use crate::gateway::Gateway;

/// Prefix of headers that repeat arguments.
const PREFIX: &str = "mcp-param-";

/// Compares `Mcp-Param-*` headers with the arguments they repeat. A proxy may have routed by the header a call that the
/// server runs by the argument.
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

/// Returns the client's `Mcp-Param-*` headers to forward: the server may have marks that are missing in the cached
/// list. Most requests have none.
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
