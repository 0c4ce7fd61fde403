//! Request states of modern servers, in the hands of clients.

use std::time::Duration;

use ostler_gateway::{Gateway, Scope};
use ostler_testkit::{Reply, Script, World};
use serde_json::{Value, json};

use crate::client::{Client, gateway, one};

/// Text that careless copying would spoil.
const STATE: &str = r#""s\u00e9+== \" 1""#;

/// A modern server that asks before it answers: the tool `t`, the prompt `p` and the resource `r://1`.
fn script() -> Script {
    let asks = |asked: &ostler_testkit::Asked| match asked.params.contains("\"requestState\"") {
        false => Reply::result(format!(
            r#"{{"resultType":"input_required","inputRequests":{{"k":{{"method":"roots/list"}}}},"requestState":{STATE}}}"#
        )),
        true => Reply::result(r#"{"content":[],"messages":[],"contents":[]}"#),
    };
    let list = |member: &str, item: Value| Reply::result(json!({member: [item]}).to_string());
    Script::new()
        .modern()
        .capabilities(r#"{"tools":{},"prompts":{},"resources":{}}"#)
        .tool("t")
        .tool("u")
        .on("t", asks)
        .on("u", asks)
        .on("prompts/get", asks)
        .on("resources/read", asks)
        .on("prompts/list", move |_| list("prompts", json!({"name": "p"})))
        .on("resources/list", move |_| list("resources", json!({"uri": "r://1", "name": "r"})))
}

async fn world() -> (World, Gateway) {
    let world = World::new().server("a", script()).server("b", script()).open().await;
    let gateway = gateway(&world, |_| {});
    (world, gateway)
}

fn client(gateway: &Gateway, face: Scope) -> Client {
    Client::modern(gateway, face, json!({"roots": {}}))
}

/// The request with the answer to its question.
fn continued(mut params: Value, asked: &Value) -> Value {
    let state = &asked["result"]["requestState"];
    assert!(state.as_str().is_some_and(|state| state.starts_with("o1.")), "{asked}");
    params["inputResponses"] = json!({"k": {"roots": []}});
    params["requestState"] = state.clone();
    params
}

fn refused(answer: &Value) {
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_state_continues_its_request_once_and_reaches_the_server_byte_for_byte() {
    let (world, gateway) = world().await;
    for (method, params) in [
        ("tools/call", json!({"name": "a__t", "arguments": {"n": 1.0, "s": "x"}})),
        ("prompts/get", json!({"name": "a__p"})),
        ("resources/read", json!({"uri": "r://1"})),
    ] {
        let mut client = client(&gateway, Scope::All);
        let asked = client.ask(method, params.clone()).await;
        let continued = continued(params, &asked);
        let done = client.ask(method, continued.clone()).await;
        assert!(done.get("result").is_some(), "{done}");
        let what = if method == "tools/call" { "t" } else { method };
        let sent = world.stage("a").asked_for(what);
        assert!(sent.last().unwrap().params.contains(&format!("\"requestState\":{STATE}")), "{sent:?}");
        refused(&client.ask(method, continued).await);
        assert_eq!(world.stage("a").count(what), sent.len(), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_is_for_its_tool_and_its_arguments() {
    let (world, gateway) = world().await;
    let mut client = client(&gateway, Scope::All);
    let params = json!({"name": "a__t", "arguments": {"to": "ada", "amount": 1}});
    let asked = client.ask("tools/call", params.clone()).await;
    for other in [
        json!({"name": "a__u", "arguments": {"to": "ada", "amount": 1}}),
        json!({"name": "b__t", "arguments": {"to": "ada", "amount": 1}}),
        json!({"name": "a__t", "arguments": {"to": "bob", "amount": 1}}),
        json!({"name": "a__t", "arguments": {"to": "ada", "amount": 1}, "task": {}}),
        json!({"name": "a__t"}),
    ] {
        refused(&client.ask("tools/call", continued(other, &asked)).await);
    }
    refused(&client.ask("prompts/get", continued(json!({"name": "a__p"}), &asked)).await);
    let count = |server: &str| world.stage(server).count("t") + world.stage(server).count("u");
    assert_eq!((count("a"), count("b")), (1, 0));
    // The order of members is no difference, and neither is the endpoint.
    let same = json!({"arguments": {"amount": 1, "to": "ada"}, "name": "t"});
    let mut one = self::client(&gateway, one("a"));
    let done = one.ask("tools/call", continued(same, &asked)).await;
    assert!(done.get("result").is_some(), "{done}");
}

#[tokio::test(start_paused = true)]
async fn a_state_expires_after_ten_minutes() {
    let (world, gateway) = world().await;
    let mut client = client(&gateway, Scope::All);
    let params = json!({"name": "a__t", "arguments": {}});
    let early = client.ask("tools/call", params.clone()).await;
    world.advance(Duration::from_secs(9 * 60)).await;
    let late = client.ask("tools/call", params.clone()).await;
    let done = client.ask("tools/call", continued(params.clone(), &early)).await;
    assert!(done.get("result").is_some(), "{done}");
    world.advance(Duration::from_secs(10 * 60 + 1)).await;
    let gone = client.ask("tools/call", continued(params, &late)).await;
    refused(&gone);
    assert!(gone["error"]["message"].as_str().unwrap().contains("10 minutes"), "{gone}");
    assert_eq!(world.stage("a").count("t"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_brings_no_state_of_its_own() {
    let (world, gateway) = world().await;
    let mut client = Client::legacy(&gateway, one("a"), json!({})).await;
    for state in [json!("s\u{e9}+== \" 1"), json!(1), json!("o1.AAAA")] {
        let params = json!({"name": "t", "arguments": {}, "requestState": state, "inputResponses": {}});
        refused(&client.ask("tools/call", params).await);
    }
    assert_eq!(world.stage("a").count("t"), 0);
}
