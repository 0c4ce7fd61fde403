//! The gateway: a value over a host.

use std::sync::Arc;

use ostler_host::Host;

use crate::options::GatewayOptions;

/// Serves the servers of a host to MCP clients of both eras. Clones are
/// handles to the same gateway.
#[derive(Debug, Clone)]
pub struct Gateway(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) host: Host,
    pub(crate) options: GatewayOptions,
}

impl Gateway {
    /// A gateway over a host.
    pub fn new(host: Host, options: GatewayOptions) -> Self {
        Self(Arc::new(Shared { host, options }))
    }
}
