//! What `fake-mcp` promises to the tests that are built on it, met over a real pipe.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test that took it")]

#[path = "fake_mcp/calls.rs"]
mod calls;
#[path = "fake_mcp/deeds.rs"]
mod deeds;
#[path = "fake_mcp/faults.rs"]
mod faults;
#[path = "fake_mcp/figure.rs"]
mod figure;
#[path = "fake_mcp/handshake.rs"]
mod handshake;
#[path = "fake_mcp/lists.rs"]
mod lists;
#[path = "fake_mcp/peer.rs"]
mod peer;
#[path = "fake_mcp/processes.rs"]
mod processes;
#[path = "fake_mcp/start.rs"]
mod start;
