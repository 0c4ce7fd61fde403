use std::io::BufReader;
use std::io::PipeReader;
use std::io::PipeWriter;

use serde_json::{Value, json};

use super::*;

/// Client of a demo server that runs on a thread.
struct DemoClient {
    input: PipeWriter,
    output: BufReader<PipeReader>,
}

impl DemoClient {
    fn new() -> Self {
        let (their_input, input) = io::pipe().unwrap();
        let (output, their_output) = io::pipe().unwrap();
        std::thread::spawn(move || serve(BufReader::new(their_input), their_output));
        Self { input, output: BufReader::new(output) }
    }

    fn send(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn request(&mut self, message: Value) -> Value {
        self.send(&message.to_string());
        self.receive()
    }
}

fn modern(id: u64, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn legacy(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

#[test]
fn a_modern_client_is_answered_without_a_session() {
    let mut client = DemoClient::new();
    let hello = client.request(modern(1, "server/discover", json!({})));
    assert_eq!(hello["result"]["supportedVersions"], json!([MODERN_VERSION]));
    let list = client.request(modern(2, "tools/list", json!({})));
    assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 4);
    assert_eq!(list["result"]["cacheScope"], "public");
    let answer =
        client.request(modern(3, "tools/call", json!({"name": "echo", "arguments": {"text": "hi"}})));
    assert_eq!(answer["result"]["resultType"], "complete");
    assert_eq!(answer["result"]["content"][0]["text"], "hi");
}

#[test]
fn a_legacy_client_shakes_hands_first() {
    let mut client = DemoClient::new();
    let hello = client.request(legacy(1, "initialize", json!({"protocolVersion": "2025-06-18"})));
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert_eq!(client.request(legacy(2, "ping", json!({})))["result"], json!({}));
    let list = client.request(legacy(3, "tools/list", json!({})));
    assert!(list["result"].get("resultType").is_none());
    let strange = client.request(legacy(4, "initialize", json!({"protocolVersion": "1999-01-01"})));
    assert_eq!(strange["result"]["protocolVersion"], LEGACY_VERSIONS[0]);
}

#[test]
fn a_cancelled_sleep_is_never_answered_and_the_rest_goes_on() {
    let mut client = DemoClient::new();
    client
        .send(&legacy(1, "tools/call", json!({"name": "sleep", "arguments": {"seconds": 3600}})).to_string());
    client.send(&legacy(2, "tools/call", json!({"name": "sleep", "arguments": {"seconds": 0}})).to_string());
    assert_eq!(client.receive()["id"], 2);
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    // The same id can be used again: nothing of the first call is left.
    let again =
        client.request(legacy(1, "tools/call", json!({"name": "sleep", "arguments": {"seconds": 0.01}})));
    assert_eq!(again["result"]["content"][0]["text"], "slept for 0.01 seconds");
}

#[test]
fn what_makes_no_sense_is_refused_and_the_next_request_is_answered() {
    let mut client = DemoClient::new();
    let mut wrong_version = modern(2, "tools/list", json!({}));
    wrong_version["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2099-01-01");
    let table = [
        (r#"{"jsonrpc":"#.to_owned(), -32700),
        (legacy(1, "tools/call", json!({"name": "nothing"})).to_string(), -32602),
        (legacy(1, "tools/call", json!([1])).to_string(), -32602),
        (legacy(1, "resources/list", json!({})).to_string(), -32601),
        (legacy(1, "server/discover", json!({})).to_string(), -32602),
        (modern(1, "initialize", json!({})).to_string(), -32601),
        (wrong_version.to_string(), -32022),
    ];
    for (line, code) in table {
        client.send(&line);
        assert_eq!(client.receive()["error"]["code"], code, "{line}");
    }
    client.send("");
    assert_eq!(client.request(legacy(9, "ping", json!({})))["id"], 9);
}

#[test]
fn the_end_of_input_ends_the_server() {
    assert!(serve(io::empty(), io::sink()).is_ok());
    assert!(serve(&b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}"[..], io::sink()).is_ok());
}
