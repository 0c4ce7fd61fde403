//! MCP clients of a test, one for each entrance of a daemon.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::daemon::Daemon;
use crate::home::Home;
use crate::http;

/// Client of one daemon, with one credential.
pub(crate) trait AttackClient {
    /// Sends a request and returns the whole JSON-RPC answer.
    fn ask(&mut self, method: &str, params: Value) -> Value;
    /// Sends a message unchanged, and returns the body of the answer; `Null` if there is none.
    fn send(&mut self, message: Value) -> Value;
    /// Returns the name under which this entrance shows a tool or prompt of a server.
    fn exposed(&self, server: &str, name: &str) -> String;
}

/// Revision that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttackClientEra {
    Legacy,
    Modern,
}

/// Returns `_meta` of a modern request.
pub(crate) fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    })
}

/// Client over HTTP: one connection for each request.
pub(crate) struct HttpAttackClient {
    port: u16,
    /// Path of the endpoint: `/mcp` or `/servers/NAME/mcp`.
    path: String,
    era: AttackClientEra,
    token: Option<String>,
    session: Option<String>,
    next_id: u64,
}

impl HttpAttackClient {
    /// Opens a client; a legacy one opens its session. `token` is the credential itself.
    pub(crate) fn open(port: u16, path: &str, era: AttackClientEra, token: Option<&str>) -> Self {
        let token = token.map(|token| token.trim().to_owned());
        let mut client = Self { port, path: path.to_owned(), era, token, session: None, next_id: 1 };
        if era == AttackClientEra::Legacy {
            let params = json!({
                "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
                "clientInfo": {"name": "test", "version": "1"}
            });
            let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
            let answer = client.post(&message);
            let header = |line: &str| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
            };
            client.session = answer.head.lines().find_map(header);
            assert!(client.session.is_some(), "{answer:?}");
            client.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        }
        client
    }

    /// Returns the session of a legacy client.
    pub(crate) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Posts a message and returns the raw answer. A modern message gets the headers that repeat its body.
    pub(crate) fn post(&self, message: &Value) -> http::Answer {
        let mut headers = vec![
            "Content-Type: application/json".to_owned(),
            "Accept: application/json, text/event-stream".to_owned(),
            "Connection: close".to_owned(),
        ];
        headers.extend(self.token.iter().map(|token| format!("Authorization: Bearer {token}")));
        headers.extend(self.session.iter().map(|session| format!("Mcp-Session-Id: {session}")));
        match self.era {
            AttackClientEra::Legacy => headers.push("MCP-Protocol-Version: 2025-11-25".to_owned()),
            AttackClientEra::Modern => headers.extend(modern_headers(message)),
        }
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        read(http::open(self.port, &format!("POST {}", self.path), &headers, &message.to_string()))
    }
}

impl AttackClient for HttpAttackClient {
    fn ask(&mut self, method: &str, mut params: Value) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        if self.era == AttackClientEra::Modern && params.get("_meta").is_none() {
            params["_meta"] = modern_meta();
        }
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    }

    fn send(&mut self, message: Value) -> Value {
        let answer = self.post(&message);
        let is_answer = |value: &Value| value.is_array() || value.get("method").is_none();
        if answer.text.trim_start().starts_with(['{', '[']) {
            return answer.json();
        }
        let data = answer.text.lines().filter_map(|line| line.strip_prefix("data:"));
        data.filter_map(|data| serde_json::from_str(data).ok()).find(is_answer).unwrap_or_default()
    }

    fn exposed(&self, server: &str, name: &str) -> String {
        if self.path == "/mcp" { format!("{server}__{name}") } else { name.to_owned() }
    }
}

/// Client on the pipes of `ostler stdio` or `ostler worker`.
pub(crate) struct PipeAttackClient {
    agent: Agent,
    era: AttackClientEra,
}

impl PipeAttackClient {
    /// Attaches to the daemon of a home, with the credential in a file of the home.
    pub(crate) fn stdio(home: &Home, token_file: Option<&str>, era: AttackClientEra) -> Self {
        let mut args = vec!["stdio"];
        args.extend(token_file.into_iter().flat_map(|file| ["--token-file", file]));
        Self::over(Agent::start_as(home.command(&args)), era)
    }

    /// Takes over an agent whose process has just been started, such as a relay worker.
    pub(crate) fn over(mut agent: Agent, era: AttackClientEra) -> Self {
        if era == AttackClientEra::Legacy {
            agent.hello();
        }
        Self { agent, era }
    }

    pub(crate) fn agent(&mut self) -> &mut Agent {
        &mut self.agent
    }
}

impl AttackClient for PipeAttackClient {
    fn ask(&mut self, method: &str, mut params: Value) -> Value {
        if self.era == AttackClientEra::Modern && params.get("_meta").is_none() {
            params["_meta"] = modern_meta();
        }
        self.agent.ask(method, params)
    }

    /// Sends a list request after a message without an id, so that the message has been processed when this returns.
    fn send(&mut self, message: Value) -> Value {
        let id = message.get("id").and_then(Value::as_u64);
        self.agent.say(&message);
        match id {
            Some(id) => self.agent.answer(id),
            None => {
                self.ask("tools/list", json!({}));
                Value::Null
            }
        }
    }

    fn exposed(&self, server: &str, name: &str) -> String {
        format!("{server}__{name}")
    }
}

/// Returns clients for every entrance of a daemon but the relay: both HTTP endpoints and the pipe, in both eras.
pub(crate) fn entrances(
    daemon: &Daemon<'_>,
    server: &str,
    token_file: Option<&str>,
) -> Vec<(String, Box<dyn AttackClient>)> {
    let token = token_file.map(|file| std::fs::read_to_string(daemon.home.path(file)).unwrap());
    let mut clients: Vec<(String, Box<dyn AttackClient>)> = Vec::new();
    for era in [AttackClientEra::Modern, AttackClientEra::Legacy] {
        for path in ["/mcp".to_owned(), format!("/servers/{server}/mcp")] {
            let client = HttpAttackClient::open(daemon.port, &path, era, token.as_deref());
            clients.push((format!("{era:?} {path}"), Box::new(client)));
        }
        clients.push((
            format!("{era:?} stdio"),
            Box::new(PipeAttackClient::stdio(daemon.home, token_file, era)),
        ));
    }
    clients
}

/// Creates a token in a role; returns its file in the home.
pub(crate) fn token(home: &Home, name: &str, role: &str) -> String {
    let run = home.run(&["token", "create", "--name", name, "--role", role]);
    assert_eq!(run.code, Some(0), "{run}");
    let file = format!("{name}.token");
    home.write(&file, &run.stdout);
    file
}

fn modern_headers(message: &Value) -> Vec<String> {
    let params = &message["params"];
    let name = match message["method"].as_str().unwrap_or_default() {
        "tools/call" | "prompts/get" => params["name"].as_str(),
        "resources/read" => params["uri"].as_str(),
        "tasks/get" | "tasks/update" | "tasks/cancel" => params["taskId"].as_str(),
        _ => None,
    };
    let mut headers = vec!["MCP-Protocol-Version: 2026-07-28".to_owned()];
    headers.extend(message["method"].as_str().map(|method| format!("Mcp-Method: {method}")));
    let is_plain = |name: &&str| name.bytes().all(|byte| (0x21..0x7f).contains(&byte));
    headers.extend(name.map(|name| match Some(name).filter(is_plain) {
        Some(name) => format!("Mcp-Name: {name}"),
        None => format!("Mcp-Name: =?base64?{}?=", STANDARD.encode(name)),
    }));
    headers
}

/// Reads an answer to the end of its connection, chunked or not.
fn read(mut reader: impl Read) -> http::Answer {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let text = if is_chunked { dechunked(body) } else { body.to_owned() };
    http::Answer { status, head: head.to_owned(), text }
}

fn dechunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        text.push_str(&rest[..size]);
        body = &rest[(size + 2).min(rest.len())..];
        if size == 0 {
            break;
        }
    }
    text
}

#[test]
fn every_entrance_calls_lists_and_reads() {
    let home = Home::with_servers(&[("fake", &[])]);
    let daemon = Daemon::start(&home);
    for (entrance, mut client) in entrances(&daemon, "fake", None) {
        let tool = client.exposed("fake", "add");
        let answer = client.ask("tools/call", json!({"name": tool, "arguments": {"a": 2, "b": 40}}));
        assert_eq!(answer["result"]["content"][0]["text"], "42", "{entrance}: {answer}");
        let answer = client.ask("resources/read", json!({"uri": "fake://item/7"}));
        assert_eq!(answer["result"]["contents"][0]["text"], "7", "{entrance}: {answer}");
    }
}
