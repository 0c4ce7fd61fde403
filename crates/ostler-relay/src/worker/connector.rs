//! Makes sessions with a server elsewhere.

use std::sync::Arc;

use bytes::Bytes;
use ostler_core::server_name::ServerName;
use ostler_core::status::Containment;
use ostler_core::supervisor::ServerFailure;
use ostler_host::upstream::{BoxFuture, ConnectContext, Connector, ServerSession};
use ostler_wire::{ClientInfo, Era, MODERN_VERSION, ServerInfo, SessionMeta};

use super::Worker;
use super::session::RelaySession;

/// What every server elsewhere may have. Whether it has it is found out by asking.
const CAPABILITIES: &[u8] = br#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true},"completions":{}}"#;

/// Makes sessions with a server elsewhere.
pub(super) struct RelayConnector {
    worker: Worker,
    server: ServerName,
}

impl RelayConnector {
    pub(super) fn new(worker: Worker, server: ServerName) -> Self {
        Self { worker, server }
    }
}

impl Connector for RelayConnector {
    /// Whether the way is there or not: the session is not the connection.
    fn connect(&self, plan: ConnectContext) -> BoxFuture<'_, Result<Arc<dyn ServerSession>, ServerFailure>> {
        let (worker, server) = (self.worker.clone(), self.server.clone());
        let session = RelaySession::open(worker, server, relayed_server_info(), plan.notification_sink);
        Box::pin(std::future::ready(Ok(session as Arc<dyn ServerSession>)))
    }

    fn containment(&self) -> Containment {
        Containment::None
    }
}

/// How a server elsewhere is spoken to, whatever it speaks there.
fn relayed_server_info() -> ServerInfo {
    let identity = ClientInfo { name: "ostler-worker".into(), version: env!("CARGO_PKG_VERSION").into() };
    ServerInfo {
        era: Era::Modern,
        version: MODERN_VERSION.into(),
        capabilities: Bytes::from_static(CAPABILITIES),
        implementation: None,
        instructions: None,
        session_meta: Some(SessionMeta::modern(MODERN_VERSION, "{}", &identity)),
    }
}
