//! The daemon: a host that stays, behind an endpoint for clients and one for
//! its operator.
//!
//! ```text
//! command/serve.rs ──▶ run.rs: claim the spot, listen, announce, wait, end in order
//!                       │
//!      edge.rs ◀── HTTP ┤ /mcp, /servers/NAME/mcp ──▶ ostler-gateway ──▶ host
//!                       ├ /healthz, /readyz        ──▶ health.rs
//!                       └ /api/v1/…                ──▶ api/: servers, tools, call, attach
//!      relay.rs ── workers elsewhere, over a broker ──▶ ostler-relay ──▶ host
//!      tokens.rs ── tokens that come, go and expire ──▶ auth/ ──▶ gateway
//!      console/ ◀── what happens to servers, a line each on stderr
//!      watch.rs ── an edit of the config ──▶ apply.rs ──▶ host
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

/// Everything that requests and tasks of the daemon share.
#[derive(Debug)]
pub(crate) struct Daemon {
    host: Host,
    gateway: Gateway,
    /// Who registers, starts and stops servers: no rule of a role is about it.
    operator: Caller,
    /// Who calls and lists from the command line: a caller on this machine like
    /// any other.
    local_caller: Caller,
    /// The config as it is applied.
    config_state: ConfigState,
    /// Who the callers are.
    authenticator: Arc<Authenticator>,
    /// Lets operators use the admin API.
    admin_auth: AdminAuth,
    /// Tells on stderr what happens to servers.
    console: Arc<Console>,
    /// Clients that are attached through `ostler stdio`.
    attached_clients: Arc<AttachedClients>,
    /// What it says of itself, and since when it is up.
    record: DaemonRecord,
    /// Where it says so to commands.
    published: Arc<PublishedRecord>,
    started: Instant,
    /// How long calls in flight have to finish, once the daemon is asked to end.
    shutdown: tokio::sync::watch::Sender<Option<Duration>>,
    /// Serves workers elsewhere, if the config says so and once servers are known.
    relay: OnceLock<Service>,
    /// Where it is written down who called what.
    audit_file: PathBuf,
    /// Writes it down, unless the config says otherwise.
    audit: Option<Arc<AuditLog>>,
}

/// How long calls in flight have to finish when a daemon ends, unless it is asked otherwise.
const CALLS_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a daemon that ends looks whether calls are in flight.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Daemon {
    /// Describes the daemon.
    fn info(&self) -> DaemonInfo {
        DaemonInfo::new(&self.record, self.started.elapsed(), Some(self.attached_clients.count()))
    }

    /// Begins the end of the daemon; `run` does it.
    fn begin_shutdown(&self, calls: Option<Duration>) {
        self.shutdown.send_replace(Some(calls.unwrap_or(CALLS_TIMEOUT)));
    }

    /// Whether the daemon has come to its end.
    fn is_shutting_down(&self) -> bool {
        self.shutdown.borrow().is_some()
    }

    /// Waits until the daemon comes to its end.
    async fn until_shutdown(&self) {
        // The sender is `self`, which stays.
        let _ = self.shutdown.subscribe().wait_for(Option::is_some).await;
    }

    /// Tells whoever waits for it that the end has come, and returns how long calls have to finish.
    fn announce_shutdown(&self) -> Duration {
        let mut calls = CALLS_TIMEOUT;
        self.shutdown.send_modify(|end| calls = *end.get_or_insert(calls));
        calls
    }

    /// Waits until clients that were told to leave have left, and no call is in flight.
    async fn until_drained(&self) {
        self.attached_clients.until_farewell_clients_left().await;
        while self.host.calls_in_flight() > 0 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
