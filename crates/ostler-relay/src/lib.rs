//! Relay: calls between remote workers and the host that owns the tools, over a broker that both reach.
//!
//! ```text
//! agent ─ MCP ─ gateway ─ host ─┐                              ┌─ host ─ servers
//!               (the worker's)  │ Connector, ServerSession     │ Host::send
//!                            worker/ ── broker ──▶ subjects ─▶ service/
//!                               ▲                              │
//!                               └── accepted, progress, chunks,│answer
//! ```
//!
//! On the worker the relay is one more upstream transport, on the host one more front end. A relayed call
//! passes the same policy, budgets and limits as every other call; the relay adds no rules of its own.
//! Tenant, role and worker of a call are tokens of its subject, and the broker's permissions let no other
//! client publish to that subject.
//!
//! ```text
//! subject.rs    subjects: building and parsing them
//! envelope.rs   message headers
//! broker/       connections to a broker: NATS, or memory for tests
//! reconnect.rs  one connection to the broker, retried for as long as the relay runs
//! call_id.rs    ids of calls and of process instances
//! clock.rs      wall-clock deadlines
//! chunk.rs      sizes and window of answers that exceed one message
//! manifest.rs   the servers and tools that a worker may use
//! name.rs       tenant, role, worker and host names
//! journal/      claims: at most one execution of each call
//! nats_config/  users and permissions of a NATS server
//! service/      the host's side
//! worker/       the worker's side
//! ```

#![forbid(unsafe_code)]

pub mod broker;
mod call_id;
pub mod chunk;
mod clock;
pub mod envelope;
pub mod journal;
mod manifest;
mod name;
pub mod nats_config;
mod reconnect;
pub mod service;
pub mod subject;
pub mod worker;

pub use call_id::{CallId, Instance};
pub use clock::WallClock;
pub use manifest::{Manifest, ManifestServer};
pub use name::{BadRelayName, RelayName};
pub use reconnect::{BrokerConnection, LinkReport, LinkState, Reconnector, StatusSink};
