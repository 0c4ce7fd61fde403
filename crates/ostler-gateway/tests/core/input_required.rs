//! Requests of a modern server to a legacy client.

use ostler_gateway::Scope;
use ostler_testkit::{Script, ScriptedReply, TestHost};
use serde_json::{Value, json};

use crate::client::{Client, gateway};

const ASK: &str = "elicitation/create";

/// Request state with text that careless copying would corrupt.
const STATE: &str = r#""s\u00e9+== \" 1""#;

fn input_required(round: usize) -> ScriptedReply {
    ScriptedReply::result(format!(
        r#"{{"resultType":"input_required","inputRequests":{{"k{round}":{{"method":"{ASK}","params":{{"message":"round {round}"}}}}}},"requestState":{STATE}}}"#
    ))
}

/// Returns a modern server whose tool `t` requires input that many times before it answers.
async fn world(rounds: usize) -> TestHost {
    let script = Script::new().modern().tool("t").on("t", move |asked| match asked.nth {
        nth if nth <= rounds => input_required(nth),
        _ => ScriptedReply::text("done"),
    });
    TestHost::new().server("a", script).start().await
}

fn params_of(world: &TestHost, nth: usize) -> Value {
    serde_json::from_str(&world.server("a").requests_for("t")[nth].params).unwrap()
}

#[tokio::test(start_paused = true)]
async fn questions_become_requests_on_the_stream_of_the_call() {
    let world = world(2).await;
    let mut client = Client::legacy(&gateway(&world, |_| {}), Scope::All, json!({"elicitation": {}})).await;
    let id = client.send_request("tools/call", json!({"name": "a__t", "arguments": {"x": 1}})).await;
    for round in 1..=2 {
        let question = client.next_server_request().await;
        assert_eq!(question["method"], ASK);
        assert_eq!(question["params"]["message"], format!("round {round}"));
        client.respond(&question, json!({"action": "accept", "content": {"n": round}})).await;
    }
    let done = client.wait_for_answer(id).await;
    assert_eq!(done["result"], json!({"content": [{"type": "text", "text": "done"}]}));
    assert_eq!(world.server("a").count("t"), 3);
    let second = params_of(&world, 1);
    assert_eq!(second["inputResponses"]["k1"], json!({"action": "accept", "content": {"n": 1}}));
    assert_eq!(second["arguments"], json!({"x": 1}));
    assert!(world.server("a").requests_for("t")[1].params.contains(STATE), "byte for byte");
    assert_eq!(
        params_of(&world, 2)["inputResponses"],
        json!({"k2": {"action": "accept", "content": {"n": 2}}})
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_stops_asking_is_given_up_after_ten_rounds() {
    let world = world(usize::MAX).await;
    let mut client = Client::legacy(&gateway(&world, |_| {}), Scope::All, json!({"elicitation": {}})).await;
    let id = client.send_request("tools/call", json!({"name": "a__t"})).await;
    for _ in 0..10 {
        let question = client.next_server_request().await;
        client.respond(&question, json!({"action": "accept"})).await;
    }
    let refused = client.wait_for_answer(id).await;
    assert_eq!(refused["error"]["data"]["code"], "upstream-protocol", "{refused}");
    assert_eq!(world.server("a").count("t"), 11);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_fails_to_elicit_has_cancelled() {
    let world = world(1).await;
    let mut client = Client::legacy(&gateway(&world, |_| {}), Scope::All, json!({"elicitation": {}})).await;
    let id = client.send_request("tools/call", json!({"name": "a__t"})).await;
    let question = client.next_server_request().await;
    let error = json!({"code": -32603, "message": "the window is gone"});
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "error": error})).await;
    assert!(client.wait_for_answer(id).await.get("result").is_some());
    assert_eq!(params_of(&world, 1)["inputResponses"]["k1"], json!({"action": "cancel"}));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_did_not_offer_it_is_not_asked() {
    let world = world(1).await;
    let mut client = Client::legacy(&gateway(&world, |_| {}), Scope::All, json!({"roots": {}})).await;
    let refused = client.call("a__t", json!({})).await;
    assert_eq!(refused["error"]["data"]["code"], "upstream-protocol", "{refused}");
    assert!(client.received.is_empty(), "{:?}", client.received);
    assert_eq!(world.server("a").count("t"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_only_wants_to_be_asked_again_is_asked_again() {
    let script = Script::new().modern().tool("t").on("t", |asked| match asked.nth {
        1 => ScriptedReply::result(format!(r#"{{"resultType":"input_required","requestState":{STATE}}}"#)),
        _ => ScriptedReply::text("done"),
    });
    let world = TestHost::new().server("a", script).start().await;
    let mut client = Client::legacy(&gateway(&world, |_| {}), Scope::All, json!({})).await;
    let done = client.call("a__t", json!({})).await;
    assert_eq!(done["result"]["content"][0]["text"], "done", "{done}");
    assert!(params_of(&world, 1).get("inputResponses").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_takes_its_question_back() {
    let world = world(1).await;
    let mut client = Client::legacy(&gateway(&world, |_| {}), Scope::All, json!({"elicitation": {}})).await;
    let id = client.send_request("tools/call", json!({"name": "a__t"})).await;
    let question = client.next_server_request().await;
    let params = json!({"requestId": id});
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})).await;
    let taken_back = client.receive().await;
    assert_eq!(taken_back["method"], "notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], question["id"]);
}
