//! Headers of a modern request: the part that HTTP repeats from the body, so that proxies can route without
//! reading it.
//!
//! | header | repeats |
//! |---|---|
//! | `MCP-Protocol-Version` | the version in `_meta` |
//! | `Mcp-Method` | `method` |
//! | `Mcp-Name` | the item that [`mcp_name`] returns |
//! | `Mcp-Param-…` | arguments that the tool's schema marks with `x-mcp-header`, see [`param_headers`] |
//!
//! A server refuses a request whose headers and body disagree ([`crate::HEADER_MISMATCH`]): a proxy may have
//! decided by the headers while the server acts on the body.

mod encoding;
mod param;

use std::borrow::Cow;

pub use encoding::{HeaderEncodingError, decode_value, encode_value};
pub use param::{ParamHeader, ParamHeaderError, ParamKind, param_header_values, param_headers};

use crate::params::{ItemParam, Params};

/// The revision of the protocol; in the legacy era sent after `initialize` only.
pub const PROTOCOL_VERSION: &str = "MCP-Protocol-Version";
/// The method of the request.
pub const METHOD: &str = "Mcp-Method";
/// The tool, prompt, resource or task that the request is about.
pub const NAME: &str = "Mcp-Name";
/// Prefix of the headers of marked arguments.
pub const PARAM_PREFIX: &str = "Mcp-Param-";
/// Legacy: the session that `initialize` opened.
pub const SESSION_ID: &str = "Mcp-Session-Id";
/// Legacy: the last event of a stream that is to be resumed.
pub const LAST_EVENT_ID: &str = "Last-Event-ID";

/// Returns the value that `Mcp-Name` must have, before [`encode_value`]. `None` for a method without such a
/// header, and for parameters that lack the member: the server refuses those itself.
pub fn mcp_name<'p>(method: &str, params: &'p Params) -> Option<Cow<'p, str>> {
    match method {
        "tools/call" | "prompts/get" | "resources/read" | "tasks/get" | "tasks/update" | "tasks/cancel" => {
            ItemParam::for_method(method).text(params)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_name_is_what_the_request_is_about() {
        let params = Params::parse(Bytes::from_static(br#"{"name":"n","uri":"u","taskId":"t"}"#)).unwrap();
        let table = [
            ("tools/call", Some("n")),
            ("prompts/get", Some("n")),
            ("resources/read", Some("u")),
            ("tasks/get", Some("t")),
            ("tasks/update", Some("t")),
            ("tasks/cancel", Some("t")),
            ("tools/list", None),
            ("completion/complete", None),
        ];
        for (method, name) in table {
            assert_eq!(mcp_name(method, &params).as_deref(), name, "{method}");
        }
        assert_eq!(mcp_name("tools/call", &Params::empty()), None);
    }
}
