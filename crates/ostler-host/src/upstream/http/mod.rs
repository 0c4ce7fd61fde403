//! Servers behind a URL.
//!
//! ```text
//!           one POST per request                             modern and legacy
//! caller ──────── request ───────▶ endpoint_client ──▶ server
//!   ▲                │ JSON, or events until the response
//!   └────────────────┘
//!   listen, server_messages ◀── endpoint_client ◀── server   messages without a request
//!   sse_transport: POST out, one stream in                   HTTP+SSE of 2024-11-05
//! ```
//!
//! There is no process and no standing connection, so a session is the result of its handshake: the era, a legacy
//! session's id, and the endpoint's good name. It ends when the endpoint can't be reached or does not accept the
//! credentials; the supervisor then decides about the next attempt. An unused session is not probed: a remote endpoint
//! should not receive a request from every idle host twice a minute.

mod card;
mod client_builder;
mod connect;
mod counters;
mod endpoint_client;
mod event_stream;
mod faults;
mod handshake;
mod legacy_session;
mod listen;
mod param_headers;
mod pending_calls;
mod reply_tasks;
mod request;
mod server_messages;
mod session;
mod sse_transport;
mod tool_lookup;

pub(crate) use card::fetch_card;
pub use connect::HttpConnector;
