//! The worker's side over a broker in memory, in paused time. The other side
//! is a peer that says what the test wants, message by message.

#![expect(clippy::unwrap_used, reason = "what tests share fails like a test")]

mod harness;

mod chunks;
mod concurrency;
mod delivery;
mod lists;
mod mirror;
mod outages;
mod progress;
