//! Stdio edge: one message per line.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that fails fails the test that took it")]

use std::time::Duration;

use ostler_gateway::{Authenticated, CredentialLifetime, Gateway, GatewayOptions, Scope};
use ostler_host::{Caller, Host, HostOptions};
use ostler_testkit::{eventually, fake_mcp_spec};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(20);

struct StreamClient {
    input: WriteHalf<DuplexStream>,
    output: Lines<BufReader<ReadHalf<DuplexStream>>>,
    serving: JoinHandle<()>,
}

impl StreamClient {
    fn new() -> Self {
        Self::with(GatewayOptions::default())
    }

    fn with(options: GatewayOptions) -> Self {
        Self::with_host(Host::new(HostOptions::default()), options, Scope::All)
    }

    /// Returns a peer of one server, and the host that runs it.
    async fn with_server() -> (Self, Host) {
        let host = Host::new(HostOptions::default());
        let mut spec = fake_mcp_spec("fake", &[]);
        spec.max_in_flight = 4_096;
        let face = Scope::Server(spec.name.clone());
        host.spawn(&Caller::local(), spec).await.unwrap();
        (Self::with_host(host.clone(), GatewayOptions::default(), face), host)
    }

    fn with_host(host: Host, options: GatewayOptions, face: Scope) -> Self {
        let gateway = Gateway::new(host, options);
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = tokio::io::split(theirs);
        let serving = tokio::spawn(gateway.serve_stream(reader, writer, Caller::local(), face));
        let (output, input) = tokio::io::split(ours);
        Self { input, output: BufReader::new(output).lines(), serving }
    }

    async fn send(&mut self, line: &str) {
        self.input.write_all(line.as_bytes()).await.unwrap();
        self.input.write_all(b"\n").await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await.expect("a line in time");
        serde_json::from_str(&line.unwrap().expect("a line")).unwrap()
    }

    async fn request(&mut self, line: &str) -> Value {
        self.send(line).await;
        self.receive().await
    }
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}"#;
const MODERN_LIST: &str = r#"{"jsonrpc":"2.0","id":"m","method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

#[tokio::test]
async fn both_eras_speak_on_one_connection() {
    let mut peer = StreamClient::new();
    assert_eq!(peer.request(MODERN_LIST).await["result"]["resultType"], "complete");
    assert_eq!(peer.request(INITIALIZE).await["result"]["protocolVersion"], "2025-06-18");
    peer.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    let legacy = peer.request(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).await;
    assert_eq!(legacy, json!({ "jsonrpc": "2.0", "id": 2, "result": { "tools": [] } }));
    assert_eq!(peer.request(MODERN_LIST).await["result"]["resultType"], "complete");
}

#[tokio::test]
async fn a_batch_is_answered_with_a_batch_where_the_revision_knows_them() {
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"},{"jsonrpc":"2.0","method":"notifications/progress"},{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","id":3,"method":"nonsense"},{"id":4}]"#;
    let mut peer = StreamClient::new();
    peer.request(&INITIALIZE.replace("2025-06-18", "2025-03-26")).await;
    let answers = peer.request(batch).await;
    let ids: Vec<&Value> = answers.as_array().unwrap().iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!(1), &json!(2), &json!(3), &Value::Null], "{answers}");
    assert!(answers[0]["result"]["tools"].is_array() && answers[2]["error"].is_object(), "{answers}");
    peer.send(r#"[{"jsonrpc":"2.0","method":"notifications/initialized"}]"#).await;
    assert_eq!(peer.request("[]").await["error"]["code"], -32600, "nothing answers a batch of notifications");

    let mut later = StreamClient::new();
    later.request(INITIALIZE).await;
    let refused = later.request(batch).await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(-32600)), "{refused}");
}

/// Returns a batch of calls that are never answered.
fn hanging_batch(ids: std::ops::Range<u64>) -> String {
    let calls = ids.map(|id| {
        let params = json!({"name": "hang", "arguments": {}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    });
    Value::from_iter(calls).to_string()
}

#[tokio::test]
async fn each_request_of_a_batch_counts_among_those_of_its_client() {
    let (mut peer, _host) = StreamClient::with_server().await;
    peer.request(&INITIALIZE.replace("2025-06-18", "2025-03-26")).await;
    for batch in 0..16 {
        peer.send(&hanging_batch(1 + batch * 64..65 + batch * 64)).await;
    }
    let alone = peer.request(r#"{"jsonrpc":"2.0","id":"one","method":"tools/list"}"#).await;
    assert_eq!(
        (&alone["id"], &alone["error"]["data"]["code"]),
        (&json!("one"), &json!("overloaded")),
        "{alone}"
    );
    let more = peer.request(&hanging_batch(5_000..5_001)).await;
    assert!(more[0]["error"]["message"].as_str().unwrap().contains("1024 requests under way"), "{more}");
}

#[tokio::test]
async fn an_id_that_is_under_way_is_refused_in_a_batch_as_it_is_alone() {
    let (mut peer, _host) = StreamClient::with_server().await;
    peer.request(&INITIALIZE.replace("2025-06-18", "2025-03-26")).await;
    let list = |id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"});
    let twice = peer.request(&json!([list(1), list(1)]).to_string()).await;
    assert!(twice[0]["result"].is_object(), "{twice}");
    assert_eq!((&twice[1]["id"], &twice[1]["error"]["code"]), (&json!(1), &json!(-32600)), "{twice}");
    peer.send(&hanging_batch(2..3)).await;
    let batch = peer.request(&json!([list(2), list(1)]).to_string()).await;
    assert_eq!(batch[0]["error"]["code"], -32600, "{batch}");
    assert!(batch[1]["result"].is_object(), "an id that was answered may be used again: {batch}");
    let alone = peer.request(&list(2).to_string()).await;
    assert_eq!(alone["error"]["code"], -32600, "{alone}");
}

#[tokio::test]
async fn a_farewell_stands_between_messages_and_what_follows_is_answered() {
    let gateway = Gateway::new(Host::new(HostOptions::default()), GatewayOptions::default());
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(theirs);
    let (tell, told) = tokio::sync::oneshot::channel::<()>();
    let farewell = async {
        let _ = told.await;
        bytes::Bytes::from_static(b"bye")
    };
    let serving =
        tokio::spawn(gateway.serve_stream_with(reader, writer, Caller::local().into(), Scope::All, farewell));
    let (output, input) = tokio::io::split(ours);
    let mut peer = StreamClient { input, output: BufReader::new(output).lines(), serving };
    assert!(peer.request(MODERN_LIST).await["result"].is_object());
    tell.send(()).unwrap();
    let line = tokio::time::timeout(PATIENCE, peer.output.next_line()).await.unwrap().unwrap();
    assert_eq!(line.as_deref(), Some("bye"));
    assert!(peer.request(MODERN_LIST).await["result"].is_object());
}

#[tokio::test]
async fn requests_under_way_are_told_that_the_token_was_taken_back_and_then_the_connection_ends() {
    let host = Host::new(HostOptions::default());
    let spec = fake_mcp_spec("fake", &[]);
    host.spawn(&Caller::local(), spec).await.unwrap();
    let gateway = Gateway::new(host, GatewayOptions::default());
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(theirs);
    let lifetime = CredentialLifetime::new();
    let admitted =
        Authenticated { caller: Caller::new("token:zed", "local"), lifetime: Some(lifetime.clone()) };
    let pending = std::future::pending();
    let serving = tokio::spawn(gateway.serve_stream_with(reader, writer, admitted, Scope::All, pending));
    let (output, input) = tokio::io::split(ours);
    let mut peer = StreamClient { input, output: BufReader::new(output).lines(), serving };
    peer.send(&modern_call(7, "fake__hang", "{}")).await;
    // Answered after the call was received, so the call is in flight now.
    assert!(peer.request(MODERN_LIST).await["result"].is_object());
    lifetime.revoke();
    let told = peer.receive().await;
    assert_eq!((&told["id"], &told["error"]["code"]), (&json!(7), &json!(-31003)), "{told}");
    assert!(told["error"]["message"].as_str().unwrap().contains("the token was taken back"), "{told}");
    let end = tokio::time::timeout(PATIENCE, peer.output.next_line()).await.expect("an end in time");
    assert_eq!(end.unwrap(), None);
}

#[tokio::test]
async fn a_legacy_request_needs_initialize_first_and_once() {
    let mut peer = StreamClient::new();
    assert_eq!(peer.request(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).await["result"], json!({}));
    assert_eq!(
        peer.request(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).await["error"]["code"],
        -32600
    );
    peer.request(INITIALIZE).await;
    assert_eq!(peer.request(INITIALIZE).await["error"]["code"], -32600);
}

#[tokio::test]
async fn modern_requests_are_checked_like_over_http() {
    let mut peer = StreamClient::new();
    for (was, is, code) in [
        ("2026-07-28", "v999", -32022),
        ("clientCapabilities", "other", -32602),
        ("tools/list", "initialize", -32601),
        ("tools/list", "ping", -32601),
    ] {
        let answer = peer.request(&MODERN_LIST.replace(was, is)).await;
        assert_eq!(answer["error"]["code"], code, "{is}");
        assert_eq!(answer["id"], "m");
    }
}

#[tokio::test]
async fn bad_lines_are_refused_and_the_next_good_one_is_answered() {
    let mut peer = StreamClient::with(GatewayOptions { max_body: 1_000, ..GatewayOptions::default() });
    for (line, code) in [
        ("{", -32700),
        ("[1]", -32600),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
        (&"x".repeat(5_000), -32600),
    ] {
        let answer = peer.request(line).await;
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&code.into(), &Value::Null));
    }
    peer.send("").await;
    assert_eq!(peer.request(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await["id"], 1);
}

#[tokio::test]
async fn the_end_of_the_input_is_the_end() {
    let mut peer = StreamClient::new();
    peer.request(INITIALIZE).await;
    peer.input.shutdown().await.unwrap();
    tokio::time::timeout(PATIENCE, peer.serving).await.expect("it ends").unwrap();
    assert_eq!(peer.output.next_line().await.unwrap(), None);
}

#[tokio::test]
async fn a_client_that_only_writes_is_slowed_down_and_loses_nothing() {
    let mut peer = StreamClient::new();
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

fn in_flight(host: &Host) -> usize {
    host.status_of("fake").unwrap().in_flight
}

fn call(id: u32, tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":1}}}}}}"#
    )
}

/// Returns the same call by a modern client.
fn modern_call(id: u32, tool: &str, arguments: &str) -> String {
    let meta = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#;
    call(id, tool, arguments).replace(r#""progressToken":1"#, &format!(r#""progressToken":1,{meta}"#))
}

#[tokio::test]
async fn requests_run_side_by_side_and_progress_comes_before_the_answer() {
    let (mut peer, _host) = StreamClient::with_server().await;
    peer.request(INITIALIZE).await;
    peer.send(&call(1, "hang", "{}")).await;
    peer.send(&modern_call(2, "progress", r#"{"count":3,"ms":1}"#)).await;
    for _ in 0..3 {
        assert_eq!(peer.receive().await["method"], "notifications/progress");
    }
    assert_eq!(peer.receive().await["id"], 2);
    assert_eq!(peer.request(&call(3, "echo", "{}")).await["id"], 3);
}

#[tokio::test]
async fn a_request_of_either_era_is_cancelled_by_its_id() {
    let (mut peer, host) = StreamClient::with_server().await;
    peer.request(INITIALIZE).await;
    for line in [call(7, "hang", "{}"), modern_call(7, "hang", "{}")] {
        peer.send(&line).await;
        eventually("it is under way", PATIENCE, || in_flight(&host) == 1).await;
        assert_eq!(peer.request(&line).await["error"]["code"], -32600, "the id is taken");
        peer.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#).await;
        eventually("it is cancelled", PATIENCE, || in_flight(&host) == 0).await;
        assert_eq!(
            peer.request(r#"{"jsonrpc":"2.0","id":8,"method":"ping"}"#).await["id"],
            8,
            "and not answered"
        );
    }
}

#[tokio::test]
async fn what_was_asked_before_the_end_of_the_input_is_answered() {
    let (mut peer, _host) = StreamClient::with_server().await;
    let slow = call(7, "sleep", r#"{"ms":200}"#);
    let last = call(8, "echo", "{}");
    peer.input.write_all(format!("{INITIALIZE}\n{slow}\n{last}").as_bytes()).await.unwrap();
    peer.input.shutdown().await.unwrap();
    let mut ids = Vec::new();
    while ids.len() < 3 {
        let message = peer.receive().await;
        if message.get("result").is_some() {
            ids.push(message["id"].as_u64().unwrap());
        }
    }
    ids.sort_unstable();
    assert_eq!(ids, [0, 7, 8]);
    tokio::time::timeout(PATIENCE, peer.serving).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn a_listen_ends_with_the_input_and_is_answered() {
    let mut peer = StreamClient::new();
    let listen = MODERN_LIST
        .replace("tools/list", "subscriptions/listen")
        .replace(r#""params":{"#, r#""params":{"notifications":{"toolsListChanged":true},"#);
    assert_eq!(peer.request(&listen).await["method"], "notifications/subscriptions/acknowledged");
    peer.input.shutdown().await.unwrap();
    assert_eq!(peer.receive().await["result"]["resultType"], "complete");
    tokio::time::timeout(PATIENCE, peer.serving).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn a_broken_output_cancels_what_is_under_way() {
    let (mut peer, host) = StreamClient::with_server().await;
    peer.send(&modern_call(7, "progress", r#"{"count":100000,"ms":1}"#)).await;
    eventually("it is under way", PATIENCE, || in_flight(&host) == 1).await;
    let StreamClient { input, output, serving } = peer;
    drop((input, output));
    tokio::time::timeout(PATIENCE, serving).await.expect("it ends").unwrap();
    eventually("it is cancelled", PATIENCE, || in_flight(&host) == 0).await;
}

#[tokio::test]
async fn a_dropped_connection_cancels_what_is_under_way() {
    let (mut peer, host) = StreamClient::with_server().await;
    peer.send(&modern_call(7, "hang", "{}")).await;
    eventually("it is under way", PATIENCE, || in_flight(&host) == 1).await;
    peer.serving.abort();
    eventually("it is cancelled", PATIENCE, || in_flight(&host) == 0).await;
}

#[tokio::test]
async fn large_calls_in_both_directions_do_not_block_each_other() {
    let (mut peer, _host) = StreamClient::with_server().await;
    peer.request(INITIALIZE).await;
    let filler = "x".repeat(10_000);
    let asking = tokio::spawn(async move {
        for id in 1..=64 {
            let line = call(id, "echo", &format!(r#"{{"x":"{filler}"}}"#));
            peer.input.write_all(line.as_bytes()).await.unwrap();
            peer.input.write_all(b"\n").await.unwrap();
        }
        peer.input
    });
    let input = tokio::time::timeout(PATIENCE, asking)
        .await
        .expect("it is read though nobody reads answers")
        .unwrap();
    for _ in 0..64 {
        let line = tokio::time::timeout(PATIENCE, peer.output.next_line()).await.unwrap().unwrap().unwrap();
        assert!(line.contains("\"result\""));
    }
    drop(input);
}

#[tokio::test]
async fn a_connection_is_one_session_for_both_eras_and_its_process_ends_with_it() {
    let host = Host::new(HostOptions::default());
    let spec = fake_mcp_spec("fake", &[]).lazy().isolation(ostler_host::Isolation::Session);
    let face = Scope::Server(spec.name.clone());
    host.spawn(&Caller::local(), spec).await.unwrap();
    let peer = || StreamClient::with_host(host.clone(), GatewayOptions::default(), face.clone());
    let pid = |answer: Value| answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    let (mut one, mut two) = (peer(), peer());
    let first = pid(one.request(&modern_call(1, "pid", "{}")).await);
    one.request(INITIALIZE).await;
    assert_eq!(pid(one.request(&call(2, "pid", "{}")).await), first);
    let second = pid(two.request(&modern_call(1, "pid", "{}")).await);
    assert_ne!(first, second);
    drop(one);
    eventually("one process is left", PATIENCE, || host.process_count() == 1).await;
    assert_eq!(pid(two.request(&modern_call(2, "pid", "{}")).await), second);
}
