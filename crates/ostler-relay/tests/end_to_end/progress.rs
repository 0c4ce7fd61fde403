//! Progress, logs and cancellation of calls in flight.

use std::time::Duration;

use ostler_host::upstream::ServerNotification;
use ostler_testkit::{Script, ScriptedReply, TestHost};
use ostler_wire::Era;
use serde_json::{Value, json};

use crate::pair::RelayPair;

#[tokio::test(start_paused = true)]
async fn progress_and_log_lines_reach_the_agent_before_the_answer() {
    let reply = ScriptedReply::text("done")
        .reporting(r#""progress":1,"total":2,"message":"half""#)
        .logging("warning", "careful")
        .after(Duration::from_secs(1));
    let pair = RelayPair::open(TestHost::new().server("a", Script::new().tool_replying("t", reply))).await;
    for (era, level) in [(Era::Modern, json!("debug")), (Era::Legacy, Value::Null)] {
        let mut agent = pair.agent(era, json!({})).await;
        let mut meta = json!({"progressToken": "mine"});
        if !level.is_null() {
            meta["io.modelcontextprotocol/logLevel"] = level;
        }
        agent.request("tools/call", json!({"name": "a__t", "_meta": meta})).await;
        let methods: Vec<&str> =
            agent.other_messages.iter().map(|message| message["method"].as_str().unwrap()).collect();
        assert_eq!(methods, ["notifications/progress", "notifications/message"], "{era:?}");
        let params = &agent.other_messages[0]["params"];
        assert_eq!(params["progressToken"], "mine");
        assert_eq!((&params["progress"], &params["message"]), (&json!(1), &json!("half")));
        assert_eq!(agent.other_messages[1]["params"]["data"], "careful");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_agent_cancels_is_cancelled_at_the_server() {
    let pair = RelayPair::open(
        TestHost::new().server("a", Script::new().tool_replying("t", ScriptedReply::never())),
    )
    .await;
    let mut agent = pair.agent(Era::Legacy, json!({})).await;
    let id = agent.send_request("tools/call", json!({"name": "a__t"})).await;
    let server = pair.test_host.server("a").clone();
    pair.until("the call reaches the server", || server.in_flight() == 1).await;
    let began = tokio::time::Instant::now();
    agent
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}))
        .await;
    pair.until("the call is cancelled", || server.cancelled() == 1).await;
    assert!(began.elapsed() <= Duration::from_millis(50), "{:?}", began.elapsed());
    assert_eq!((server.in_flight(), server.count("t")), (0, 1));
    pair.until("the host forgets the call", || pair.service.status().in_flight == 0).await;
}

#[tokio::test(start_paused = true)]
async fn answers_overtake_each_other() {
    let script = Script::new()
        .tool_replying("slow", ScriptedReply::text("slow").after(Duration::from_secs(5)))
        .tool_replying("quick", ScriptedReply::text("quick"));
    let pair = RelayPair::open(TestHost::new().server("a", script)).await;
    let mut agent = pair.agent(Era::Modern, json!({})).await;
    let slow = agent.send_request("tools/call", json!({"name": "a__slow"})).await;
    let quick = agent.send_request("tools/call", json!({"name": "a__quick"})).await;
    let first: Value = serde_json::from_str(&agent.line().await).unwrap();
    assert_eq!(first["id"], quick);
    assert_eq!(agent.answer_to(slow).await["result"]["content"][0]["text"], "slow");
}

#[tokio::test(start_paused = true)]
async fn other_prompts_and_resources_are_told_to_the_agent() {
    let pair = RelayPair::open(TestHost::new().server("a", Script::echo())).await;
    let mut agent = pair.agent(Era::Legacy, json!({})).await;
    agent.request("tools/list", json!({})).await;
    pair.test_host.server("a").emit(ServerNotification::PromptsChanged);
    let notification: Value = serde_json::from_str(&agent.line().await).unwrap();
    assert_eq!(notification["method"], "notifications/prompts/list_changed");
}
