//! Ostler carries: calls between workers elsewhere and the host that has the
//! tools, over a broker that both can reach.
//!
//! ```text
//! agent ─ MCP ─ gateway ─ host ─┐                              ┌─ host ─ servers
//!               (the worker's)  │ Connector, Session           │ Host::send
//!                            worker/ ── broker ──▶ subjects ─▶ service/
//!                               ▲                              │
//!                               └── accepted, progress, chunks,│answer
//! ```
//!
//! On the worker the relay is one more way to reach servers, on the host one
//! more way to be reached. There is no second path: a relayed call walks the
//! same gates as every other, and the relay has no rules of its own. Who calls,
//! and in which role, stands in the subject, which the broker lets nobody else
//! use.
//!
//! ```text
//! subject.rs    the subjects, and who may be read from one
//! envelope.rs   what messages say beside their body
//! broker/       the way: NATS, or memory for tests
//! tether.rs     keeps one connection to the broker, for ever
//! chunk.rs      how answers are cut that are too large for one message
//! manifest.rs   what a worker may use
//! journal/      which calls were begun, so that none is begun twice
//! nats_config/  what a NATS server must know to keep workers apart
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
