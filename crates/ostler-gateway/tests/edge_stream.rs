//! The stream edge: one message per line.

use std::time::Duration;

use ostler_gateway::{Face, Gateway, GatewayOptions};
use ostler_host::{Caller, Host, HostOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(20);

struct Peer {
    input: WriteHalf<DuplexStream>,
    output: Lines<BufReader<ReadHalf<DuplexStream>>>,
    serving: JoinHandle<()>,
}

impl Peer {
    fn new() -> Self {
        Self::with(GatewayOptions::default())
    }

    fn with(options: GatewayOptions) -> Self {
        let gateway = Gateway::new(Host::new(HostOptions::default()), options);
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = tokio::io::split(theirs);
        let serving = tokio::spawn(gateway.serve_stream(reader, writer, Caller::local(), Face::All));
        let (output, input) = tokio::io::split(ours);
        Self { input, output: BufReader::new(output).lines(), serving }
    }

    async fn say(&mut self, line: &str) {
        self.input.write_all(line.as_bytes()).await.unwrap();
        self.input.write_all(b"\n").await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await.expect("a line in time");
        serde_json::from_str(&line.unwrap().expect("a line")).unwrap()
    }

    async fn ask(&mut self, line: &str) -> Value {
        self.say(line).await;
        self.hear().await
    }
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}"#;
const MODERN_LIST: &str = r#"{"jsonrpc":"2.0","id":"m","method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

#[tokio::test]
async fn both_eras_speak_on_one_connection() {
    let mut peer = Peer::new();
    assert_eq!(peer.ask(MODERN_LIST).await["result"]["resultType"], "complete");
    assert_eq!(peer.ask(INITIALIZE).await["result"]["protocolVersion"], "2025-06-18");
    peer.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    let legacy = peer.ask(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).await;
    assert_eq!(legacy, json!({ "jsonrpc": "2.0", "id": 2, "result": { "tools": [] } }));
    assert_eq!(peer.ask(MODERN_LIST).await["result"]["resultType"], "complete");
}

#[tokio::test]
async fn a_legacy_request_needs_initialize_first_and_once() {
    let mut peer = Peer::new();
    assert_eq!(peer.ask(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).await["result"], json!({}));
    assert_eq!(peer.ask(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).await["error"]["code"], -32600);
    peer.ask(INITIALIZE).await;
    assert_eq!(peer.ask(INITIALIZE).await["error"]["code"], -32600);
}

#[tokio::test]
async fn modern_requests_are_checked_like_over_http() {
    let mut peer = Peer::new();
    for (was, is, code) in [
        ("2026-07-28", "v999", -32022),
        ("clientCapabilities", "other", -32602),
        ("tools/list", "initialize", -32601),
        ("tools/list", "ping", -32601),
    ] {
        let answer = peer.ask(&MODERN_LIST.replace(was, is)).await;
        assert_eq!(answer["error"]["code"], code, "{is}");
        assert_eq!(answer["id"], "m");
    }
}

#[tokio::test]
async fn bad_lines_are_refused_and_the_next_good_one_is_answered() {
    let mut peer = Peer::with(GatewayOptions { max_body: 1_000, ..GatewayOptions::default() });
    for (line, code) in [
        ("{", -32700),
        ("[1]", -32600),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
        (&"x".repeat(5_000), -32600),
    ] {
        let answer = peer.ask(line).await;
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&code.into(), &Value::Null));
    }
    peer.say("").await;
    assert_eq!(peer.ask(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await["id"], 1);
}

#[tokio::test]
async fn the_end_of_the_input_is_the_end() {
    let mut peer = Peer::new();
    peer.ask(INITIALIZE).await;
    peer.input.shutdown().await.unwrap();
    tokio::time::timeout(PATIENCE, peer.serving).await.expect("it ends").unwrap();
    assert_eq!(peer.output.next_line().await.unwrap(), None);
}

#[tokio::test]
async fn a_client_that_only_writes_is_slowed_down_and_loses_nothing() {
    let mut peer = Peer::new();
    const PINGS: usize = 20_000;
    let asking = tokio::spawn(async move {
        for at in 0..PINGS {
            peer.input
                .write_all(format!("{{\"jsonrpc\":\"2.0\",\"id\":{at},\"method\":\"ping\"}}\n").as_bytes())
                .await
                .unwrap();
        }
        peer.input
    });
    for at in 0..PINGS {
        let line = tokio::time::timeout(PATIENCE, peer.output.next_line()).await.unwrap().unwrap().unwrap();
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["id"], at);
    }
    drop(asking.await.unwrap());
}
