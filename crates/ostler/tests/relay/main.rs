//! Relay among real processes: a NATS server, hosts and workers, any of which may be killed at any moment. No call runs
//! twice, and the caller gets the known outcome.

#![allow(clippy::unwrap_used, reason = "a test that can't be set up fails")]
#![allow(clippy::print_stdout, reason = "figures are for people who watch")]

#[path = "../cli/agent.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod agent;
#[path = "../cli/daemon.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod daemon;
#[path = "../cli/home.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod home;
#[path = "../cli/http.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod http;

mod broker;
mod broker_kills;
mod caller_load;
mod concurrent_calls;
mod host_kills;
mod nats;
mod outcome_check;
mod payloads;
mod single_failures;
mod site;
mod stolen_credentials;
mod two_hosts;
