//! The host's side, over a broker in memory and with scripted servers: one
//! test for each thing it promises. The worker is played by hand.

#![expect(clippy::unwrap_used, reason = "what tests share fails like a test")]

mod calls;
mod chunked_answers;
mod harness;
mod lifecycle;
mod overload;
mod real_nats;
mod repeated_calls;
mod roles;
mod sealed_tokens;

use std::time::Duration;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
