//! Completions: what they are for says whose they are.

use ostler_gateway::{Gateway, Scope};
use ostler_testkit::{Reply, Script, World};
use serde_json::{Value, json};

use crate::client::{Client, gateway, one};

fn script(prompt: &str, template: &str) -> Script {
    let prompts = json!({"prompts": [{"name": prompt}]}).to_string();
    let templates = json!({"resourceTemplates": [{"name": "t", "uriTemplate": template}]}).to_string();
    Script::new()
        .capabilities(r#"{"prompts":{},"resources":{},"completions":{}}"#)
        .on("prompts/list", move |_| Reply::result(prompts.clone()))
        .on("resources/list", |_| Reply::result(r#"{"resources":[]}"#))
        .on("resources/templates/list", move |_| Reply::result(templates.clone()))
        .on("completion/complete", |_| Reply::result(r#"{"completion":{"values":["x"]}}"#))
}

async fn world() -> (World, Gateway) {
    let world =
        World::new().server("a", script("p", "a://{id}")).server("b", script("p", "b://{id}")).open().await;
    let gateway = gateway(&world, |_| {});
    (world, gateway)
}

async fn complete(client: &mut Client, reference: Value) -> Value {
    let argument = json!({"name": "id", "value": "1"});
    client.ask("completion/complete", json!({"ref": reference, "argument": argument, "later": [1]})).await
}

fn asked(world: &World, server: &str) -> Vec<Value> {
    let asked = world.stage(server).asked_for("completion/complete");
    asked.iter().map(|asked| serde_json::from_str(&asked.params).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_prompt_is_completed_by_its_server_under_its_own_name() {
    let (world, gateway) = world().await;
    let mut client = Client::modern(&gateway, Scope::All, json!({}));
    let answer = complete(&mut client, json!({"type": "ref/prompt", "name": "b__p", "title": "t"})).await;
    assert_eq!(answer["result"]["completion"]["values"], json!(["x"]), "{answer}");
    let there = &asked(&world, "b")[0];
    assert_eq!(there["ref"], json!({"type": "ref/prompt", "name": "p", "title": "t"}));
    assert_eq!((&there["argument"]["value"], &there["later"]), (&json!("1"), &json!([1])));
    assert!(asked(&world, "a").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_template_is_completed_by_its_server() {
    let (world, gateway) = world().await;
    let mut client = Client::legacy(&gateway, Scope::All, json!({})).await;
    // The templates of the servers are not known before they are asked for.
    let answer = complete(&mut client, json!({"type": "ref/resource", "uri": "b://{id}"})).await;
    assert_eq!(answer["result"]["completion"]["values"], json!(["x"]), "{answer}");
    assert_eq!(asked(&world, "b")[0]["ref"]["uri"], "b://{id}");
    assert!(asked(&world, "a").is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_server_completes_under_its_own_names() {
    let (world, gateway) = world().await;
    let mut client = Client::modern(&gateway, one("a"), json!({}));
    let answer = complete(&mut client, json!({"type": "ref/prompt", "name": "p"})).await;
    assert!(answer.get("result").is_some(), "{answer}");
    assert_eq!(asked(&world, "a").len(), 1);
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
    assert!(asked(&world, "a").is_empty() && asked(&world, "b").is_empty());
}
