//! Servers behind child processes.
//!
//! ```text
//! caller ──submit──▶ multiplexer ──batch──▶ writer ──▶ stdin   server
//!   ▲                     ▲                              │
//!   └────────reply────────┴─────────── reader ◀── stdout
//!                            stderr_tail ◀── drain ◀── stderr
//! ```
//!
//! Reader and writer are separate tasks: a server that stops reading while it writes, or the other way round, blocks
//! only itself.

mod connect;
mod environment;
#[cfg(fuzzing)]
mod fuzz_session;
mod guarded;
mod login_path;
mod multiplexer;
mod process;
mod process_usage;
mod reader;
mod server_requests;
mod session;
mod stderr_tail;
mod unguarded;
mod writer;

pub use connect::StdioConnector;
pub(crate) use environment::{read_file, resolve};
#[cfg(fuzzing)]
pub use fuzz_session::fuzz_session;
pub(crate) use login_path::LoginPath;
pub(crate) use process_usage::{ProcessUsage, listening_port};
pub use stderr_tail::StderrLine;
pub(crate) use stderr_tail::{StderrLog, StderrTail};
