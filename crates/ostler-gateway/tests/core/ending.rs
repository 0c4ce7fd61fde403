//! The end of the input of a stream.

use std::time::Duration;

use ostler_testkit::{Reply, Script, World};
use serde_json::json;
use tokio::time::Instant;

use crate::client::{Client, gateway, one};

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_end_is_cancelled_a_minute_after_the_input() {
    let world = World::new()
        .server_with("a", Script::new().tool_that("t", Reply::never()), |spec| {
            spec.call_timeout = Duration::from_secs(500);
        })
        .open()
        .await;
    let mut client = Client::modern(&gateway(&world, |_| {}), one("a"), json!({}));
    client.begin("tools/call", json!({"name": "t"})).await;
    let began = Instant::now();
    client.hang_up().await;
    client.ended().await;
    let took = began.elapsed();
    assert!((Duration::from_secs(60)..Duration::from_secs(65)).contains(&took), "{took:?}");
    assert_eq!(world.stage("a").cancelled(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_by_its_own_timeout_when_that_comes_first() {
    let world = World::new()
        .server_with("a", Script::new().tool_that("t", Reply::never()), |spec| {
            spec.call_timeout = Duration::from_secs(5);
        })
        .open()
        .await;
    let mut client = Client::modern(&gateway(&world, |_| {}), one("a"), json!({}));
    let id = client.begin("tools/call", json!({"name": "t"})).await;
    client.hang_up().await;
    assert_eq!(client.answer_to(id).await["error"]["data"]["code"], "timed-out");
    client.ended().await;
}

#[tokio::test(start_paused = true)]
async fn the_end_is_noticed_while_a_server_starts_for_initialize() {
    let slow = Script::echo().start_after(Duration::from_secs(7));
    let world =
        World::new().server_with("a", slow, |spec| spec.start_timeout = Duration::from_secs(30)).open().await;
    let mut client = Client::unopened(&gateway(&world, |_| {}), one("a"));
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let first = client.begin("initialize", hello).await;
    let second = client.begin("tools/call", json!({"name": "echo"})).await;
    client.hang_up().await;
    assert!(client.answer_to(first).await.get("result").is_some());
    assert!(client.answer_to(second).await.get("result").is_some());
    client.ended().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_starts_does_not_keep_a_client_that_has_left() {
    let slow = Script::echo().start_after(Duration::from_secs(10_000));
    let world = World::new()
        .server_with("a", slow, |spec| spec.start_timeout = Duration::from_secs(9_000))
        .open()
        .await;
    let mut client = Client::unopened(&gateway(&world, |_| {}), one("a"));
    client.begin("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}})).await;
    let began = Instant::now();
    client.hang_up().await;
    client.ended().await;
    assert!(began.elapsed() < Duration::from_secs(65), "{:?}", began.elapsed());
}
