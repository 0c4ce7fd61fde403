//! Ostler pretends: a scripted MCP server and a test world.
//!
//! A dev-dependency only: nothing here is part of the product.
//!
//! Which server plays what; a test takes one of these before it writes another:
//!
//! | server | what only it can do |
//! |---|---|
//! | `fake-mcp` | a real process that misbehaves on request: pipes, signals, forks, starts |
//! | `fixture-mcp` | what the official conformance suite asks for, on the official library: a second opinion |
//! | `host-under-test` | not a server: a host without a daemon, for tests that kill it |
//! | [`Script`] | a server in memory, for everything above the transport in paused time |
//! | [`Parrot`] | a server in memory that counts and remembers nothing, for benchmarks of the way to it |
//! | `tests/hostile/rude_server.py` | bytes that are no messages, on pipes and over HTTP |
//! | `mcp-stub` of `bench` | as little as a server can do, on pipes and over HTTP |
//!
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use ostler_testkit::{Script, World};
//!
//! let world = World::new().server("a", Script::echo()).open().await;
//! world.call("a", "echo").await.unwrap();
//! world.crash("a");
//! world.call("a", "echo").await.unwrap();
//! assert_eq!(world.stage("a").connects(), 2);
//! # }
//! ```

#![expect(clippy::expect_used, reason = "a test that can't be set up fails, and says why")]

mod list;
mod nats;
mod procs;
mod programs;
mod raw_nats_client;
mod reconfigure;
mod reserved_port;
mod script;
mod scripted_reply;
mod scripted_server;
mod scripted_session;
mod static_server;
mod test_host;

pub use list::list_one;
pub use nats::{NatsServer, NatsSetup, NatsVersion};
pub use procs::{MemoryGrowth, Proc, become_subreaper, eventually, read_lines, read_processes};
pub use programs::{example, fake_mcp, fake_mcp_spec, guard_command, host_under_test, ostler};
pub use raw_nats_client::{MALFORMED_HEADERS, MALFORMED_TOKENS, RawNatsClient};
pub use reconfigure::Reconfigure;
pub use reserved_port::ReservedPort;
pub use script::Script;
pub use scripted_reply::ScriptedReply;
pub use scripted_server::{ReceivedRequest, ScriptedServer};
pub use static_server::StaticServer;
pub use test_host::{Result, TestHost, TestHostBuilder, run_until_stalled};
