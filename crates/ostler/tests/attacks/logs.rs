//! Log lines and log levels of a shared server, which must not leak from one caller to another.

use std::io::BufRead;

use ostler_testkit::fake_mcp;
use serde_json::{Value, json};

use crate::client::{AttackClient, AttackClientEra, HttpAttackClient, PipeAttackClient, token};
use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::http;

/// Returns a home with a shared legacy server, a role that may use all of it and one that may not.
fn home() -> Home {
    let home = Home::new();
    let command = fake_mcp();
    home.write(
        "ostler.toml",
        &format!(
            "[servers.fake]\ncommand = {command:?}\nargs = [\"--era\", \"legacy\"]\nlazy = false\n\
             [roles.all]\nallow = [\"*\"]\n[roles.few]\nallow = [\"fake/echo\", \"fake/list_changed\"]\n"
        ),
    );
    home
}

/// Returns the credential in a file of the home.
fn credential(home: &Home, name: &str, role: &str) -> String {
    std::fs::read_to_string(home.path(&token(home, name, role))).unwrap()
}

const PATHS: [&str; 2] = ["/mcp", "/servers/fake/mcp"];

/// Makes the server log a line that belongs to no call with a listener.
fn say(client: &mut HttpAttackClient, params: &Value) {
    let tool = client.exposed("fake", "notify");
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let arguments = json!({"method": "notifications/message", "params": params});
    let answer = client.ask("tools/call", json!({"name": tool, "arguments": arguments, "_meta": meta}));
    assert!(answer.get("result").is_some(), "{answer}");
}

/// Returns the level that the server was last set to, as the caller sees it.
fn level(client: &mut dyn AttackClient) -> Value {
    let tool = client.exposed("fake", "news");
    let answer = client.ask("tools/call", json!({"name": tool, "arguments": {}}));
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
    serde_json::from_str::<Value>(text).unwrap()["level"].clone()
}

#[test]
fn log_lines_of_a_shared_server_stay_away_from_restricted_roles() {
    let home = home();
    let daemon = Daemon::start(&home);
    let (all, few) = (credential(&home, "ann", "all"), credential(&home, "bob", "few"));
    let mut ann = HttpAttackClient::open(daemon.port, "/mcp", AttackClientEra::Modern, Some(&all));
    for path in PATHS {
        for (who, credential, hears) in [("all", &all, true), ("few", &few, false)] {
            let mut client =
                HttpAttackClient::open(daemon.port, path, AttackClientEra::Legacy, Some(credential));
            let answer = client.ask("logging/setLevel", json!({"level": "debug"}));
            assert_eq!(answer["result"], json!({}), "{answer}");
            let headers = [
                "Accept: text/event-stream".to_owned(),
                format!("Mcp-Session-Id: {}", client.session().unwrap()),
                format!("Authorization: Bearer {}", credential.trim()),
            ];
            let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
            let mut stream = http::open(daemon.port, &format!("GET {path}"), &headers, "");
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            assert!(line.contains(" 200 "), "{line}");
            say(&mut ann, &json!({"level": "error", "data": "of another caller"}));
            // Every caller receives the next notification within a second of the change before.
            let tool = ann.exposed("fake", "list_changed");
            ann.ask("tools/call", json!({"name": tool, "arguments": {"count": 1}}));
            let mut heard = String::new();
            while !heard.contains("list_changed") {
                assert_ne!(stream.read_line(&mut heard).unwrap(), 0, "the stream ended: {heard}");
            }
            assert_eq!(heard.contains("of another caller"), hears, "{who} at {path}: {heard}");
        }
    }
}

#[test]
fn log_lines_of_a_shared_server_stay_away_from_restricted_pipes() {
    let home = home();
    let daemon = Daemon::start(&home);
    let all = credential(&home, "ann", "all");
    let mut ann = HttpAttackClient::open(daemon.port, "/mcp", AttackClientEra::Modern, Some(&all));
    let few = token(&home, "bob", "few");
    let mut bob = PipeAttackClient::stdio(&home, Some(&few), AttackClientEra::Legacy);
    bob.ask("logging/setLevel", json!({"level": "debug"}));
    say(&mut ann, &json!({"level": "error", "data": "of another caller"}));
    let tool = ann.exposed("fake", "list_changed");
    ann.ask("tools/call", json!({"name": tool, "arguments": {"count": 1}}));
    loop {
        let heard = bob.agent().hear();
        assert_ne!(heard["method"], "notifications/message", "{heard}");
        if heard["method"] == "notifications/tools/list_changed" {
            break;
        }
    }
}

#[test]
fn a_restricted_caller_does_not_set_the_level_for_all() {
    let home = home();
    let daemon = Daemon::start(&home);
    let (all, few) = (credential(&home, "ann", "all"), credential(&home, "bob", "few"));
    let mut ann =
        HttpAttackClient::open(daemon.port, "/servers/fake/mcp", AttackClientEra::Legacy, Some(&all));
    for path in PATHS {
        let mut bob = HttpAttackClient::open(daemon.port, path, AttackClientEra::Legacy, Some(&few));
        let answer = bob.ask("logging/setLevel", json!({"level": "debug"}));
        assert_eq!(answer["result"], json!({}), "{answer}");
    }
    // Levels are set one after the other, so a level of bob's would be set before.
    ann.ask("logging/setLevel", json!({"level": "error"}));
    until("the level is told", || level(&mut ann) != Value::Null);
    assert_eq!(level(&mut ann), "info", "no less than callers hear that set none");
}
