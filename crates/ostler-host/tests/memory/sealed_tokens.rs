//! Sealed tokens: task ids and request states of library callers.

use std::collections::BTreeMap;

use ostler_core::error::CallError;
use ostler_core::spec::{CacheRule, EndpointSpec, Isolation, RetryRule, ServerTransport, ToolRules};
use ostler_host::{Answer, Caller, Request, Verdict};
use ostler_testkit::{Result, Script, ScriptedReply, TestHost};
use ostler_wire::Params;
use serde_json::{Value, json};

use crate::secs;

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A modern server: `t` answers with the task `1`, `ask` with a question whose state is `s`.
fn script() -> Script {
    let task = r#"{"resultType":"task","taskId":"1","status":"working"}"#;
    let asks = |asked: &ostler_testkit::ReceivedRequest| match asked.params.contains("\"requestState\"") {
        false => {
            ScriptedReply::result(r#"{"resultType":"input_required","inputRequests":{},"requestState":"s"}"#)
        }
        true => ScriptedReply::text("done"),
    };
    Script::new()
        .modern()
        .capabilities(r#"{"tools":{},"resources":{}}"#)
        .tool("echo")
        .tool_replying("t", ScriptedReply::result(task))
        .tool("ask")
        .on("ask", asks)
        .on("resources/read", asks)
        .on("tasks/get", move |_| ScriptedReply::result(task))
        .on("tasks/list", |_| ScriptedReply::result(r#"{"tasks":[{"taskId":"1"}]}"#))
}

/// A legacy server whose tool `t` answers with the task `1`.
fn legacy() -> Script {
    Script::new().tool_replying("t", ScriptedReply::result(r#"{"task":{"taskId":"1","status":"working"}}"#))
}

async fn send(world: &TestHost, caller: &Caller, method: &str, params: Value) -> Result {
    let params = Params::parse(params.to_string().into()).unwrap();
    world.host.send_to("a", Request::new(caller, method, params)).await
}

fn json_of(answer: &Answer) -> Value {
    answer.json().unwrap()
}

fn is_refused(result: &Result, why: &str) {
    let error = result.as_ref().unwrap_err();
    assert!(matches!(error, CallError::Invalid { what, .. } if what.contains(why)), "{error:?}");
}

fn callers() -> (Caller, Caller) {
    (Caller::new("ada", "local"), Caller::new("bob", "local"))
}

/// Returns the state that a request is answered with.
async fn state(world: &TestHost, caller: &Caller, method: &str, params: Value) -> Value {
    let asked = send(world, caller, method, params).await.unwrap();
    json_of(&asked)["requestState"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_task_is_its_callers_alone() {
    let world = TestHost::new().server("a", script()).start().await;
    let (ada, bob) = callers();
    let made = json_of(&send(&world, &ada, "tools/call", json!({"name": "t"})).await.unwrap());
    let id = made["taskId"].as_str().unwrap();
    assert_eq!(world.host.task_server(&ada, id).unwrap().as_str(), "a");
    assert!(world.host.task_server(&bob, id).is_err());
    is_refused(&send(&world, &bob, "tasks/get", json!({"taskId": id})).await, "unknown task");
    let got = json_of(&send(&world, &ada, "tasks/get", json!({"taskId": id})).await.unwrap());
    assert_eq!(got["taskId"], id);
    assert_eq!(world.server("a").count("tasks/get"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_belongs_to_no_task_of_another_caller() {
    let world = TestHost::new().server("a", script()).start().await;
    let (ada, bob) = callers();
    let made = json_of(&send(&world, &ada, "tools/call", json!({"name": "t"})).await.unwrap());
    let within = |id: &Value| json!({"name": "echo", "_meta": {RELATED: {"taskId": id}}});
    for id in [&made["taskId"], &json!("1"), &json!(1)] {
        is_refused(&send(&world, &bob, "tools/call", within(id)).await, "unknown task");
    }
    send(&world, &ada, "tools/call", within(&made["taskId"])).await.unwrap();
    let sent = world.server("a").requests_for("echo");
    assert_eq!(sent.len(), 1);
    let sent: Value = serde_json::from_str(&sent[0].params).unwrap();
    assert_eq!(sent["_meta"][RELATED]["taskId"], "1");
}

#[tokio::test(start_paused = true)]
async fn tasks_are_listed_only_by_a_process_of_the_callers_own() {
    let endpoint = EndpointSpec { url: "http://127.0.0.1:1/mcp".into(), headers: BTreeMap::new() };
    for (isolation, transport, is_listed) in [
        (Isolation::Shared, None, false),
        (Isolation::Caller, None, true),
        (Isolation::Caller, Some(ServerTransport::Http(endpoint)), false),
    ] {
        let world = TestHost::new().server_with("a", script(), |spec| {
            spec.isolation = isolation;
            spec.transport = transport.unwrap_or_else(|| spec.transport.clone());
        });
        let world = world.start().await;
        match send(&world, &callers().0, "tasks/list", json!({})).await {
            Ok(listed) => assert_ne!(json_of(&listed)["tasks"][0]["taskId"], "1"),
            Err(error) => assert!(matches!(error, CallError::UnknownMethod { .. }), "{error:?}"),
        }
        assert_eq!(world.server("a").count("tasks/list"), usize::from(is_listed), "{isolation:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_is_never_answered_from_memory() {
    let world = TestHost::new().server_with("a", legacy(), |spec| {
        let rules = ToolRules { cache: CacheRule::For(secs(60)), ..ToolRules::default() };
        spec.tool = [("t".into(), rules)].into();
    });
    let world = world.start().await;
    let (ada, _) = callers();
    for nth in 1..=2 {
        let made = json_of(&send(&world, &ada, "tools/call", json!({"name": "t"})).await.unwrap());
        assert!(made["task"]["taskId"].as_str().unwrap().starts_with("o1."), "{made}");
        assert_eq!(world.server("a").count("t"), nth);
    }
}

#[tokio::test(start_paused = true)]
async fn of_many_uses_of_a_request_state_at_once_one_wins() {
    let world = TestHost::new().server("a", script()).start().await;
    let (ada, _) = callers();
    let state = state(&world, &ada, "tools/call", json!({"name": "ask"})).await;
    let params = json!({"name": "ask", "inputResponses": {}, "requestState": state});
    let mut uses = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (host, ada, params) = (world.host.clone(), ada.clone(), params.to_string());
        uses.spawn(async move {
            let params = Params::parse(params.into()).unwrap();
            host.send_to("a", Request::new(&ada, "tools/call", params)).await
        });
    }
    let results = uses.join_all().await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    results.iter().filter(|result| result.is_err()).for_each(|result| is_refused(result, "used before"));
    assert_eq!(world.server("a").count("ask"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_use_whose_outcome_is_unknown_is_neither_repeated_nor_allowed_again() {
    let script = script().on("ask", |asked| match asked.params.contains("\"requestState\"") {
        false => ScriptedReply::result(r#"{"resultType":"input_required","requestState":"s"}"#),
        true => ScriptedReply::crash(),
    });
    let safe = ToolRules { retry: RetryRule::Safe, ..ToolRules::default() };
    let world = TestHost::new().server_with("a", script, |spec| spec.tool = [("ask".into(), safe)].into());
    let world = world.start().await;
    let (ada, _) = callers();
    let state = state(&world, &ada, "tools/call", json!({"name": "ask"})).await;
    let params = json!({"name": "ask", "inputResponses": {}, "requestState": state});
    let lost = send(&world, &ada, "tools/call", params.clone()).await.unwrap_err();
    assert_eq!(lost.code(), "outcome-unknown");
    world.advance(secs(60)).await;
    is_refused(&send(&world, &ada, "tools/call", params).await, "used before");
    assert_eq!(world.server("a").count("ask"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_before_the_server_is_asked_leaves_a_request_state_open() {
    let world = TestHost::new().server("a", script()).start().await;
    let (ada, bob) = callers();
    let state = state(&world, &ada, "tools/call", json!({"name": "ask"})).await;
    let params = |tool: &str| json!({"name": tool, "inputResponses": {}, "requestState": state});
    is_refused(&send(&world, &bob, "tools/call", params("ask")).await, "not given");
    is_refused(&send(&world, &ada, "tools/call", params("echo")).await, "not given");
    world.host.set_policy_hook(Some(Box::new(|_, _, tool| match tool {
        Some("ask") => Verdict::Deny { reason: "for now".into() },
        _ => Verdict::Allow,
    })));
    assert!(send(&world, &ada, "tools/call", params("ask")).await.is_err());
    world.host.set_policy_hook(None);
    send(&world, &ada, "tools/call", params("ask")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn readers_at_the_same_time_get_a_request_state_each_from_the_server() {
    let world = TestHost::new().server("a", script()).start().await;
    let (ada, _) = callers();
    let read = || state(&world, &ada, "resources/read", json!({"uri": "r://1"}));
    let (first, second) = tokio::join!(read(), read());
    assert_ne!(first, second);
    // One coalesced request, and one for each reader: no request state is given to two readers.
    assert_eq!(world.server("a").count("resources/read"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_request_state_of_another_host_with_the_same_key_is_refused() {
    let open =
        || TestHost::new().server("a", script()).options(|options| options.seal_key = Some([7; 32])).start();
    let (before, after) = (open().await, open().await);
    let (ada, _) = callers();
    let state = state(&before, &ada, "tools/call", json!({"name": "ask"})).await;
    let params = json!({"name": "ask", "inputResponses": {}, "requestState": state});
    is_refused(&send(&after, &ada, "tools/call", params).await, "restarted");
    let made = json_of(&send(&before, &ada, "tools/call", json!({"name": "t"})).await.unwrap());
    send(&after, &ada, "tasks/get", json!({"taskId": made["taskId"]})).await.unwrap();
}
