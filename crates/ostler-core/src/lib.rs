//! Ostler decides: supervision, policy, budgets, cache and config.
//!
//! Everything here is a value. Machines take events (`on_*`) and the time of
//! the event, answer one question (`next_wake`), and return what should be
//! done; the host does it. Nothing in this crate reads a clock, draws from a
//! random source of its own, or touches a file, socket or process: its
//! `clippy.toml` forbids those calls.

pub mod argument_schema;
pub mod backoff;
pub mod breaker;
pub mod cache;
pub mod call_budget;
pub mod caller;
pub mod card;
pub mod catalog;
pub mod classify;
pub mod config;
pub mod downloader;
pub mod error;
pub mod fair_queue;
pub mod fault;
pub mod inherited_env;
pub mod keyed_limit;
pub mod liveness;
pub mod loopback;
pub mod nonces;
pub mod pins;
pub mod policy;
pub mod pool;
pub mod rate_limit;
pub mod remedy;
pub mod restart_budget;
pub mod retry;
pub mod sabotage;
pub mod secrets;
pub mod server_name;
pub mod shell;
pub mod spec;
pub mod stateful_servers;
pub mod status;
pub mod stderr_cause;
pub mod supervisor;
#[cfg(test)]
mod test_clock;
