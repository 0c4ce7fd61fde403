//! Guard processes: no process that a server started survives the host.
//!
//! ```text
//! host ──control socket──▶ spawner           one per host, a re-executed binary
//!   ▲                        │ fork, no exec
//!   └──────lifeline──────▶ guard             one per server process, a child subreaper
//!                            │ fork, exec
//!                          server ── helpers, wrappers, daemons of any depth
//! ```
//!
//! A guard is the child subreaper of one server: any process that the server starts, in any session and after any
//! fork, becomes the guard's child as soon as it is orphaned. "No child left" (`ECHILD`) is therefore a proof that no
//! descendant is left. The guard holds one end of a socket, the lifeline; when the host stops the server or dies in
//! any way, the guard runs the stop sequence over every descendant until none remains.
//!
//! Guards are forked by the spawner, a small process that does nothing else, because a forked guard costs a seventh
//! of the memory of a re-executed one (`docs/adr/0003-guard.md` has the figures). The spawner is a subreaper too:
//! when a guard is itself killed, its orphans become the spawner's children, the only ones that aren't guards, and
//! the spawner kills them.
//!
//! The server's stdin, stdout and stderr run directly from the host to the server; no guard sees a byte of a call.

pub(crate) mod client;
#[cfg(target_os = "linux")]
mod descendants;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod guard;
#[cfg(target_os = "linux")]
mod memory_lock;
pub(crate) mod protocol;
#[cfg(target_os = "linux")]
mod signals;
#[cfg(target_os = "linux")]
mod spawner;
#[cfg(target_os = "linux")]
mod sys;

pub use client::GuardCommand;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{run_command, run_warden};
#[cfg(target_os = "linux")]
pub use {guard::run_command, spawner::run as run_warden};

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::close_others_in_child;
#[cfg(target_os = "linux")]
pub(crate) use sys::close_others_in_child;
