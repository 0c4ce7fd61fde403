//! What every modern request must say, however it came.

use ostler_wire::{MODERN_VERSION, MetaKey, Params, code};

use crate::exchange::Reply;

/// Methods that the modern era has done away with.
const REMOVED: [&str; 5] =
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// The protocol version in `_meta`, if it is a text.
pub(crate) fn version(params: &Params) -> Option<String> {
    serde_json::from_slice(params.meta_entry(MetaKey::ProtocolVersion)?).ok()
}

/// Whether `_meta` names the version that we speak, the usual case, which
/// needs no text of its own.
pub(crate) fn speaks_ours(params: &Params) -> bool {
    let raw = params.meta_entry(MetaKey::ProtocolVersion);
    let plain = raw.and_then(|raw| raw.strip_prefix(b"\"")?.strip_suffix(b"\""));
    plain == Some(MODERN_VERSION.as_bytes())
}

/// Refuses a modern request that does not say what it must.
pub(crate) fn check(method: &str, params: &Params) -> Result<(), Reply> {
    if !speaks_ours(params) {
        check_version(params)?;
    }
    let capabilities = params.meta_entry(MetaKey::ClientCapabilities);
    if !capabilities.is_some_and(|raw| raw.starts_with(b"{")) {
        let key = MetaKey::ClientCapabilities.name();
        return Err(Reply::refusal(code::INVALID_PARAMS, &format!("`_meta` lacks `{key}`, an object")));
    }
    if REMOVED.contains(&method) {
        let why = format!("the method `{method}` does not exist in {MODERN_VERSION}");
        return Err(Reply::no_method_because(method, &why));
    }
    Ok(())
}

fn check_version(params: &Params) -> Result<(), Reply> {
    let Some(requested) = version(params) else {
        let key = MetaKey::ProtocolVersion.name();
        return Err(Reply::refusal(code::INVALID_PARAMS, &format!("`{key}` in `_meta` is not a text")));
    };
    if requested == MODERN_VERSION {
        return Ok(());
    }
    let error = serde_json::json!({
        "code": code::UNSUPPORTED_VERSION,
        "message": format!("protocol version {requested:?} is not spoken here"),
        "data": { "supported": [MODERN_VERSION], "requested": requested },
    });
    Err(Reply::Error { code: code::UNSUPPORTED_VERSION, object: error.to_string().into() })
}

/// What is said to a request that names no protocol version where one is due.
pub(crate) fn lacks_meta() -> Reply {
    let key = MetaKey::ProtocolVersion.name();
    Reply::refusal(code::INVALID_PARAMS, &format!("`_meta` lacks `{key}`"))
}
