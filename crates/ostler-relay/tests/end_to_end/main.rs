//! Both sides over an in-memory broker with a gateway at each end: the worker's gateway must answer
//! as the host's does.

#![expect(clippy::unwrap_used, reason = "what tests share fails like a test")]
#![expect(clippy::expect_used, reason = "what tests share fails like a test")]

mod agent_client;
mod outages;
mod pair;
mod progress;
mod roles;
mod server_requests;
mod transparency;
