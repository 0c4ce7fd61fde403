//! The host with real child processes: `fake-mcp` under real guards.
//!
//! Time is real here, so tests wait for conditions, and assert counts and order, not durations. They count processes
//! and memory of their own process, so each needs one: run them with `cargo nextest`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that fails fails the test that took it")]
#![allow(clippy::print_stdout, reason = "figures are for whoever runs a test to see them")]

mod answers;
mod byte_transparency;
mod crashes;
mod embed;
mod environment;
mod eras;
mod fixture;
mod floods;
mod guards;
mod host_death;
mod hung_servers;
mod lifecycle;
mod notifications;
mod observers;
mod orphans;
mod restarts;
mod seccomp;
mod server_requests;
mod startup;
mod unguarded;
mod unreadable_program;
