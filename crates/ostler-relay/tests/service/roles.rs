//! Roles: the subject identifies the worker, and the host's rules say what it may use.

use std::sync::{Arc, Mutex};

use ostler_relay::Manifest;
use ostler_relay::broker::BrokerMessage;
use ostler_relay::envelope::{CallHead, Control};
use ostler_relay::subject::WorkerInbox;
use ostler_testkit::{Script, ScriptedReply, TestHost};
use serde_json::{Value, json};

use crate::harness::{ServiceHarness, call_id, code, meta, name, rules, text, tool_call};
use crate::ms;

async fn two_servers() -> TestHost {
    let script = || Script::echo().tool("secret").tool("plan");
    TestHost::new()
        .options(|options| {
            options.rules = rules(&[("dev", &["a/echo", "a/plan", "b/plan"]), ("all", &["*"])])
        })
        .server("a", script())
        .server("b", script())
        .start()
        .await
}

fn manifest(answer: &Value) -> Manifest {
    serde_json::from_value(answer["result"].clone()).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

fn tools(manifest: &Manifest) -> Vec<(String, Vec<String>)> {
    let name = |tool: &serde_json::value::RawValue| {
        serde_json::from_str::<Value>(tool.get()).unwrap()["name"].as_str().unwrap().to_owned()
    };
    let tools = |listed: &ostler_relay::ManifestServer| listed.tools.iter().map(|tool| name(tool)).collect();
    manifest.servers.iter().map(|listed| (listed.name.clone(), tools(listed))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_manifest_holds_exactly_what_the_role_may_use() {
    let harness = ServiceHarness::open(two_servers().await).await;
    let mut worker = harness.worker("w1").await;
    worker.ask_manifest(1).await;
    let (call, answer) = worker.next_answer().await;
    let manifest = manifest(&answer);
    let expected = [
        ("a".to_owned(), vec!["echo".to_owned(), "plan".to_owned()]),
        ("b".to_owned(), vec!["plan".to_owned()]),
    ];
    assert_eq!((call, tools(&manifest)), (1, expected.to_vec()));
    assert_eq!((&*manifest.host, manifest.time), ("h1", harness.clock.now()));
    assert_eq!((manifest.servers[0].call_timeout, manifest.servers[0].max_call_time), (60_000, 600_000));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_role_gets_nothing_and_the_servers_are_not_touched() {
    let harness = ServiceHarness::open(two_servers().await).await;
    let mut worker = harness.worker_as("w1", "nobody", 1).await;
    worker.ask_manifest(1).await;
    let (_, answer) = worker.next_answer().await;
    assert_eq!(code(&answer), "invalid-argument");
    assert!(answer["error"]["message"].as_str().unwrap().contains("no role `nobody`"), "{answer}");
    worker.call(2, "a", "echo").await;
    assert_eq!(code(&worker.next_answer().await.1), "unknown-server");
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#.to_owned();
    worker.send(worker.head(3), body).await;
    assert_eq!(code(&worker.next_answer().await.1), "unknown-server");
    assert!(worker.is_silent().await, "nothing was accepted");
    assert_eq!((harness.test_host.server("a").connects(), harness.test_host.server("b").connects()), (0, 0));
    assert_eq!(harness.service.status().refused, 3);
}

#[tokio::test(start_paused = true)]
async fn a_hidden_tool_is_refused_exactly_like_one_that_does_not_exist() {
    let harness = ServiceHarness::open(two_servers().await).await;
    let mut worker = harness.worker("w1").await;
    let mut announced = Vec::new();
    for (number, tool) in [(1, "secret"), (2, "sekret")] {
        worker.call(number, "a", tool).await;
        assert_eq!(worker.next_accepted().await, number);
        announced.push(worker.next_answer().await.1.to_string().replace("sekret", "secret"));
    }
    assert_eq!(announced[0], announced[1]);
    assert!(announced[0].contains("unknown-tool"), "{}", announced[0]);
    assert_eq!(harness.test_host.server("a").count("secret"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_role_or_worker_in_the_body_means_nothing() {
    let harness = ServiceHarness::open(two_servers().await).await;
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = Arc::clone(&seen);
    let recorder = move |record: &ostler_host::RequestRecord<'_>| {
        sink.lock().unwrap().push(format!("{} {} {}", record.principal, record.role, record.outcome));
    };
    harness.test_host.host.set_recorder(Some(Arc::new(recorder)));
    let mut worker = harness.worker("w1").await;
    let mut meta = meta();
    meta["role"] = json!("all");
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "role": "all", "worker": "w2",
        "params": {"name": "secret", "role": "all", "_meta": meta}});
    worker.send(worker.head(1), body.to_string()).await;
    assert_eq!(code(&worker.next_answer().await.1), "unknown-tool");
    assert_eq!(*seen.lock().unwrap(), ["worker:w1 dev unknown-tool"]);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_no_request_for_one_thing_is_refused() {
    let harness = ServiceHarness::open(two_servers().await).await;
    let mut worker = harness.worker_as("w1", "all", 1).await;
    let bodies = [
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[]}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","uri":"x:1"}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"x:1","name":"x:2"}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"name":"echo"}}"#,
        "what",
    ];
    for (number, body) in (1..).zip(bodies) {
        worker.send(worker.head(number), body.to_owned()).await;
        let (call, answer) = worker.next_answer().await;
        assert_eq!((call, &answer["error"]["code"]), (number, &json!(-32602)), "{body}");
        let id = if body.contains("\"id\":7") { json!(7) } else { Value::Null };
        assert_eq!(answer["id"], id, "{body}");
    }
    assert!(worker.is_silent().await);
    assert!(harness.test_host.server("a").requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_worker_opens_no_session_and_asks_no_notification_of_a_server() {
    let harness = ServiceHarness::open(two_servers().await).await;
    let mut worker = harness.worker_as("w1", "all", 1).await;
    for (number, method) in (1..).zip(["initialize", "notifications/cancelled", "notifications/initialized"])
    {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": {"requestId": 1}});
        worker.send(worker.head(number), body.to_string()).await;
        let (call, answer) = worker.next_answer().await;
        assert_eq!((call, code(&answer)), (number, "unknown-method"), "{answer}");
    }
    assert!(harness.test_host.server("a").requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_read_is_dropped_and_counted_and_the_next_call_is_well() {
    let harness = ServiceHarness::open(two_servers().await).await;
    let mut worker = harness.worker("w1").await;
    let subject = worker.subjects.call(&name("dev"), &name("w1"));
    let body = tool_call("echo", json!({}));
    let no_head = BrokerMessage::new(subject.clone(), Default::default(), body.clone());
    worker.publish(no_head.with_reply_to(worker.inbox.answer_subject(call_id(1)))).await;
    worker.publish(BrokerMessage::new(subject, worker.head(2).headers(), body)).await;
    let malformed = BrokerMessage::new("ostler.acme.control.w1.nothing".into(), Default::default(), "");
    worker.publish(malformed).await;
    assert!(worker.is_silent().await);
    assert_eq!(harness.service.status().refused, 3);
    worker.call(4, "a", "echo").await;
    assert_eq!(text(&worker.next_answer().await.1), "{}");
}

#[tokio::test(start_paused = true)]
async fn a_host_answers_to_the_inbox_of_the_worker_and_nowhere_else() {
    let harness = ServiceHarness::open(two_servers().await).await;
    let mut worker = harness.worker("w1").await;
    let all = harness.worker_as("w1", "all", 1).await;
    let admin = worker.subjects.call(&all.role, &name("w1"));
    let others = WorkerInbox::new(&name("w2"), worker.instance).answer_subject(call_id(1));
    let another = worker.inbox.answer_subject(call_id(9));
    let subject = worker.subjects.call(&name("dev"), &name("w1"));
    let body = tool_call("echo", json!({}));
    let mut spy = worker.link.subscribe(">", None).await.unwrap();
    for reply in [admin, others, another] {
        let headers = worker.head(1).headers();
        let control = worker.subjects.control(&name("w1"), call_id(1));
        let resume = Control::Resume.headers(worker.instance);
        worker
            .publish(BrokerMessage::new(subject.clone(), headers, body.clone()).with_reply_to(reply.clone()))
            .await;
        worker.publish(BrokerMessage::new(control, resume, "").with_reply_to(reply)).await;
    }
    assert!(worker.is_silent().await);
    let mut received = 0;
    while let Ok(Some(message)) = tokio::time::timeout(ms(1), spy.next()).await {
        assert!(message.reply_to.is_some(), "only what the worker said itself: {}", message.subject);
        received += 1;
    }
    assert_eq!((received, harness.service.status().refused), (6, 6));
    assert!(harness.test_host.server("a").requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn lists_are_filtered_and_need_no_claim() {
    let harness = ServiceHarness::open(two_servers().await).await;
    let mut worker = harness.worker("w1").await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#.to_owned();
    for _ in 0..2 {
        worker.send(worker.head(1), body.clone()).await;
        let (_, answer) = worker.next_answer().await;
        let names: Vec<_> =
            answer["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, ["echo", "plan"]);
        assert_eq!(answer["result"]["cacheScope"], "private");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_before_the_walk_is_recorded() {
    let harness = ServiceHarness::open(two_servers().await).await;
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = Arc::clone(&seen);
    let recorder = move |record: &ostler_host::RequestRecord<'_>| {
        let denied = record.denied_by.unwrap_or("-");
        let line =
            format!("{} {}/{} {} {denied}", record.principal, record.server, record.subject, record.outcome);
        sink.lock().unwrap().push(line);
    };
    harness.test_host.host.set_recorder(Some(Arc::new(recorder)));
    let mut worker = harness.worker_as("w1", "nobody", 1).await;
    worker.call(1, "a", "echo").await;
    worker.next_answer().await;
    let mut worker = harness.worker("w2").await;
    let late = CallHead { deadline: 0, ..worker.head(2) };
    worker.send(late, tool_call("echo", json!({}))).await;
    worker.next_answer().await;
    worker
        .send(
            worker.head(3),
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"name":"echo"}}"#.into(),
        )
        .await;
    worker.next_answer().await;
    let seen = seen.lock().unwrap().clone();
    assert!(seen[0].starts_with("worker:w1 a/ unknown-server role `nobody`"), "{seen:?}");
    assert_eq!(seen[1], "worker:w2 a/echo timed-out -");
    assert_eq!(seen[2], "worker:w2 a/ invalid-argument -");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_is_listed_with_the_reason() {
    let test_host = TestHost::new()
        .options(|options| options.rules = rules(&[("dev", &["*"])]))
        .server("a", Script::echo())
        .server("b", Script::echo().on("tools/list", |_| ScriptedReply::error(-1, "broken")))
        .start()
        .await;
    let harness = ServiceHarness::open(test_host).await;
    let mut worker = harness.worker("w1").await;
    worker.ask_manifest(1).await;
    let manifest = manifest(&worker.next_answer().await.1);
    assert_eq!(tools(&manifest).len(), 2);
    assert!(manifest.servers[0].error.is_none());
    let error = manifest.servers[1].error.as_ref().map(|error| error.get().to_owned()).unwrap_or_default();
    assert!(error.contains("broken"), "{error}");
}
