//! The binary as people and scripts meet it: what it prints, how it exits, and
//! that it leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test that can't be set up fails")]

mod agent;
mod api;
mod audit;
mod broker;
mod budgets;
mod cache_partition;
mod call;
mod cards;
mod completion;
mod config;
mod config_discovery;
mod config_edits;
mod console;
mod daemon;
mod daemon_replacement;
mod daemons;
mod elicitation;
mod exit_codes;
mod fd_limits;
mod guard_and_demo;
mod help;
mod home;
mod http;
mod issuer;
mod jwt;
mod logs;
mod many_servers;
mod mcp;
mod one_daemon;
mod pins;
mod process_isolation;
mod prompts_resources;
mod relay;
mod restart;
mod roles;
mod secret_leaks;
mod serve;
mod signals;
mod status;
mod stdio;
mod stdio_failure;
mod terminal;
mod tokens;
mod tools;
mod with_and_without_daemon;
mod worker_url;
