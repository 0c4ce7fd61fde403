//! Both sides as they are, over a broker in memory, with a gateway at each
//! end: whoever asks a worker's gateway reads what the host's would say.

#![expect(clippy::unwrap_used, reason = "what tests share fails like a test")]
#![expect(clippy::expect_used, reason = "what tests share fails like a test")]

mod agent_client;
mod outages;
mod pair;
mod progress;
mod roles;
mod server_requests;
mod transparency;
