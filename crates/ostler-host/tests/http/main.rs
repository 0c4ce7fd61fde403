//! Remote servers: scripted endpoints on real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that fails fails the test that took it")]

mod attribution;
mod auth;
mod away;
mod bytes;
mod cards;
mod delivery;
mod eras;
mod expiry;
mod headers;
mod limits;
mod listen;
mod news;
mod pins;
mod questions;
mod remote;
mod stage;
