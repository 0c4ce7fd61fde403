//! What every modern request must say, however it came.

use ostler_wire::{MODERN_VERSION, MetaKey, Params, error_code};

use crate::client_request::GatewayReply;

/// Methods that the modern era has done away with.
const REMOVED: [&str; 5] =
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// The protocol version in `_meta`, if it is a text.
pub(crate) fn protocol_version(params: &Params) -> Option<String> {
    serde_json::from_slice(params.meta_entry(MetaKey::ProtocolVersion)?).ok()
}

/// Whether `_meta` names the version that we speak, the usual case, which
/// needs no text of its own.
pub(crate) fn is_current_version(params: &Params) -> bool {
    let raw = params.meta_entry(MetaKey::ProtocolVersion);
    let plain = raw.and_then(|raw| raw.strip_prefix(b"\"")?.strip_suffix(b"\""));
    plain == Some(MODERN_VERSION.as_bytes())
}

/// Refuses a modern request that does not say what it must.
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

/// What is said to a request that names no protocol version where one is due.
pub(crate) fn missing_version() -> GatewayReply {
    let key = MetaKey::ProtocolVersion.name();
    GatewayReply::refusal(error_code::INVALID_PARAMS, &format!("`_meta` lacks `{key}`"))
}
