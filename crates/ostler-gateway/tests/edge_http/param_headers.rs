//! `Mcp-Param-*` headers of a modern client: forwarded to a modern server behind a URL.

use std::sync::{Arc, Mutex};

use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use bytes::Bytes;
use ostler_core::spec::{EndpointSpec, ServerTransport};
use ostler_host::{Caller, ServerName, ServerSpec};
use serde_json::{Value, json};

use crate::world::{Request, World};

/// Returns the URL of a modern server that keeps the headers of calls.
async fn remote() -> (String, Arc<Mutex<Vec<HeaderMap>>>) {
    let calls: Arc<Mutex<Vec<HeaderMap>>> = Arc::default();
    let kept = Arc::clone(&calls);
    let answer = move |headers: HeaderMap, body: Bytes| async move {
        let request: Value = serde_json::from_slice(&body).unwrap();
        let result = match request["method"].as_str().unwrap() {
            "server/discover" => json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "remote", "version": "1"},
            }),
            "tools/list" => json!({
                "resultType": "complete", "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
            }),
            _ => {
                kept.lock().unwrap().push(headers);
                json!({"resultType": "complete", "content": []})
            }
        };
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        ([(CONTENT_TYPE, "application/json")], answer.to_string())
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let app = axum::Router::new().route("/mcp", post(answer));
    tokio::spawn(ostler_gateway::serve(
        listener,
        app,
        ostler_gateway::ConnectionLimits::default(),
        std::future::pending(),
    ));
    (url, calls)
}

#[tokio::test]
async fn headers_of_arguments_that_nobody_knows_are_passed_on() {
    let (url, calls) = remote().await;
    let world = World::new().await;
    let endpoint = EndpointSpec { url, headers: Default::default() };
    let spec =
        ServerSpec::with_transport(ServerName::new("remote").unwrap(), ServerTransport::Http(endpoint));
    world.host.spawn(&Caller::local(), spec).await.unwrap();
    for capabilities in ["{}", r#"{"elicitation":{}}"#] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"remote__t","arguments":{{}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{capabilities}}}}}}}"#
        );
        let request = Request::post(body)
            .with("MCP-Protocol-Version", "2026-07-28")
            .with("Mcp-Method", "tools/call")
            .with("Mcp-Name", "remote__t")
            .with("Mcp-Param-Later", "yes")
            .with("X-Private", "no");
        let response = world.send(request).await;
        assert!(response.body.contains("\"content\""), "{}", response.body);
        let headers = calls.lock().unwrap().pop().expect("the call has arrived");
        assert_eq!(headers["mcp-param-later"], "yes");
        assert_eq!(headers["mcp-name"], "t");
        assert!(!headers.contains_key("x-private"), "nothing else of the client's headers is");
    }
}
