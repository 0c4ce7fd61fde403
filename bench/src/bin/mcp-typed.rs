//! The pass-through of `mcp-raw` with rmcp's typed models: measures the cost of decoding and
//! re-encoding every message.
//!
//!   mcp-typed --port N [--threads T] [--count K] [--stateless] -- stub stdio
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark prints, and stops when something is wrong"
)]

use bench::Args;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RunningService};
use rmcp::transport::TokioChildProcess;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use rmcp::{ErrorData, RoleClient, RoleServer, ServerHandler, ServiceExt};
use std::sync::Arc;

struct TypedUpstreams {
    ups: Vec<RunningService<RoleClient, ()>>,
    tools: Vec<Tool>,
}

#[derive(Clone)]
struct TypedProxy(Arc<TypedUpstreams>);

impl ServerHandler for TypedProxy {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.0.tools.clone()))
    }
    async fn call_tool(
        &self,
        mut req: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let bad = || ErrorData::invalid_params("unknown tool", None);
        let (p, n) = req.name.split_once("__").ok_or_else(bad)?;
        let i: usize = p.strip_prefix('s').and_then(|i| i.parse().ok()).ok_or_else(bad)?;
        let name = n.to_string();
        req.name = name.into();
        let up = self.0.ups.get(i).ok_or_else(bad)?;
        let r = up.peer().call_tool(req).await.map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
        Ok(r.into())
    }
}

async fn run(a: Args) {
    let (mut ups, mut tools) = (Vec::new(), Vec::new());
    for i in 0..a.num("count", 1usize) {
        let mut c = tokio::process::Command::new(&a.rest[0]);
        c.args(&a.rest[1..]);
        let s = ().serve(TokioChildProcess::new(c).expect("spawn")).await.expect("initialize");
        for mut t in s.peer().list_all_tools().await.expect("tools/list") {
            t.name = format!("s{i}__{}", t.name).into();
            tools.push(t);
        }
        ups.push(s);
    }
    let proxy = TypedProxy(Arc::new(TypedUpstreams { ups, tools }));
    let mut cfg = StreamableHttpServerConfig::default();
    if a.flag("stateless") {
        cfg.legacy_session_mode = false;
        cfg.json_response = true;
    }
    let svc: StreamableHttpService<TypedProxy, LocalSessionManager> =
        StreamableHttpService::new(move || Ok(proxy.clone()), Arc::new(LocalSessionManager::default()), cfg);
    let l = tokio::net::TcpListener::bind(("127.0.0.1", a.num("port", 9300u16))).await.expect("bind");
    eprintln!("listening on {}", l.local_addr().unwrap());
    axum::serve(
        axum::serve::ListenerExt::tap_io(l, |s| {
            let _ = s.set_nodelay(true);
        }),
        axum::Router::new().route_service("/mcp", svc),
    )
    .await
    .unwrap();
}

fn main() {
    let a = Args::parse();
    let mut b = match a.num("threads", 1usize) {
        1 => tokio::runtime::Builder::new_current_thread(),
        n => {
            let mut b = tokio::runtime::Builder::new_multi_thread();
            b.worker_threads(n);
            b
        }
    };
    b.enable_all().build().unwrap().block_on(run(a));
}
