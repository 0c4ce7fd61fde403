//! Daemon: a long-lived host, behind an endpoint for clients and one for its operator.
//!
//! ```text
//! command/serve.rs ──▶ run.rs: claim the instance, listen, announce, wait, shut down in order
//!                                │
//!      gateway_setup.rs ◀── HTTP ┤ /mcp, /servers/NAME/mcp ──▶ ostler-gateway ──▶ host
//!                                ├ /healthz, /readyz        ──▶ health.rs
//!                                └ /api/v1/…                ──▶ api/: servers, pins, logs, attach
//!      relay.rs ── workers on other machines, over a broker ──▶ ostler-relay ──▶ host
//!      tokens.rs ── new, revoked and expired tokens ──▶ auth/ ──▶ gateway
//!      console/ ◀── lifecycle events of servers, a line each on stderr
//!      config_watcher.rs ── an edit of the config ──▶ apply.rs ──▶ host
//! ```

mod admin_auth;
mod api;
mod apply;
mod attached_clients;
mod config_state;
mod config_watcher;
mod console;
mod gateway_setup;
mod health;
mod launch;
mod pins;
mod relay;
mod run;
mod summary;
mod tokens;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ostler_gateway::Gateway;
use ostler_host::{Caller, Host};
use ostler_relay::service::Service;

use self::admin_auth::AdminAuth;
use self::attached_clients::AttachedClients;
use self::config_state::ConfigState;
use self::console::Console;
pub(crate) use self::launch::LaunchOptions;
pub(crate) use self::run::run;
use crate::audit::AuditLog;
use crate::auth::Authenticator;
use crate::daemon_info::DaemonInfo;
use crate::instance::{DaemonRecord, PublishedRecord};

/// State that requests and tasks of the daemon share.
#[derive(Debug)]
pub(crate) struct Daemon {
    host: Host,
    gateway: Gateway,
    /// Caller that registers, starts and stops servers: no rule of a role applies to it.
    operator: Caller,
    /// Caller of the command line: a caller on this machine like any other.
    local_caller: Caller,
    /// Config as it is applied.
    config_state: ConfigState,
    /// Authenticator of callers.
    authenticator: Arc<Authenticator>,
    /// Authenticates operators at the admin API.
    admin_auth: AdminAuth,
    /// Prints lifecycle events of servers on stderr.
    console: Arc<Console>,
    /// Clients that are attached through `ostler stdio`.
    attached_clients: Arc<AttachedClients>,
    /// Description of this daemon and its start time.
    record: DaemonRecord,
    /// The record on disk that commands find the daemon by.
    published: Arc<PublishedRecord>,
    started: Instant,
    /// Time for calls in flight; set when the shutdown begins.
    shutdown: tokio::sync::watch::Sender<Option<Duration>>,
    /// Relay of this daemon, if the config has one and once servers are known.
    relay: OnceLock<Service>,
    /// File of the audit.
    audit_file: PathBuf,
    /// Audit, unless the config disables it.
    audit: Option<Arc<AuditLog>>,
}

/// Default time for calls in flight at the shutdown.
const CALLS_TIMEOUT: Duration = Duration::from_secs(3);
/// Poll interval for calls in flight at the shutdown.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Daemon {
    /// Returns the daemon's description.
    fn info(&self) -> DaemonInfo {
        DaemonInfo::new(&self.record, self.started.elapsed(), Some(self.attached_clients.count()))
    }

    /// Begins the shutdown; `run` carries it out.
    fn begin_shutdown(&self, calls: Option<Duration>) {
        self.shutdown.send_replace(Some(calls.unwrap_or(CALLS_TIMEOUT)));
    }

    /// Returns whether the shutdown has begun.
    fn is_shutting_down(&self) -> bool {
        self.shutdown.borrow().is_some()
    }

    /// Waits until the shutdown begins.
    async fn until_shutdown(&self) {
        // The sender is `self`, which stays.
        let _ = self.shutdown.subscribe().wait_for(Option::is_some).await;
    }

    /// Wakes all tasks that wait for the shutdown, and returns the time for calls in flight.
    fn announce_shutdown(&self) -> Duration {
        let mut calls = CALLS_TIMEOUT;
        self.shutdown.send_modify(|end| calls = *end.get_or_insert(calls));
        calls
    }

    /// Waits until clients with a farewell have left, and no call is in flight.
    async fn until_drained(&self) {
        self.attached_clients.until_farewell_clients_left().await;
        while self.host.calls_in_flight() > 0 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
