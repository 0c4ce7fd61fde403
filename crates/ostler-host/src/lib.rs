//! Ostler's host: an embeddable supervisor for MCP servers.
//!
//! A [`Host`] runs MCP servers as child processes, each once, and takes calls for them. It starts a server on first
//! use, stops it when idle, restarts it after a crash, and rejects calls of a server that keeps failing. Every call
//! ends exactly once. A tool that may do harm never runs twice for one call.
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
//! `call.rs` reads as the life of a call, top to bottom.

mod admission;
mod answer;
mod apply;
mod attempt;
mod blocking;
mod budgets;
mod call;
mod card;
mod catalog;
mod coalesce;
mod concealment;
mod host;
mod idempotency_key;
mod in_flight;
mod lifecycle;
mod lifecycle_event;
mod limits;
mod lists;
mod log_level;
mod logs;
mod loop_detection;
mod name_locks;
mod notifications;
mod notify;
mod options;
mod pins;
mod policy;
pub mod process;
mod process_pool;
mod recall;
mod record;
mod redact;
mod registry;
mod request;
mod response_cache;
mod sealed_tokens;
mod server;
mod server_info;
mod slot_registry;
mod start_limiter;
mod status;
mod subscribe;
mod telemetry;
mod tools;
mod unavailable;
pub mod upstream;
mod validate;
mod workspace;

pub use answer::Answer;
pub use apply::{Applied, Snapshot};
pub use blocking::run_blocking_if_large;
pub use budgets::BudgetStatus;
pub use card::card_from_file;
pub use catalog::{Scope, Target};
pub use host::Host;
pub use lifecycle::SpawnOutcome;
pub use lifecycle_event::{LifecycleEvent, LifecycleEventKind, LifecycleObserver, OperatorAction};
pub use limits::{Limits, RoleLimits};
pub use lists::{
    Kind, ListTurn, ListWait, ListedItem, ServerListing, ShadowedItem, persisted_items, persisted_names,
};
pub use log_level::LogLevel;
pub use logs::LogReader;
pub use notifications::HostNotification;
pub use options::{ConnectorFactory, HostOptions, RandomSourceError, StartRetry};
pub use pins::UnfilteredDefinitions;
pub use record::{DeniedRequest, RecordBackpressure, Recorder, RequestRecord, UnresolvedRequest};
pub use request::{CallArguments, Request, check_item_param};
pub use sealed_tokens::{Cursor, REQUEST_STATE_TTL, request_digest};
pub use server::Binding;
pub use server::server_list::ServerItem;
pub use subscribe::ResourceSubscription;
pub use tools::{ItemDefinition, ListedTool, ServerTools};
pub use unavailable::UnavailableServer;
pub use upstream::StderrLine;

// Re-exports every type that an embedding program needs, so that it depends on this crate alone.
pub use loop_detection::{AttachedHosts, LoopDetected, LoopDetector, VIA_HEADER, VIA_VARIABLE};
pub use ostler_core::argument_schema::Mistake;
pub use ostler_core::caller::{CallWindow, Caller, CredentialState};
pub use ostler_core::card::{CardReport, CardStatus, ServerCard};
pub use ostler_core::config::{Config, ConfigError, PinMode, Problem, Severity};
pub use ostler_core::error::{BudgetOwner, CallError, Unavailable, UnavailableState, UpstreamRpcError};
pub use ostler_core::fault::Delivery;
pub use ostler_core::pins::{LockFile, PinPolicy};
pub use ostler_core::policy::{Explanation, Hook, RoleRules, Rules, Subject, ToolFilter, Verdict};
pub use ostler_core::server_name::{NameError, ServerName};
pub use ostler_core::spec::{
    BreakerSettings, CacheRule, CacheScopeRule, EndpointSpec, Isolation, ListLimits, ProcessSpec,
    RestartSettings, RetryRule, ServerSpec, ServerTransport, SpecFingerprint, ToolRules,
};
pub use ostler_core::status::{
    CircuitState, Containment, LastError, Restarts, ServerState, ServerStatus, StartStage, StartStatus,
};
pub use ostler_core::supervisor::EjectionReason;
pub use ostler_wire::Params;
pub use workspace::{resolve_workspace, resolve_workspace_blocking, root_uri_to_path};

/// The embedding guide; its code is compiled as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/embedding.md")]
struct Guide;
