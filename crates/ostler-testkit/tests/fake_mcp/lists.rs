//! Lists, pages, changes and hints.

use std::fs;

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::client::{FakeMcpClient, modern_params};

fn names(page: &Value) -> Vec<String> {
    let tools = page["result"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap_or("?").to_owned()).collect()
}

#[test]
fn pages_together_hold_every_tool_once() {
    let mut whole = FakeMcpClient::legacy(&["--tools", "25"]);
    let expected = names(&whole.request("tools/list", json!({})));
    assert!(expected.contains(&"tool_0025".to_owned()));

    let mut client = FakeMcpClient::legacy(&["--tools", "25", "--page-size", "7"]);
    let (mut found, mut params) = (Vec::new(), json!({}));
    loop {
        let page = client.request("tools/list", params);
        assert!(names(&page).len() <= 7);
        found.extend(names(&page));
        let Some(cursor) = page["result"].get("nextCursor") else { break };
        params = json!({"cursor": cursor});
    }
    assert_eq!(found, expected);
    assert_eq!(client.request("tools/list", json!({"cursor": "nonsense"}))["error"]["code"], -32602);
}

#[test]
fn a_repeated_cursor_leads_back_to_its_own_page() {
    let mut client = FakeMcpClient::legacy(&["--repeat-cursor"]);
    let first = client.request("tools/list", json!({}))["result"]["nextCursor"].clone();
    let second = client.request("tools/list", json!({"cursor": first}))["result"]["nextCursor"].clone();
    assert!(first.is_string());
    assert_eq!(first, second);
}

#[test]
fn endless_pages_name_a_new_cursor_each_time() {
    let mut client = FakeMcpClient::legacy(&["--endless-pages"]);
    let (mut seen, mut params) = (std::collections::HashSet::new(), json!({}));
    for _ in 0..50 {
        let cursor = client.request("tools/list", params)["result"]["nextCursor"].clone();
        assert!(seen.insert(cursor.as_str().unwrap().to_owned()));
        params = json!({"cursor": cursor});
    }
}

#[test]
fn one_tool_may_be_malformed_and_all_may_lie_about_their_origin() {
    let mut client = FakeMcpClient::legacy(&["--bad-tool", "--forge-origin"]);
    let page = client.request("tools/list", json!({}));
    let tools = page["result"]["tools"].as_array().unwrap();
    let (good, bad): (Vec<_>, Vec<_>) = tools.iter().partition(|tool| tool["name"].is_string());
    assert_eq!(bad.len(), 1);
    assert!(good.len() > 20);
    assert!(good.iter().all(|tool| tool["server"] == "somebody-else" && tool["_meta"].is_object()));
}

#[test]
fn a_changed_file_changes_the_list_and_is_announced_once() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("text");
    fs::write(&file, "one").unwrap();
    let mut client = FakeMcpClient::legacy(&["--change-tools", file.to_str().unwrap()]);
    let description = |page: &Value| page["result"]["tools"][0]["description"].as_str().unwrap().to_owned();
    assert!(description(&client.request("tools/list", json!({}))).ends_with("one"));

    fs::write(&file, "two").unwrap();
    client.send_request("tools/list", json!({}));
    assert_eq!(client.read()["method"], "notifications/tools/list_changed");
    assert!(description(&client.read()).ends_with("two"));

    fs::write(&file, "three").unwrap();
    client.send_call("touch_tools", json!({}));
    assert_eq!(client.read()["method"], "notifications/tools/list_changed");
    assert!(client.read()["result"].is_object());
    assert!(description(&client.request("tools/list", json!({}))).ends_with("three"));
    assert_eq!(client.text("touch_tools", json!({})), "touched");
}

#[test]
fn list_changed_is_sent_as_often_as_asked() {
    let mut client = FakeMcpClient::legacy(&[]);
    let id = client.send_call("list_changed", json!({"count": 3}));
    for _ in 0..3 {
        assert_eq!(client.read()["method"], "notifications/tools/list_changed");
    }
    assert_eq!(client.read()["id"], id);
}

#[test]
fn hints_are_on_lists_and_reads_as_scripted() {
    let mut client = FakeMcpClient::start(&["--list-ttl", "5000:public", "--read-ttl", "70"]);
    let list = client.request("tools/list", modern_params(json!({})));
    assert_eq!((&list["result"]["ttlMs"], &list["result"]["cacheScope"]), (&json!(5000), &json!("public")));
    let read = client.request("resources/read", modern_params(json!({"uri": "fake://static"})));
    assert_eq!((&read["result"]["ttlMs"], &read["result"]["cacheScope"]), (&json!(70), &json!("private")));
    let prompts = client.request("prompts/list", modern_params(json!({})));
    assert_eq!(prompts["result"]["ttlMs"], 0);
}

#[test]
fn a_list_may_fail_or_be_slow_while_calls_are_not() {
    assert_eq!(
        FakeMcpClient::legacy(&["--list-error"]).request("tools/list", json!({}))["error"]["code"],
        -32603
    );
    let mut client = FakeMcpClient::legacy(&["--slow-list", "300"]);
    let list = client.send_request("tools/list", json!({}));
    assert_eq!(client.text("text", json!({"text": "first"})), "first");
    assert_eq!(client.read()["id"], list);
}

#[test]
fn resources_and_prompts_are_listed_read_and_got() {
    let mut client = FakeMcpClient::legacy(&[]);
    let resources = client.request("resources/list", json!({}));
    assert_eq!(resources["result"]["resources"][0]["uri"], "fake://static");
    let templates = client.request("resources/templates/list", json!({}));
    assert_eq!(templates["result"]["resourceTemplates"][0]["uriTemplate"], "fake://item/{id}");
    let read = client.request("resources/read", json!({"uri": "fake://item/\"7\""}));
    assert_eq!(read["result"]["contents"][0]["text"], "\"7\"");
    assert_eq!(client.request("resources/read", json!({"uri": "fake://nope"}))["error"]["code"], -32002);
    let refused = client.request("resources/read", modern_params(json!({"uri": "fake://nope"})));
    assert_eq!(refused["error"]["code"], -32602);
    assert_eq!(client.request("prompts/list", json!({}))["result"]["prompts"][0]["name"], "greet");
    let prompt = client.request("prompts/get", json!({"name": "greet", "arguments": {"who": "Ann"}}));
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "Hello, Ann");
    assert_eq!(client.request("prompts/get", json!({"name": "x"}))["error"]["code"], -32602);
}
