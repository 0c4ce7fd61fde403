//! Static server: answers at once from memory, so that benchmarks measure the path to it alone.

use std::sync::Arc;

use bytes::Bytes;
use ostler_core::fault::Fault;
use ostler_core::status::Containment;
use ostler_core::supervisor::ServerFailure;
use ostler_host::upstream::{
    BoxFuture, CloseMode, ConnectContext, Connector, ServerSession, SessionStats, UpstreamRequest,
};
use ostler_wire::{Era, RpcOutcome, ServerInfo};
use tokio::time::Instant;

/// Connector of a server with `tools` tools, `t0` and on. Unlike a [`Script`](crate::Script) it
/// records nothing.
#[derive(Debug, Clone, Copy)]
pub struct StaticServer {
    pub tools: usize,
}

struct StaticSession {
    server_info: ServerInfo,
    tools: usize,
}

impl Connector for StaticServer {
    fn connect(&self, _: ConnectContext) -> BoxFuture<'_, Result<Arc<dyn ServerSession>, ServerFailure>> {
        let server_info = ServerInfo {
            era: Era::Legacy,
            version: "2025-11-25".into(),
            capabilities: Bytes::from_static(br#"{"tools":{}}"#),
            implementation: None,
            instructions: None,
            session_meta: None,
        };
        let tools = self.tools;
        Box::pin(async move { Ok(Arc::new(StaticSession { server_info, tools }) as Arc<dyn ServerSession>) })
    }

    fn containment(&self) -> Containment {
        Containment::None
    }
}

impl ServerSession for StaticSession {
    fn server_info(&self) -> &ServerInfo {
        &self.server_info
    }

    fn request<'a>(&'a self, request: UpstreamRequest<'a>) -> BoxFuture<'a, Result<RpcOutcome, Fault>> {
        let answer = match request.method {
            "tools/list" => {
                let tool = |n| format!(r#"{{"name":"t{n}","inputSchema":{{"type":"object"}}}}"#);
                let tools: Vec<String> = (0..self.tools).map(tool).collect();
                format!(r#"{{"tools":[{}]}}"#, tools.join(",")).into()
            }
            _ => Bytes::from_static(br#"{"content":[{"type":"text","text":"hello"}]}"#),
        };
        Box::pin(async move { Ok(RpcOutcome::Result(answer)) })
    }

    fn ended(&self) -> BoxFuture<'_, ServerFailure> {
        Box::pin(std::future::pending())
    }

    fn close(&self, _: CloseMode) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn stats(&self) -> SessionStats {
        SessionStats::default()
    }

    fn activity(&self) -> (Option<Instant>, Option<Instant>) {
        (None, None)
    }
}
