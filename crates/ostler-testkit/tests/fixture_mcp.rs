//! Refusals of a `fixture-mcp` of one era to the other, on both transports.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test that took it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// Longer than anything takes on a busy machine; only a failing test waits this long.
const FIXTURE_TIMEOUT: Duration = Duration::from_secs(30);

/// A running fixture, killed when dropped.
struct FixtureProcess(Child);

impl FixtureProcess {
    fn start(switches: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fixture-mcp"));
        Self(command.args(switches).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn stdout(&mut self) -> BufReader<ChildStdout> {
        BufReader::new(self.0.stdout.take().unwrap())
    }
}

impl Drop for FixtureProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pipe to a fixture.
struct FixturePipe {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    _fixture: FixtureProcess,
}

impl FixturePipe {
    fn start(era: &str) -> Self {
        let mut fixture = FixtureProcess::start(&["--stdio", era]);
        let stdout = fixture.stdout();
        Self { stdin: fixture.0.stdin.take().unwrap(), stdout, _fixture: fixture }
    }

    fn request(&mut self, request: &Value) -> Value {
        self.stdin.write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

/// A port of a fixture.
struct FixtureHttp {
    address: String,
    _fixture: FixtureProcess,
}

impl FixtureHttp {
    fn start(era: &str) -> Self {
        let mut fixture = FixtureProcess::start(&["--http", "127.0.0.1:0", era]);
        let mut url = String::new();
        fixture.stdout().read_line(&mut url).unwrap();
        let address = url.trim().strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap();
        Self { address: address.to_owned(), _fixture: fixture }
    }

    /// Sends a request and returns the status and the body.
    fn post(&self, headers: &str, request: &Value) -> (u16, Value) {
        let (address, body) = (&self.address, request.to_string());
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(FIXTURE_TIMEOUT)).unwrap();
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.find('{').map_or(Value::Null, |start| {
            let end = answer.rfind('}').unwrap();
            serde_json::from_str(&answer[start..=end]).unwrap()
        });
        (status, body)
    }
}

const MODERN_HEADERS: &str = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: server/discover\r\n";

fn discover() -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": { "_meta": meta } })
}

fn initialize() -> Value {
    let client = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 2, "method": "initialize", "params": params })
}

#[test]
fn a_modern_server_on_a_pipe_refuses_the_handshake_and_goes_on() {
    let mut pipe = FixturePipe::start("--modern-only");
    let refused = pipe.request(&initialize());
    assert_eq!(refused["error"]["code"], -32022, "{refused}");
    assert_eq!(refused["error"]["data"]["supported"], json!(["2026-07-28"]));
    let found = pipe.request(&discover());
    assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]), "{found}");
}

#[test]
fn a_legacy_server_on_a_pipe_does_not_know_the_probe_and_goes_on() {
    let mut pipe = FixturePipe::start("--legacy-only");
    assert_eq!(pipe.request(&discover())["error"]["code"], -32601);
    let opened = pipe.request(&initialize());
    assert_eq!(opened["result"]["protocolVersion"], "2025-11-25", "{opened}");
    assert!(opened["result"]["capabilities"]["extensions"].is_null(), "{opened}");
}

#[test]
fn a_modern_server_on_a_port_refuses_the_handshake() {
    let port = FixtureHttp::start("--modern-only");
    let (status, refused) = port.post("", &initialize());
    assert_eq!((status, &refused["error"]["code"]), (400, &json!(-32022)), "{refused}");
    let (status, found) = port.post(MODERN_HEADERS, &discover());
    assert_eq!((status, &found["result"]["supportedVersions"]), (200, &json!(["2026-07-28"])), "{found}");
}

#[test]
fn a_legacy_server_on_a_port_refuses_the_probe_without_a_modern_error() {
    let port = FixtureHttp::start("--legacy-only");
    let (status, refused) = port.post(MODERN_HEADERS, &discover());
    assert_eq!((status, &refused["error"]["code"]), (400, &json!(-32000)), "{refused}");
}
