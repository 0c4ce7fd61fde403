//! Worker side over an in-memory broker, in paused time. The test plays the host, message by
//! message.

#![expect(clippy::unwrap_used, reason = "what tests share fails like a test")]

mod harness;

mod chunks;
mod concurrency;
mod delivery;
mod lists;
mod mirror;
mod outages;
mod progress;
