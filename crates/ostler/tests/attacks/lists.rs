//! A hostile server that lists tens of thousands of items: those beyond the limits are left out and reported, and calls
//! of other servers go on meanwhile.

use std::fmt::Write as _;
use std::thread;

use ostler_testkit::fake_mcp;
use serde_json::{Value, json};

use crate::client::{AttackClient, AttackClientEra, HttpAttackClient, entrances};
use crate::daemon::Daemon;
use crate::home::Home;

/// Items of each list: many times the limits, and quickly written by a test server.
const HOSTILE: usize = 60_000;

fn items(count: usize, item: impl Fn(usize) -> String) -> String {
    let mut text = String::from("[");
    for at in 0..count {
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{}", item(at));
    }
    text + "]"
}

/// Returns a home with the server `good` and the server `hostile`, whose lists have `count` items each.
fn home(count: usize, settings: &str) -> Home {
    let home = Home::new();
    let named = items(count, |at| format!(r#"{{"name":"{at:x}"}}"#));
    let resources = items(count, |at| format!(r#"{{"uri":"a:{at:x}"}}"#));
    let templates = items(count, |at| format!(r#"{{"uriTemplate":"a:{at:x}"}}"#));
    let catalog = format!(
        r#"{{"tools":{named},"prompts":{named},"resources":{resources},"resourceTemplates":{templates}}}"#
    );
    home.write("catalog.json", &catalog);
    home.write(
        "ostler.toml",
        &format!(
            "[servers.good]\ncommand = {:?}\n[servers.hostile]\ncommand = {:?}\n\
             args = [\"--catalog\", {:?}]\n{settings}\n",
            fake_mcp(),
            fake_mcp(),
            home.path("catalog.json")
        ),
    );
    home
}

fn status(home: &Home, server: &str) -> Value {
    let run = home.run(&["status", server, "--json"]);
    let status: Value = serde_json::from_str(&run.stdout).unwrap();
    status["servers"].get(0).unwrap_or(&status).clone()
}

/// Returns the names on all pages of a list.
fn names(client: &mut dyn AttackClient, method: &str, member: &str) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
        let answer = client.ask(method, params);
        all.extend(answer["result"][member].as_array().unwrap_or_else(|| panic!("{answer}")).clone());
        cursor = answer["result"]["nextCursor"].clone();
        if cursor.is_null() {
            return all;
        }
    }
}

#[test]
fn what_a_list_has_beyond_its_limit_is_left_out_and_reported() {
    let home = home(50, "max_tools = 20\nmax_prompts = 21\nmax_resources = 22\nmax_templates = 23");
    let daemon = Daemon::start(&home);
    for (entrance, mut client) in entrances(&daemon, "hostile", None) {
        let is_own = entrance.contains("/servers/");
        let lists = [
            ("tools/list", "tools", 20, "name"),
            ("prompts/list", "prompts", 21, "name"),
            ("resources/list", "resources", 22, "uri"),
            ("resources/templates/list", "resourceTemplates", 23, "uriTemplate"),
        ];
        for (method, member, kept, key) in lists {
            let found = names(&mut *client, method, member);
            let is_hostile = |item: &&Value| {
                let name = item[key].as_str().unwrap_or_default();
                is_own || name.starts_with("hostile__") || name.starts_with("a:")
            };
            assert_eq!(found.iter().filter(is_hostile).count(), kept, "{entrance}: {member}");
        }
    }
    let status = status(&home, "hostile");
    assert_eq!(status["left_out"], 30 + 29 + 28 + 27, "{status}");
    let told = home.run_wide(&["status", "hostile"]);
    assert!(told.stdout.contains("hostile: at least 114 of the items it lists are left out"), "{told}");
}

#[test]
fn an_item_with_an_endless_name_is_left_out_alone() {
    let home = home(3, "");
    let long = "x".repeat(1_025);
    let catalog = json!({"tools": [{"name": "a"}, {"name": long}, {"name": "b"}]});
    home.write("catalog.json", &catalog.to_string());
    let daemon = Daemon::start(&home);
    for (entrance, mut client) in entrances(&daemon, "hostile", None) {
        let found = names(&mut *client, "tools/list", "tools");
        let of_hostile = found.iter().filter_map(|tool| tool["name"].as_str());
        let of_hostile =
            of_hostile.filter(|name| entrance.contains("/servers/") || name.starts_with("hostile__"));
        assert_eq!(of_hostile.count(), 2, "{entrance}");
    }
}

#[test]
fn calls_of_another_server_go_on_while_hostile_lists_are_read() {
    let home = home(HOSTILE, "");
    let daemon = Daemon::start(&home);
    let mut good = HttpAttackClient::open(daemon.port, "/mcp", AttackClientEra::Modern, None);
    let tool = good.exposed("good", "add");
    let mut call = move || {
        let answer = good.ask("tools/call", json!({"name": tool, "arguments": {"a": 2, "b": 40}}));
        assert_eq!(answer["result"]["content"][0]["text"], "42", "{answer}");
    };
    call();
    let lists: Vec<_> = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]
        .into_iter()
        .map(|method| {
            let mut client =
                HttpAttackClient::open(daemon.port, "/servers/hostile/mcp", AttackClientEra::Modern, None);
            thread::spawn(move || client.ask(method, json!({})))
        })
        .collect();
    let mut calls = 0;
    while !lists.iter().all(thread::JoinHandle::is_finished) {
        call();
        calls += 1;
    }
    assert!(calls > 4, "{calls} calls while four lists were read");
    let kept: Vec<usize> = lists
        .into_iter()
        .zip(["tools", "prompts", "resources", "resourceTemplates"])
        .map(|(list, member)| list.join().unwrap()["result"][member].as_array().map_or(0, Vec::len))
        .collect();
    assert_eq!(kept, [2_000, 2_000, 10_000, 2_000]);
}

#[test]
fn a_definition_that_validating_clients_refuse_is_completed_or_left_out_at_mcp_and_reported() {
    let home = home(3, "");
    let good = json!({"name": "good", "inputSchema": {"type": "object"}});
    let odd = json!({"name": "odd", "inputSchema": "none"});
    let catalog = json!({"tools": [good, {"name": "bare", "title": 5}, odd]});
    home.write("catalog.json", &catalog.to_string());
    let daemon = Daemon::start(&home);
    for (entrance, mut client) in entrances(&daemon, "hostile", None) {
        let found = names(&mut *client, "tools/list", "tools");
        if entrance.contains("/servers/") {
            assert_eq!(json!(found), catalog["tools"], "{entrance}");
            continue;
        }
        let of_hostile =
            |tool: &&Value| tool["name"].as_str().is_some_and(|name| name.starts_with("hostile__"));
        let found: Vec<_> = found.iter().filter(of_hostile).collect();
        let schema = json!({"type": "object"});
        let bare = json!({"name": "hostile__bare", "inputSchema": schema});
        assert_eq!(
            json!(found),
            json!([{"name": "hostile__good", "inputSchema": schema}, bare]),
            "{entrance}"
        );
    }
    let status = status(&home, "hostile");
    let invalid = &status["invalid_definitions"];
    assert_eq!((&invalid["completed"], &invalid["left_out"]), (&json!(1), &json!(1)), "{status}");
    let told = home.run_wide(&["status", "hostile"]);
    let expected = "hostile: the MCP schema does not allow 2 definitions, so that validating clients would refuse the \
         whole list at /mcp: tool `bare` is completed because `title` is not a string, `inputSchema` is missing; \
         tool `odd` is left out because `inputSchema` is not an object";
    assert!(told.stdout.contains(expected), "{told}");
}
