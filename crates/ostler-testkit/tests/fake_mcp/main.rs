//! Promises of `fake-mcp` to the tests that use it, checked over a real pipe.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test that took it")]

mod calls;
mod client;
mod faults;
mod handshake;
mod lists;
mod processes;
mod recorded_tools;
mod round_trip;
mod start;
