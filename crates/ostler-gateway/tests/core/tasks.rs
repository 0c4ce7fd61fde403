//! Tasks of servers whose ids collide.

use ostler_gateway::{Face, Gateway};
use ostler_testkit::{Reply, Script, World};
use serde_json::{Value, json};

use crate::client::{Client, gateway, one};

/// A modern server whose tool `t` answers with the task `1`.
fn script() -> Script {
    let task = |status: &str| format!(r#"{{"resultType":"task","taskId":"1","status":"{status}"}}"#);
    let (made, seen) = (task("working"), task("completed"));
    Script::new()
        .modern()
        .tool_that("t", Reply::result(made))
        .on("tasks/get", move |_| Reply::result(seen.clone()))
        .on("tasks/cancel", |_| Reply::result("{}"))
}

async fn world() -> (World, Gateway) {
    let world = World::new().server("a", script()).server("b", script()).open().await;
    let gateway = gateway(&world, |_| {});
    (world, gateway)
}

fn client(gateway: &Gateway, face: Face) -> Client {
    Client::modern(gateway, face, json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}))
}

fn id_of(answer: &Value) -> String {
    answer["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[tokio::test(start_paused = true)]
async fn equal_task_ids_of_two_servers_stay_apart() {
    let (world, gateway) = world().await;
    let mut client = client(&gateway, Face::All);
    let a = id_of(&client.call("a__t", json!({})).await);
    let b = id_of(&client.call("b__t", json!({})).await);
    assert_ne!(a, b);
    let got = client.ask("tasks/get", json!({"taskId": b})).await;
    assert_eq!(got["result"]["status"], "completed", "{got}");
    assert_eq!(id_of(&got), b, "the id stays the one that the client knows");
    assert_eq!((world.stage("a").count("tasks/get"), world.stage("b").count("tasks/get")), (0, 1));
    let params: Value = serde_json::from_str(&world.stage("b").asked_for("tasks/get")[0].params).unwrap();
    assert_eq!(params["taskId"], "1", "the server reads its own id");
    client.ask("tasks/cancel", json!({"taskId": a})).await;
    assert_eq!((world.stage("a").count("tasks/cancel"), world.stage("b").count("tasks/cancel")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_task_is_its_callers_alone() {
    let (world, gateway) = world().await;
    let a = id_of(&client(&gateway, Face::All).call("a__t", json!({})).await);
    let mut stranger = Client::of_somebody_else(&gateway, Face::All, json!({}));
    let refused = stranger.ask("tasks/get", json!({"taskId": a})).await;
    let unknown = stranger.ask("tasks/get", json!({"taskId": "1"})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(refused["error"], unknown["error"], "it looks like a task that never was");
    assert_eq!(world.stage("a").count("tasks/get"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_is_not_found_at_the_endpoint_of_another_server() {
    let (world, gateway) = world().await;
    let a = id_of(&client(&gateway, Face::All).call("a__t", json!({})).await);
    let refused = client(&gateway, one("b")).ask("tasks/get", json!({"taskId": a})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let got = client(&gateway, one("a")).ask("tasks/get", json!({"taskId": a})).await;
    assert_eq!(got["result"]["status"], "completed", "{got}");
    assert_eq!((world.stage("a").count("tasks/get"), world.stage("b").count("tasks/get")), (1, 0));
}
