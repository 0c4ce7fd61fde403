//! Clients of the HTTP+SSE transport of 2024-11-05.

use std::time::Duration;

use ostler_gateway::{ConnectionLimits, GatewayOptions};
use ostler_host::Caller;
use ostler_testkit::{eventually, fake_mcp_spec};
use serde_json::{Value, json};

use crate::auth::{WithToken, auth_world_with};
use crate::world::{Client, PATIENCE, Request, World};

/// Client with its stream open.
struct SseTestClient {
    stream: Client,
    buffer: String,
    /// URL for its messages.
    endpoint: String,
}

impl SseTestClient {
    async fn open(world: &World, request: Request) -> Self {
        let mut stream = world.connect().await;
        stream.start(request.with("Accept", "text/event-stream")).await;
        let head = stream.head().await;
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")), "{head:?}");
        let mut client = Self { stream, buffer: String::new(), endpoint: String::new() };
        client.endpoint = client.event("endpoint").await;
        client
    }

    /// Returns the data of the next event, which must have this name.
    async fn event(&mut self, name: &str) -> String {
        loop {
            if let Some(at) = self.buffer.find("\n\n") {
                let event: String = self.buffer.drain(..at + 2).collect();
                if event.starts_with(':') {
                    continue;
                }
                let data = event.trim_end().strip_prefix(&format!("event: {name}\ndata: "));
                return data.unwrap_or_else(|| panic!("{event}")).to_owned();
            }
            let chunk = self.stream.chunk().await;
            self.buffer.push_str(&chunk.unwrap_or_else(|| panic!("the stream ended: {}", self.buffer)));
        }
    }

    async fn message(&mut self) -> Value {
        serde_json::from_str(&self.event("message").await).unwrap()
    }

    fn post(&self, message: &Value) -> Request {
        Request::post(message.to_string()).to(&self.endpoint)
    }

    /// Sends a request and waits for its answer; skips other messages.
    async fn request(&mut self, world: &World, message: Value) -> Value {
        let taken = world.send(self.post(&message)).await;
        assert_eq!((taken.status, taken.body.as_str()), (202, "Accepted"));
        loop {
            let heard = self.message().await;
            if heard["id"] == message["id"] {
                return heard;
            }
        }
    }

    async fn initialize(&mut self, world: &World) -> Value {
        let params = json!({
            "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
        });
        self.request(world, json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}))
            .await
    }

    /// Returns whether the stream has ended.
    async fn reads_to_end(&mut self) -> bool {
        while self.stream.chunk().await.is_some() {}
        true
    }
}

fn call(id: u32, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

fn ping() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})
}

async fn world_with(options: GatewayOptions) -> World {
    let world = World::with(options, ConnectionLimits::default()).await;
    world.host.spawn(&Caller::local(), fake_mcp_spec("fake", &[])).await.unwrap();
    world
}

async fn world() -> World {
    world_with(GatewayOptions::default()).await
}

#[tokio::test]
async fn a_client_of_2024_is_served_on_its_one_stream() {
    let world = world().await;
    for (path, tool) in [("/sse", "fake__echo"), ("/servers/fake/sse", "echo")] {
        let mut client = SseTestClient::open(&world, Request::new("GET", path)).await;
        assert!(client.endpoint.starts_with(&format!("{path}?sessionId=")), "{}", client.endpoint);
        let hello = client.initialize(&world).await;
        assert_eq!(hello["result"]["protocolVersion"], "2024-11-05", "{hello}");
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(world.send(client.post(&initialized)).await.status, 202);
        let list =
            client.request(&world, json!({"jsonrpc": "2.0", "id": "list", "method": "tools/list"})).await;
        let tools = list["result"]["tools"].as_array().unwrap();
        assert!(tools.iter().any(|known| known["name"] == tool), "{list}");
        let answer = client.request(&world, call(7, tool, json!({"a": 1}))).await;
        assert_eq!(answer["result"]["structuredContent"]["a"], 1, "{answer}");
    }
}

#[tokio::test]
async fn a_session_ends_with_its_stream_and_so_does_what_is_under_way() {
    let world = world().await;
    let mut client = SseTestClient::open(&world, Request::new("GET", "/servers/fake/sse")).await;
    client.initialize(&world).await;
    assert_eq!(world.gateway.session_count(), 1);
    assert_eq!(world.send(client.post(&call(7, "hang", json!({})))).await.status, 202);
    let in_flight = || world.host.status_of("fake").unwrap().in_flight;
    eventually("the call arrives", PATIENCE, || in_flight() == 1).await;
    let late = client.post(&ping());
    drop(client);
    eventually("the call is cancelled", PATIENCE, || in_flight() == 0).await;
    eventually("the session is gone", PATIENCE, || world.gateway.session_count() == 0).await;
    let answer = world.send(late).await;
    assert_eq!(answer.status, 404);
    assert!(answer.body.contains("open another with GET"), "{answer:?}");
}

#[tokio::test]
async fn a_session_belongs_to_one_caller_and_one_endpoint() {
    let scene = auth_world_with(GatewayOptions::default()).await;
    let world = &scene.world;
    world.host.spawn(&Caller::local(), fake_mcp_spec("fake", &[])).await.unwrap();
    let client = SseTestClient::open(world, Request::new("GET", "/sse").with_token("ada")).await;
    assert_eq!(world.send(client.post(&ping()).with_token("ada")).await.status, 202);
    assert_eq!(world.send(client.post(&ping()).with_token("bob")).await.status, 404);
    assert_eq!(world.send(client.post(&ping())).await.status, 401);
    let elsewhere = format!("/servers/fake{}", client.endpoint);
    assert_eq!(world.send(client.post(&ping()).to(&elsewhere).with_token("ada")).await.status, 404);
    let guessed = "/sse?sessionId=0123456789abcdef0123456789abcdef";
    assert_eq!(world.send(client.post(&ping()).to(guessed).with_token("ada")).await.status, 404);
    assert_eq!(world.send(Request::new("GET", "/sse")).await.status, 401);
    assert_eq!(world.send(Request::new("GET", "/servers/none/sse").with_token("ada")).await.status, 404);
}

#[tokio::test]
async fn the_stream_ends_with_the_credential_it_was_opened_with() {
    let scene = auth_world_with(GatewayOptions::default()).await;
    let mut client = SseTestClient::open(&scene.world, Request::new("GET", "/sse").with_token("ada")).await;
    scene.ada.expire();
    assert!(client.reads_to_end().await);
    eventually("the session is gone", PATIENCE, || scene.world.gateway.session_count() == 0).await;
}

#[tokio::test]
async fn pages_of_strangers_are_turned_away() {
    let world = world().await;
    let client = SseTestClient::open(&world, Request::new("GET", "/sse")).await;
    for (header, value) in [("Host", "evil.example"), ("Origin", "https://evil.example")] {
        assert_eq!(world.send(Request::new("GET", "/sse").with(header, value)).await.status, 403);
        assert_eq!(world.send(client.post(&ping()).with(header, value)).await.status, 403);
    }
}

#[tokio::test]
async fn what_is_no_request_of_this_transport_is_refused_with_what_to_do() {
    let world = world().await;
    let client = SseTestClient::open(&world, Request::new("GET", "/sse")).await;
    let newer = world.send(Request::initialize("2025-11-25").to("/sse")).await;
    assert_eq!((newer.status, newer.header("allow")), (405, Some("GET")));
    assert!(newer.body.contains("/mcp"), "{newer:?}");
    assert_eq!(world.send(Request::new("DELETE", "/sse")).await.status, 405);
    let json = Request::new("GET", "/sse").with("Accept", "application/json");
    assert_eq!(world.send(json).await.status, 406);
    let text = client.post(&ping()).with("Content-Type", "text/plain");
    assert_eq!(world.send(text).await.status, 415);
}

#[tokio::test]
async fn a_message_that_is_none_is_answered_on_the_stream() {
    let world = world().await;
    let mut client = SseTestClient::open(&world, Request::new("GET", "/sse")).await;
    let broken = Request::post("{").to(&client.endpoint);
    assert_eq!(world.send(broken).await.status, 202);
    assert_eq!(client.message().await["error"]["code"], -32700);
    let early = client.request(&world, json!({"jsonrpc": "2.0", "id": 4, "method": "tools/list"})).await;
    assert_eq!(early["error"]["code"], -32600, "{early}");
    assert_eq!(client.request(&world, ping()).await["result"], json!({}));
}

#[tokio::test]
async fn streams_and_bodies_are_bounded() {
    let options = GatewayOptions { max_streams: 2, max_body: 1_024, ..GatewayOptions::default() };
    let world = world_with(options).await;
    let client = SseTestClient::open(&world, Request::new("GET", "/sse")).await;
    let refused = world.send(Request::new("GET", "/sse")).await;
    assert_eq!(refused.status, 503, "one caller has half of the streams");
    let large = json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "x".repeat(2_000)}});
    assert_eq!(world.send(client.post(&large)).await.status, 413);
    drop(client);
    eventually("the place is free", PATIENCE, || world.gateway.session_count() == 0).await;
    SseTestClient::open(&world, Request::new("GET", "/sse")).await;
}

#[tokio::test]
async fn a_silent_stream_is_kept_alive() {
    let options = GatewayOptions { keep_alive: Duration::from_millis(10), ..GatewayOptions::default() };
    let world = world_with(options).await;
    let mut client = SseTestClient::open(&world, Request::new("GET", "/sse")).await;
    assert_eq!(client.stream.chunk().await.unwrap(), ": \n\n");
}

#[tokio::test]
async fn a_gateway_that_winds_up_answers_what_is_under_way_and_ends_the_stream() {
    let mut world = world().await;
    let mut client = SseTestClient::open(&world, Request::new("GET", "/servers/fake/sse")).await;
    client.initialize(&world).await;
    assert_eq!(world.send(client.post(&call(7, "sleep", json!({"ms": 300})))).await.status, 202);
    eventually("the call arrives", PATIENCE, || world.host.status_of("fake").unwrap().in_flight == 1).await;
    world.gateway.drain();
    drop(world.stop.take());
    assert_eq!(client.message().await["id"], 7);
    assert!(client.reads_to_end().await);
}

#[tokio::test]
async fn requests_on_a_stream_count_among_those_of_their_caller_until_they_are_answered() {
    let world = world_with(GatewayOptions { max_per_caller: 4, ..GatewayOptions::default() }).await;
    let mut client = SseTestClient::open(&world, Request::new("GET", "/sse")).await;
    client.initialize(&world).await;
    let mut is_refused = false;
    for id in 1..=10 {
        is_refused |= world.send(client.post(&call(id, "fake__hang", json!({})))).await.status == 503;
    }
    // A client whose POST is still being answered is refused on the stream.
    if !is_refused {
        assert_eq!(client.message().await["error"]["data"]["code"], "overloaded");
    }
    assert!(world.host.status_of("fake").unwrap().in_flight <= 3, "the stream is the fourth");
}
