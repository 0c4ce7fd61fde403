//! Replies as bytes.

use std::time::Duration;

use bytes::Bytes;
use ostler_core::error::CallError;
use ostler_wire::{RequestId, RpcError, write_result};

use crate::client_request::GatewayReply;
use crate::session_requests::MAX_SESSION_REQUESTS;

/// Code of the error `outcome-unknown`.
const OUTCOME_UNKNOWN: i64 = -31003;

impl GatewayReply {
    /// Returns the end of a request whose credential was revoked while it was in flight: its server may have run it.
    pub(crate) fn credential_revoked() -> Self {
        let data = br#"{"code":"outcome-unknown","delivery":"unknown","hint":"find out whether it has run before you send it again with another token"}"#;
        let message = "outcome unknown: the token was taken back while the request was under way";
        Self::error(OUTCOME_UNKNOWN, message, Some(data))
    }

    /// Returns an error of the edge's own.
    pub(crate) fn refusal(code: i64, message: &str) -> Self {
        let error = RpcError::new(code, message);
        Self::Error { code, object: error.raw }
    }

    /// Returns the error for a client with too many requests in flight.
    pub(crate) fn overloaded() -> Self {
        let what = format!("this client has {MAX_SESSION_REQUESTS} requests under way");
        let error = CallError::Overloaded { what, retry_after: Duration::from_secs(1) };
        Self::from_own_error(&error)
    }

    /// Returns an empty result.
    pub(crate) fn empty_result() -> Self {
        Self::Result(Bytes::from_static(b"{}"))
    }

    /// Appends the reply to the request `id`, one line with its line break. Without an id it is an error about a
    /// message whose id could not be parsed.
    pub(crate) fn write(&self, out: &mut Vec<u8>, id: Option<&RequestId>) {
        match (self, id) {
            (Self::Result(result), Some(id)) => write_result(out, id, result),
            (Self::Result(_), None) => {}
            (Self::Error { object, .. } | Self::UnknownServer(object), id) => {
                let id = id.map_or(&b"null"[..], RequestId::raw);
                out.reserve(object.len() + id.len() + 40);
                out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
                out.extend_from_slice(id);
                out.extend_from_slice(b",\"error\":");
                // Raw line breaks stand only between tokens, where a space means the same.
                out.extend(
                    object.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }),
                );
                out.extend_from_slice(b"}\n");
            }
        }
    }

    /// Returns the reply to the request `id` without a line break.
    pub(crate) fn frame(&self, id: Option<&RequestId>) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out, id);
        out.pop();
        out
    }
}
