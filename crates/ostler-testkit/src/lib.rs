//! Test servers and test hosts: scripted MCP servers, a host around them, real processes and brokers.
//!
//! A dev-dependency: nothing here is part of the product.
//!
//! The servers; a test uses one of these before it adds another:
//!
//! | server | its own ability |
//! |---|---|
//! | `fake-mcp` | a real process that misbehaves on request: pipes, signals, forks, starts |
//! | `fixture-mcp` | what the official conformance suite asks for, on the official library |
//! | `host-under-test` | a host without a daemon, for tests that kill it |
//! | [`Script`] | a server in memory, for everything above the transport, in paused time |
//! | [`StaticServer`] | a server in memory that records nothing, for benchmarks of the path to it |
//! | `tests/hostile/rude_server.py` | bytes that are no messages, on pipes and over HTTP |
//! | `mcp-stub` of `bench` | as little as a server can do, on pipes and over HTTP |
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use ostler_testkit::{Script, TestHost};
//!
//! let test_host = TestHost::new().server("a", Script::echo()).start().await;
//! test_host.call("a", "echo").await.unwrap();
//! test_host.crash("a");
//! test_host.call("a", "echo").await.unwrap();
//! assert_eq!(test_host.server("a").connects(), 2);
//! # }
//! ```

#![expect(clippy::expect_used, reason = "a test that can't be set up fails, and says why")]

mod nats;
mod procs;
mod programs;
mod raw_nats_client;
mod reserved_port;
mod script;
mod scripted_reply;
mod scripted_server;
mod scripted_session;
mod static_server;
mod test_host;

pub use nats::{NatsServer, NatsSetup, NatsVersion};
pub use procs::{MemoryGrowth, Proc, become_subreaper, eventually, read_lines, read_processes};
pub use programs::{example, fake_mcp, fake_mcp_spec, guard_command, host_under_test, ostler};
pub use raw_nats_client::{MALFORMED_HEADERS, MALFORMED_TOKENS, RawNatsClient};
pub use reserved_port::ReservedPort;
pub use script::Script;
pub use scripted_reply::ScriptedReply;
pub use scripted_server::{ReceivedRequest, ScriptedServer};
pub use static_server::StaticServer;
pub use test_host::{Reconfigure, Result, TestHost, TestHostBuilder, list_one, run_until_stalled};
