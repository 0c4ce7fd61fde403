//! Sessions, cursors and states that clients hold across a restart of the daemon.

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::home::Home;
use crate::mcp;

fn names(page: &Value) -> Vec<&str> {
    let tools = page["result"]["tools"].as_array().unwrap_or_else(|| panic!("{page}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[test]
fn a_list_goes_on_where_it_was_when_the_daemon_is_another() {
    let home = Home::with_servers(&[("fake", &["--catalog", "catalog.json"])]);
    // More than one page holds.
    let tools: Vec<Value> = (1..=1_200)
        .map(|number| json!({"name": format!("tool_{number}"), "description": "x".repeat(5_000), "inputSchema": {"type": "object"}}))
        .collect();
    home.write("catalog.json", &json!({"tools": tools}).to_string());
    let daemon = Daemon::start(&home);
    let first = mcp::ask(daemon.port, "tools/list", json!({}));
    let cursor = first["result"]["nextCursor"].clone();
    assert!(cursor.is_string(), "{}", names(&first).len());
    assert!(daemon.end().0.success());
    let daemon = Daemon::start(&home);
    let second = mcp::ask(daemon.port, "tools/list", json!({"cursor": cursor}));
    assert_eq!(second["result"].get("nextCursor"), None);
    let mut all = [names(&first), names(&second)].concat();
    assert_eq!(all.last(), Some(&"fake__tool_1200"));
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn a_modern_servers_question_is_not_answered_through_another_daemon() {
    let home = Home::with_servers(&[("fake", &["--era", "modern", "--ledger", "ledger"])]);
    let daemon = Daemon::start(&home);
    let asked = mcp::call(daemon.port, "fake__input", json!({}));
    assert!(daemon.end().0.success());
    let daemon = Daemon::start(&home);
    // Only the process that issued the state knows whether it was used before.
    let refused = mcp::answer(daemon.port, "fake__input", &asked);
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("restarted"), "{refused}");
    assert_eq!(home.lines("ledger").len(), 0);
}

#[test]
fn a_parked_call_is_lost_with_its_daemon_and_never_runs_twice() {
    let home = Home::with_servers(&[("fake", &["--era", "legacy", "--ledger", "ledger"])]);
    let daemon = Daemon::start(&home);
    let asked = mcp::call(daemon.port, "fake__input", json!({}));
    assert!(daemon.end().0.success());
    let daemon = Daemon::start(&home);
    let lost = mcp::answer(daemon.port, "fake__input", &asked);
    assert_eq!(lost["error"]["data"]["code"], "outcome-unknown", "{lost}");
    assert_eq!(home.lines("ledger").len(), 1);
}
