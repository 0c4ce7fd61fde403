//! Ostler serves: one endpoint for every MCP client, over HTTP and stdio.
//!
//! ```text
//! client ─ bytes ─ http/, stream/     the edges: frames, headers, sessions, streams
//!                    │ Exchange                                  ▲ Reply, frames of the Outlet
//!                  answer/            the core: whose name is that, which era speaks to which
//!                    │ Request                                   ▲ Answer | CallError
//!                  ostler-host        the walk of one call
//! ```
//!
//! A [`Gateway`] is a value over a host. Its [router](Gateway::router) can be
//! mounted into any axum program; [`Gateway::serve_stream`] speaks MCP over a
//! pair of pipes.

#![forbid(unsafe_code)]

mod answer;
mod auth;
mod calls;
mod commands;
mod exchange;
mod gateway;
mod http;
mod kept;
mod modern;
mod opening;
mod options;
mod outlet;
mod pass;
mod queue;
mod reply;
mod server;
mod session;
mod sessions;
mod stream;
mod streams;

pub use auth::{Admitted, Authenticate, Check, Knock, LocalOnly, Reason, Unauthorized};
pub use commands::Commands;
pub use gateway::Gateway;
pub use http::{Foreign, LongStream, OriginCheck, Refusal};
pub use options::{GatewayOptions, Readiness, ResourceMetadata};
pub use ostler_host::Scope;
pub use pass::{Pass, Standing};
pub use server::{Active, Activity, HttpService, Limits, OnRefusal, Privilege, Privileged, Refuse, serve};
