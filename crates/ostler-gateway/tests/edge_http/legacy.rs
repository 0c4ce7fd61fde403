//! Legacy sessions.

use std::sync::Arc;
use std::time::Duration;

use ostler_gateway::{ConnectionLimits, GatewayOptions};
use ostler_host::Caller;
use ostler_testkit::{Script, ScriptedServer, TestHost};
use serde_json::json;

use crate::world::{Request, World};

fn list() -> Request {
    Request::post(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#)
}

#[tokio::test]
async fn initialize_agrees_on_a_version_and_opens_a_session() {
    let world = World::new().await;
    for (asked, agreed) in [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2024-11-05"),
        ("1999-01-01", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
    ] {
        let response = world.send(Request::initialize(asked)).await;
        assert_eq!(response.status, 200);
        assert_eq!(response.json()["result"]["protocolVersion"], agreed, "{asked}");
        assert_eq!(response.session().len(), 32);
    }
    assert_eq!(world.gateway.session_count(), 6);
}

#[tokio::test]
async fn a_session_answers_until_it_is_deleted() {
    let world = World::new().await;
    let session = world.send(Request::initialize("2025-11-25")).await.session();
    let initialized = Request::post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert_eq!(world.send(initialized.in_session(&session)).await.status, 202);
    let ping = Request::post(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#).in_session(&session);
    assert_eq!(world.send(ping).await.body, r#"{"jsonrpc":"2.0","id":"p","result":{}}"#);
    let response = world.send(list().in_session(&session)).await;
    assert_eq!(response.json()["result"]["tools"], serde_json::json!([]));

    let delete = Request::new("DELETE", "/mcp").in_session(&session);
    assert_eq!(world.send(delete.clone()).await.status, 204);
    assert_eq!(world.send(list().in_session(&session)).await.status, 404);
    assert_eq!(world.send(delete).await.status, 404);
    assert_eq!(world.gateway.session_count(), 0);
}

#[tokio::test]
async fn a_request_needs_a_session_that_exists() {
    let world = World::new().await;
    assert_eq!(world.send(list()).await.status, 400);
    for id in ["0123456789abcdef0123456789abcdef", "nonsense"] {
        assert_eq!(world.send(list().in_session(id)).await.status, 404, "{id}");
    }
    assert_eq!(world.send(Request::new("GET", "/mcp")).await.status, 400);
    assert_eq!(world.send(Request::new("DELETE", "/mcp")).await.status, 400);
}

#[tokio::test]
async fn a_version_header_must_name_a_version_of_sessions() {
    let world = World::new().await;
    let session = world.send(Request::initialize("2025-06-18")).await.session();
    let request = list().in_session(&session);
    assert_eq!(world.send(request.clone().with("MCP-Protocol-Version", "2025-06-18")).await.status, 200);
    assert_eq!(world.send(request.with("MCP-Protocol-Version", "2031-01-01")).await.status, 400);
}

#[tokio::test]
async fn what_a_client_says_of_itself_is_bounded() {
    let world = World::new().await;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{{"x":"{}"}}}}}}"#,
        "x".repeat(100_000)
    );
    let response = world.send(Request::post(body)).await;
    assert_eq!((response.status, response.code()), (400, -32602));
    assert_eq!(world.gateway.session_count(), 0);
}

#[tokio::test]
async fn a_session_that_nobody_uses_is_forgotten() {
    let options = GatewayOptions { session_idle: Duration::from_millis(100), ..GatewayOptions::default() };
    let world = World::with(options, ConnectionLimits::default()).await;
    let session = world.send(Request::initialize("2025-11-25")).await.session();
    let gone = tokio::time::timeout(crate::world::PATIENCE, async {
        while world.gateway.session_count() > 0 {
            tokio::task::yield_now().await;
        }
    });
    gone.await.expect("it is forgotten without anyone asking");
    assert_eq!(world.send(list().in_session(&session)).await.status, 404);
}

#[tokio::test]
async fn the_longest_idle_session_makes_room() {
    let options = GatewayOptions { max_sessions: 2, ..GatewayOptions::default() };
    let world = World::with(options, ConnectionLimits::default()).await;
    let first = world.send(Request::initialize("2025-11-25")).await.session();
    let mut stream = world.connect().await;
    stream.start(Request::new("GET", "/mcp").in_session(&first)).await;
    assert_eq!(stream.head().await.status, 200);
    let second = world.send(Request::initialize("2025-11-25")).await.session();
    let third = world.send(Request::initialize("2025-11-25")).await.session();
    assert_eq!(world.send(list().in_session(&first)).await.status, 200, "it has a stream open");
    assert_eq!(world.send(list().in_session(&second)).await.status, 404);

    let mut other = world.connect().await;
    other.start(Request::new("GET", "/mcp").in_session(&third)).await;
    assert_eq!(other.head().await.status, 200);
    assert_eq!(world.send(Request::initialize("2025-11-25")).await.status, 503, "all are in use");
}

#[tokio::test]
async fn a_batch_is_answered_with_a_batch_where_batches_exist() {
    let world = World::new().await;
    let batch = Request::post(
        r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"},{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":"b","method":"ping"},{"id":1}]"#,
    );
    let session = world.send(Request::initialize("2025-03-26")).await.session();
    let response = world.send(batch.clone().in_session(&session)).await;
    let answers = response.json();
    assert_eq!(answers.as_array().unwrap().len(), 3);
    assert_eq!(answers[0]["result"]["tools"], serde_json::json!([]));
    assert_eq!((&answers[1]["id"], &answers[1]["result"]), (&"b".into(), &serde_json::json!({})));
    assert_eq!(answers[2]["error"]["code"], -32600);

    let quiet = Request::post(r#"[{"jsonrpc":"2.0","method":"notifications/x"}]"#);
    assert_eq!(world.send(quiet.in_session(&session)).await.status, 202);
    let session = world.send(Request::initialize("2025-06-18")).await.session();
    assert_eq!(world.send(batch.clone().in_session(&session)).await.status, 400);
    assert_eq!(world.send(batch).await.status, 400);
}

#[tokio::test]
async fn a_batch_of_long_lists_is_answered_up_to_a_size_and_the_rest_is_not_begun() {
    const MIB: usize = 1 << 20;
    let world = World::new().await;
    let tool =
        |name: &str| json!({"name": name, "description": "x".repeat(MIB), "inputSchema": {"type": "object"}});
    let script = Script::new().definition(tool("a")).definition(tool("b")).definition(tool("c"));
    let connector = Arc::new(ScriptedServer::new(script));
    world.host.spawn_with(&Caller::local(), TestHost::spec("long"), connector).await.unwrap();
    let session = world.send(Request::initialize("2025-03-26")).await.session();
    let requests = (0..64).map(|id| json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"}));
    let batch = Request::post(serde_json::Value::from_iter(requests).to_string());
    let response = world.send(batch.in_session(&session)).await;
    let answers = response.json();
    let ids: Vec<_> =
        answers.as_array().unwrap().iter().map(|answer| answer["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (0..64).collect::<Vec<_>>());
    let is_list =
        |answer: &&serde_json::Value| answer["result"]["tools"].as_array().is_some_and(|it| it.len() == 3);
    let lists = answers.as_array().unwrap().iter().filter(is_list).count();
    assert!((5..10).contains(&lists) && response.body.len() < 32 * MIB, "{lists} lists");
    let refused = |answer: &&serde_json::Value| answer["error"]["data"]["code"] == "overloaded";
    assert_eq!(answers.as_array().unwrap().iter().filter(refused).count(), 64 - lists);
}

#[tokio::test]
async fn a_stream_without_requests_opens_and_is_kept_alive() {
    let options = GatewayOptions { keep_alive: Duration::from_millis(20), ..GatewayOptions::default() };
    let world = World::with(options, ConnectionLimits::default()).await;
    let session = world.send(Request::initialize("2025-11-25")).await.session();
    let mut client = world.connect().await;
    client.start(Request::new("GET", "/mcp").in_session(&session)).await;
    let head = client.head().await;
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(head.header("x-accel-buffering"), Some("no"));
    assert_eq!(head.header("cache-control"), Some("no-cache"));
    assert_eq!(client.chunk().await.unwrap(), "id: 0-0\nretry: 3000\ndata: \n\n");
    assert_eq!(client.chunk().await.unwrap(), ": \n\n");

    let delete = Request::new("DELETE", "/mcp").in_session(&session);
    assert_eq!(world.send(delete).await.status, 204);
    while client.chunk().await.is_some() {}
}
