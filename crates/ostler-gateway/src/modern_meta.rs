//! `_meta` of modern requests: the fields that every request must have, on every transport.

use ostler_wire::{MODERN_VERSION, MetaKey, Params, error_code};

use crate::client_request::GatewayReply;

/// Methods that the modern era has removed.
const REMOVED: [&str; 5] =
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// Returns the protocol version in `_meta`, if it is a string.
pub(crate) fn protocol_version(params: &Params) -> Option<String> {
    serde_json::from_slice(params.meta_entry(MetaKey::ProtocolVersion)?).ok()
}

/// Returns whether `_meta` names the current modern version, the usual case, for which nothing is allocated.
pub(crate) fn is_current_version(params: &Params) -> bool {
    let raw = params.meta_entry(MetaKey::ProtocolVersion);
    let plain = raw.and_then(|raw| raw.strip_prefix(b"\"")?.strip_suffix(b"\""));
    plain == Some(MODERN_VERSION.as_bytes())
}

/// Refuses a modern request without its required fields.
pub(crate) fn check(method: &str, params: &Params) -> Result<(), GatewayReply> {
    if !is_current_version(params) {
        check_version(params)?;
    }
    let capabilities = params.meta_entry(MetaKey::ClientCapabilities);
    if !capabilities.is_some_and(|raw| raw.starts_with(b"{")) {
        let key = MetaKey::ClientCapabilities.name();
        return Err(GatewayReply::refusal(
            error_code::INVALID_PARAMS,
            &format!("`_meta` lacks `{key}`, an object"),
        ));
    }
    if REMOVED.contains(&method) {
        let why = format!("the method `{method}` does not exist in {MODERN_VERSION}");
        return Err(GatewayReply::method_not_found_because(method, &why));
    }
    Ok(())
}

fn check_version(params: &Params) -> Result<(), GatewayReply> {
    let Some(requested) = protocol_version(params) else {
        let key = MetaKey::ProtocolVersion.name();
        return Err(GatewayReply::refusal(
            error_code::INVALID_PARAMS,
            &format!("`{key}` in `_meta` is not a text"),
        ));
    };
    if requested == MODERN_VERSION {
        return Ok(());
    }
    let error = serde_json::json!({
        "code": error_code::UNSUPPORTED_VERSION,
        "message": format!("protocol version {requested:?} is not spoken here"),
        "data": { "supported": [MODERN_VERSION], "requested": requested },
    });
    Err(GatewayReply::Error { code: error_code::UNSUPPORTED_VERSION, object: error.to_string().into() })
}

/// Returns the error for a request without its required protocol version.
pub(crate) fn missing_version() -> GatewayReply {
    let key = MetaKey::ProtocolVersion.name();
    GatewayReply::refusal(error_code::INVALID_PARAMS, &format!("`_meta` lacks `{key}`"))
}
