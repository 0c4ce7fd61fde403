//! Questions of servers, from and to either era.

use ostler_testkit::{Script, ScriptedReply, TestHost};
use ostler_wire::Era;
use serde_json::{Value, json};

use crate::pair::RelayPair;

const ASK: &str = "elicitation/create";

/// A server that asks before it answers, in the way of its era.
fn asking(era: Era) -> Script {
    let question = json!({"message": "who?", "requestedSchema": {"type": "object", "properties": {}}});
    match era {
        Era::Legacy => Script::new().tool_replying("t", ScriptedReply::text("done").asking(ASK, question)),
        Era::Modern => Script::new().modern().tool("t").on("t", move |asked| match asked.nth {
            1 => ScriptedReply::result(
                json!({
                    "resultType": "input_required",
                    "inputRequests": {"k": {"method": ASK, "params": question}},
                    "requestState": "s",
                })
                .to_string(),
            ),
            _ => ScriptedReply::text("done"),
        }),
    }
}

/// What the server was told, whichever way it asked.
fn server_received(pair: &RelayPair, era: Era) -> Value {
    let stage = pair.world.server("a");
    match era {
        Era::Legacy => serde_json::from_str(stage.client_answers()[0].as_deref().unwrap()).unwrap(),
        Era::Modern => {
            let params: Value = serde_json::from_str(&stage.requests_for("t")[1].params).unwrap();
            assert_eq!(params["requestState"], "s");
            params["inputResponses"]["k"].clone()
        }
    }
}

async fn check_elicitation(agent: Era, server: Era) {
    let pair = RelayPair::open(TestHost::new().server("a", asking(server))).await;
    let mut agent_side = pair.agent(agent, json!({"elicitation": {}})).await;
    let accepted = json!({"action": "accept", "content": {"name": "me"}});
    let done = match agent {
        Era::Legacy => {
            let id = agent_side.send_request("tools/call", json!({"name": "a__t", "arguments": {}})).await;
            let question = agent_side.next_server_request().await;
            assert_eq!((&question["method"], &question["params"]["message"]), (&json!(ASK), &json!("who?")));
            agent_side.respond(&question, accepted.clone()).await;
            agent_side.answer_to(id).await
        }
        Era::Modern => {
            let asked = agent_side.call("a__t", json!({})).await;
            assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
            let (key, question) =
                asked["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
            assert_eq!((&question["method"], &question["params"]["message"]), (&json!(ASK), &json!("who?")));
            agent_side.retry("a__t", &asked, json!({key: accepted})).await
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
            agent.other_messages.iter().all(|heard| heard["method"] != ASK),
            "{:?}",
            agent.other_messages
        );
    }
    assert_eq!(pair.world.server("a").client_answers(), [None, None]);
}
