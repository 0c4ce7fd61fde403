//! End of input of a stream.

use std::time::Duration;

use ostler_testkit::{Script, ScriptedReply, TestHost};
use serde_json::json;
use tokio::time::Instant;

use crate::client::{Client, gateway, server_scope};

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_end_is_cancelled_a_minute_after_the_input() {
    let world = TestHost::new()
        .server_with("a", Script::new().tool_replying("t", ScriptedReply::never()), |spec| {
            spec.call_timeout = Duration::from_secs(500);
        })
        .start()
        .await;
    let mut client = Client::modern(&gateway(&world, |_| {}), server_scope("a"), json!({}));
    client.send_request("tools/call", json!({"name": "t"})).await;
    let began = Instant::now();
    client.close_input().await;
    client.wait_for_end().await;
    let took = began.elapsed();
    assert!((Duration::from_secs(60)..Duration::from_secs(65)).contains(&took), "{took:?}");
    assert_eq!(world.server("a").cancelled(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_by_its_own_timeout_when_that_comes_first() {
    let world = TestHost::new()
        .server_with("a", Script::new().tool_replying("t", ScriptedReply::never()), |spec| {
            spec.call_timeout = Duration::from_secs(5);
        })
        .start()
        .await;
    let mut client = Client::modern(&gateway(&world, |_| {}), server_scope("a"), json!({}));
    let id = client.send_request("tools/call", json!({"name": "t"})).await;
    client.close_input().await;
    assert_eq!(client.wait_for_answer(id).await["error"]["data"]["code"], "timed-out");
    client.wait_for_end().await;
}

#[tokio::test(start_paused = true)]
async fn the_end_is_noticed_while_a_server_starts_for_initialize() {
    let slow = Script::echo().start_after(Duration::from_secs(7));
    let world = TestHost::new()
        .server_with("a", slow, |spec| spec.start_timeout = Duration::from_secs(30))
        .start()
        .await;
    let mut client = Client::uninitialized(&gateway(&world, |_| {}), server_scope("a"));
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let first = client.send_request("initialize", hello).await;
    let second = client.send_request("tools/call", json!({"name": "echo"})).await;
    client.close_input().await;
    assert!(client.wait_for_answer(first).await.get("result").is_some());
    assert!(client.wait_for_answer(second).await.get("result").is_some());
    client.wait_for_end().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_starts_does_not_keep_a_client_that_has_left() {
    let slow = Script::echo().start_after(Duration::from_secs(10_000));
    let world = TestHost::new()
        .server_with("a", slow, |spec| spec.start_timeout = Duration::from_secs(9_000))
        .start()
        .await;
    let mut client = Client::uninitialized(&gateway(&world, |_| {}), server_scope("a"));
    client.send_request("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}})).await;
    let began = Instant::now();
    client.close_input().await;
    client.wait_for_end().await;
    assert!(began.elapsed() < Duration::from_secs(65), "{:?}", began.elapsed());
}
