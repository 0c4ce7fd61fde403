//! Remote servers: scripted endpoints on real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that fails fails the test that took it")]

mod attribution;
mod auth;
mod cards;
mod delivery;
mod eras;
mod fixture;
mod headers;
mod listen;
mod notifications;
mod outages;
mod pauses;
mod pins;
mod response_bodies;
mod scripted_endpoint;
mod server_requests;
mod session_expiry;
