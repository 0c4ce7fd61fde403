//! Completions: the reference decides the server.

use ostler_gateway::{Gateway, Scope};
use ostler_testkit::{Script, ScriptedReply, TestHost};
use serde_json::{Value, json};

use crate::client::{Client, gateway, server_scope};

fn script(prompt: &str, template: &str) -> Script {
    let prompts = json!({"prompts": [{"name": prompt}]}).to_string();
    let templates = json!({"resourceTemplates": [{"name": "t", "uriTemplate": template}]}).to_string();
    Script::new()
        .capabilities(r#"{"prompts":{},"resources":{},"completions":{}}"#)
        .on("prompts/list", move |_| ScriptedReply::result(prompts.clone()))
        .on("resources/list", |_| ScriptedReply::result(r#"{"resources":[]}"#))
        .on("resources/templates/list", move |_| ScriptedReply::result(templates.clone()))
        .on("completion/complete", |_| ScriptedReply::result(r#"{"completion":{"values":["x"]}}"#))
}

async fn world() -> (TestHost, Gateway) {
    let world = TestHost::new()
        .server("a", script("p", "a://{id}"))
        .server("b", script("p", "b://{id}"))
        .start()
        .await;
    let gateway = gateway(&world, |_| {});
    (world, gateway)
}

async fn complete(client: &mut Client, reference: Value) -> Value {
    let argument = json!({"name": "id", "value": "1"});
    client.request("completion/complete", json!({"ref": reference, "argument": argument, "later": [1]})).await
}

fn completion_requests(world: &TestHost, server: &str) -> Vec<Value> {
    let asked = world.server(server).requests_for("completion/complete");
    asked.iter().map(|asked| serde_json::from_str(&asked.params).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_prompt_is_completed_by_its_server_under_its_own_name() {
    let (world, gateway) = world().await;
    let mut client = Client::modern(&gateway, Scope::All, json!({}));
    let answer = complete(&mut client, json!({"type": "ref/prompt", "name": "b__p", "title": "t"})).await;
    assert_eq!(answer["result"]["completion"]["values"], json!(["x"]), "{answer}");
    let there = &completion_requests(&world, "b")[0];
    assert_eq!(there["ref"], json!({"type": "ref/prompt", "name": "p", "title": "t"}));
    assert_eq!((&there["argument"]["value"], &there["later"]), (&json!("1"), &json!([1])));
    assert!(completion_requests(&world, "a").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_template_is_completed_by_its_server() {
    let (world, gateway) = world().await;
    let mut client = Client::legacy(&gateway, Scope::All, json!({})).await;
    // The templates of the servers are not known before they are requested.
    let answer = complete(&mut client, json!({"type": "ref/resource", "uri": "b://{id}"})).await;
    assert_eq!(answer["result"]["completion"]["values"], json!(["x"]), "{answer}");
    assert_eq!(completion_requests(&world, "b")[0]["ref"]["uri"], "b://{id}");
    assert!(completion_requests(&world, "a").is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_server_completes_under_its_own_names() {
    let (world, gateway) = world().await;
    let mut client = Client::modern(&gateway, server_scope("a"), json!({}));
    let answer = complete(&mut client, json!({"type": "ref/prompt", "name": "p"})).await;
    assert!(answer.get("result").is_some(), "{answer}");
    assert_eq!(completion_requests(&world, "a").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_has_is_not_completed() {
    let (world, gateway) = world().await;
    let mut client = Client::modern(&gateway, Scope::All, json!({}));
    for reference in [
        json!({"type": "ref/prompt", "name": "c__p"}),
        json!({"type": "ref/resource", "uri": "nobody://{id}"}),
        json!({"type": "ref/resource"}),
    ] {
        let refused = complete(&mut client, reference).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    assert!(completion_requests(&world, "a").is_empty() && completion_requests(&world, "b").is_empty());
}
