//! JSON-RPC and MCP as bytes: parsing, checking and writing messages.
//!
//! A proxy must not lose what it does not understand. So this crate reads the few members that decide
//! something (`id`, `method`, `name`, `_meta`, `resultType`, …) and keeps everything else as slices of the
//! line it arrived in: big integers, key order, unknown fields and unknown methods are preserved byte for
//! byte.
//!
//! ```text
//! bytes ─ LineSplitter ─ Frame::Line ─ Message::parse ─┬─ Request ── Params::parse ── write_request ─ bytes
//!                                                      ├─ Notification ── NotificationKind, ProgressParams::parse
//!                                                      └─ Response ── ResultHead::parse, ListPage::parse
//! ```
//!
//! Over HTTP the same messages arrive as bodies or as server-sent events ([`SseParser`]), with a part of them
//! repeated in [`headers`].
//!
//! The crate is pure: no clock, no IO, no random source, no runtime. The handshake with a server is a state
//! machine ([`Handshake`]); its driver owns the pipe and the clock.
//!
//! Slices share the buffer they were read into. Code that keeps one for long (a cache, a table of pending
//! ids) copies it first, see [`RequestId::detached`].

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod canonical;
mod definition_check;
mod edit;
mod envelope_scan;
mod era;
mod era_translate;
pub mod error_code;
mod handshake;
pub mod headers;
mod json_string;
mod line_splitter;
mod message;
mod meta;
mod method;
mod notification;
mod object;
mod params;
mod request_id;
mod result;
mod server_info;
mod sse;
mod write;

pub use canonical::{CanonicalError, canonicalize, canonicalize_exact};
pub use definition_check::{Conformance, DefinitionKind, check_definition};
pub use edit::{MemberEdit, all_members, edit, member, push_json_string, text_member};
pub use envelope_scan::{extract_response_id, extract_response_ids};
pub use era::{ClientInfo, Era, LEGACY_VERSIONS, MODERN_VERSION};
pub use era_translate::{result_to_legacy, result_to_modern};
pub use error_code::{
    HEADER_MISMATCH, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, MISSING_CAPABILITY,
    PARSE_ERROR, RESOURCE_NOT_FOUND, UNSUPPORTED_VERSION,
};
pub use handshake::{FIRST_REQUEST_ID, Handshake, HandshakeError, HandshakeStep, PROBE_TIMEOUT};
pub use line_splitter::{Frame, LineSplitter, Oversize, READ_CHUNK};
pub use message::{Message, MessageError, RpcError, RpcOutcome};
pub use meta::{MetaKey, RequestMeta, SessionMeta};
pub use method::{MethodName, SUBSCRIPTIONS_LISTEN};
pub use notification::{NotificationKind, ProgressParams};
pub use params::{
    ItemParam, ItemParamError, MAX_NAME_BYTES, MAX_URI_BYTES, Params, ParamsError, is_case_variant,
    is_valid_name, is_valid_uri,
};
pub use request_id::RequestId;
pub use result::{
    CacheScopeHint, DroppedItem, ListItem, ListPage, ResultError, ResultHead, ResultKind, may_be_error,
    may_carry_hints, may_carry_ttl,
};
pub use server_info::{
    Instructions, ServerInfo, has_capability, may_receive_requests, required_client_capability,
};
pub use sse::{SseEvent, SseParser, write_sse_comment, write_sse_event, write_sse_retry};
pub use write::{
    error_object, push_array_member, write_cancelled, write_error, write_error_object, write_notification,
    write_raw_request, write_request, write_result,
};
