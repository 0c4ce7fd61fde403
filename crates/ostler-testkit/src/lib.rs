//! Ostler pretends: a scripted MCP server and a test world.
//!
//! A dev-dependency only: nothing here is part of the product.
//!
//! Two kinds of pretence. `fake-mcp` is a real process, for tests of pipes and
//! signals in real time. [`Script`] is a server in memory, for tests of
//! everything above the transport in paused time:
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

mod held_port;
mod list;
mod nats;
mod parrot;
mod procs;
mod programs;
mod reconfigure;
mod reply;
mod rude_nats;
mod script;
mod session;
mod stage;
mod world;

pub use held_port::HeldPort;
pub use list::list_one;
pub use nats::{NatsServer, NatsSetup, NatsVersion};
pub use parrot::Parrot;
pub use procs::{Proc, adopt_orphans, eventually, forget_peak_rss, lines_in, procs_in};
pub use programs::{example, fake_mcp, fake_spec, guard_command, host_under_test, ostler};
pub use reconfigure::Reconfigure;
pub use reply::Reply;
pub use rude_nats::{BROKEN_HEADS, BROKEN_TOKENS, RudeNats};
pub use script::Script;
pub use stage::{Asked, Stage};
pub use world::{Opening, Result, World, settle};
