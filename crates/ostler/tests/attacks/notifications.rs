//! Requests without an id. JSON-RPC calls them notifications, many servers execute them all the same, and a gateway
//! that forwards them checks no rule, charges no budget and records nothing.

use ostler_testkit::fake_mcp;
use serde_json::{Value, json};

use crate::client::{AttackClient, AttackClientEra, HttpAttackClient, entrances, modern_meta, token};
use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::http;

fn home() -> Home {
    let home = Home::new();
    let config = format!(
        r#"
[servers.fake]
command = {:?}
args = ["--era", "legacy", "--frames", "frames"]
[roles.guest]
allow = ["fake/add", "fake/method:notifications/vendor/nudge"]
[roles.free]
allow = ["*"]
"#,
        fake_mcp()
    );
    home.write("ostler.toml", &config);
    home
}

fn rows(home: &Home, name: &str) -> Vec<Value> {
    let run = home.run(&["audit", "--json", "--limit", "1000"]);
    let events = run.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["principal"].as_str().is_some_and(|who| who.contains(name))).collect()
}

/// Returns requests without an id, some of the protocol and some of unknown methods.
fn nameless() -> Vec<Value> {
    let call = json!({"name": "hack", "arguments": {"text": "unheard-of"}});
    [
        ("tools/call", call.clone()),
        ("resources/read", json!({"uri": "fake://static"})),
        ("prompts/get", json!({"name": "greet"})),
        ("logging/setLevel", json!({"level": "debug"})),
        ("tools/list", json!({})),
        ("initialize", json!({})),
        ("vendor/purge", json!({})),
        ("vendor/notifications/purge", json!({})),
        ("Notifications/progress", json!({})),
        ("notifications/vendor/forbidden", call),
    ]
    .into_iter()
    .map(|(method, params)| json!({"jsonrpc": "2.0", "method": method, "params": params}))
    .collect()
}

#[test]
fn a_request_without_an_id_reaches_no_server_and_is_on_record() {
    let home = home();
    let guest = token(&home, "eve", "guest");
    let daemon = Daemon::start(&home);
    for (entrance, mut eve) in entrances(&daemon, "fake", Some(&guest)) {
        let tool = eve.exposed("fake", "add");
        eve.ask("tools/call", json!({"name": tool, "arguments": {"a": 1, "b": 2}}));
        for mut message in nameless() {
            if entrance.starts_with("Modern") {
                message["params"]["_meta"] = modern_meta();
            }
            let said = eve.send(message.clone());
            if !entrance.ends_with("stdio") {
                assert!(
                    said["error"]["code"].is_i64() && said["id"].is_null(),
                    "{entrance}: {message}: {said}"
                );
            }
        }
        eve.ask("tools/call", json!({"name": tool, "arguments": {"a": 1, "b": 2}}));
    }
    let frames = home.lines("frames").join("\n");
    for word in ["unheard-of", "vendor", "fake://static", "greet", "Notifications", "setLevel"] {
        assert!(!frames.contains(word), "{word} in {frames}");
    }
    // Of many refusals in a second the audit keeps ten, and counts the rest.
    let is_refusal = |row: &&Value| row["action"] != "tools/call" || row["subject"] != "add";
    let number = || -> u64 {
        let rows = rows(&home, "eve");
        rows.iter().filter(is_refusal).map(|row| row["count"].as_u64().unwrap_or(1)).sum()
    };
    let asked = nameless().len() as u64 * 6;
    until("every one is on record", || number() >= asked);
    let rows_of_eve = rows(&home, "eve");
    let codes = ["denied", "unknown-method", "invalid-argument", "refused"];
    let is_told = |row: &Value| codes.iter().any(|code| row["outcome"] == *code);
    let mut refusals = rows_of_eve.iter().filter(is_refusal);
    assert!(refusals.all(is_told), "{}", json!(rows_of_eve));

    let other = token(&home, "bob", "guest");
    let secret = std::fs::read_to_string(home.path(&other)).unwrap();
    let bob =
        HttpAttackClient::open(daemon.port, "/servers/fake/mcp", AttackClientEra::Modern, Some(&secret));
    bob.post(&json!({"jsonrpc": "2.0", "method": "notifications/vendor/forbidden", "params": {}}));
    until("the rule that refused it is on record", || {
        rows(&home, "bob").iter().any(|row| row["outcome"] == "denied" && row["rule"].is_string())
    });
}

#[test]
fn a_refused_notification_is_400_and_an_accepted_one_202() {
    let home = home();
    let guest = token(&home, "eve", "guest");
    let daemon = Daemon::start(&home);
    let secret = std::fs::read_to_string(home.path(&guest)).unwrap();
    for era in [AttackClientEra::Modern, AttackClientEra::Legacy] {
        for path in ["/mcp", "/servers/fake/mcp"] {
            let mut eve = HttpAttackClient::open(daemon.port, path, era, Some(&secret));
            let tool = eve.exposed("fake", "add");
            eve.ask("tools/call", json!({"name": tool, "arguments": {"a": 1, "b": 2}}));
            let status = |method: &str, params: Value| {
                let answer = eve.post(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
                (answer.status, answer.text)
            };
            for method in ["notifications/cancelled", "notifications/roots/list_changed"] {
                let answer = status(method, json!({"requestId": 99}));
                assert_eq!(answer.0, 202, "{era:?} {path} {method}: {answer:?}");
            }
            let answer = status("tools/call", json!({"name": "add"}));
            assert_eq!(answer.0, 400, "{era:?} {path}: {answer:?}");
            assert!(answer.1.contains("\"error\"") && answer.1.contains("without an id"), "{answer:?}");
            // As strict as for a request: parameters that two parsers would read differently are refused.
            let twice = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed",
                "params": {"name": "a", "Name": "b"}});
            assert_eq!(eve.post(&twice).status, 400, "{era:?} {path}");
            let allowed = status("notifications/vendor/nudge", json!({"at": path})).0;
            assert_eq!(allowed, 202, "{era:?} {path}");
            let forbidden = status("notifications/vendor/forbidden", json!({})).0;
            assert_eq!(forbidden, 400, "{era:?} {path}");
        }
    }
    until("the allowed one arrives", || {
        home.lines("frames").iter().any(|line| line.contains("notifications/vendor/nudge"))
    });
    let frames = home.lines("frames").join("\n");
    assert!(!frames.contains(r#""at":"/mcp""#) && !frames.contains("forbidden"), "{frames}");
}

#[test]
fn a_batch_hides_no_request_without_an_id() {
    let home = home();
    let guest = token(&home, "eve", "guest");
    let daemon = Daemon::start(&home);
    let secret = std::fs::read_to_string(home.path(&guest)).unwrap();
    let credential = format!("Authorization: Bearer {}", secret.trim());
    let headers =
        [&*credential, "Content-Type: application/json", "Accept: application/json, text/event-stream"];
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let opened = http::ask(daemon.port, "POST /servers/fake/mcp", &headers, &hello.to_string());
    let session = opened.head.lines().find(|line| line.to_ascii_lowercase().starts_with("mcp-session-id"));
    let headers = [&headers[..], &[session.unwrap()]].concat();
    let sum = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "add", "arguments": {"a": 1, "b": 2}}});
    let batch = [vec![sum.clone()], nameless(), vec![sum]].concat();
    let answer = http::ask(daemon.port, "POST /servers/fake/mcp", &headers, &json!(batch).to_string());
    let answers = answer.json();
    assert_eq!(answers.as_array().unwrap().len(), batch.len(), "{answers}");
    assert!(!home.lines("frames").join("\n").contains("unheard-of"));
}

#[test]
fn changed_roots_of_a_caller_are_not_told_to_a_server_that_others_share() {
    let home = home();
    let more = format!(
        "{}[servers.own]\ncommand = {:?}\nargs = [\"--era\", \"legacy\", \"--frames\", \"own\"]\nisolation = \"caller\"\n",
        home.lines("ostler.toml").join("\n") + "\n",
        fake_mcp()
    );
    home.write("ostler.toml", &more);
    let free = token(&home, "bob", "free");
    let daemon = Daemon::start(&home);
    let told =
        |file: &str| home.lines(file).iter().filter(|frame| frame.contains("roots/list_changed")).count();
    for (entrance, mut client) in entrances(&daemon, "own", Some(&free)) {
        let tool = client.exposed("own", "add");
        let answer = client.ask("tools/call", json!({"name": tool, "arguments": {"a": 1, "b": 1}}));
        assert_eq!(answer["result"]["content"][0]["text"], "2", "{entrance}: {answer}");
        let before = told("own");
        client.send(json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}));
        if entrance.starts_with("Legacy") {
            until(&format!("{entrance}: the caller's own process is told"), || told("own") > before);
        }
    }
    assert_eq!(told("frames"), 0);
}
