//! The gateway: a value over a host.

use std::sync::Arc;

use ostler_core::caller::Caller;
use ostler_core::name::ServerName;
use ostler_host::Host;

use crate::options::GatewayOptions;
use crate::seal::Seal;
use crate::sessions::Sessions;
use crate::slots::Slots;

/// Serves the servers of a host to MCP clients of both eras. Clones are
/// handles to the same gateway.
#[derive(Debug, Clone)]
pub struct Gateway(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) host: Host,
    pub(crate) options: GatewayOptions,
    pub(crate) seal: Seal,
    /// Legacy sessions over HTTP.
    pub(crate) sessions: Sessions,
    /// Room for long streams.
    pub(crate) long_streams: Arc<Slots>,
}

impl Gateway {
    /// A gateway to the servers of `host`.
    pub fn new(host: Host, options: GatewayOptions) -> Self {
        Self(Arc::new(Shared {
            host,
            seal: Seal::new(&options.seal_key),
            sessions: Sessions::new(options.max_sessions, options.session_idle),
            long_streams: Slots::new(options.max_streams),
            options,
        }))
    }

    /// Whether the caller may see a server. One that it may not see looks like none.
    pub(crate) fn may_see(&self, caller: &Caller, server: &ServerName) -> bool {
        self.0.host.servers(caller).binary_search(server).is_ok()
    }

    /// Legacy sessions that are open over HTTP.
    pub fn sessions(&self) -> usize {
        self.0.sessions.len()
    }
}
