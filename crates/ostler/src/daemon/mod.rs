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
mod attached;
mod console;
mod edge;
mod health;
mod launch;
mod pins;
mod relay;
mod roster;
mod run;
mod summary;
mod tokens;
mod watch;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ostler_gateway::Gateway;
use ostler_host::{Caller, Host};
use ostler_relay::service::Service;

use self::admin_auth::AdminAuth;
use self::attached::AttachedClients;
use self::console::Console;
pub(crate) use self::launch::Launch;
use self::roster::Roster;
pub(crate) use self::run::run;
use crate::about::About;
use crate::audit::Audit;
use crate::auth::Keeper;
use crate::spot::Note;

/// Everything that requests and tasks of the daemon share.
#[derive(Debug)]
pub(crate) struct Daemon {
    host: Host,
    gateway: Gateway,
    /// Who registers, starts and stops servers: no rule of a role is about it.
    operator: Caller,
    /// Who calls and lists from the command line: a caller on this machine like
    /// any other.
    local: Caller,
    /// The config as it is applied.
    roster: Roster,
    /// Who the callers are.
    keeper: Arc<Keeper>,
    /// Lets operators use the admin API.
    admin_auth: AdminAuth,
    /// Tells on stderr what happens to servers.
    console: Arc<Console>,
    /// Clients that are attached through `ostler stdio`.
    attached: Arc<AttachedClients>,
    /// What it says of itself, and since when it is up.
    note: Note,
    began: Instant,
    /// How long calls in flight have to finish, once the daemon is asked to end.
    end: tokio::sync::watch::Sender<Option<Duration>>,
    /// Serves workers elsewhere, if the config says so and once servers are known.
    relay: OnceLock<Service>,
    /// Where it is written down who called what.
    audit_file: PathBuf,
    /// Writes it down, unless the config says otherwise.
    audit: Option<Arc<Audit>>,
}

/// How long calls in flight have to finish when a daemon ends, unless it is asked otherwise.
const LAST_CALLS: Duration = Duration::from_secs(3);
/// How often a daemon that ends looks whether calls are in flight.
const LOOK: Duration = Duration::from_millis(10);

impl Daemon {
    /// Describes the daemon.
    fn about(&self) -> About {
        About::new(&self.note, self.began.elapsed(), Some(self.attached.count()))
    }

    /// Begins the end of the daemon; `run` does it.
    fn begin_end(&self, calls: Option<Duration>) {
        self.end.send_replace(Some(calls.unwrap_or(LAST_CALLS)));
    }

    /// Whether the daemon has come to its end.
    fn is_ending(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Waits until the daemon comes to its end.
    async fn ending(&self) {
        // The sender is `self`, which stays.
        let _ = self.end.subscribe().wait_for(Option::is_some).await;
    }

    /// Tells whoever waits for it that the end has come, and returns how long calls have to finish.
    fn tell_end(&self) -> Duration {
        let mut calls = LAST_CALLS;
        self.end.send_modify(|end| calls = *end.get_or_insert(calls));
        calls
    }

    /// Waits until clients that were told to leave have left, and no call is in flight.
    async fn until_left(&self) {
        self.attached.until_told_left().await;
        while self.host.calls_in_flight() > 0 {
            tokio::time::sleep(LOOK).await;
        }
    }
}
