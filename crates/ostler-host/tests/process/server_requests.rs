//! Server requests: each reaches the one caller that it can belong to, or none.

use std::time::Duration;

use ostler_testkit::{eventually, fake_mcp_spec};
use ostler_wire::RpcError;
use serde_json::{Value, json};

use crate::fixture::{LONG, ProcessFixture, none};
use crate::observers::{RecordingObserver, answers_seen_by_server, yes};

const ELICIT: &str = "elicitation/create";

async fn legacy(args: &[&str]) -> ProcessFixture {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &[&["--era", "legacy"], args].concat()).await;
    stage
}

#[tokio::test]
async fn a_question_goes_to_the_caller_and_its_answer_to_the_server() {
    let stage = legacy(&[]).await;
    let ann = RecordingObserver::answering(ELICIT);
    let call = stage.spawn_observed_call("fake", "input", none(), &ann);
    let question = ann.next_request().await;
    assert_eq!(question.method.as_str(), ELICIT);
    let form: Value = serde_json::from_slice(question.params.as_ref().unwrap()).unwrap();
    assert_eq!(form["message"], "Go on?");
    assert!(question.answer(yes(r#"{"action":"accept","content":{"ok":true}}"#)));
    let seen = answers_seen_by_server(call.await.unwrap());
    assert_eq!((&seen["id"], &seen["result"]["action"]), (&json!("fake-input"), &json!("accept")));
    stage.close().await;
}

#[tokio::test]
async fn an_answer_reaches_the_server_byte_for_byte() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &["--era", "legacy", "--frames", &stage.path("frames")]).await;
    let ann = RecordingObserver::answering(ELICIT);
    for outcome in [
        yes(r#"{"n":1000000000000000000000000000000,"b" : [ 1E+2 ],"a":"\u00e9"}"#),
        ostler_wire::RpcOutcome::Error(RpcError {
            code: -1,
            message: "no".into(),
            raw: r#"{"code":-1,"message":"no","data":{"z":1,"a":2}}"#.into(),
        }),
    ] {
        let call = stage.spawn_observed_call("fake", "input", none(), &ann);
        ann.next_request().await.answer(outcome);
        call.await.unwrap().unwrap();
    }
    let frames = stage.lines("frames").join("\n");
    assert!(frames.contains(r#""result":{"n":1000000000000000000000000000000,"b" : [ 1E+2 ],"a":"\u00e9"}"#));
    assert!(frames.contains(r#""error":{"code":-1,"message":"no","data":{"z":1,"a":2}}"#));
    stage.close().await;
}

#[tokio::test]
async fn a_question_that_nobody_can_answer_is_for_a_method_that_is_not_there() {
    let stage = legacy(&[]).await;
    let ann = RecordingObserver::answering(ELICIT);
    for method in ["roots/list", "sampling/createMessage", "no/such"] {
        let call = stage.spawn_observed_call("fake", "ask", json!({ "method": method }), &ann);
        assert_eq!(answers_seen_by_server(call.await.unwrap())["error"]["code"], -32601, "{method}");
    }
    assert_eq!(answers_seen_by_server(stage.call("fake", "input", none()).await)["error"]["code"], -32601);
    stage.close().await;
}

#[tokio::test]
async fn a_question_that_is_dropped_is_refused() {
    let stage = legacy(&[]).await;
    let ann = RecordingObserver::answering(ELICIT);
    let call = stage.spawn_observed_call("fake", "input", none(), &ann);
    drop(ann.next_request().await);
    assert_eq!(answers_seen_by_server(call.await.unwrap())["error"]["code"], -32603);
    stage.close().await;
}

#[tokio::test]
async fn a_question_that_a_call_of_somebody_else_may_have_caused_is_shown_to_nobody() {
    for can_answer in [None, Some("roots/list")] {
        let stage = legacy(&[]).await;
        let ann = RecordingObserver::answering(ELICIT);
        let waiting = stage.spawn_observed_call("fake", "hang", none(), &ann);
        stage.until("fake", "has the call that waits", |status| status.in_flight == 1).await;
        let refused = match can_answer {
            None => stage.call("fake", "input", none()).await,
            Some(method) => stage
                .spawn_observed_call("fake", "input", none(), &RecordingObserver::answering(method))
                .await
                .unwrap(),
        };
        assert_eq!(answers_seen_by_server(refused)["error"]["code"], -31005);
        assert_eq!(ann.open_requests(), 0, "it was not asked for this one");
        waiting.abort();
        let _ = waiting.await;

        // From now on no other call runs beside one whose caller can answer.
        let holder = stage.spawn_observed_call("fake", "input", none(), &ann);
        let question = ann.next_request().await;
        assert_eq!(stage.text("fake", "text", json!({"text": "t"})).await, "t", "while a person thinks");
        question.answer(yes("{}"));
        assert_eq!(answers_seen_by_server(holder.await.unwrap())["result"], none());
        stage.close().await;
    }
}

#[tokio::test]
async fn a_list_that_is_asked_for_meanwhile_does_not_confuse_anybody() {
    let stage = legacy(&[]).await;
    let ann = RecordingObserver::answering(ELICIT);
    let call = stage.spawn_observed_call("fake", "input", none(), &ann);
    let question = ann.next_request().await;
    stage.host.tools(&stage.me, "fake").await.unwrap();
    question.answer(yes("{}"));
    assert_eq!(answers_seen_by_server(call.await.unwrap())["result"], none());
    stage.close().await;
}

#[tokio::test]
async fn two_who_could_be_meant_are_not_asked_and_take_turns_from_then_on() {
    let stage = ProcessFixture::guarded();
    let frames = stage.path("frames");
    stage
        .spawn_fake("fake", &["--era", "legacy", "--ledger", &stage.path("ledger"), "--frames", &frames])
        .await;
    let (ann, bob) = (RecordingObserver::answering(ELICIT), RecordingObserver::answering(ELICIT));
    let waiting = stage.spawn_observed_call("fake", "hang", none(), &ann);
    stage.until_lines("ledger", 1).await;
    let refused =
        answers_seen_by_server(stage.spawn_observed_call("fake", "input", none(), &bob).await.unwrap());
    assert_eq!(refused["error"]["code"], -31005);
    assert!(refused["error"]["message"].as_str().unwrap().contains("one at a time"), "{refused}");
    assert_eq!((ann.open_requests(), bob.open_requests()), (0, 0));
    waiting.abort();
    let _ = waiting.await;

    // The flag outlives the process.
    stage.process("fake").kill();
    stage.until("fake", "is up again", |status| status.generation == 2 && status.active).await;
    let holder = stage.spawn_observed_call("fake", "hang", none(), &ann);
    stage.until_lines("ledger", 3).await;
    let first = stage.spawn_observed_call("fake", "input", none(), &bob);
    // Lists pass, and calls whose callers can't answer wait like the others, half of their time at most.
    stage.host.tools(&stage.me, "fake").await.unwrap();
    let request = ostler_host::Request::tool_call(&stage.me, "text", json!({"text": "t"}).into()).unwrap();
    let began = tokio::time::Instant::now();
    let late = stage.host.send_to("fake", request.with_timeout(Duration::from_secs(4))).await;
    assert_eq!(late.unwrap().text(), "t");
    assert!(began.elapsed() >= Duration::from_secs(2), "it waited for its turn");
    assert_eq!(bob.open_requests(), 0, "it waits for its turn");
    assert_eq!(stage.lines("ledger").iter().filter(|line| line.contains("input")).count(), 1);
    holder.abort();
    let question = bob.next_request().await;
    for _ in 0..3 {
        assert_eq!(stage.text("fake", "text", json!({"text": "t"})).await, "t", "nobody is there now");
    }

    // While one person decides, another call has its turn.
    let second = stage.spawn_observed_call("fake", "input", none(), &ann);
    let other = ann.next_request().await;
    question.answer(yes(r#"{"first":1}"#));
    assert_eq!(answers_seen_by_server(first.await.unwrap())["result"]["first"], 1);
    other.answer(yes(r#"{"second":2}"#));
    assert_eq!(answers_seen_by_server(second.await.unwrap())["result"]["second"], 2);
    stage.close().await;
}

#[tokio::test]
async fn a_turn_that_does_not_come_in_time_is_gone_without_and_one_given_up_passes_on() {
    let stage = legacy(&["--ledger", "/dev/null"]).await;
    let voices = [(); 4].map(|()| RecordingObserver::answering(ELICIT));
    // Two at once, so that they take turns.
    let confusing = stage.spawn_observed_call("fake", "hang", none(), &voices[0]);
    stage.until("fake", "has the first call", |status| status.in_flight == 1).await;
    let refused = stage.spawn_observed_call("fake", "input", none(), &voices[1]).await.unwrap();
    assert_eq!(answers_seen_by_server(refused)["error"]["code"], -31005);
    confusing.abort();
    let _ = confusing.await;

    let holder = stage.spawn_observed_call("fake", "hang", none(), &voices[1]);
    stage.until("fake", "has the one whose turn it is", |status| status.in_flight == 1).await;
    let request = ostler_host::Request::tool_call(&stage.me, "input", none().into()).unwrap();
    let late = stage
        .host
        .send_to("fake", request.with_call_observer(voices[2].clone()).with_timeout(Duration::from_secs(4)))
        .await;
    assert_eq!(answers_seen_by_server(late)["error"]["code"], -31005, "the question may be the other call's");
    assert_eq!(voices[2].open_requests(), 0);
    let waiting = stage.spawn_observed_call("fake", "input", none(), &voices[2]);
    let next = stage.spawn_observed_call("fake", "input", none(), &voices[3]);
    waiting.abort();
    let _ = waiting.await;
    holder.abort();
    voices[3].next_request().await.answer(yes("{}"));
    next.await.unwrap().unwrap();
    stage.close().await;
}

#[tokio::test]
async fn the_time_of_a_call_stands_still_while_its_caller_thinks() {
    let stage = ProcessFixture::guarded();
    let mut spec = fake_mcp_spec("fake", &["--era", "legacy"]);
    spec.call_timeout = Duration::from_millis(400);
    spec.max_call_time = Duration::from_secs(60);
    stage.spawn(spec).await;
    let ann = RecordingObserver::answering(ELICIT);
    let call = stage.spawn_observed_call("fake", "input", none(), &ann);
    let question = ann.next_request().await;
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    question.answer(yes("{}"));
    assert_eq!(answers_seen_by_server(call.await.unwrap())["result"], none());
    stage.close().await;
}

#[tokio::test]
async fn the_hard_end_of_a_call_comes_whether_its_caller_has_answered_or_not() {
    let stage = ProcessFixture::guarded();
    let mut spec = fake_mcp_spec("fake", &["--era", "legacy"]);
    spec.call_timeout = Duration::from_millis(200);
    spec.max_call_time = Duration::from_millis(600);
    stage.spawn(spec).await;
    let ann = RecordingObserver::answering(ELICIT);
    let call = stage.spawn_observed_call("fake", "input", none(), &ann);
    let mut question = ann.next_request().await;
    assert_eq!(call.await.unwrap().unwrap_err().code(), "timed-out");
    question.cancelled().await;
    assert!(!question.answer(yes("{}")));
    assert_eq!(stage.status("fake").consecutive_failures, 0, "it was not the server that was late");
    stage.close().await;
}

#[tokio::test]
async fn a_question_is_withdrawn_when_its_caller_goes_away() {
    let stage = legacy(&[]).await;
    let ann = RecordingObserver::answering(ELICIT);
    let call = stage.spawn_observed_call("fake", "input", none(), &ann);
    let mut question = ann.next_request().await;
    call.abort();
    tokio::time::timeout(LONG, question.cancelled()).await.unwrap();
    assert_eq!(stage.text("fake", "text", json!({"text": "next"})).await, "next");
    stage.close().await;
}

#[tokio::test]
async fn a_question_is_withdrawn_when_its_server_dies() {
    let stage = legacy(&[]).await;
    let ann = RecordingObserver::answering(ELICIT);
    let call = stage.spawn_observed_call("fake", "input", none(), &ann);
    let mut question = ann.next_request().await;
    stage.process("fake").kill();
    tokio::time::timeout(LONG, question.cancelled()).await.unwrap();
    assert_eq!(call.await.unwrap().unwrap_err().code(), "outcome-unknown");
    stage.close().await;
}

#[tokio::test]
async fn a_modern_server_asks_in_its_answer_and_nowhere_else() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &["--era", "modern"]).await;
    let ann = RecordingObserver::answering(ELICIT);
    let call = stage.spawn_observed_call("fake", "ask", json!({ "method": ELICIT }), &ann);
    assert_eq!(answers_seen_by_server(call.await.unwrap())["error"]["code"], -32601);
    let asked = stage.spawn_observed_call("fake", "input", none(), &ann).await.unwrap().unwrap();
    assert_eq!(asked.json::<Value>().unwrap()["resultType"], "input_required");
    assert_eq!(ann.open_requests(), 0);
    stage.close().await;
}

#[tokio::test]
async fn a_legacy_server_is_told_that_its_client_can_be_asked() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &["--era", "legacy", "--frames", &stage.path("frames")]).await;
    let frames = stage.lines("frames");
    let hello = frames.iter().find(|frame| frame.contains("\"initialize\"")).unwrap();
    let hello: Value = serde_json::from_str(hello).unwrap();
    let declared =
        json!({"roots": {"listChanged": true}, "sampling": {}, "elicitation": {"form": {}, "url": {}}});
    assert_eq!(hello["params"]["capabilities"], declared);
    let probe: Value = serde_json::from_str(&frames[0]).unwrap();
    assert_eq!(
        probe["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"],
        none(),
        "the host itself can't"
    );
    stage.close().await;
}

#[tokio::test]
async fn what_a_modern_client_says_of_itself_does_not_reach_a_legacy_server() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &["--era", "legacy", "--frames", &stage.path("frames")]).await;
    let params = json!({"name": "text", "arguments": {"text": "t"}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/logLevel": "info",
        "progressToken": "mine", "own.example/key": [1, 2]}});
    let params = ostler_wire::Params::parse(params.to_string().into()).unwrap();
    let request = ostler_host::Request::new(&stage.me, "tools/call", params).from_modern_client();
    stage.host.send_to("fake", request).await.unwrap();
    eventually("the call is written down", LONG, || frame(&stage, "tools/call").is_some()).await;
    let mut meta = frame(&stage, "tools/call").unwrap()["params"]["_meta"].clone();
    meta.as_object_mut().unwrap().remove("dev.ostler/idempotencyKey").unwrap();
    assert_eq!(meta, json!({"own.example/key": [1, 2]}));
    stage.close().await;
}

fn frame(stage: &ProcessFixture, method: &str) -> Option<Value> {
    let frames = stage.lines("frames");
    let mut read = frames.iter().filter_map(|frame| serde_json::from_str::<Value>(frame).ok());
    read.find(|frame| frame["method"] == method)
}
