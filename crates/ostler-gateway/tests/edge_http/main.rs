//! HTTP edge, over real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that fails fails the test that took it")]

mod auth;
mod calls;
mod hidden_server;
mod isolation;
mod legacy;
mod modern;
mod origin_and_credentials;
mod param_headers;
mod per_caller_limits;
mod policy_checks;
mod server_cards;
mod sse;
#[allow(dead_code, reason = "shared with another test binary, which uses the rest")]
mod world;
