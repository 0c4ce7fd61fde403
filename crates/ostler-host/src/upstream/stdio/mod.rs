//! Servers behind child processes.
//!
//! ```text
//! caller ──submit──▶ line ──batch──▶ writer ──▶ stdin   server
//!   ▲                 ▲                           │
//!   └────reply────────┴──────────── reader ◀── stdout
//!                              ring ◀── drain ◀── stderr
//! ```
//!
//! Reader and writer are tasks of their own: a server that stops reading while
//! it writes, or the other way round, holds up only itself.

mod ask;
mod connect;
mod environment;
mod guarded;
mod line;
mod login_path;
#[cfg(fuzzing)]
mod played;
mod process;
mod reader;
mod session;
mod stderr_tail;
mod unguarded;
mod usage;
mod writer;

pub use connect::StdioConnector;
pub(crate) use environment::{read_file, resolve};
pub(crate) use login_path::LoginPath;
#[cfg(fuzzing)]
pub use played::played;
pub use stderr_tail::LogLine;
pub(crate) use stderr_tail::StderrTail;
pub(crate) use usage::{Usage, listening_port};
