//! Ostler does: an embeddable, supervised host for MCP servers.
//!
//! A [`Host`] runs MCP servers as child processes, each once, and takes calls
//! for them. It starts a server when it is first needed, ends it when it has
//! not been used for a while, starts it again when it crashes, and keeps calls
//! from a server that keeps failing. Every call ends exactly once, and a tool
//! that may do harm never runs twice for one call.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use ostler_host::{Caller, Host, HostOptions, ServerName, ServerSpec};
//!
//! let host = Host::new(HostOptions::default());
//! let me = Caller::local();
//! host.spawn(&me, ServerSpec::stdio(ServerName::new("time")?, "mcp-server-time")).await?;
//! let answer = host.call(&me, "time", "get_current_time", serde_json::json!({"timezone": "UTC"})).await?;
//! println!("{}", answer.text());
//! host.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! The life of a call is `call.rs`, top to bottom.

mod admission;
mod answer;
mod apply;
mod attempt;
mod budgets;
mod bus;
mod call;
mod card;
mod catalog;
pub mod guard;
mod happening;
mod hidden;
mod host;
mod in_flight;
mod key;
mod ledger;
mod level;
mod limits;
mod lists;
mod logs;
mod missing;
mod notify;
mod off_thread;
mod operate;
mod options;
mod pins;
mod policy;
mod recall;
mod record;
mod registry;
mod request;
mod response_cache;
mod room;
mod sealed;
mod secrets;
mod server;
mod share;
mod speak;
mod start_gate;
mod status;
mod subscribe;
mod telemetry;
mod tools;
mod turns;
pub mod upstream;
mod validate;
mod via;
mod workspace;

pub use answer::Answer;
pub use apply::{Applied, Snapshot};
pub use budgets::BudgetStatus;
pub use bus::ServerEvent;
pub use card::card_in_file;
pub use catalog::{Scope, Target};
pub use happening::{Act, Happening, Observer, What};
pub use host::Host;
pub use level::LogLevel;
pub use limits::{Limits, RoleLimits};
pub use lists::{Kind, ListedItem, Patience, ServerListing, ShadowedItem, kept_items, kept_names};
pub use logs::LogReader;
pub use missing::MissingServer;
pub use off_thread::off_thread;
pub use operate::Spawned;
pub use options::{Connectors, HostOptions, RandomSourceError, StartPatience};
pub use pins::Definitions;
pub use record::{Record, RecordRoom, Recorder, Refused, Unknown};
pub use request::{Arguments, Request, check_naming};
pub use sealed::{Cursor, STATE_LIFE, request_digest};
pub use server::Binding;
pub use server::known::Item;
pub use subscribe::Subscription;
pub use tools::{Discovered, ListedTool, Tool};
pub use upstream::LogLine;

// All that a program names which embeds the host, so that it depends on this crate alone.
pub use ostler_core::caller::{Caller, Window};
pub use ostler_core::card::{CardReport, CardStatus, ServerCard};
pub use ostler_core::config::{Config, PinMode, Problem, Report, Severity};
pub use ostler_core::error::{BudgetOf, CallError, RpcAnswer, Unavailable, UnavailableState};
pub use ostler_core::fault::Delivery;
pub use ostler_core::name::{NameError, ServerName};
pub use ostler_core::pins::{Lock, Pins};
pub use ostler_core::policy::{Explanation, Filter, Hook, RoleRules, Rules, Verdict};
pub use ostler_core::schema::Mistake;
pub use ostler_core::spec::{
    BreakerSettings, CacheRule, CacheScopeRule, Endpoint, Fingerprint, Isolation, ListCaps, Process,
    RestartSettings, RetryRule, ServerSpec, ToolRules, Transport,
};
pub use ostler_core::status::{
    Circuit, Containment, LastError, Restarts, ServerStatus, Stage, StartStatus, State,
};
pub use ostler_core::supervisor::Ejection;
pub use ostler_wire::Params;
pub use via::{Attached, Circle, VIA_HEADER, VIA_VARIABLE, Via};
pub use workspace::{find_workspace, folder_of_root, workspace_at};

/// The guide, whose code is compiled with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/embedding.md")]
struct Guide;
