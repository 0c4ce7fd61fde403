//! Workspace of a client: its working directory, for servers with `isolation = "workspace"`.
//!
//! A process that is started for a workspace may read it, or run files in it. So only a client that has proven by the
//! admin token that it is this user's can name one.

use axum::http::HeaderMap;
use ostler_core::config::Config;
use ostler_host::{Caller, resolve_workspace, resolve_workspace_blocking};

/// Carries the directory in which a command was started, beside the admin token.
pub(crate) const HEADER: &str = "ostler-workspace";

/// Returns the working directory of this process as the header's value.
pub(crate) fn current_dir() -> Option<String> {
    let folder = std::env::current_dir().ok()?.into_os_string().into_string().ok()?;
    (!folder.contains(char::is_control)).then_some(folder)
}

/// Returns a caller of this process, with the working directory as its workspace.
pub(crate) fn caller_in_current_dir(caller: Caller) -> Caller {
    match std::env::current_dir().ok().and_then(|folder| resolve_workspace_blocking(&folder)) {
        Some(folder) => caller.in_workspace(folder),
        None => caller,
    }
}

/// Returns a caller whose request has shown the admin token, with the directory that the request names as its workspace
/// if there is one of this name here.
pub(crate) async fn caller_in_named_workspace(headers: &HeaderMap, caller: Caller) -> Caller {
    let named = headers.get(HEADER).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    let Some(named) = named.map(str::to_owned) else { return caller };
    match resolve_workspace(named.into()).await {
        Some(folder) => caller.in_workspace(folder),
        None => caller,
    }
}

/// Canonicalizes the workspaces that a config names, so that they compare with those that clients name.
pub(crate) fn canonicalize_workspaces(config: &mut Config) {
    for folder in config.servers.iter_mut().filter_map(|server| server.workspace.as_mut()) {
        if let Ok(real) = folder.canonicalize() {
            *folder = real;
        }
    }
}
