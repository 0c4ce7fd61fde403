//! Ostler gateway: one endpoint for every MCP client, over HTTP and stdio.
//!
//! ```text
//! client ─ bytes ─ http/, stdio/      the edges: frames, headers, sessions, streams
//!                    │ ClientRequest                             ▲ GatewayReply, frames of the NotificationSink
//!                  dispatch/          the core: methods, and translation between the eras
//!                    │ Request                                   ▲ Answer | CallError
//!                  ostler-host        the phases of one call
//! ```
//!
//! A [`Gateway`] is a value over a host. Its [router](Gateway::router) can be mounted into any axum program;
//! [`Gateway::serve_stream`] speaks MCP over a pair of pipes.

#![forbid(unsafe_code)]

mod auth;
mod client_request;
mod client_session;
mod command_extensions;
mod credential_lifetime;
mod dispatch;
mod frame_queue;
mod gateway;
mod http;
mod initialize_params;
mod modern_meta;
mod notification_sink;
mod options;
mod reply;
mod resumable_streams;
mod retained_bytes;
mod server;
mod session_requests;
mod session_table;
mod stdio;

pub use auth::{
    AuthOutcome, AuthRequest, Authenticate, Authenticated, LocalOnly, Unauthorized, UnauthorizedReason,
};
pub use command_extensions::CommandExtensions;
pub use credential_lifetime::CredentialLifetime;
pub use gateway::Gateway;
pub use http::{LongStream, OriginCheck, OriginError, RefusalReason};
pub use options::{GatewayOptions, ReadinessCheck, ResourceMetadata};
pub use ostler_core::caller::CredentialState;
pub use ostler_host::Scope;
pub use server::{
    Activity, ActivityGuard, ConnectionLimits, HttpService, OnRefusal, Privilege, PrivilegeCheck,
    RefusalHandler, serve,
};
