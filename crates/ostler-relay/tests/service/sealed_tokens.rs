//! Task ids and request states of one worker, used by another.

use ostler_testkit::{Script, ScriptedReply};
use serde_json::{Value, json};

use crate::harness::{ManualWorker, ServiceHarness, meta, test_host, tool_call};

/// Returns a modern server: `t` answers with the task `1`, `ask` requires input with the state `s`.
fn script() -> Script {
    let task = r#"{"resultType":"task","taskId":"1","status":"working"}"#;
    Script::new()
        .modern()
        .tool_replying("t", ScriptedReply::result(task))
        .tool("other")
        .tool("ask")
        .on("ask", |input_required| {
            let params: Value = serde_json::from_str(&input_required.params).unwrap();
            match params.get("requestState") {
                None => ScriptedReply::result(
                    r#"{"resultType":"input_required","inputRequests":{},"requestState":"s"}"#,
                ),
                Some(_) => ScriptedReply::text("done"),
            }
        })
        .on("tasks/list", |_| ScriptedReply::result(r#"{"tasks":[{"taskId":"1"}]}"#))
        .on("tasks/get", move |_| ScriptedReply::result(task))
        .on("tasks/result", |_| ScriptedReply::result(r#"{"content":[]}"#))
        .on("tasks/update", |_| ScriptedReply::result("{}"))
        .on("tasks/cancel", |_| ScriptedReply::result("{}"))
}

async fn harness() -> ServiceHarness {
    ServiceHarness::open(test_host().server("a", script()).start().await).await
}

async fn ask(peer: &mut ManualWorker, call: u8, method: &str, mut params: Value) -> Value {
    params["_meta"] = meta();
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string();
    peer.send(peer.head(call), body).await;
    peer.next_answer().await.1
}

async fn call(peer: &mut ManualWorker, number: u8, tool: &str) -> Value {
    peer.send(peer.head(number), tool_call(tool, json!({}))).await;
    peer.next_answer().await.1
}

#[tokio::test(start_paused = true)]
async fn a_worker_reaches_no_task_of_another() {
    let harness = harness().await;
    let (mut owner, mut stranger) = (harness.worker("w1").await, harness.worker("w2").await);
    let made = call(&mut owner, 1, "t").await;
    let id = made["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    assert_ne!(id, "1", "the server's own id stays at the host");

    let listed = ask(&mut stranger, 2, "tasks/list", json!({})).await;
    assert_eq!(listed["error"]["code"], -32601, "{listed}");
    let mut number = 3;
    for method in ["tasks/get", "tasks/result", "tasks/update", "tasks/cancel"] {
        for task in [json!(id), json!("1"), json!(1), json!(["1"]), json!("o1.AAAA")] {
            let refused = ask(&mut stranger, number, method, json!({"taskId": task})).await;
            number += 1;
            let reached = harness.test_host.server("a").requests_for(method);
            let is_it = |params: &str| serde_json::from_str::<Value>(params).unwrap()["taskId"] == "1";
            assert!(
                !reached.iter().any(|input_required| is_it(&input_required.params)),
                "{method} {task}: {refused}"
            );
        }
    }
    let got = ask(&mut owner, number, "tasks/get", json!({"taskId": id})).await;
    assert_eq!(
        (&got["result"]["taskId"], &got["result"]["status"]),
        (&json!(id), &json!("working")),
        "{got}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_state_is_good_once_for_its_worker_and_its_request() {
    let harness = harness().await;
    let (mut owner, mut stranger) = (harness.worker("w1").await, harness.worker("w2").await);
    let input_required = call(&mut owner, 1, "ask").await;
    let state = input_required["result"]["requestState"].clone();
    assert_ne!(state, "s", "the server's own state stays at the host");
    let request = |tool: &str, arguments: Value, state: &Value| json!({"name": tool, "arguments": arguments, "inputResponses": {}, "requestState": state});
    let wrong = [
        (request("ask", json!({}), &json!("s")), "forged"),
        (request("ask", json!({"x": 1}), &state), "other arguments"),
        (request("other", json!({}), &state), "another tool"),
    ];
    for (number, (params, what)) in (2..).zip(wrong) {
        let refused = ask(&mut owner, number, "tools/call", params).await;
        assert_eq!(refused["error"]["code"], -32602, "{what}: {refused}");
    }
    let refused = ask(&mut stranger, 5, "tools/call", request("ask", json!({}), &state)).await;
    assert_eq!(refused["error"]["code"], -32602, "another worker: {refused}");
    let done = ask(&mut owner, 6, "tools/call", request("ask", json!({}), &state)).await;
    assert_eq!(done["result"]["content"][0]["text"], "done", "{done}");
    let again = ask(&mut owner, 7, "tools/call", request("ask", json!({}), &state)).await;
    assert_eq!(again["error"]["code"], -32602, "a second use: {again}");
    assert_eq!(harness.test_host.server("a").count("ask"), 2);
}
