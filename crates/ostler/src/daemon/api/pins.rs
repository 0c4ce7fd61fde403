//! Pins: what is approved, what differs from it, and every definition as it is.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use ostler_core::config::PinMode;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::pins::{Difference, LockedServer, compare};
use ostler_host::Definitions;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use super::query::Query;
use super::{fail, refuse, reply};
use crate::daemon::Daemon;
use crate::pins;
use crate::told::Told;

#[derive(Serialize)]
struct Shown {
    /// The lock file; null for the built-in server.
    file: Option<PathBuf>,
    /// What happens to tools that are not approved; `off` without a lock file.
    mode: &'static str,
    /// Why the lock file on disk is not in force.
    error: Option<String>,
    servers: Vec<Compared>,
}

/// What is known of a server, beside what was approved of it.
#[derive(Serialize)]
struct Compared {
    server: ServerName,
    /// Approved tools.
    pinned: usize,
    /// Whether any list of it is known yet.
    seen: bool,
    changed: Vec<String>,
    new: Vec<String>,
    removed: Vec<String>,
}

#[derive(Serialize)]
struct Listing {
    servers: Vec<Whole>,
    errors: Vec<Unlisted>,
}

#[derive(Serialize)]
struct Whole {
    server: ServerName,
    tools: Vec<Tool>,
    /// Names that the server lists more than once.
    repeated: Vec<String>,
}

#[derive(Serialize)]
struct Tool {
    name: String,
    /// As the server wrote it.
    definition: Box<RawValue>,
}

#[derive(Serialize)]
struct Unlisted {
    server: ServerName,
    error: Told,
}

/// What differs, as far as is known; nobody is asked.
pub(super) async fn show(State(daemon): State<Arc<Daemon>>) -> Response {
    let mode = daemon.roster.with_config(|config, _, _| config.pins);
    let (is_locked, error) =
        daemon.roster.with_lock(|lock, broken| (lock.is_some(), broken.map(|broken| broken.why.clone())));
    let servers = match is_locked {
        true => daemon.roster.names().into_iter().map(|server| daemon.compare(server)).collect(),
        false => Vec::new(),
    };
    let shown = Shown {
        file: daemon.roster.file.as_deref().map(pins::file::beside),
        mode: if is_locked { word(mode) } else { "off" },
        error,
        servers,
    };
    reply(StatusCode::OK, &shown)
}

/// Reads the lock file again.
pub(super) async fn reload(State(daemon): State<Arc<Daemon>>) -> Response {
    match daemon.reload_pins().await {
        Ok(()) => reply(StatusCode::OK, &json!({ "ok": true })),
        Err(broken) => {
            let what = format!("the lock file can't be used: {}", broken.why);
            refuse(StatusCode::UNPROCESSABLE_ENTITY, "broken-lock", &what)
        }
    }
}

/// Every tool of one server or of all, asked for now, for the operator: neither
/// rules nor pins leave any out.
pub(super) async fn definitions(State(daemon): State<Arc<Daemon>>, RawQuery(query): RawQuery) -> Response {
    let names = daemon.roster.names();
    let wanted = match Query(query.as_deref().unwrap_or_default()).get("server") {
        None => names,
        Some(server) => match names.iter().find(|name| name.as_str() == server) {
            Some(name) => vec![name.clone()],
            None => return fail(&CallError::unknown_server(server, names.iter().map(ServerName::as_str))),
        },
    };
    let mut asking = JoinSet::new();
    for server in wanted {
        let daemon = Arc::clone(&daemon);
        asking.spawn(async move {
            let found = match daemon.roster.refusal(server.as_str()) {
                Some(error) => Err(error),
                None => daemon.host.definitions(server.as_str()).await,
            };
            (server, found)
        });
    }
    let mut listing = Listing { servers: Vec::new(), errors: Vec::new() };
    for (server, found) in asking.join_all().await {
        match found {
            Ok(found) => listing.servers.push(Whole::of(found)),
            Err(error) => listing.errors.push(Unlisted { server, error: Told::from(&error) }),
        }
    }
    listing.servers.sort_by(|a, b| a.server.cmp(&b.server));
    listing.errors.sort_by(|a, b| a.server.cmp(&b.server));
    reply(StatusCode::OK, &listing)
}

impl Whole {
    fn of(found: Definitions) -> Self {
        let Definitions { server, tools, repeated } = found;
        let tools = tools.into_iter().filter_map(|tool| {
            let definition = serde_json::from_slice(&tool.definition).ok()?;
            Some(Tool { name: tool.name, definition })
        });
        Self { server, tools: tools.collect(), repeated }
    }
}

impl Daemon {
    fn compare(&self, server: ServerName) -> Compared {
        let locked = self.roster.with_lock(|lock, _| lock?.servers.get(&server).cloned());
        let pinned = locked.as_ref().map_or(0, |locked: &LockedServer| locked.tools.len());
        let known = self.host.known_definitions(server.as_str()).ok().flatten();
        let mut compared = Compared {
            server,
            pinned,
            seen: known.is_some(),
            changed: Vec::new(),
            new: Vec::new(),
            removed: Vec::new(),
        };
        let Some(known) = known else { return compared };
        let offered = known.tools.iter().map(|tool| (tool.name.as_str(), &*tool.definition));
        for difference in compare(locked.as_ref(), offered) {
            match difference {
                Difference::Changed { tool, .. } => compared.changed.push(tool),
                Difference::New { tool, .. } => compared.new.push(tool),
                Difference::Removed { tool, .. } => compared.removed.push(tool),
            }
        }
        let repeated = known.repeated.into_iter().filter(|tool| !compared.changed.contains(tool));
        let repeated: Vec<String> = repeated.filter(|tool| !compared.new.contains(tool)).collect();
        compared.changed.extend(repeated);
        compared
    }
}

fn word(mode: PinMode) -> &'static str {
    match mode {
        PinMode::Enforce => "enforce",
        PinMode::Warn => "warn",
        PinMode::Off => "off",
    }
}
