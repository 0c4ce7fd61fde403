//! An agent over a pair of pipes, of either era.

use std::time::Duration;

use ostler_gateway::{Gateway, Scope};
use ostler_host::Caller;
use ostler_wire::Era;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

/// Longer than anything in memory takes; only a test that hangs waits for it.
const PATIENCE: Duration = Duration::from_secs(600);

/// What tells a message from others.
#[derive(serde::Deserialize)]
struct Head {
    id: Option<Value>,
    method: Option<String>,
}

/// An agent and the connection it talks over.
pub(crate) struct AgentClient {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    out: WriteHalf<DuplexStream>,
    next_id: u64,
    era: Era,
    capabilities: Value,
    /// Messages that came while another was waited for.
    pub(crate) other_messages: Vec<Value>,
}

impl AgentClient {
    /// An agent of an era that can do this, with its session open if it has one.
    pub(crate) async fn open(gateway: &Gateway, caller: Caller, era: Era, capabilities: Value) -> Self {
        let (ours, theirs) = tokio::io::duplex(8 << 20);
        let gateway = gateway.clone();
        tokio::spawn(async move {
            let (reader, writer) = tokio::io::split(theirs);
            gateway.serve_stream(reader, writer, caller, Scope::All).await;
        });
        let (reader, out) = tokio::io::split(ours);
        let lines = BufReader::new(reader).lines();
        let mut client = Self { lines, out, next_id: 1, era, capabilities, other_messages: Vec::new() };
        if era == Era::Legacy {
            let hello = json!({
                "protocolVersion": "2025-11-25",
                "capabilities": client.capabilities,
                "clientInfo": {"name": "agent", "version": "1"},
            });
            let answer = client.request("initialize", hello).await;
            assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
            client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        }
        client
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.out.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// Sends a request and returns its id.
    pub(crate) async fn send_request(&mut self, method: &str, mut params: Value) -> u64 {
        if self.era == Era::Modern {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
            params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "agent", "version": "1"});
        }
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    /// The next line, byte for byte.
    pub(crate) async fn line(&mut self) -> String {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.expect("a message in time");
        line.unwrap().expect("the connection is open")
    }

    /// The line of the answer to a request; what comes before is kept in `heard`.
    pub(crate) async fn line_for(&mut self, id: u64) -> String {
        loop {
            let line = self.line().await;
            // Not all that is in an answer fits a type.
            let head: Head = serde_json::from_str(&line).unwrap();
            if head.id == Some(id.into()) && head.method.is_none() {
                return line;
            }
            self.other_messages.push(serde_json::from_str(&line).unwrap());
        }
    }

    pub(crate) async fn answer_to(&mut self, id: u64) -> Value {
        serde_json::from_str(&self.line_for(id).await).unwrap()
    }

    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_request(method, params).await;
        self.answer_to(id).await
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// What the client is asked next; everything else is kept in `heard`.
    pub(crate) async fn next_server_request(&mut self) -> Value {
        loop {
            let message: Value = serde_json::from_str(&self.line().await).unwrap();
            if message.get("id").is_some() && message.get("method").is_some() {
                return message;
            }
            self.other_messages.push(message);
        }
    }

    /// Answers a question.
    pub(crate) async fn respond(&mut self, question: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result})).await;
    }

    /// Repeats a call with answers to what its server wants to know.
    pub(crate) async fn retry(&mut self, tool: &str, asked: &Value, responses: Value) -> Value {
        let state = &asked["result"]["requestState"];
        let params =
            json!({"name": tool, "arguments": {}, "inputResponses": responses, "requestState": state});
        self.request("tools/call", params).await
    }
}
