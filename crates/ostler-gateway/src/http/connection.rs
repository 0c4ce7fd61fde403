//! Connection of an HTTP client: the session of modern requests that show no credential.

use std::sync::{Arc, OnceLock};

use ostler_core::caller::Caller;
use ostler_host::Host;

use crate::gateway::Gateway;
use crate::sessions;

/// One connection. Dropped when it has ended, which ends its session.
#[derive(Debug, Default)]
pub(super) struct ClientConnection {
    /// Begun by the first request that needs it.
    session: OnceLock<(Host, Caller)>,
}

impl ClientConnection {
    /// Puts the caller of a modern request into a session. A credential is one client's, over how many connections its
    /// requests may come, and its principal tells it from others. Callers without one are all `local`: those are told apart
    /// by their connections, which nobody can choose.
    pub(super) fn session_of(connection: Option<&Arc<Self>>, gateway: &Gateway, caller: Caller) -> Caller {
        let Some(connection) = connection.filter(|_| caller.is_local()) else { return caller };
        let (_, known) = connection.session.get_or_init(|| {
            let id = sessions::fresh_id().unwrap_or_default();
            (gateway.0.host.clone(), caller.clone().in_session(id))
        });
        caller.in_session_of(known)
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        if let Some((host, caller)) = self.session.get() {
            host.end_session(caller);
        }
    }
}
