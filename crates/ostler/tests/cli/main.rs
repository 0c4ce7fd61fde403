//! The binary as people and scripts meet it: what it prints, how it exits, and
//! that it leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test that can't be set up fails")]

mod call;
mod config;
mod exits;
mod help;
mod home;
mod signals;
mod status;
mod tools;
mod wrapped;
