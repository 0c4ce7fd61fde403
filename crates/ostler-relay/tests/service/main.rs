//! Host side over an in-memory broker with scripted servers: one test per guarantee. The test plays
//! the worker.

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
