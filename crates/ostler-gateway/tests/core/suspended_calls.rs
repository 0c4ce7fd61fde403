//! Suspended calls: requests of a legacy server to a modern client.

use std::time::Duration;

use ostler_gateway::{Gateway, Scope};
use ostler_testkit::{Script, ScriptedReply, TestHost, run_until_stalled};
use serde_json::{Value, json};

use crate::client::{Client, gateway};

const ASK: &str = "elicitation/create";

fn form() -> Value {
    json!({"mode": "form", "message": "Go on?", "requestedSchema": {"type": "object"}})
}

fn yes() -> Value {
    json!({"action": "accept", "content": {"ok": true}})
}

/// Returns a server whose tool `t` sends a request before it answers.
async fn world(reply: ScriptedReply) -> (TestHost, Gateway) {
    let world = TestHost::new().server("a", Script::new().tool_replying("t", reply)).start().await;
    let gateway = gateway(&world, |options| options.max_suspended = 4);
    (world, gateway)
}

fn client(gateway: &Gateway) -> Client {
    Client::modern(gateway, Scope::All, json!({"elicitation": {}}))
}

#[tokio::test(start_paused = true)]
async fn a_question_parks_the_call_and_the_retry_finishes_it() {
    let (world, gateway) = world(ScriptedReply::text("done").asking(ASK, form())).await;
    let mut client = client(&gateway);
    let asked = client.call("a__t", json!({})).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    assert_eq!(asked["result"]["inputRequests"], json!({"q1": {"method": ASK, "params": form()}}));
    assert_eq!(gateway.suspended_calls(), 1);
    let done = client.retry("a__t", &asked, json!({"q1": yes()})).await;
    assert_eq!(done["result"]["content"][0]["text"], "done", "{done}");
    assert_eq!(done["result"]["resultType"], "complete");
    assert_eq!(world.server("a").client_answers(), [Some(yes().to_string())]);
    assert_eq!((world.server("a").count("t"), gateway.suspended_calls()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn another_connection_of_the_same_caller_may_answer() {
    let (world, gateway) = world(ScriptedReply::text("done").asking(ASK, form())).await;
    let mut first = client(&gateway);
    let asked = first.call("a__t", json!({})).await;
    first.close_input().await;
    first.wait_for_end().await;
    let done = client(&gateway).retry("a__t", &asked, json!({"q1": yes()})).await;
    assert_eq!(done["result"]["content"][0]["text"], "done", "{done}");
    assert_eq!(world.server("a").count("t"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_is_for_its_caller_and_its_parameters() {
    let (world, gateway) = world(ScriptedReply::text("done").asking(ASK, form())).await;
    let mut client = client(&gateway);
    let asked = client.call("a__t", json!({})).await;
    let mut stranger = Client::as_stranger(&gateway, Scope::All, json!({"elicitation": {}}));
    let refused = stranger.retry("a__t", &asked, json!({"q1": yes()})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let state = &asked["result"]["requestState"];
    let params = json!({"name": "a__t", "arguments": {"x": 1}, "inputResponses": {"q1": yes()}, "requestState": state});
    let refused = client.request("tools/call", params).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    // Neither attempt has used up the ticket of the rightful caller.
    let done = client.retry("a__t", &asked, json!({"q1": yes()})).await;
    assert_eq!(done["result"]["content"][0]["text"], "done", "{done}");
    assert_eq!(world.server("a").count("t"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_is_good_once() {
    let (world, gateway) = world(ScriptedReply::text("done").asking(ASK, form())).await;
    let mut client = client(&gateway);
    let asked = client.call("a__t", json!({})).await;
    client.retry("a__t", &asked, json!({"q1": yes()})).await;
    let again = client.retry("a__t", &asked, json!({"q1": yes()})).await;
    assert_eq!(again["error"]["data"]["code"], "outcome-unknown", "{again}");
    assert_eq!(world.server("a").count("t"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_of_nobody_is_refused() {
    let (world, gateway) = world(ScriptedReply::text("done").asking(ASK, form())).await;
    let mut client = client(&gateway);
    let forged = json!({"result": {"requestState": "o1.AAAA"}});
    let refused = client.retry("a__t", &forged, json!({"q1": yes()})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(world.server("a").count("t"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_comes_back_for_is_cancelled_at_its_server() {
    let (world, gateway) = world(ScriptedReply::text("done").asking(ASK, form())).await;
    let mut client = client(&gateway);
    let asked = client.call("a__t", json!({})).await;
    world.advance(Duration::from_secs(9 * 60)).await;
    assert_eq!((gateway.suspended_calls(), world.server("a").cancelled()), (1, 0), "its time stands still");
    world.advance(Duration::from_secs(2 * 60)).await;
    assert_eq!((gateway.suspended_calls(), world.server("a").in_flight()), (0, 0));
    let late = client.retry("a__t", &asked, json!({"q1": yes()})).await;
    assert_eq!(late["error"]["data"]["code"], "outcome-unknown", "{late}");
    assert_eq!(world.server("a").count("t"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_may_ask_twice() {
    let roots = json!({"roots": []});
    let (world, gateway) =
        world(ScriptedReply::text("done").asking(ASK, form()).asking("roots/list", json!({}))).await;
    let mut client = Client::modern(&gateway, Scope::All, json!({"elicitation": {}, "roots": {}}));
    let first = client.call("a__t", json!({})).await;
    let second = client.retry("a__t", &first, json!({"q1": yes()})).await;
    assert_eq!(second["result"]["inputRequests"]["q2"]["method"], "roots/list", "{second}");
    assert_ne!(second["result"]["requestState"], first["result"]["requestState"]);
    let done = client.retry("a__t", &second, json!({"q2": roots})).await;
    assert_eq!(done["result"]["content"][0]["text"], "done", "{done}");
    assert_eq!(world.server("a").client_answers(), [Some(yes().to_string()), Some(roots.to_string())]);
    assert_eq!(world.server("a").count("t"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_question_without_a_response_is_asked_again() {
    let (world, gateway) = world(ScriptedReply::text("done").asking(ASK, form())).await;
    let mut client = client(&gateway);
    let asked = client.call("a__t", json!({})).await;
    let again = client.retry("a__t", &asked, json!({"other": yes()})).await;
    let requests = again["result"]["inputRequests"].as_object().unwrap();
    let (key, request) = requests.iter().next().unwrap();
    assert_eq!(request["params"], form());
    let done = client.retry("a__t", &again, json!({key.as_str(): yes()})).await;
    assert_eq!(done["result"]["content"][0]["text"], "done", "{done}");
    assert_eq!(world.server("a").count("t"), 1);
}

#[tokio::test(start_paused = true)]
async fn only_so_many_calls_wait() {
    let (world, gateway) = world(ScriptedReply::text("done").asking(ASK, form())).await;
    let mut client = client(&gateway);
    let mut asked = Vec::new();
    for _ in 0..2 {
        asked.push(client.call("a__t", json!({})).await);
    }
    let refused = client.call("a__t", json!({})).await;
    assert_eq!(refused["error"]["data"]["code"], "overloaded", "{refused}");
    run_until_stalled().await;
    assert_eq!((gateway.suspended_calls(), world.server("a").in_flight()), (2, 2), "the third is cancelled");
    let mut other = Client::as_stranger(&gateway, Scope::All, json!({"elicitation": {}}));
    let others = other.call("a__t", json!({})).await;
    assert_eq!(
        others["result"]["resultType"], "input_required",
        "half of the places are for others: {others}"
    );
    for asked in asked {
        let done = client.retry("a__t", &asked, json!({"q1": yes()})).await;
        assert!(done.get("result").is_some(), "{done}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_can_not_answer_is_not_asked() {
    let (world, gateway) = world(ScriptedReply::text("done").asking(ASK, form())).await;
    let mut client = Client::modern(&gateway, Scope::All, json!({"roots": {}}));
    let done = client.call("a__t", json!({})).await;
    assert_eq!(done["result"]["content"][0]["text"], "done", "{done}");
    assert_eq!(world.server("a").client_answers(), [None]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_while_a_call_is_parked_leaves_its_outcome_unknown() {
    let (world, gateway) = world(ScriptedReply::text("done").asking(ASK, form())).await;
    let mut client = client(&gateway);
    let asked = client.call("a__t", json!({})).await;
    world.crash("a");
    run_until_stalled().await;
    let lost = client.retry("a__t", &asked, json!({"q1": yes()})).await;
    assert_eq!(lost["error"]["data"]["code"], "outcome-unknown", "{lost}");
    assert_eq!(world.server("a").count("t"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_caller_that_is_over_waits_no_longer() {
    let (world, gateway) = world(ScriptedReply::text("done").asking(ASK, form())).await;
    let asked = client(&gateway).call("a__t", json!({})).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    gateway.end_sessions_of(|caller| caller.principal() == "somebody");
    assert_eq!(gateway.suspended_calls(), 1);
    gateway.end_sessions_of(|caller| caller.principal() == "local");
    assert_eq!(gateway.suspended_calls(), 0);
    run_until_stalled().await;
    assert_eq!(world.server("a").cancelled(), 1);
}
