//! The daemon: a host that stays, behind an endpoint for clients and one for
//! its operator.
//!
//! ```text
//! command/serve.rs ──▶ run.rs: claim the spot, listen, announce, wait, end in order
//!                       │
//!      edge.rs ◀── HTTP ┤ /mcp, /servers/NAME/mcp ──▶ ostler-gateway ──▶ host
//!                       ├ /healthz, /readyz        ──▶ health.rs
//!                       └ /api/v1/…                ──▶ api/: door, servers, tools, call, attach
//!      relay.rs ── workers elsewhere, over a broker ──▶ ostler-relay ──▶ host
//!      tokens.rs ── tokens that come, go and expire ──▶ auth/ ──▶ gateway
//!      console/ ◀── what happens to servers, a line each on stderr
//!      watch.rs ── an edit of the config ──▶ apply.rs ──▶ host
//! ```

mod api;
mod apply;
mod attendance;
mod console;
mod door;
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

use ostler_gateway::Gateway;
use ostler_host::{Caller, Host};
use ostler_relay::service::Service;

pub(crate) use self::api::Used;
use self::attendance::Attendance;
use self::console::Console;
use self::door::Door;
pub(crate) use self::launch::Launch;
use self::roster::Roster;
pub(crate) use self::run::run;
use crate::audit::Audit;
use crate::auth::Keeper;
use crate::spot::Kind;

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
    /// Who may use the admin API.
    door: Door,
    /// Tells on stderr what happens to servers.
    console: Arc<Console>,
    /// Who is here.
    attendance: Arc<Attendance>,
    /// Who started it.
    kind: Kind,
    /// Serves workers elsewhere, if the config says so and once servers are known.
    relay: OnceLock<Service>,
    /// Where it is written down who called what.
    audit_file: PathBuf,
    /// Writes it down, unless the config says otherwise.
    audit: Option<Arc<Audit>>,
}
