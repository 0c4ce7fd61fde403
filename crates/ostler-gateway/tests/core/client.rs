//! Test client over a pair of pipes, of either era.

use std::time::Duration;

use ostler_gateway::{Gateway, GatewayOptions, Scope};
use ostler_host::{Caller, ServerName};
use ostler_testkit::TestHost;
use ostler_wire::Era;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;

/// Longer than any step in memory takes; only a hanging test waits for it.
const PATIENCE: Duration = Duration::from_secs(600);

/// Client and the connection it uses.
pub(crate) struct Client {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    out: WriteHalf<DuplexStream>,
    next_id: u64,
    /// `_meta` of every modern request; `None` for a legacy client.
    meta: Option<Value>,
    /// Messages that arrived while another was waited for.
    pub(crate) received: Vec<Value>,
    serving: JoinHandle<()>,
}

pub(crate) fn gateway(world: &TestHost, change: impl FnOnce(&mut GatewayOptions)) -> Gateway {
    let mut options = GatewayOptions::default();
    change(&mut options);
    Gateway::new(world.host.clone(), options)
}

impl Client {
    fn connect(gateway: &Gateway, face: Scope, meta: Option<Value>) -> Self {
        Self::connect_as(Caller::local(), gateway, face, meta)
    }

    fn connect_as(caller: Caller, gateway: &Gateway, face: Scope, meta: Option<Value>) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let gateway = gateway.clone();
        let serving = tokio::spawn(async move {
            let (reader, writer) = tokio::io::split(theirs);
            gateway.serve_stream(reader, writer, caller, face).await;
        });
        let (reader, out) = tokio::io::split(ours);
        let lines = BufReader::new(reader).lines();
        Self { lines, out, next_id: 1, meta, received: Vec::new(), serving }
    }

    /// Returns a legacy client that has sent nothing yet.
    pub(crate) fn uninitialized(gateway: &Gateway, face: Scope) -> Self {
        Self::connect(gateway, face, None)
    }

    /// Closes the client's input.
    pub(crate) async fn close_input(&mut self) {
        self.out.shutdown().await.unwrap();
    }

    /// Waits until the gateway has ended the connection.
    pub(crate) async fn wait_for_end(self) {
        tokio::time::timeout(PATIENCE, self.serving).await.expect("it ends").unwrap();
    }

    /// Returns a modern client that declares these capabilities.
    pub(crate) fn modern(gateway: &Gateway, face: Scope, capabilities: Value) -> Self {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        });
        Self::connect(gateway, face, Some(meta))
    }

    /// Returns a client of this caller and era, with its session open if it has one.
    pub(crate) async fn for_caller(caller: Caller, gateway: &Gateway, face: Scope, era: Era) -> Self {
        match era {
            Era::Modern => {
                let meta = Self::modern(gateway, face.clone(), json!({})).meta.take();
                Self::connect_as(caller, gateway, face, meta)
            }
            Era::Legacy => Self::connect_as(caller, gateway, face, None).initialize(json!({})).await,
        }
    }

    /// Returns a modern client of another caller.
    pub(crate) fn as_stranger(gateway: &Gateway, face: Scope, capabilities: Value) -> Self {
        let mut client = Self::modern(gateway, face.clone(), capabilities);
        let stranger = Caller::new("stranger", Caller::local().role());
        let meta = client.meta.take();
        Self::connect_as(stranger, gateway, face, meta)
    }

    /// Returns a legacy client that has opened its session.
    pub(crate) async fn legacy(gateway: &Gateway, face: Scope, capabilities: Value) -> Self {
        Self::connect(gateway, face, None).initialize(capabilities).await
    }

    /// Returns the reply to `initialize` of a legacy client of this caller.
    pub(crate) async fn initialize_line(caller: Caller, gateway: &Gateway, face: Scope) -> String {
        let mut client = Self::connect_as(caller, gateway, face, None);
        client.send_request("initialize", initialize_params(json!({}))).await;
        client.receive_line().await
    }

    async fn initialize(self, capabilities: Value) -> Self {
        let mut client = self;
        let answer = client.request("initialize", initialize_params(capabilities)).await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        client
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string()).await;
    }

    /// Sends a line byte for byte.
    pub(crate) async fn send_line(&mut self, line: &str) {
        self.out.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// Sends a request and returns its id.
    pub(crate) async fn send_request(&mut self, method: &str, mut params: Value) -> u64 {
        if let Some(meta) = &self.meta {
            for (key, value) in meta.as_object().unwrap() {
                params["_meta"][key] = value.clone();
            }
        }
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    /// Repeats a call with answers to its server's requests.
    pub(crate) async fn retry(&mut self, tool: &str, asked: &Value, responses: Value) -> Value {
        let state = &asked["result"]["requestState"];
        let params =
            json!({"name": tool, "arguments": {}, "inputResponses": responses, "requestState": state});
        self.request("tools/call", params).await
    }

    /// Returns the next server request; keeps every other message in `received`.
    pub(crate) async fn next_server_request(&mut self) -> Value {
        loop {
            let message = self.receive().await;
            if message.get("id").is_some() && message.get("method").is_some() {
                return message;
            }
            self.received.push(message);
        }
    }

    /// Answers a server request.
    pub(crate) async fn respond(&mut self, question: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result})).await;
    }

    /// Returns the next line, byte for byte.
    pub(crate) async fn receive_line(&mut self) -> String {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.expect("a message in time");
        line.unwrap().expect("the connection is open")
    }

    /// Returns the next message.
    pub(crate) async fn receive(&mut self) -> Value {
        serde_json::from_str(&self.receive_line().await).unwrap()
    }

    /// Waits for the answer to a request; keeps earlier messages in `received`.
    pub(crate) async fn wait_for_answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.receive().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.received.push(message);
        }
    }

    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_request(method, params).await;
        self.wait_for_answer(id).await
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments})).await
    }
}

fn initialize_params(capabilities: Value) -> Value {
    json!({
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "clientInfo": {"name": "test", "version": "1"},
    })
}

pub(crate) fn server_scope(server: &str) -> Scope {
    Scope::Server(ServerName::new(server).unwrap())
}
