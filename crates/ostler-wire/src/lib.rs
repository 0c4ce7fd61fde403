//! Ostler speaks: JSON-RPC and MCP as bytes.
//!
//! A host in the middle must not lose what it does not understand. So this crate reads the few members
//! that decide something (`id`, `method`, `name`, `_meta`, `resultType`, …) and keeps everything else as
//! slices of the line it arrived in: big integers, key order, unknown fields and unknown methods survive
//! byte for byte.
//!
//! ```text
//! bytes ─ LineSplitter ─ Frame::Line ─ Message::parse ─┬─ Request ── Params::parse ── write_request ─ bytes
//!                                                      ├─ Notification ── Notice::of, Progress::parse
//!                                                      └─ Response ── ResultHead::open, ListPage::open
//! ```
//!
//! Over HTTP the same messages come as bodies or as server-sent events ([`EventSplitter`]), with a part of
//! themselves repeated in [`headers`].
//!
//! The crate is pure: no clock, no IO, no random source, no runtime. The opening conversation with a server
//! is a machine ([`Handshake`]) whose driver owns the pipe and the clock.
//!
//! Slices share the buffer they were read into. Whoever keeps one for long (a cache, a table of pending
//! ids) copies it first, see [`Id::detached`].

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod canonical;
pub mod code;
mod definition;
mod edit;
mod era;
mod exact;
mod frame;
mod handshake;
pub mod headers;
mod hello;
mod id;
mod message;
mod meta;
mod naming;
mod object;
mod params;
mod plain;
mod progress;
mod result;
mod scan;
mod spans;
mod sse;
mod text;
mod translate;
mod walk;
mod write;

pub use canonical::{CanonicalError, canonical, canonical_exact};
pub use code::{
    HEADER_MISMATCH, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, MISSING_CAPABILITY,
    PARSE_ERROR, RESOURCE_NOT_FOUND, UNSUPPORTED_VERSION,
};
pub use definition::{Conformance, DefinitionKind, conform};
pub use edit::{Change, all_members, edit, member, push_text, text_member};
pub use era::{ClientIdentity, Era, LEGACY_VERSIONS, MODERN_VERSION};
pub use frame::{Frame, LineSplitter, Oversize, READ_CHUNK};
pub use handshake::{FIRST_SESSION_ID, Handshake, HandshakeError, PROBE_SILENCE, Step};
pub use hello::{Hello, Instructions, can_be_asked, capability_to_be_asked, has_capability};
pub use id::Id;
pub use message::{Malformed, Message, Outcome, RpcError};
pub use meta::{Meta, MetaKey, SessionMeta};
pub use naming::{MAX_NAME, MAX_URI, Naming, NamingError, is_name, is_uri};
pub use params::{Params, ParamsError};
pub use progress::{Notice, Progress};
pub use result::{
    Dropped, Item, ListPage, ResultError, ResultHead, ResultKind, Scope, may_be_error, may_carry_hints,
    may_carry_ttl,
};
pub use scan::{salvage_id, salvage_ids};
pub use spans::is_alike;
pub use sse::{Event, EventSplitter, write_comment, write_event, write_retry};
pub use text::{LISTEN, Text};
pub use translate::{to_legacy, to_modern};
pub use write::{
    error_object, push_list, write_cancelled, write_error, write_error_object, write_notification,
    write_question, write_request, write_result,
};
