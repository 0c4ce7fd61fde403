//! Limits per caller: one caller never keeps all others out.

use ostler_gateway::GatewayOptions;
use ostler_testkit::eventually;
use tokio::io::AsyncWriteExt;

use crate::auth::{AuthWorld, WithToken, auth_world_with};
use crate::world::{Client, PATIENCE, Request, Response};

fn listen() -> Request {
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    Request::post(format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},"_meta":{meta}}}}}"#
    ))
    .with("MCP-Protocol-Version", "2026-07-28")
    .with("Mcp-Method", "subscriptions/listen")
}

fn list() -> Request {
    Request::modern("tools/list", "1")
}

/// Sends a request whose body never ends.
async fn send_unfinished(scene: &AuthWorld, name: &str) -> Client {
    let mut client = scene.world.connect().await;
    let text = list().with_token(name).text(scene.world.address);
    client.stream.write_all(&text.as_bytes()[..text.len() - 5]).await.unwrap();
    client
}

fn is_overloaded(response: &Response, id: serde_json::Value) {
    assert_eq!(response.status, 503, "{response:?}");
    assert_eq!(response.header("retry-after"), Some("1"));
    let said = response.json();
    assert_eq!((&said["id"], &said["error"]["code"]), (&id, &(-31005).into()), "{said}");
    assert_eq!(said["error"]["data"]["code"], "overloaded");
    assert_eq!(said["error"]["data"]["retryAfterMs"], 1_000);
}

#[tokio::test]
async fn a_caller_that_holds_its_share_is_refused_and_others_are_not() {
    let scene = auth_world_with(GatewayOptions { max_per_caller: 3, ..GatewayOptions::default() }).await;
    let streaming = scene.stream(listen().with_token("ada")).await;
    let held = [send_unfinished(&scene, "ada").await, send_unfinished(&scene, "ada").await];
    let mut seen = None;
    for _ in 0..1_000 {
        let response = scene.world.send(list().with_token("ada")).await;
        if response.status != 200 {
            seen = Some(response);
            break;
        }
    }
    is_overloaded(&seen.expect("the heads of its requests arrive"), serde_json::Value::Null);
    is_overloaded(&scene.world.send(listen().with_token("ada")).await, serde_json::Value::Null);
    assert_eq!(scene.world.send(list().with_token("bob")).await.status, 200);
    drop((streaming, held));
    let freed = tokio::time::timeout(PATIENCE, async {
        while scene.world.send(list().with_token("ada")).await.status != 200 {}
    });
    freed.await.expect("what it lets go is free again");
}

#[tokio::test]
async fn a_caller_holds_half_of_the_long_streams_at_most() {
    let scene = auth_world_with(GatewayOptions { max_streams: 3, ..GatewayOptions::default() }).await;
    let session = scene.session().await;
    let get = Request::new("GET", "/mcp").in_session(&session);
    let streaming =
        [scene.stream(listen().with_token("ada")).await, scene.stream(get.clone().with_token("ada")).await];
    is_overloaded(&scene.world.send(listen().with_token("ada")).await, 7.into());
    is_overloaded(&scene.world.send(get.with_token("ada")).await, serde_json::Value::Null);
    assert_eq!(scene.world.send(list().with_token("ada")).await.status, 200, "that is no stream");
    let others = scene.stream(listen().with_token("bob")).await;
    is_overloaded(&scene.world.send(listen().with_token("bob")).await, 7.into());
    drop((streaming, others));
}

#[tokio::test]
async fn a_caller_with_many_sessions_throws_out_its_own() {
    let scene = auth_world_with(GatewayOptions { max_sessions: 4, ..GatewayOptions::default() }).await;
    let initialize = || Request::initialize("2025-11-25");
    let of_bob = [
        scene.world.send(initialize().with_token("bob")).await.session(),
        scene.world.send(initialize().with_token("bob")).await.session(),
    ];
    let mut last = String::new();
    for _ in 0..20 {
        last = scene.world.send(initialize().with_token("ada")).await.session();
    }
    eventually("the table stays full", PATIENCE, || scene.world.gateway.session_count() == 4).await;
    let ping = Request::post(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#);
    for session in &of_bob {
        assert_eq!(scene.world.send(ping.clone().in_session(session).with_token("bob")).await.status, 200);
    }
    assert_eq!(scene.world.send(ping.in_session(&last).with_token("ada")).await.status, 200);
}
