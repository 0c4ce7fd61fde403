//! The HTTP edge, over real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that fails fails the test that took it")]

mod auth;
mod calls;
mod cards;
mod gates;
mod hidden;
mod isolation;
mod legacy;
mod modern;
mod passing;
mod shares;
mod sse;
mod verdicts;
#[allow(dead_code, reason = "shared with another test binary, which uses the rest")]
mod world;
