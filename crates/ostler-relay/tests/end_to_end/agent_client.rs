//! MCP client of either era over a pair of pipes.

use std::time::Duration;

use ostler_gateway::{Gateway, Scope};
use ostler_host::Caller;
use ostler_wire::Era;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

/// Timeout of every wait: only a test that hangs reaches it.
const PATIENCE: Duration = Duration::from_secs(600);

/// Routing fields of a message.
#[derive(serde::Deserialize)]
struct MessageHead {
    id: Option<Value>,
    method: Option<String>,
}

/// An agent and its connection.
pub(crate) struct AgentClient {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    out: WriteHalf<DuplexStream>,
    next_id: u64,
    era: Era,
    capabilities: Value,
    /// Messages received while waiting for another one.
    pub(crate) other_messages: Vec<Value>,
}

impl AgentClient {
    /// Opens a client with these capabilities; initializes the session in the legacy era.
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
            let params = json!({
                "protocolVersion": "2025-11-25",
                "capabilities": client.capabilities,
                "clientInfo": {"name": "agent", "version": "1"},
            });
            let answer = client.request("initialize", params).await;
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

    /// Returns the next line, byte for byte.
    pub(crate) async fn line(&mut self) -> String {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.expect("a message in time");
        line.unwrap().expect("the connection is open")
    }

    /// Returns the line of the answer to a request; earlier messages go to `other_messages`.
    pub(crate) async fn line_for(&mut self, id: u64) -> String {
        loop {
            let line = self.line().await;
            // A result may contain numbers that no type holds.
            let head: MessageHead = serde_json::from_str(&line).unwrap();
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

    /// Returns the next server request; other messages go to `other_messages`.
    pub(crate) async fn next_server_request(&mut self) -> Value {
        loop {
            let message: Value = serde_json::from_str(&self.line().await).unwrap();
            if message.get("id").is_some() && message.get("method").is_some() {
                return message;
            }
            self.other_messages.push(message);
        }
    }

    /// Responds to a server request.
    pub(crate) async fn respond(&mut self, server_request: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": server_request["id"], "result": result})).await;
    }

    /// Retries a call with the input that its server requires.
    pub(crate) async fn retry(&mut self, tool: &str, input_required: &Value, responses: Value) -> Value {
        let state = &input_required["result"]["requestState"];
        let params =
            json!({"name": tool, "arguments": {}, "inputResponses": responses, "requestState": state});
        self.request("tools/call", params).await
    }
}
