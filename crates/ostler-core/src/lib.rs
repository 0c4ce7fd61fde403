//! Ostler decides: supervision, policy, budgets, cache and config.
//!
//! Everything here is a value. Machines take events (`on_*`) and the time of
//! the event, answer one question (`next_wake`), and return what should be
//! done; the host does it. Nothing in this crate reads a clock, draws from a
//! random source of its own, or touches a file, socket or process: its
//! `clippy.toml` forbids those calls.

pub mod backoff;
pub mod breaker;
pub mod budget;
pub mod cache;
pub mod caller;
pub mod card;
pub mod catalog;
#[cfg(test)]
mod clock;
pub mod config;
pub mod downloader;
pub mod error;
pub mod fair;
pub mod fault;
pub mod keyed_limit;
pub mod liveness;
pub mod loopback;
pub mod meter;
pub mod name;
pub mod nonces;
pub mod pins;
pub mod policy;
pub mod pool;
pub mod remedy;
pub mod repeat;
pub mod restart;
pub mod sabotage;
pub mod schema;
pub mod secrets;
pub mod shell;
pub mod spec;
pub mod stateful;
pub mod status;
pub mod stderr_cause;
pub mod supervisor;
pub mod variables;
pub mod weigh;
