//! Server requests from and to either era.

use ostler_testkit::{Script, ScriptedReply, TestHost};
use ostler_wire::Era;
use serde_json::{Value, json};

use crate::pair::RelayPair;

const ASK: &str = "elicitation/create";

/// Returns a server that asks its client before it answers, as its era does.
fn asking(era: Era) -> Script {
    let server_request = json!({"message": "who?", "requestedSchema": {"type": "object", "properties": {}}});
    match era {
        Era::Legacy => {
            Script::new().tool_replying("t", ScriptedReply::text("done").asking(ASK, server_request))
        }
        Era::Modern => {
            Script::new().modern().tool("t").on("t", move |input_required| match input_required.nth {
                1 => ScriptedReply::result(
                    json!({
                        "resultType": "input_required",
                        "inputRequests": {"k": {"method": ASK, "params": server_request}},
                        "requestState": "s",
                    })
                    .to_string(),
                ),
                _ => ScriptedReply::text("done"),
            })
        }
    }
}

/// Returns the client's response as the server received it.
fn server_received(pair: &RelayPair, era: Era) -> Value {
    let server = pair.test_host.server("a");
    match era {
        Era::Legacy => serde_json::from_str(server.client_answers()[0].as_deref().unwrap()).unwrap(),
        Era::Modern => {
            let params: Value = serde_json::from_str(&server.requests_for("t")[1].params).unwrap();
            assert_eq!(params["requestState"], "s");
            params["inputResponses"]["k"].clone()
        }
    }
}

async fn check_elicitation(agent: Era, server: Era) {
    let pair = RelayPair::open(TestHost::new().server("a", asking(server))).await;
    let mut client = pair.agent(agent, json!({"elicitation": {}})).await;
    let accepted = json!({"action": "accept", "content": {"name": "me"}});
    let done = match agent {
        Era::Legacy => {
            let id = client.send_request("tools/call", json!({"name": "a__t", "arguments": {}})).await;
            let server_request = client.next_server_request().await;
            assert_eq!(
                (&server_request["method"], &server_request["params"]["message"]),
                (&json!(ASK), &json!("who?"))
            );
            client.respond(&server_request, accepted.clone()).await;
            client.answer_to(id).await
        }
        Era::Modern => {
            let input_required = client.call("a__t", json!({})).await;
            assert_eq!(input_required["result"]["resultType"], "input_required", "{input_required}");
            let (key, server_request) =
                input_required["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
            assert_eq!(
                (&server_request["method"], &server_request["params"]["message"]),
                (&json!(ASK), &json!("who?"))
            );
            client.retry("a__t", &input_required, json!({key: accepted})).await
        }
    };
    assert_eq!(done["result"]["content"][0]["text"], "done", "{done}");
    assert_eq!(server_received(&pair, server), accepted);
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_asks_a_legacy_agent() {
    check_elicitation(Era::Legacy, Era::Legacy).await;
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_asks_a_modern_agent() {
    check_elicitation(Era::Modern, Era::Legacy).await;
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_asks_a_legacy_agent() {
    check_elicitation(Era::Legacy, Era::Modern).await;
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_asks_a_modern_agent() {
    check_elicitation(Era::Modern, Era::Modern).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_can_not_be_asked_is_not() {
    let pair = RelayPair::open(TestHost::new().server("a", asking(Era::Legacy))).await;
    for era in [Era::Legacy, Era::Modern] {
        let mut agent = pair.agent(era, json!({})).await;
        let done = agent.call("a__t", json!({})).await;
        assert_eq!(done["result"]["content"][0]["text"], "done", "{done}");
        assert!(
            agent.other_messages.iter().all(|message| message["method"] != ASK),
            "{:?}",
            agent.other_messages
        );
    }
    assert_eq!(pair.test_host.server("a").client_answers(), [None, None]);
}
