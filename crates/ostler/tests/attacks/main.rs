//! Attacks on a running daemon: hostile callers, hostile servers and hostile workers, through every entrance.
//! Each file plays one kind of attack and asserts that it fails; `docs/security.md` names the promises.

#![allow(clippy::unwrap_used, reason = "a test that can't be set up fails")]

#[path = "../cli/agent.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod agent;
#[path = "../relay/broker.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod broker;
#[path = "../cli/daemon.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod daemon;
#[path = "../cli/home.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod home;
#[path = "../cli/http.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod http;
#[path = "../relay/site.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod site;

mod client;

mod ambiguous_items;
mod approvals;
mod audit_floods;
mod breaker;
mod concealment;
mod environment;
mod lists;
mod logs;
mod memory;
mod notifications;
mod resource_rules;
mod rogue_daemon;
mod sealed_tokens;
mod shadowing;
mod trust;
