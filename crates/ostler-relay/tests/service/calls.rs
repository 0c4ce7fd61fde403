//! Calls: executed once and always answered.

use std::sync::Arc;

use ostler_relay::envelope::{CallHead, Control, RelayProgress};
use ostler_testkit::{Script, ScriptedReply};
use serde_json::json;

use crate::harness::{ServiceHarness, code, test_host, text, tool_call};
use crate::secs;

#[tokio::test(start_paused = true)]
async fn a_call_is_accepted_and_then_answered_under_its_own_id() {
    let harness = ServiceHarness::open(test_host().server("a", Script::echo()).start().await).await;
    let mut worker = harness.worker("w1").await;
    let body = tool_call("echo", json!({"big": 1}));
    worker.send(worker.head(1), body).await;
    assert_eq!(worker.next_accepted().await, 1);
    let (call, answer) = worker.next_answer().await;
    assert_eq!((call, &answer["id"], text(&answer)), (1, &json!(7), r#"{"big":1}"#));
    assert!(worker.is_silent().await);
    let request = &harness.test_host.server("a").requests_for("echo")[0];
    assert!(request.is_for_client);
    let status = harness.service.status();
    assert_eq!((status.in_flight, status.answered, status.refused), (0, 1, 0));
    assert_eq!(status.workers[0].role, "dev");
}

#[tokio::test(start_paused = true)]
async fn a_call_is_accepted_before_it_reaches_its_server() {
    let script =
        Script::echo().start_after(secs(5)).tool_replying("slow", ScriptedReply::text("done").after(secs(5)));
    let harness = ServiceHarness::open(test_host().server("a", script).start().await).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "slow").await;
    assert_eq!(worker.next_accepted().await, 1);
    assert_eq!(harness.test_host.server("a").count("slow"), 0);
}

#[tokio::test(start_paused = true)]
async fn answers_come_as_they_are_ready_and_calls_overlap() {
    let script = Script::echo()
        .tool_replying("slow", ScriptedReply::text("slow").after(secs(2)))
        .tool_replying("fast", ScriptedReply::text("fast"));
    let harness = ServiceHarness::open(test_host().server("a", script).start().await).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "slow").await;
    worker.call(2, "a", "fast").await;
    assert_eq!(worker.next_answer().await.0, 2);
    assert_eq!(worker.next_answer().await.0, 1);
    assert_eq!(harness.test_host.server("a").most_in_flight(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_comes_too_late_never_begins() {
    let harness = ServiceHarness::open(test_host().server("a", Script::echo()).start().await).await;
    let mut worker = harness.worker("w1").await;
    let now = worker.clock.now();
    for (number, late) in [
        (1, CallHead { begin_by: now, ..worker.head(1) }),
        (2, CallHead { deadline: now, ..worker.head(2) }),
        (3, CallHead { begin_by: 0, ..worker.head(3) }),
    ] {
        worker.send(late, tool_call("echo", json!({}))).await;
        let (call, answer) = worker.next_answer().await;
        assert_eq!((call, code(&answer)), (number, "timed-out"));
        assert_eq!(answer["error"]["data"]["delivery"], "not-sent");
    }
    assert!(worker.is_silent().await, "nothing was accepted");
    assert!(harness.test_host.server("a").requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_call_has_no_more_time_than_its_deadline() {
    let script = Script::echo().tool_replying("never", ScriptedReply::never());
    let harness = ServiceHarness::open(test_host().server("a", script).start().await).await;
    let mut worker = harness.worker("w1").await;
    let head = CallHead { deadline: worker.clock.now() + 3_000, ..worker.head(1) };
    let began = tokio::time::Instant::now();
    worker.send(head, tool_call("never", json!({}))).await;
    let (_, answer) = worker.next_answer().await;
    assert_eq!((code(&answer), began.elapsed()), ("timed-out", secs(3)));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_server_passes_unchanged() {
    let script = Script::echo().tool_replying("bad", ScriptedReply::error(-5, "no"));
    let harness = ServiceHarness::open(test_host().server("a", script).start().await).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "bad").await;
    assert_eq!(worker.next_answer().await.1["error"], json!({"code": -5, "message": "no"}));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_cancelled_at_its_server_and_not_answered() {
    let script = Script::echo().tool_replying("never", ScriptedReply::never());
    let harness = ServiceHarness::open(test_host().server("a", script).start().await).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "never").await;
    assert_eq!((worker.next_accepted().await, harness.test_host.server("a").in_flight()), (1, 1));
    worker.control(1, Control::Cancel, "").await;
    assert_eq!(
        (harness.test_host.server("a").in_flight(), harness.test_host.server("a").cancelled()),
        (0, 1)
    );
    assert!(worker.is_silent().await);
    assert_eq!(harness.service.status().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn only_the_worker_itself_can_cancel_its_call() {
    let script = Script::echo().tool_replying("slow", ScriptedReply::text("done").after(secs(1)));
    let harness = ServiceHarness::open(test_host().server("a", script).start().await).await;
    let mut worker = harness.worker("w1").await;
    let other = harness.worker("w2").await;
    worker.call(1, "a", "slow").await;
    other.control(1, Control::Cancel, "").await;
    assert_eq!(text(&worker.next_answer().await.1), "done");
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_that_overtakes_its_call_keeps_it_from_beginning() {
    let harness = ServiceHarness::open(test_host().server("a", Script::echo()).start().await).await;
    let mut worker = harness.worker("w1").await;
    worker.control(1, Control::Cancel, "").await;
    worker.call(1, "a", "echo").await;
    assert_eq!(code(&worker.next_answer().await.1), "invalid-argument");
    assert!(harness.test_host.server("a").requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_panic_on_the_way_ends_with_an_answer_and_the_next_call_is_well() {
    let harness = ServiceHarness::open(test_host().server("a", Script::echo()).start().await).await;
    harness
        .test_host
        .host
        .set_recorder(Some(Arc::new(|record| assert_ne!(record.subject, "echo", "as planned"))));
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "echo").await;
    let (call, answer) = worker.next_answer().await;
    assert_eq!((call, code(&answer), &answer["id"]), (1, "outcome-unknown", &json!(7)));
    harness.test_host.host.set_recorder(None);
    worker.call(2, "a", "echo").await;
    assert_eq!(text(&worker.next_answer().await.1), "{}");
    assert_eq!(harness.service.status().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn progress_the_log_and_the_answer_come_in_order() {
    let reply = ScriptedReply::text("done")
        .reporting(r#""progress":1"#)
        .logging("error", "hot")
        .logging("debug", "x");
    let script = Script::echo().tool_replying("work", reply);
    let harness = ServiceHarness::open(test_host().server("a", script).start().await).await;
    let mut worker = harness.worker("w1").await;
    let mut meta = crate::harness::meta();
    meta["progressToken"] = json!("mine");
    meta["io.modelcontextprotocol/logLevel"] = json!("warning");
    let body = json!({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "work", "_meta": meta}});
    worker.send(worker.head(1), body.to_string()).await;
    assert_eq!(worker.next_accepted().await, 1);
    let (_, kind, note) = worker.next_progress().await;
    assert_eq!((kind, &note["params"]["progressToken"]), (RelayProgress::Notification, &json!("mine")));
    let (_, _, note) = worker.next_progress().await;
    assert_eq!(note["params"]["data"], "hot");
    assert_eq!(worker.next_answer().await.1["id"], "x");
    assert!(worker.is_silent().await, "the log was wanted from warnings on");
}

#[tokio::test(start_paused = true)]
async fn a_question_is_asked_and_its_answer_reaches_the_server() {
    let reply = ScriptedReply::text("done").asking("elicitation/create", json!({"message": "sure?"}));
    let script = Script::echo().tool_replying("work", reply);
    let harness = ServiceHarness::open(test_host().server("a", script).start().await).await;
    let mut worker = harness.worker("w1").await;
    let mut meta = crate::harness::meta();
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "work", "_meta": meta}});
    worker.send(worker.head(1), body.to_string()).await;
    assert_eq!(worker.next_accepted().await, 1);
    let (_, kind, question) = worker.next_progress().await;
    assert_eq!((kind, &question["params"]["message"]), (RelayProgress::ServerRequest(0), &json!("sure?")));
    let answer = r#"{"jsonrpc":"2.0","id":0,"result":{"action":"accept"}}"#;
    worker.control(1, Control::Answer(0), answer).await;
    assert_eq!(text(&worker.next_answer().await.1), "done");
    assert_eq!(harness.test_host.server("a").client_answers(), [Some(r#"{"action":"accept"}"#.to_owned())]);
}
