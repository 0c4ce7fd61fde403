//! Floods: a server with too much output blocks nothing, grows nothing, and affects no other server.

use ostler_core::status::CircuitState;
use ostler_testkit::{MemoryGrowth, Proc, fake_mcp_spec};
use serde_json::{Value, json};

use crate::fixture::{ProcessFixture, code_of, none, restarting_forever};

/// Upper bound on the host's growth while a server floods it, in KiB.
const ALLOWANCE: u64 = 64 << 10;

fn begin() -> MemoryGrowth {
    MemoryGrowth::begin(Proc::current())
}

fn assert_within_allowance(growth: MemoryGrowth, what: &str) {
    assert!(growth.kib() <= ALLOWANCE, "{what}: {} KiB more", growth.kib());
}

#[tokio::test]
async fn stderr_never_blocks_a_server() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &[]).await;
    let growth = begin();
    for bytes in [200_000, 200_000_000] {
        assert_eq!(stage.text("fake", "stderr", json!({ "bytes": bytes })).await, "written");
    }
    assert_within_allowance(growth, "200 MB of stderr");
    stage.close().await;
}

#[tokio::test]
async fn a_line_of_a_gigabyte_fails_its_call_alone() {
    let stage = ProcessFixture::guarded();
    stage.spawn(restarting_forever(fake_mcp_spec("fake", &[]))).await;
    let process = stage.process("fake");
    let growth = begin();
    for id in ["first", "last"] {
        let outcome = stage.call("fake", "huge_line", json!({"bytes": 1 << 30, "id": id})).await;
        assert_eq!(code_of(&outcome), "upstream-protocol");
        assert_eq!(stage.text("fake", "text", json!({"text": "next"})).await, "next");
    }
    assert_within_allowance(growth, "two lines of 1 GB");
    assert_eq!(stage.process("fake"), process, "two are not yet a reason to restart");
    assert_eq!(stage.status("fake").skipped_lines, 2);
    stage.close().await;
}

#[tokio::test]
async fn a_line_without_its_newline_fails_its_call_and_not_the_next() {
    let stage = ProcessFixture::guarded();
    stage.spawn(restarting_forever(fake_mcp_spec("fake", &[]))).await;
    let process = stage.process("fake");
    let growth = begin();
    for (id, bytes) in [("first", 1 << 30), ("last", 20 << 20)] {
        let endless = json!({"bytes": bytes, "id": id, "newline": false});
        assert_eq!(code_of(&stage.call("fake", "huge_line", endless).await), "upstream-protocol");
        // This response is on the same line.
        assert_eq!(stage.text("fake", "text", json!({"text": "next"})).await, "next");
    }
    assert_within_allowance(growth, "1 GB without a newline");
    assert_eq!(stage.process("fake"), process);
    assert_eq!(stage.status("fake").skipped_lines, 2);
    stage.close().await;
}

#[tokio::test]
async fn unusable_answers_fail_their_calls_and_restart_nothing() {
    let stage = ProcessFixture::guarded();
    stage.spawn(fake_mcp_spec("fake", &[])).await;
    let process = stage.process("fake");
    for _ in 0..7 {
        let outcome = stage.call("fake", "huge_line", json!({"bytes": 20 << 20})).await;
        assert_eq!(code_of(&outcome), "upstream-protocol");
    }
    assert_eq!(stage.text("fake", "pid", none()).await, process.pid.to_string());
    stage.close().await;
}

#[tokio::test]
async fn a_million_notifications_do_not_hold_up_another_server() {
    let stage = ProcessFixture::guarded();
    stage.spawn(fake_mcp_spec("loud", &[])).await;
    stage.spawn_fake("quiet", &[]).await;
    stage.text("quiet", "pid", none()).await;
    let growth = begin();
    let flood = stage.spawn_call("loud", "flood_notifications", json!({"count": 1_000_000}));
    stage.until("loud", "floods", |status| status.dropped_notifications > 0).await;
    for n in 0..100 {
        assert_eq!(stage.text("quiet", "echo", json!({ "n": n })).await, json!({ "n": n }).to_string());
    }
    assert!(!flood.is_finished(), "a hundred calls take less time than a million notifications");
    assert_eq!(flood.await.unwrap().unwrap().text(), "flooded");
    assert_within_allowance(growth, "a million notifications");
    let status = stage.status("loud");
    assert!(status.dropped_notifications > 900_000, "{}", status.dropped_notifications);
    assert_eq!((status.restarts.used, status.circuit), (0, CircuitState::Closed));
    stage.close().await;
}

#[tokio::test]
async fn lines_that_are_no_messages_are_skipped_and_counted() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &[]).await;
    let process = stage.process("fake");
    assert_eq!(stage.text("fake", "garbage", none()).await, "odd");
    assert_eq!(stage.status("fake").skipped_lines, 5, "blank ones too");
    assert_eq!(stage.process("fake"), process);
    stage.close().await;
}

#[tokio::test]
async fn a_change_that_is_announced_in_a_flood_is_heard() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &["--requests", &stage.path("requests")]).await;
    assert_eq!(stage.text("fake", "flood_notifications", json!({"count": 20_000})).await, "flooded");
    assert!(stage.status("fake").dropped_notifications > 0);
    assert_eq!(stage.text("fake", "list_changed", json!({"count": 1})).await, "sent");
    stage.host.tools(&stage.me, "fake").await.unwrap();
    let lists = stage.lines("requests").iter().filter(|line| line.starts_with("tools/list")).count();
    assert_eq!(lists, 2, "one for the first call, one for the change");
    stage.close().await;
}

#[tokio::test]
async fn announced_changes_are_followed_and_not_obeyed_a_thousand_times() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &["--requests", &stage.path("requests")]).await;
    assert_eq!(stage.text("fake", "list_changed", json!({"count": 5_000})).await, "sent");
    let tools = stage.host.tools(&stage.me, "fake").await.unwrap();
    assert!(tools.iter().any(|listed| listed.tool.name == "echo"));
    let lists = stage.lines("requests").iter().filter(|line| line.starts_with("tools/list")).count();
    assert_eq!(lists, 2, "one for the first call, one for who asked");
    let listed: Value = serde_json::from_slice(&tools[0].tool.definition).unwrap();
    assert_eq!(listed["name"], tools[0].tool.name);
    stage.close().await;
}
