//! Payloads through a worker: they arrive whole, in both directions.

use std::time::{Duration, Instant};

use ostler_testkit::fake_mcp;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::home::{Home, until};
use crate::site::{Setup, worker};

/// Returns the `_meta` of a modern client's request.
fn modern() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    })
}

/// Initializes a legacy client whose user can be asked.
fn hello_with_a_user(agent: &mut Agent) {
    let answer = agent.ask(
        "initialize",
        json!({
            "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "test", "version": "1"}
        }),
    );
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
    agent.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
}

#[test]
fn results_arrive_as_the_server_gave_them() {
    let fixture = fake_mcp().with_file_name("fixture-mcp");
    let more = format!("[servers.fixture]\ncommand = {fixture:?}\nargs = [\"--stdio\"]\n");
    let (broker, sites) = Setup { call_timeout: "60s", more: &more, ..Setup::default() }.build();
    let (far, _daemon) = (Home::new(), sites[0].start());
    let mut agent = Agent::start_as(worker(&far, &broker, "w1"));
    agent.hello();

    let image = agent.call("fixture__test_image_content", json!({}));
    let image = &image["result"]["content"][0];
    assert_eq!((&image["type"], &image["mimeType"]), (&json!("image"), &json!("image/png")), "{image}");
    assert!(image["data"].as_str().is_some_and(|data| data.starts_with("iVBORw0KGgo")), "{image}");

    let arguments = json!({"deep": {"list": [1, 2.5, null], "text": "ä\u{0}\u{2028}"}});
    let echo = agent.call("fake__echo", arguments.clone());
    assert_eq!(echo["result"]["structuredContent"], arguments, "{echo}");

    let size = 20_000_000;
    let began = Instant::now();
    let blob = agent.call("fake__blob", json!({"size": size}));
    println!("20 MB took {:.1?}", began.elapsed());
    let text = blob["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{blob}"));
    assert!(text.len() == size && text.bytes().all(|byte| byte == b'x'), "{} bytes", text.len());

    let failed = agent.call("fake__fail", json!({"text": "no"}));
    assert_eq!(failed["result"]["isError"], true, "{failed}");
    let refused = agent.call("fake__rpc_error", json!({"code": -32055, "message": "mine"}));
    assert_eq!((&refused["error"]["code"], &refused["error"]["message"]), (&json!(-32055), &json!("mine")));
}

#[test]
fn progress_arrives_in_order_before_the_answer() {
    let (broker, sites) = Setup::default().build();
    let (far, _daemon) = (Home::new(), sites[0].start());
    let mut agent = Agent::start_as(worker(&far, &broker, "w1"));
    agent.hello();
    let params = json!({
        "name": "fake__progress", "arguments": {"count": 5, "ms": 20}, "_meta": {"progressToken": "mine"}
    });
    let answer = agent.ask("tools/call", params);
    assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
    let notes = agent.heard.iter().filter(|message| message["method"] == "notifications/progress");
    let steps: Vec<_> =
        notes.map(|note| (&note["params"]["progressToken"], &note["params"]["progress"])).collect();
    let expected = [1, 2, 3, 4, 5].map(|step| (json!("mine"), json!(step)));
    assert!(steps.into_iter().eq(expected.iter().map(|(token, step)| (token, step))), "{:?}", agent.heard);
}

#[test]
fn a_call_that_its_client_cancels_ends_at_the_server() {
    let setup = Setup { call_timeout: "60s", args: &["--frames", "frames"], ..Setup::default() };
    let (broker, sites) = setup.build();
    let (far, _daemon) = (Home::new(), sites[0].start());
    let mut agent = Agent::start_as(worker(&far, &broker, "w1"));
    agent.hello();
    let mut longest = Duration::ZERO;
    for turn in 1..=5 {
        let id = agent.begin("tools/call", json!({"name": "fake__sleep", "arguments": {"ms": 600_000}}));
        until("the server has the call", || sites[0].ledger().len() == turn);
        let count = || {
            let frames = sites[0].home.lines("frames");
            frames.iter().filter(|frame| frame.contains("notifications/cancelled")).count()
        };
        assert_eq!(count(), turn - 1);
        let began = Instant::now();
        let params = json!({"requestId": id});
        agent.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
        until("the server hears of it", || count() == turn);
        longest = longest.max(began.elapsed());
    }
    println!("cancelling reached the server within {longest:.1?}, looked at every 5 ms");
    assert!(longest < Duration::from_secs(2), "{longest:?}");
}

#[test]
fn a_legacy_agents_user_is_asked_by_servers_of_both_eras() {
    for era in ["legacy", "modern"] {
        let (broker, sites) = Setup { args: &["--era", era], ..Setup::default() }.build();
        let (far, _daemon) = (Home::new(), sites[0].start());
        let mut agent = Agent::start_as(worker(&far, &broker, "w1"));
        hello_with_a_user(&mut agent);
        let id = agent.begin("tools/call", json!({"name": "fake__input", "arguments": {}}));
        let question = loop {
            let message = agent.hear();
            if message["method"] == "elicitation/create" {
                break message;
            }
            assert_ne!(message["id"], id, "{era}: it was never asked: {message}");
        };
        assert_eq!(question["params"]["message"], "Go on?", "{era}: {question}");
        let result = json!({"action": "accept", "content": {"ok": true}});
        agent.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}));
        let answer = agent.answer(id);
        assert!(answer["result"].to_string().contains("accept"), "{era}: {answer}");
        assert_eq!(sites[0].ledger().len(), 1, "{era}");
    }
}

#[test]
fn a_modern_agents_user_is_asked_by_servers_of_both_eras() {
    for era in ["legacy", "modern"] {
        let (broker, sites) = Setup { args: &["--era", era], ..Setup::default() }.build();
        let (far, _daemon) = (Home::new(), sites[0].start());
        let mut agent = Agent::start_as(worker(&far, &broker, "w1"));
        let mut params = json!({"name": "fake__input", "arguments": {}, "_meta": modern()});
        let asked = agent.ask("tools/call", params.clone());
        assert_eq!(asked["result"]["resultType"], "input_required", "{era}: {asked}");
        let questions = asked["result"]["inputRequests"].as_object().unwrap();
        let accept = |key: &String| (key.clone(), json!({"action": "accept", "content": {"ok": true}}));
        let answers: serde_json::Map<String, Value> = questions.keys().map(accept).collect();
        params["inputResponses"] = answers.into();
        params["requestState"] = asked["result"]["requestState"].clone();
        let answer = agent.ask("tools/call", params);
        assert_eq!(answer["result"]["resultType"], "complete", "{era}: {answer}");
        assert!(answer["result"].to_string().contains("accept"), "{era}: {answer}");
        assert_eq!(sites[0].ledger().len(), 1, "{era}");
    }
}
