//! Remote servers: scripted endpoints on real sockets.

mod auth;
mod bytes;
mod delivery;
mod eras;
mod expiry;
mod headers;
mod limits;
mod news;
mod questions;
mod remote;
mod stage;
