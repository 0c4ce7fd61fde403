//! `ostler stdio` without a daemon: the client gets the reason as an error.

use serde_json::{Value, json};

use crate::home::Home;
use crate::stdio::StdioClient;

/// Returns the answers to a client's requests, and the program's output once the client has closed its stdin.
fn asked(home: &Home, command: std::process::Command) -> (Vec<Value>, crate::home::Run) {
    let mut client = StdioClient::start_as(command);
    client.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled"}));
    let mut answers =
        vec![client.ask(1, "server/discover", json!({})), client.ask(2, "initialize", json!({}))];
    answers.push(client.ask(3, "ping", json!({})));
    drop(client.child.stdin.take());
    (answers, home.finish(client.child))
}

#[test]
fn a_client_is_told_that_its_config_is_not_trusted() {
    let home = Home::new();
    home.write(".mcp.json", r#"{"mcpServers": {"time": {"command": "mcp-server-time"}}}"#);
    let (answers, run) = asked(&home, home.finding_command(&["stdio"]));
    for answer in answers {
        assert_eq!(answer["error"]["code"], -31002, "{answer}");
        assert_eq!(answer["error"]["data"]["code"], "config-untrusted", "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        for words in [
            ".mcp.json is not trusted",
            "`ostler trust`",
            home.path("").to_str().unwrap().trim_end_matches('/'),
        ] {
            assert!(message.contains(words), "no {words} in {message}");
        }
    }
    assert_eq!((run.code, run.stdout.as_str()), (Some(5), ""), "{run}");
    assert!(
        run.stderr.contains("runs      `time`: mcp-server-time\nerror: .mcp.json is not trusted"),
        "{run}"
    );
}

#[test]
fn a_client_is_told_what_is_wrong_with_the_config() {
    let home = Home::new();
    home.write("ostler.toml", "[servers.fake]\ncomand = \"x\"\n");
    let (answers, run) = asked(&home, home.command(&["stdio"]));
    for answer in answers {
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("ostler.toml:2:1: error: unknown key `comand`"), "{message}");
    }
    assert_eq!(run.code, Some(4), "{run}");
}

#[test]
fn a_client_is_told_what_is_wrong_with_a_config_that_was_found() {
    let home = Home::new();
    home.write(
        ".mcp.json",
        "{\n  \"mcpServers\": {\n    \"time\": {\"comand\": \"x\", \"env\": {\"T\": \"sesame\"}}\n  }\n}\n",
    );
    let (answers, run) = asked(&home, home.finding_command(&["stdio"]));
    for answer in answers {
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(".mcp.json can't be used: 1 error"), "{message}");
        assert!(message.contains("\n  .mcp.json:3:") && message.contains("\n  hint: "), "{message}");
        assert!(!message.contains("sesame"), "the line is not shown to a client: {message}");
        let cause = answer["error"]["data"]["cause"].as_str().unwrap();
        assert!(cause.starts_with(".mcp.json:3:"), "{cause}");
    }
    assert_eq!(run.code, Some(3), "{run}");
}

#[test]
fn nothing_but_requests_is_answered() {
    let home = Home::new();
    home.write("ostler.toml", "[servers.fake]\ncomand = \"x\"\n");
    let lines = "\n{\n[]\n{\"id\": 1}\n{\"method\": \"initialize\"}\n\"text\"\n{\"id\": \"7\", \"method\": \"initialize\"}";
    let run = home.run_with_input(&["stdio"], lines);
    assert_eq!(run.stdout.lines().count(), 1, "{run}");
    assert_eq!(serde_json::from_str::<Value>(&run.stdout).unwrap()["id"], "7", "{run}");
}
