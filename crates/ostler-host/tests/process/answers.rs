//! Responses: every caller gets its own, with any other output of the server beside it.

use std::time::Duration;

use ostler_host::Request;
use ostler_testkit::fake_mcp_spec;
use serde_json::{Value, json};

use crate::fixture::{ProcessFixture, none};

#[tokio::test]
async fn answers_out_of_order_reach_their_own_callers() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &["--shuffle"]).await;
    let outcomes = stage.calls(64, "fake", "echo", |n| json!({"caller": n}).into()).await;
    for (n, outcome) in outcomes.into_iter().enumerate() {
        assert_eq!(outcome.unwrap().text(), json!({"caller": n}).to_string());
    }
    stage.close().await;
}

#[tokio::test]
async fn an_answer_given_twice_counts_once() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &[]).await;
    for n in 1..=5 {
        assert_eq!(stage.text("fake", "twice", none()).await, "odd");
        assert_eq!(stage.text("fake", "echo", json!({ "n": n })).await, json!({ "n": n }).to_string());
        stage.until("fake", "has counted the second answer", |status| status.skipped_lines == n).await;
    }
    stage.close().await;
}

/// Malformed responses, with the call's id for `ID`.
const UNUSABLE: [&str; 10] = [
    r#"{"jsonrpc":"2.0","id":ID}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":null}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":[1]}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":"x"}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":5}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":1,"message":"x"}}"#,
    r#"{"jsonrpc":"2.0","id":ID,"error":null}"#,
    "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{}}",
    r#"[{"jsonrpc":"2.0","id":ID,"result":{}}]"#,
    r#"[{"jsonrpc":"2.0","method":"notifications/message"}, {"jsonrpc":"2.0","id":ID}]"#,
];

#[tokio::test]
async fn an_answer_of_the_wrong_shape_fails_its_call_at_once_and_no_other() {
    let stage = ProcessFixture::guarded();
    let catalog = json!({"tools": [{"name": "raw"}, {"name": "echo"}]});
    std::fs::write(stage.path("catalog"), catalog.to_string()).unwrap();
    stage.spawn_fake("fake", &["--catalog", &stage.path("catalog")]).await;
    for text in UNUSABLE {
        let outcome = stage.call("fake", "raw", json!({ "text": text })).await;
        assert_eq!(
            outcome.as_ref().map_or_else(|error| error.code(), |_| "ok"),
            "upstream-protocol",
            "{text}"
        );
        assert_eq!(stage.text("fake", "echo", json!({"n": 1})).await, json!({"n": 1}).to_string());
    }
    let status = stage.status("fake");
    assert_eq!(
        (status.generation, status.consecutive_failures),
        (1, 0),
        "the server stays, and is not blamed"
    );
    stage.close().await;
}

#[tokio::test]
async fn a_log_line_with_an_id_is_not_an_answer() {
    let stage = ProcessFixture::guarded();
    let catalog = json!({"tools": [{"name": "raw"}]});
    std::fs::write(stage.path("catalog"), catalog.to_string()).unwrap();
    stage.spawn_fake("fake", &["--catalog", &stage.path("catalog")]).await;
    let text = "{\"level\":\"info\",\"id\":ID}\n{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"content\":[]}}";
    let answer = stage.call("fake", "raw", json!({ "text": text })).await.unwrap();
    assert_eq!(&answer.body[..], br#"{"content":[]}"#);
    stage.close().await;
}

#[tokio::test]
async fn an_answer_to_nobody_is_skipped() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &[]).await;
    assert_eq!(stage.text("fake", "foreign_id", none()).await, "odd");
    assert_eq!(stage.status("fake").skipped_lines, 1);
    stage.close().await;
}

#[tokio::test]
async fn an_id_that_came_back_as_a_string_is_understood() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &[]).await;
    assert_eq!(stage.text("fake", "string_id", none()).await, "odd");
    stage.close().await;
}

#[tokio::test]
async fn a_question_with_the_id_of_the_call_is_answered_and_is_not_the_answer() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &[]).await;
    // The tool returns its input, with the id of its request.
    let reply = |answer: ostler_host::Answer| answer.json::<Value>().unwrap()["structuredContent"].clone();
    let unknown = reply(stage.call("fake", "ask", json!({"method": "roots/list"})).await.unwrap());
    assert_eq!(unknown["error"]["code"], -32601);
    let ping = reply(stage.call("fake", "ask", json!({"method": "ping"})).await.unwrap());
    assert_eq!(ping["result"], none());
    let mine = reply(stage.call("fake", "ask", json!({"method": "ping", "id": "own"})).await.unwrap());
    assert_eq!(mine["id"], "own");
    assert_eq!(stage.status("fake").skipped_lines, 0);
    stage.close().await;
}

#[tokio::test]
async fn a_server_is_told_when_a_caller_goes_away() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &["--ledger", &stage.path("ledger")]).await;
    let call = stage.spawn_call("fake", "sleep", json!({"ms": 300}));
    stage.until_lines("ledger", 1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    stage.until("fake", "has no lease left", |status| status.leases == 0).await;
    // Without the cancellation it would have been answered before this one.
    assert_eq!(stage.text("fake", "sleep", json!({"ms": 600})).await, "slept");
    assert_eq!(stage.status("fake").skipped_lines, 0);
    stage.close().await;
}

#[tokio::test]
async fn an_answer_that_comes_after_its_caller_left_is_nobodys() {
    let stage = ProcessFixture::guarded();
    // Responses wait for their group here, and no cancellation withdraws one.
    stage.spawn_fake("fake", &["--shuffle", "--ledger", &stage.path("ledger")]).await;
    assert_eq!(stage.text("fake", "echo", json!({})).await, "{}");
    let mut late = 0;
    for n in 0..50 {
        let request = Request::tool_call(&stage.me, "echo", json!({ "n": n }).into()).unwrap();
        let outcome = stage.host.send_to("fake", request.with_timeout(Duration::from_millis(5))).await;
        late += u64::from(outcome.is_err());
        assert_eq!(stage.text("fake", "echo", json!({"next": n})).await, json!({"next": n}).to_string());
    }
    assert!(late > 0, "no answer was late");
    let status = stage.status("fake");
    assert_eq!((status.skipped_lines, status.consecutive_failures), (late, 0));
    stage.close().await;
}

#[tokio::test]
async fn a_late_caller_is_told_that_its_call_may_have_run() {
    let stage = ProcessFixture::guarded();
    let mut spec = fake_mcp_spec("fake", &["--ledger", &stage.path("ledger")]);
    spec.call_timeout = Duration::from_millis(300);
    stage.spawn(spec).await;
    let error = stage.call("fake", "hang", none()).await.unwrap_err();
    assert_eq!(error.code(), "timed-out");
    assert!(error.cause().unwrap().contains("may have been executed"));
    assert_eq!(stage.text("fake", "text", json!({"text": "next"})).await, "next");
    assert_eq!(stage.lines("ledger").len(), 2, "it was not sent again");
    stage.close().await;
}
