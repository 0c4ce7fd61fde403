//! Hung servers, which don't read, don't answer or don't run: they block only themselves.

use std::time::Duration;

use ostler_host::{CallArguments, Request, ServerSpec};
use ostler_testkit::fake_mcp_spec;
use serde_json::json;
use tokio::task::JoinSet;

use crate::fixture::{CallOutcome, ProcessFixture, code_of, none, restarting_forever};

/// Makes this many calls at once, each with its own deadline.
async fn impatient_calls(stage: &ProcessFixture, count: usize, size: usize) -> Vec<CallOutcome> {
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let (host, me, text) = (stage.host.clone(), stage.me.clone(), "x".repeat(size));
        calls.spawn(async move {
            let request = Request::tool_call(&me, "text", json!({ "text": text }).into())?;
            // All of them are in flight long before the first one times out, even on a busy machine.
            host.send_to("stuck", request.with_timeout(Duration::from_secs(2))).await
        });
    }
    calls.join_all().await
}

async fn assert_answers(stage: &ProcessFixture, server: &str) {
    for n in 0..100 {
        assert_eq!(stage.text(server, "echo", json!({ "n": n })).await, json!({ "n": n }).to_string());
    }
}

#[tokio::test]
async fn a_server_that_does_not_read_holds_up_its_own_callers_only() {
    let stage = ProcessFixture::guarded();
    // Two requests of the handshake, the list and one call; then silence.
    let mut spec = fake_mcp_spec("stuck", &["--era", "legacy", "--no-read-after", "4"]);
    spec.drain = Duration::from_millis(100);
    spec.max_queued = 16;
    stage.spawn(spec).await;
    stage.spawn_fake("fine", &[]).await;
    assert_eq!(stage.text("stuck", "text", json!({"text": "last"})).await, "last");

    // Far more than pipes, buffers and the outbox hold.
    let stuck = impatient_calls(&stage, 100, 32 << 10);
    let (outcomes, ()) = tokio::join!(stuck, assert_answers(&stage, "fine"));
    let codes: Vec<&str> = outcomes.iter().map(code_of).collect();
    assert!(codes.iter().all(|code| matches!(*code, "timed-out" | "overloaded")), "{codes:?}");
    assert!(codes.contains(&"timed-out") && codes.contains(&"overloaded"), "{codes:?}");

    let process = stage.process("stuck");
    stage.host.stop("stuck").await.unwrap();
    assert!(process.is_reaped());
    assert_answers(&stage, "fine").await;
    stage.close().await;
}

#[tokio::test]
async fn a_stopped_process_times_out_and_is_replaced_by_liveness() {
    let stage = ProcessFixture::guarded();
    let mut spec = restarting_forever(fake_mcp_spec("stuck", &[]));
    spec.call_timeout = Duration::from_millis(300);
    stage.spawn(spec).await;
    stage.spawn_fake("fine", &[]).await;
    let process = stage.process("stuck");
    let error = stage.call("stuck", "stop_self", none()).await.unwrap_err();
    assert_eq!(error.code(), "timed-out");
    assert_answers(&stage, "fine").await;
    // Three probes of five seconds each.
    stage.until("stuck", "is replaced", |status| status.generation == 2 && status.active).await;
    assert_eq!(stage.text("stuck", "text", json!({"text": "back"})).await, "back");
    let last = stage.status("stuck").last_error.unwrap();
    assert!(last.message.contains("liveness"), "{}", last.message);
    assert!(!process.is_alive());
    stage.close().await;
}

#[tokio::test]
async fn a_stopped_process_can_be_stopped_for_good() {
    let stage = ProcessFixture::guarded();
    let mut spec = fake_mcp_spec("stuck", &[]);
    spec.call_timeout = Duration::from_millis(300);
    stage.spawn(spec).await;
    let process = stage.process("stuck");
    assert_eq!(code_of(&stage.call("stuck", "stop_self", none()).await), "timed-out");
    stage.host.stop("stuck").await.unwrap();
    assert!(process.is_reaped());
    stage.close().await;
}

#[tokio::test]
async fn full_pipes_in_both_directions_do_not_lock_up() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &[]).await;
    let text_of = |n: usize| format!("{n:04}{}", "x".repeat(1 << 20));
    let outcomes = stage
        .calls(64, "fake", "text", |n| CallArguments::raw(json!({"text": text_of(n)}).to_string()))
        .await;
    for (n, outcome) in outcomes.into_iter().enumerate() {
        let answer = outcome.unwrap_or_else(|error| panic!("call {n}: {}", error.render()));
        assert!(answer.text() == text_of(n), "call {n} got another's answer");
    }
    stage.close().await;
}

#[tokio::test]
async fn many_calls_of_middle_size_do_not_lock_up() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &[]).await;
    for _ in 0..10 {
        let outcomes = stage.calls(32, "fake", "text", |_| json!({"text": "x".repeat(10_000)}).into()).await;
        assert!(outcomes.iter().all(|outcome| outcome.is_ok()));
    }
    stage.close().await;
}

/// Opens a session, closes its stdin, reports that, and writes for ever.
const DEAF: &str = r#"
read -r probe; echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}'
read -r hello; echo '{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}'
read -r ready; exec 0<&-; echo closed
while :; do echo '{"jsonrpc":"2.0","method":"notifications/message"}'; sleep 0.01; done
"#;

#[tokio::test]
async fn a_server_that_talks_and_does_not_listen_is_replaced() {
    for stage in [ProcessFixture::guarded(), ProcessFixture::unguarded()] {
        let name = fake_mcp_spec("deaf", &[]).name;
        stage.spawn(ServerSpec::stdio(name, "sh").args(["-c", DEAF])).await;
        stage.until("deaf", "does not listen", |status| status.skipped_lines > 0).await;
        let call = stage.spawn_call("deaf", "echo", none());
        stage.until("deaf", "is replaced", |status| status.restarts.used > 0).await;
        call.abort();
        stage.close().await;
    }
}
