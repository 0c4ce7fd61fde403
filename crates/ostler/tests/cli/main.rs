//! The binary as people and scripts meet it: what it prints, how it exits, and
//! that it leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test that can't be set up fails")]

mod agent;
mod api;
mod audit;
mod bridge;
mod broker;
mod call;
mod canary;
mod cards;
mod completion;
mod config;
mod console;
mod crowd;
mod daemon;
mod daemons;
mod descriptors;
mod edit;
mod exits;
mod finding;
mod help;
mod home;
mod http;
mod issuer;
mod jwt;
mod limits;
mod logs;
mod mcp;
mod offers;
mod one_daemon;
mod partition;
mod pins;
mod questions;
mod refusal;
mod relay;
mod restart;
mod roles;
mod serve;
mod sharing;
mod signals;
mod status;
mod stdio;
mod takeover;
mod terminal;
mod through;
mod tokens;
mod tools;
mod wrapped;
