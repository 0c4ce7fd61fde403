//! Routes of pins: approved definitions, the differences from them, and every definition as it is.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use ostler_core::config::PinMode;
use ostler_core::error::CallError;
use ostler_core::pins::{DifferenceKind, LockSection, LockedServer, compare};
use ostler_core::server_name::ServerName;
use ostler_host::run_blocking_if_large;
use tokio::task::JoinSet;

use super::query::QueryString;
use super::{call_error_response, error_response, reply};
use crate::api::{
    Confirmation, DefinitionItem, DefinitionsResponse, ErrorBody, PinnedServer, PinsResponse, RepeatedItem,
    ServerDefinitions, ServerError,
};
use crate::daemon::Daemon;
use crate::pins;

/// Returns the known differences, without a request to any server.
pub(super) async fn show(State(daemon): State<Arc<Daemon>>) -> Response {
    let mode = daemon.config_state.with_config(|config, _, _| config.pins);
    let sha256 = daemon.config_state.lock_hash().map(|hash| hash.to_string());
    let error = daemon.config_state.with_lock(|_, broken| broken.map(|broken| broken.why.clone()));
    let is_locked = sha256.is_some();
    let servers = match is_locked {
        true => {
            let daemon = Arc::clone(&daemon);
            let compare = move || {
                let servers = daemon.config_state.pinned_names().into_iter();
                servers.map(|server| daemon.compare_pins(server)).collect()
            };
            // Every definition is hashed, and the number of bytes is known only after they are copied.
            run_blocking_if_large(usize::MAX, compare).await
        }
        false => Vec::new(),
    };
    let shown = PinsResponse {
        file: daemon.config_state.file.as_deref().map(pins::lock_file::lock_file_path),
        mode: if is_locked { mode } else { PinMode::Off },
        error,
        sha256,
        pending: daemon.config_state.is_lock_pending(),
        servers,
    };
    reply(StatusCode::OK, &shown)
}

/// Takes up the lock file on disk for the operator; with `sha256` only if its hash is that one.
pub(super) async fn reload(State(daemon): State<Arc<Daemon>>, RawQuery(query): RawQuery) -> Response {
    let wanted = QueryString(query.as_deref().unwrap_or_default()).get("sha256");
    match daemon.reload_pins(wanted).await {
        Ok(true) => reply(StatusCode::OK, &Confirmation { ok: true }),
        Ok(false) => {
            let what = "the lock file has changed since it was written; look at it, then run `ostler reload`";
            error_response(StatusCode::CONFLICT, "other-lock", what)
        }
        Err(broken) => {
            let what = format!("the lock file can't be used: {}", broken.why);
            error_response(StatusCode::UNPROCESSABLE_ENTITY, "broken-lock", &what)
        }
    }
}

/// Fetches every tool of one server or of all for the operator, regardless of rules and pins.
pub(super) async fn definitions(State(daemon): State<Arc<Daemon>>, RawQuery(query): RawQuery) -> Response {
    let names = daemon.config_state.names();
    let wanted = match QueryString(query.as_deref().unwrap_or_default()).get("server") {
        None => names,
        Some(server) => match names.iter().find(|name| name.as_str() == server) {
            Some(name) => vec![name.clone()],
            None => {
                return call_error_response(&CallError::unknown_server(
                    server,
                    names.iter().map(ServerName::as_str),
                ));
            }
        },
    };
    let mut asking = JoinSet::new();
    for server in wanted {
        let daemon = Arc::clone(&daemon);
        asking.spawn(async move {
            let found = daemon.host.definitions(server.as_str()).await;
            (server, found)
        });
    }
    let mut listing = DefinitionsResponse { servers: Vec::new(), errors: Vec::new() };
    for (server, found) in asking.join_all().await {
        match found {
            Ok(found) => listing.servers.push(server_definitions(found)),
            Err(error) => listing.errors.push(ServerError { server, error: ErrorBody::from(&error) }),
        }
    }
    listing.servers.sort_by(|a, b| a.server.cmp(&b.server));
    listing.errors.sort_by(|a, b| a.server.cmp(&b.server));
    reply(StatusCode::OK, &listing)
}

fn server_definitions(found: ostler_host::UnfilteredDefinitions) -> ServerDefinitions {
    let item = |(section, name, definition): (LockSection, &str, &[u8])| {
        let definition = serde_json::from_slice(definition).ok()?;
        Some(DefinitionItem { section, name: name.to_owned(), definition })
    };
    let items = found.items().filter_map(item).collect();
    let repeated = found.repeated.into_iter().map(|(section, name)| RepeatedItem { section, name }).collect();
    ServerDefinitions { server: found.server, items, repeated }
}

impl Daemon {
    fn compare_pins(&self, server: ServerName) -> PinnedServer {
        let locked = self.config_state.with_lock(|lock, _| lock?.servers.get(&server).cloned());
        let pinned = locked.as_ref().map_or(0, |locked: &LockedServer| locked.pins().count());
        let known = self.host.known_definitions(server.as_str()).ok().flatten();
        let mut compared = PinnedServer {
            server,
            pinned,
            seen: known.is_some(),
            changed: Vec::new(),
            new: Vec::new(),
            removed: Vec::new(),
        };
        let Some(known) = known else { return compared };
        for difference in compare(locked.as_ref(), known.items()) {
            // A section without a known list has lost nothing.
            if !known.sections.contains_key(&difference.section) {
                continue;
            }
            let name = short(difference.section, &difference.name);
            match difference.kind {
                DifferenceKind::Changed { .. } => compared.changed.push(name),
                DifferenceKind::New { .. } => compared.new.push(name),
                DifferenceKind::Removed { .. } => compared.removed.push(name),
            }
        }
        let repeated = known.repeated.iter().map(|(section, name)| short(*section, name));
        let repeated = repeated.filter(|tool| !compared.changed.contains(tool));
        let repeated: Vec<String> = repeated.filter(|tool| !compared.new.contains(tool)).collect();
        compared.changed.extend(repeated);
        compared
    }
}

/// `echo`, `prompt:review`, `instructions`
fn short(section: LockSection, name: &str) -> String {
    match section {
        LockSection::Tools | LockSection::Instructions => name.to_owned(),
        _ => format!("{}:{name}", section.noun()),
    }
}
