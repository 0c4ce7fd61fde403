//! Makes sessions with a server elsewhere.

use std::sync::Arc;

use bytes::Bytes;
use ostler_core::name::ServerName;
use ostler_core::status::Containment;
use ostler_core::supervisor::Failure;
use ostler_host::upstream::{BoxFuture, Connector, Plan, Session};
use ostler_wire::{ClientIdentity, Era, Hello, MODERN_VERSION, SessionMeta};

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
    fn connect(&self, plan: Plan) -> BoxFuture<'_, Result<Arc<dyn Session>, Failure>> {
        let (worker, server) = (self.worker.clone(), self.server.clone());
        let session = RelaySession::begin(worker, server, hello(), plan.events);
        Box::pin(std::future::ready(Ok(session as Arc<dyn Session>)))
    }

    fn containment(&self) -> Containment {
        Containment::None
    }
}

/// How a server elsewhere is spoken to, whatever it speaks there.
fn hello() -> Hello {
    let identity = ClientIdentity { name: "ostler-worker".into(), version: env!("CARGO_PKG_VERSION").into() };
    Hello {
        era: Era::Modern,
        version: MODERN_VERSION.into(),
        capabilities: Bytes::from_static(CAPABILITIES),
        server: None,
        instructions: None,
        session_meta: Some(SessionMeta::modern(MODERN_VERSION, "{}", &identity)),
    }
}
