//! Notifications to clients while their calls are in flight.

use std::time::Duration;

use ostler_gateway::Scope;
use ostler_testkit::{Script, ScriptedReply, TestHost};
use serde_json::{Value, json};

use crate::client::{Client, gateway};

fn script() -> Script {
    let reply = ScriptedReply::text("done")
        .reporting(r#""progress":1,"total": 2.50,"later":[1e400]"#)
        .logging("debug", "low")
        .logging("warning", "high");
    Script::new().tool_replying("t", reply)
}

fn log_texts(heard: &[Value]) -> Vec<&str> {
    let logs = heard.iter().filter(|message| message["method"] == "notifications/message");
    logs.map(|message| message["params"]["data"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_progress_token_comes_back_byte_for_byte() {
    let world = TestHost::new().server("a", script()).start().await;
    let gateway = gateway(&world, |_| {});
    for token in [r#""t\u00e9 1""#, "7", "123456789012345678901234567890"] {
        let mut client = Client::modern(&gateway, Scope::All, json!({}));
        let meta = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#;
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"a__t","_meta":{{"progressToken":{token},{meta}}}}}}}"#
        );
        client.send_line(&line).await;
        let heard = client.receive_line().await;
        let expected = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1,"total": 2.50,"later":[1e400]}}}}"#
        );
        assert_eq!(heard, expected);
        assert!(client.receive().await.get("result").is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_server_of_unknown_tools_hears_how_far_it_has_come() {
    let script =
        Script::new().tool_replying("t", ScriptedReply::text("done")).start_after(Duration::from_secs(40));
    let world = TestHost::new().server("a", script).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    let meta = json!({"progressToken": "p"});
    let answer = client.request("tools/call", json!({"name": "a__t", "_meta": meta})).await;
    assert_eq!(answer["result"]["content"][0]["text"], "done");
    let messages: Vec<&str> =
        client.received.iter().filter_map(|heard| heard["params"]["message"].as_str()).collect();
    assert!(messages.len() >= 3, "{:?}", client.received);
    assert!(messages.iter().all(|message| message.contains("server `a` has been starting")), "{messages:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_token_there_is_no_progress() {
    let world = TestHost::new().server("a", script()).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    client.call("a__t", json!({})).await;
    assert!(client.received.is_empty(), "{:?}", client.received);
}

#[tokio::test(start_paused = true)]
async fn a_modern_client_hears_the_log_it_names_a_level_for() {
    let world = TestHost::new().server("a", script()).start().await;
    let gateway = gateway(&world, |_| {});
    for (level, expected) in [("debug", &["low", "high"][..]), ("warning", &["high"]), ("alert", &[])] {
        let mut client = Client::modern(&gateway, Scope::All, json!({}));
        let meta = json!({"io.modelcontextprotocol/logLevel": level});
        client.request("tools/call", json!({"name": "a__t", "_meta": meta})).await;
        assert_eq!(log_texts(&client.received), expected, "{level}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_hears_the_log_of_the_level_it_set() {
    let script = script()
        .capabilities(r#"{"tools":{},"logging":{}}"#)
        .on("logging/setLevel", |_| ScriptedReply::result("{}"));
    let world = TestHost::new().server("a", script).start().await;
    let mut client = Client::legacy(&gateway(&world, |_| {}), Scope::All, json!({})).await;
    client.call("a__t", json!({})).await;
    assert_eq!(
        log_texts(&client.received),
        ["low", "high"],
        "a client that set nothing leaves it to the server"
    );
    client.received.clear();
    client.request("logging/setLevel", json!({"level": "warning"})).await;
    client.call("a__t", json!({})).await;
    assert_eq!(log_texts(&client.received), ["high"]);
}

#[tokio::test(start_paused = true)]
async fn equal_ids_and_equal_tokens_of_two_clients_never_mix() {
    let second = Duration::from_secs(1);
    let reply = |text: &str| {
        ScriptedReply::text(text).pausing(second).reporting(&format!(r#""progress":1,"message":"{text}""#))
    };
    let (one, two) = (reply("one"), reply("two"));
    let script = Script::new().tool("t").on("t", move |asked| match asked.arguments.as_deref() {
        Some(r#"{"who":1}"#) => one.clone(),
        _ => two.clone(),
    });
    let world = TestHost::new().server("a", script).start().await;
    let gateway = gateway(&world, |_| {});
    let mut modern = Client::modern(&gateway, Scope::All, json!({}));
    let mut legacy = Client::legacy(&gateway, Scope::All, json!({})).await;
    let params = |who: u32| json!({"name": "a__t", "arguments": {"who": who}, "_meta": {"progressToken": 5}});
    modern.request("tools/list", json!({})).await;
    let (first, second) = (
        modern.send_request("tools/call", params(1)).await,
        legacy.send_request("tools/call", params(2)).await,
    );
    assert_eq!(first, second, "the ids are equal");
    let (one, two) = (modern.wait_for_answer(first).await, legacy.wait_for_answer(second).await);
    assert_eq!(
        (&one["result"]["content"][0]["text"], &two["result"]["content"][0]["text"]),
        (&json!("one"), &json!("two"))
    );
    for (client, text) in [(modern, "one"), (legacy, "two")] {
        assert_eq!(client.received.len(), 1, "{:?}", client.received);
        assert_eq!(client.received[0]["params"]["message"], text);
        assert_eq!(client.received[0]["params"]["progressToken"], 5);
    }
}
