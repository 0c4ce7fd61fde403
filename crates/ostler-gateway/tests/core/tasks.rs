//! Tasks of servers whose ids collide.

use ostler_gateway::{Gateway, Scope};
use ostler_testkit::{Script, ScriptedReply, TestHost};
use serde_json::{Value, json};

use crate::client::{Client, gateway, server_scope};

/// Returns a modern server whose tool `t` answers with the task `1`.
fn script() -> Script {
    let task = |status: &str| format!(r#"{{"resultType":"task","taskId":"1","status":"{status}"}}"#);
    let (made, seen) = (task("working"), task("completed"));
    Script::new()
        .modern()
        .tool_replying("t", ScriptedReply::result(made))
        .on("tasks/get", move |_| ScriptedReply::result(seen.clone()))
        .on("tasks/cancel", |_| ScriptedReply::result("{}"))
}

async fn world() -> (TestHost, Gateway) {
    let world = TestHost::new().server("a", script()).server("b", script()).start().await;
    let gateway = gateway(&world, |_| {});
    (world, gateway)
}

fn client(gateway: &Gateway, face: Scope) -> Client {
    Client::modern(gateway, face, json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}))
}

fn id_of(answer: &Value) -> String {
    answer["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[tokio::test(start_paused = true)]
async fn equal_task_ids_of_two_servers_stay_apart() {
    let (world, gateway) = world().await;
    let mut client = client(&gateway, Scope::All);
    let a = id_of(&client.call("a__t", json!({})).await);
    let b = id_of(&client.call("b__t", json!({})).await);
    assert_ne!(a, b);
    let got = client.request("tasks/get", json!({"taskId": b})).await;
    assert_eq!(got["result"]["status"], "completed", "{got}");
    assert_eq!(id_of(&got), b, "the id stays the one that the client knows");
    assert_eq!((world.server("a").count("tasks/get"), world.server("b").count("tasks/get")), (0, 1));
    let params: Value = serde_json::from_str(&world.server("b").requests_for("tasks/get")[0].params).unwrap();
    assert_eq!(params["taskId"], "1", "the server reads its own id");
    client.request("tasks/cancel", json!({"taskId": a})).await;
    assert_eq!((world.server("a").count("tasks/cancel"), world.server("b").count("tasks/cancel")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_task_is_its_callers_alone() {
    let (world, gateway) = world().await;
    let a = id_of(&client(&gateway, Scope::All).call("a__t", json!({})).await);
    let mut stranger = Client::as_stranger(&gateway, Scope::All, json!({}));
    let refused = stranger.request("tasks/get", json!({"taskId": a})).await;
    let unknown = stranger.request("tasks/get", json!({"taskId": "1"})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(refused["error"], unknown["error"], "it looks like a task that never was");
    let mut stranger = Client::as_stranger(&gateway, server_scope("a"), json!({}));
    for id in [json!(1), json!(["1"])] {
        let refused = stranger.request("tasks/get", json!({"taskId": id})).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    assert_eq!(world.server("a").count("tasks/get"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_is_not_found_at_the_endpoint_of_another_server() {
    let (world, gateway) = world().await;
    let a = id_of(&client(&gateway, Scope::All).call("a__t", json!({})).await);
    let refused = client(&gateway, server_scope("b")).request("tasks/get", json!({"taskId": a})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let got = client(&gateway, server_scope("a")).request("tasks/get", json!({"taskId": a})).await;
    assert_eq!(got["result"]["status"], "completed", "{got}");
    assert_eq!((world.server("a").count("tasks/get"), world.server("b").count("tasks/get")), (1, 0));
}

/// Returns a legacy server with tasks; these differ from modern ones.
fn legacy_script() -> Script {
    let meta = r#"{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"1"}}}"#;
    Script::new()
        .capabilities(r#"{"tools":{},"tasks":{"list":{},"cancel":{}}}"#)
        .tool_replying("t", ScriptedReply::result(r#"{"task":{"taskId":"1","status":"working"}}"#))
        .on("tasks/get", |_| ScriptedReply::result(r#"{"taskId":"1","status":"completed"}"#))
        .on("tasks/result", move |_| ScriptedReply::result(meta))
        .on("tasks/list", |_| ScriptedReply::result(r#"{"tasks":[{"taskId":"1"},{"taskId":"2"}]}"#))
}

#[tokio::test(start_paused = true)]
async fn a_task_of_a_legacy_client_is_its_callers_alone() {
    let world = TestHost::new().server("a", legacy_script()).start().await;
    let gateway = gateway(&world, |_| {});
    let mut mine = Client::legacy(&gateway, server_scope("a"), json!({})).await;
    let made = mine.call("t", json!({})).await;
    let id = made["result"]["task"]["taskId"].as_str().unwrap().to_owned();
    assert!(id.starts_with("o1."), "{made}");
    let got = mine.request("tasks/get", json!({"taskId": id})).await;
    assert_eq!((&got["result"]["taskId"], &got["result"]["status"]), (&json!(id), &json!("completed")));
    let result = mine.request("tasks/result", json!({"taskId": id})).await;
    let related = &result["result"]["_meta"]["io.modelcontextprotocol/related-task"]["taskId"];
    assert_eq!(*related, json!(id), "{result}");
    let asked = world.server("a").requests_for("tasks/get");
    assert!(asked.iter().all(|asked| asked.params.contains("\"taskId\":\"1\"")), "{asked:?}");

    let stranger = ostler_host::Caller::new("stranger", "local");
    let mut stranger =
        Client::for_caller(stranger, &gateway, server_scope("a"), ostler_wire::Era::Legacy).await;
    for foreign in [id.as_str(), "o1.none"] {
        let refused = stranger.request("tasks/get", json!({"taskId": foreign})).await;
        assert_eq!(refused["error"]["message"], "invalid argument: unknown task", "{refused}");
    }
    stranger.request("tasks/get", json!({"taskId": "1"})).await;
    let last = world.server("a").requests_for("tasks/get").pop().unwrap();
    assert!(last.params.contains("unknown to ostler: 1"), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_of_tasks_is_shown_only_where_they_are_all_the_callers() {
    let alone = |spec: &mut ostler_host::ServerSpec| spec.isolation = ostler_core::spec::Isolation::Caller;
    let world =
        TestHost::new().server("a", legacy_script()).server_with("b", legacy_script(), alone).start().await;
    let gateway = gateway(&world, |_| {});
    let mut shared = Client::legacy(&gateway, server_scope("a"), json!({})).await;
    assert_eq!(shared.request("tasks/list", json!({})).await["error"]["code"], -32601);
    let mut own = Client::legacy(&gateway, server_scope("b"), json!({})).await;
    let listed = own.request("tasks/list", json!({})).await;
    let tasks = listed["result"]["tasks"].as_array().unwrap_or_else(|| panic!("{listed}"));
    assert_eq!(tasks.len(), 2);
    let id = tasks[0]["taskId"].as_str().unwrap();
    let got = own.request("tasks/get", json!({"taskId": id})).await;
    assert_eq!(got["result"]["taskId"], id, "{got}");
}
