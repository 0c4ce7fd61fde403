//! Memory limits: messages of servers must not accumulate for sessions without a reader.

use std::io::BufRead;

use serde_json::json;

use crate::client::{AttackClient, AttackClientEra, HttpAttackClient};
use crate::daemon::Daemon;
use crate::home::Home;
use crate::http;

#[test]
fn what_was_said_before_a_stream_was_opened_is_not_kept_for_it() {
    let home = Home::with_servers(&[("fake", &["--era", "legacy"])]);
    let daemon = Daemon::start(&home);
    let path = "/servers/fake/mcp";
    let idle = HttpAttackClient::open(daemon.port, path, AttackClientEra::Legacy, None);
    // A modern client without notifications leaves them to the sessions of the server.
    let mut other = HttpAttackClient::open(daemon.port, path, AttackClientEra::Modern, None);
    let mut tell = |word: &str| {
        let arguments =
            json!({"method": "notifications/x", "params": {"word": word, "text": "x".repeat(60_000)}});
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let answer =
            other.ask("tools/call", json!({"name": "notify", "arguments": arguments, "_meta": meta}));
        assert!(answer.get("result").is_some(), "{answer}");
    };
    for _ in 0..3 {
        tell("early");
    }
    let session = format!("Mcp-Session-Id: {}", idle.session().unwrap());
    let mut stream =
        http::open(daemon.port, &format!("GET {path}"), &["Accept: text/event-stream", &session], "");
    let mut head = String::new();
    stream.read_line(&mut head).unwrap();
    assert!(head.contains(" 200 "), "{head}");
    tell("late");
    let mut line = String::new();
    while !line.contains("notifications/x") {
        line.clear();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "the stream ended");
    }
    assert!(line.contains(r#""word":"late""#), "{}", &line[..200]);
}
