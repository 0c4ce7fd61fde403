//! Request states of modern servers, held by clients.

use std::time::Duration;

use ostler_gateway::{Gateway, Scope};
use ostler_testkit::{Script, ScriptedReply, TestHost};
use serde_json::{Value, json};

use crate::client::{Client, gateway, server_scope};

/// Request state with text that careless copying would corrupt.
const STATE: &str = r#""s\u00e9+== \" 1""#;

/// Returns a modern server that requires input before it answers: the tool `t`, the prompt `p` and the resource
/// `r://1`.
fn script() -> Script {
    let asks = |asked: &ostler_testkit::ReceivedRequest| match asked.params.contains("\"requestState\"") {
        false => ScriptedReply::result(format!(
            r#"{{"resultType":"input_required","inputRequests":{{"k":{{"method":"roots/list"}}}},"requestState":{STATE}}}"#
        )),
        true => ScriptedReply::result(r#"{"content":[],"messages":[],"contents":[]}"#),
    };
    let list = |member: &str, item: Value| ScriptedReply::result(json!({member: [item]}).to_string());
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

async fn world() -> (TestHost, Gateway) {
    let world = TestHost::new().server("a", script()).server("b", script()).start().await;
    let gateway = gateway(&world, |_| {});
    (world, gateway)
}

fn client(gateway: &Gateway, face: Scope) -> Client {
    Client::modern(gateway, face, json!({"roots": {}}))
}

/// Returns the request with the answer to the server's request.
fn with_request_state(mut params: Value, asked: &Value) -> Value {
    let state = &asked["result"]["requestState"];
    assert!(state.as_str().is_some_and(|state| state.starts_with("o1.")), "{asked}");
    params["inputResponses"] = json!({"k": {"roots": []}});
    params["requestState"] = state.clone();
    params
}

fn assert_refused(answer: &Value) {
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
        let asked = client.request(method, params.clone()).await;
        let continued = with_request_state(params, &asked);
        let done = client.request(method, continued.clone()).await;
        assert!(done.get("result").is_some(), "{done}");
        let what = if method == "tools/call" { "t" } else { method };
        let sent = world.server("a").requests_for(what);
        assert!(sent.last().unwrap().params.contains(&format!("\"requestState\":{STATE}")), "{sent:?}");
        assert_refused(&client.request(method, continued).await);
        assert_eq!(world.server("a").count(what), sent.len(), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_is_for_its_tool_and_its_arguments() {
    let (world, gateway) = world().await;
    let mut client = client(&gateway, Scope::All);
    let params = json!({"name": "a__t", "arguments": {"to": "ada", "amount": 1}});
    let asked = client.request("tools/call", params.clone()).await;
    for other in [
        json!({"name": "a__u", "arguments": {"to": "ada", "amount": 1}}),
        json!({"name": "b__t", "arguments": {"to": "ada", "amount": 1}}),
        json!({"name": "a__t", "arguments": {"to": "bob", "amount": 1}}),
        json!({"name": "a__t", "arguments": {"to": "ada", "amount": 1}, "task": {}}),
        json!({"name": "a__t"}),
    ] {
        assert_refused(&client.request("tools/call", with_request_state(other, &asked)).await);
    }
    assert_refused(&client.request("prompts/get", with_request_state(json!({"name": "a__p"}), &asked)).await);
    let count = |server: &str| world.server(server).count("t") + world.server(server).count("u");
    assert_eq!((count("a"), count("b")), (1, 0));
    // Neither the order of members nor the endpoint makes a difference.
    let same = json!({"arguments": {"amount": 1, "to": "ada"}, "name": "t"});
    let mut one = self::client(&gateway, server_scope("a"));
    let done = one.request("tools/call", with_request_state(same, &asked)).await;
    assert!(done.get("result").is_some(), "{done}");
}

#[tokio::test(start_paused = true)]
async fn a_state_expires_after_ten_minutes() {
    let (world, gateway) = world().await;
    let mut client = client(&gateway, Scope::All);
    let params = json!({"name": "a__t", "arguments": {}});
    let early = client.request("tools/call", params.clone()).await;
    world.advance(Duration::from_secs(9 * 60)).await;
    let late = client.request("tools/call", params.clone()).await;
    let done = client.request("tools/call", with_request_state(params.clone(), &early)).await;
    assert!(done.get("result").is_some(), "{done}");
    world.advance(Duration::from_secs(10 * 60 + 1)).await;
    let gone = client.request("tools/call", with_request_state(params, &late)).await;
    assert_refused(&gone);
    assert!(gone["error"]["message"].as_str().unwrap().contains("10 minutes"), "{gone}");
    assert_eq!(world.server("a").count("t"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_brings_no_state_of_its_own() {
    let (world, gateway) = world().await;
    let mut client = Client::legacy(&gateway, server_scope("a"), json!({})).await;
    for state in [json!("s\u{e9}+== \" 1"), json!(1), json!("o1.AAAA")] {
        let params = json!({"name": "t", "arguments": {}, "requestState": state, "inputResponses": {}});
        assert_refused(&client.request("tools/call", params).await);
    }
    assert_eq!(world.server("a").count("t"), 0);
}
