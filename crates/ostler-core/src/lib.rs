//! Decisions of Ostler: supervision, policy, budgets, cache and config.
//!
//! Everything here is a value. State machines take events (`on_*`) and the time of the event, answer one question
//! (`next_wake`), and return actions; the host carries them out. Nothing in this crate reads a clock, draws from
//! a random source of its own, or touches a file, socket or process: its `clippy.toml` forbids those calls.

// A server: its config, its life, its failures.
pub mod backoff;
pub mod breaker;
pub mod classify;
pub mod config;
pub mod downloader;
pub mod fault;
pub mod inherited_env;
pub mod liveness;
pub mod remedy;
pub mod restart_budget;
pub mod server_name;
pub mod spec;
pub mod stateful_servers;
pub mod status;
pub mod stderr_cause;
pub mod supervisor;

// A call: its item, its arguments, its answer or error.
pub mod argument_schema;
pub mod cache;
pub mod card;
pub mod catalog;
pub mod error;
pub mod retry;

// Rights: callers, rules and approved definitions.
pub mod caller;
pub mod loopback;
pub mod pins;
pub mod policy;

// Limits.
pub mod call_budget;
pub mod fair_queue;
pub mod keyed_limit;
pub mod nonces;
pub mod pool;
pub mod rate_limit;

// Text for people.
pub mod secrets;
pub mod shell;

// Testing.
pub mod sabotage;
#[cfg(test)]
mod test_clock;
