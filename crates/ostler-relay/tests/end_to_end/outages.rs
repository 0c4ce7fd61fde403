//! Brokers and hosts that go away, as an agent sees it.

use std::time::Duration;

use ostler_relay::broker::memory::MessageAction;
use ostler_testkit::{Script, ScriptedReply, TestHost};
use ostler_wire::Era;
use serde_json::json;

use crate::pair::RelayPair;

#[tokio::test(start_paused = true)]
async fn a_call_outlives_an_outage_of_the_broker() {
    let reply = ScriptedReply::text("done").after(Duration::from_secs(6));
    let pair = RelayPair::open(TestHost::new().server("a", Script::new().tool_replying("t", reply))).await;
    let mut agent = pair.agent(Era::Modern, json!({})).await;
    let id = agent.send_request("tools/call", json!({"name": "a__t"})).await;
    let server = pair.test_host.server("a").clone();
    pair.until("the call reaches the server", || server.in_flight() == 1).await;
    // Long enough that the answer is ready before the broker returns.
    tokio::time::sleep(Duration::from_secs(1)).await;
    pair.broker.go_down();
    tokio::time::sleep(Duration::from_secs(10)).await;
    pair.broker.come_up();
    let done = agent.answer_to(id).await;
    assert_eq!(done["result"]["content"][0]["text"], "done", "{done}");
    assert_eq!(server.count("t"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_finds_no_broker_waits_for_it() {
    let pair = RelayPair::open(TestHost::new().server("a", Script::echo())).await;
    let mut agent = pair.agent(Era::Modern, json!({})).await;
    agent.request("tools/list", json!({})).await;
    pair.broker.go_down();
    let id = agent.send_request("tools/call", json!({"name": "a__echo", "arguments": {"x": 1}})).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(pair.worker.problem().is_some(), "a person can read what is wrong");
    pair.broker.come_up();
    let done = agent.answer_to(id).await;
    assert_eq!(done["result"]["content"][0]["text"], r#"{"x":1}"#, "{done}");
}

#[tokio::test(start_paused = true)]
async fn the_death_of_a_host_is_noticed_in_seconds() {
    let pair = RelayPair::open(
        TestHost::new().server("a", Script::new().tool_replying("t", ScriptedReply::never())),
    )
    .await;
    let mut agent = pair.agent(Era::Modern, json!({})).await;
    let id = agent.send_request("tools/call", json!({"name": "a__t"})).await;
    let server = pair.test_host.server("a").clone();
    pair.until("the call reaches the server", || server.in_flight() == 1).await;
    let began = tokio::time::Instant::now();
    pair.broker.set_fault_injector(Some(Box::new(|from, _, _| match from {
        "host" => MessageAction::Drop,
        _ => MessageAction::Deliver,
    })));
    let lost = agent.answer_to(id).await;
    assert_eq!(lost["error"]["data"]["code"], "outcome-unknown", "{lost}");
    assert!(began.elapsed() <= Duration::from_millis(3_500), "{:?}", began.elapsed());
}

/// A broken connection may drop what was handed to it, unnoticed.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_with_the_hosts_connection_is_asked_for() {
    let reply = ScriptedReply::text("done").after(Duration::from_secs(1));
    let pair = RelayPair::open(TestHost::new().server("a", Script::new().tool_replying("t", reply))).await;
    let mut agent = pair.agent(Era::Modern, json!({})).await;
    let id = agent.send_request("tools/call", json!({"name": "a__t"})).await;
    let server = pair.test_host.server("a").clone();
    pair.until("the call reaches the server", || server.in_flight() == 1).await;
    pair.broker.set_fault_injector(Some(Box::new(|_, _, message| {
        match message.subject.starts_with("_INBOX") {
            true => MessageAction::Drop,
            false => MessageAction::Deliver,
        }
    })));
    pair.until("the host has answered", || pair.service.status().in_flight == 0).await;
    pair.broker.set_fault_injector(None);
    let began = tokio::time::Instant::now();
    pair.broker.disconnect("host");
    let done = agent.answer_to(id).await;
    assert_eq!(done["result"]["content"][0]["text"], "done", "{done}");
    assert!(began.elapsed() <= Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(server.count("t"), 1);
}

/// A server request may be dropped as well.
#[tokio::test(start_paused = true)]
async fn a_question_that_is_lost_with_the_hosts_connection_is_asked_again() {
    let server_request = json!({"message": "who?", "requestedSchema": {"type": "object", "properties": {}}});
    let reply = ScriptedReply::text("done")
        .pausing(Duration::from_secs(1))
        .asking("elicitation/create", server_request);
    let pair = RelayPair::open(TestHost::new().server("a", Script::new().tool_replying("t", reply))).await;
    let mut agent = pair.agent(Era::Legacy, json!({"elicitation": {}})).await;
    let id = agent.send_request("tools/call", json!({"name": "a__t"})).await;
    let server = pair.test_host.server("a").clone();
    pair.until("the call reaches the server", || server.in_flight() == 1).await;
    pair.broker.set_fault_injector(Some(Box::new(|from, _, message| {
        match from == "host" && message.subject.contains(".progress.") {
            true => MessageAction::Drop,
            false => MessageAction::Deliver,
        }
    })));
    tokio::time::sleep(Duration::from_secs(2)).await;
    pair.broker.set_fault_injector(None);
    pair.broker.disconnect("host");
    let server_request = agent.next_server_request().await;
    agent.respond(&server_request, json!({"action": "decline"})).await;
    let done = agent.answer_to(id).await;
    assert_eq!(done["result"]["content"][0]["text"], "done", "{done}");
}

#[tokio::test(start_paused = true)]
async fn a_draining_host_finishes_what_it_has_begun() {
    let reply = ScriptedReply::text("done").after(Duration::from_secs(3));
    let pair = RelayPair::open(TestHost::new().server("a", Script::new().tool_replying("t", reply))).await;
    let mut agent = pair.agent(Era::Modern, json!({})).await;
    let id = agent.send_request("tools/call", json!({"name": "a__t"})).await;
    let server = pair.test_host.server("a").clone();
    pair.until("the call reaches the server", || server.in_flight() == 1).await;
    let began = tokio::time::Instant::now();
    pair.service.drain(Duration::from_secs(10)).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let done = agent.answer_to(id).await;
    assert_eq!(done["result"]["content"][0]["text"], "done", "{done}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_while_it_starts_hides_no_other() {
    let hangs = Script::echo().start_after(Duration::from_secs(3_600));
    let test_host = TestHost::new().server("a", Script::echo()).server_with("b", hangs, |spec| {
        spec.start_timeout = Duration::from_secs(60);
    });
    let pair = RelayPair::open(test_host).await;
    let mut agent = pair.agent(Era::Modern, json!({})).await;
    let began = tokio::time::Instant::now();
    let list = agent.request("tools/list", json!({})).await;
    assert_eq!(list["result"]["tools"][0]["name"], "a__echo", "{list}");
    assert!(began.elapsed() <= Duration::from_secs(10), "{:?}", began.elapsed());
}
