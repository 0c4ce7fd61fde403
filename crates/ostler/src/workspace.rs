//! Workspace of a client: the directory that it works in, for servers with `isolation = "workspace"`.
//!
//! A process that is started for a workspace may read it, or run what lies in it. So only a client that has proven that it
//! is this user's, by the admin token, can name one.

use axum::http::HeaderMap;
use ostler_core::config::Config;
use ostler_host::{Caller, resolve_workspace, resolve_workspace_blocking};

/// Carries the directory in which a command was started, beside the admin token.
pub(crate) const HEADER: &str = "ostler-workspace";

/// Returns the working directory of this process, as the header carries it.
pub(crate) fn current_dir() -> Option<String> {
    let folder = std::env::current_dir().ok()?.into_os_string().into_string().ok()?;
    (!folder.contains(char::is_control)).then_some(folder)
}

/// Returns a caller of this process: it works in the working directory.
pub(crate) fn caller_in_current_dir(caller: Caller) -> Caller {
    match std::env::current_dir().ok().and_then(|folder| resolve_workspace_blocking(&folder)) {
        Some(folder) => caller.in_workspace(folder),
        None => caller,
    }
}

/// Returns a caller whose request has shown the admin token: it works in the directory that the request names, if there is
/// one of this name here.
pub(crate) async fn caller_in_named_workspace(headers: &HeaderMap, caller: Caller) -> Caller {
    let named = headers.get(HEADER).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    let Some(named) = named.map(str::to_owned) else { return caller };
    match resolve_workspace(named.into()).await {
        Some(folder) => caller.in_workspace(folder),
        None => caller,
    }
}

/// Makes the workspaces that a config names comparable with those that clients name.
pub(crate) fn canonicalize_workspaces(config: &mut Config) {
    for folder in config.servers.iter_mut().filter_map(|server| server.workspace.as_mut()) {
        if let Ok(real) = folder.canonicalize() {
            *folder = real;
        }
    }
}
