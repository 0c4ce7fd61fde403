//! Server in memory that records the tools it executes.

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use ostler_core::config::Role;
use ostler_core::fault::Fault;
use ostler_core::status::Containment;
use ostler_core::supervisor::ServerFailure;
use ostler_host::upstream::{
    BoxFuture, CloseMode, ConnectContext, Connector, ServerSession, SessionStats, UpstreamRequest,
};
use ostler_host::{Caller, Host, HostOptions, Rules, ServerName, ServerSpec};
use ostler_wire::{Era, RpcError, RpcOutcome, ServerInfo};
use tokio::time::Instant;

/// The tool that every role may call.
pub(super) const ECHO: &str = "echo";

/// The tools of every server here. The role `few` may not call the second one.
const TOOLS: &str = r#"{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"größe"}]}"#;

const CAPABILITIES: &str = r#"{"tools":{"listChanged":true},"resources":{"subscribe":true},"prompts":{},"completions":{},"logging":{}}"#;

type AnswerFn = Arc<dyn Fn(&UpstreamRequest<'_>) -> RpcOutcome + Send + Sync>;

/// The executed tools, in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct ExecutedTools(Arc<Mutex<Vec<String>>>);

impl ExecutedTools {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().expect("nobody panics with it")
    }

    /// Returns the tools executed since the last call.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lock())
    }
}

/// Returns the server info of an era.
pub(super) fn server_info(era: Era) -> ServerInfo {
    ServerInfo {
        era,
        version: if era == Era::Legacy { "2025-11-25" } else { "2026-07-28" }.into(),
        capabilities: CAPABILITIES.into(),
        implementation: None,
        instructions: None,
        session_meta: None,
    }
}

/// Makes a host with the server `s`, which answers with `answer`. The role `all` may do everything,
/// the role `few` may call one tool.
pub(super) async fn host(era: Era, answer: AnswerFn) -> (Host, ExecutedTools) {
    let role = |allow: &str| Role {
        allow: vec![allow.to_owned()],
        deny: Vec::new(),
        budget: None,
        max_in_flight: None,
    };
    let roles =
        [("all".to_owned(), role("*")), ("few".to_owned(), role("s/echo")), ("local".to_owned(), role("*"))];
    let host = Host::new(HostOptions { rules: Rules::from_roles(&roles.into()), ..HostOptions::default() });
    let executed = ExecutedTools::default();
    let server = Arc::new(MemoryServer { server_info: server_info(era), answer, executed: executed.clone() });
    let spec = ServerSpec::stdio(ServerName::new("s").expect("it is a name"), "in-memory");
    host.spawn_with(&Caller::operator(), spec, server).await.expect("it can be registered");
    (host, executed)
}

/// Returns the answer of a well-behaved server.
pub(super) fn default_answer(request: &UpstreamRequest<'_>) -> RpcOutcome {
    let text = |text: &str| RpcOutcome::Result(Bytes::copy_from_slice(text.as_bytes()));
    match request.method {
        "tools/list" => text(TOOLS),
        "tools/call" => {
            let arguments = String::from_utf8_lossy(request.params.arguments().unwrap_or(b"{}")).into_owned();
            text(&format!(r#"{{"content":[],"structuredContent":{arguments}}}"#))
        }
        "resources/list" => text(r#"{"resources":[{"name":"r","uri":"file:///r"}]}"#),
        "resources/templates/list" => {
            text(r#"{"resourceTemplates":[{"name":"t","uriTemplate":"file:///{x}"}]}"#)
        }
        "resources/read" => text(r#"{"contents":[]}"#),
        "prompts/list" => text(r#"{"prompts":[{"name":"p"}]}"#),
        "prompts/get" => text(r#"{"messages":[]}"#),
        "ping" => text("{}"),
        _ => RpcOutcome::Error(RpcError::new(-32601, "no such method")),
    }
}

/// A server in memory; the session is the same value as the connector.
#[derive(Clone)]
struct MemoryServer {
    server_info: ServerInfo,
    answer: AnswerFn,
    executed: ExecutedTools,
}

impl Connector for MemoryServer {
    fn connect(&self, _: ConnectContext) -> BoxFuture<'_, Result<Arc<dyn ServerSession>, ServerFailure>> {
        Box::pin(async move { Ok(Arc::new(self.clone()) as Arc<dyn ServerSession>) })
    }

    fn containment(&self) -> Containment {
        Containment::None
    }
}

impl ServerSession for MemoryServer {
    fn server_info(&self) -> &ServerInfo {
        &self.server_info
    }

    fn request<'a>(&'a self, request: UpstreamRequest<'a>) -> BoxFuture<'a, Result<RpcOutcome, Fault>> {
        if request.method == "tools/call" {
            self.executed.lock().push(request.params.name().unwrap_or_default().into_owned());
        }
        Box::pin(async move { Ok((self.answer)(&request)) })
    }

    fn ended(&self) -> BoxFuture<'_, ServerFailure> {
        Box::pin(std::future::pending())
    }

    fn close(&self, _: CloseMode) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn stats(&self) -> SessionStats {
        SessionStats::default()
    }

    fn activity(&self) -> (Option<Instant>, Option<Instant>) {
        (Some(Instant::now()), None)
    }
}
