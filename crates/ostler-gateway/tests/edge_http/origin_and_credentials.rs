//! Origin and credential checks, before any message is read.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::StatusCode;
use ostler_gateway::{
    AuthOutcome, AuthRequest, Authenticate, ConnectionLimits, Gateway, GatewayOptions, HttpService,
    OnRefusal, Unauthorized,
};
use ostler_host::Caller;
use tokio::io::AsyncWriteExt;

use crate::world::{Request, World};

fn valid_request() -> Request {
    Request::modern("tools/list", "1")
}

#[tokio::test]
async fn strange_hosts_and_origins_are_refused() {
    let world = World::new().await;
    for (header, value, status) in [
        ("Host", "localhost:1", 200),
        ("Host", "evil.example", 403),
        ("Host", "localhost.evil", 403),
        ("Host", "", 403),
        ("Origin", "http://localhost:3000", 200),
        ("Origin", "null", 403),
        ("Origin", "http://localhost.evil", 403),
        ("Origin", "http://evil", 403),
    ] {
        let response = world.send(valid_request().with(header, value)).await;
        assert_eq!(response.status, status, "{header}: {value}");
    }
}

#[tokio::test]
async fn a_target_that_names_a_host_counts_beside_the_header() {
    let world = World::new().await;
    for (target, host, status) in [
        ("http://localhost/mcp", "localhost", 200),
        ("http://evil.example/mcp", "localhost", 403),
        ("http://localhost/mcp", "evil.example", 403),
        ("http://localhost@evil.example/mcp", "localhost", 403),
        ("http://localhost.evil/mcp", "localhost", 403),
    ] {
        let response = world.send(valid_request().to(target).with("Host", host)).await;
        assert_eq!(response.status, status, "{target} with Host: {host}");
    }
}

#[tokio::test]
async fn hosts_and_origins_can_be_allowed() {
    let options = GatewayOptions {
        allowed_hosts: vec!["box.example".into()],
        allowed_origins: vec!["https://app.example".into()],
        ..GatewayOptions::default()
    };
    let world = World::with(options, ConnectionLimits::default()).await;
    let request = valid_request().with("Host", "box.example:80").with("Origin", "https://app.example");
    assert_eq!(world.send(request).await.status, 200);
}

struct TokenAuthenticator;

impl Authenticate for TokenAuthenticator {
    fn check(&self, knock: &AuthRequest<'_>) -> AuthOutcome {
        assert!(knock.peer.is_some(), "the peer's address is known");
        match knock.bearer() {
            Ok(Some(name @ ("ada" | "bob"))) => AuthOutcome::Accepted(Caller::new(name, "local").into()),
            Ok(Some(_)) => AuthOutcome::Refused(Unauthorized::invalid("the token is not known")),
            Ok(None) => AuthOutcome::Refused(Unauthorized::missing("a bearer token is missing")),
            Err(why) => AuthOutcome::Refused(why),
        }
    }
}

async fn world_with_tokens() -> World {
    let options = GatewayOptions { authenticate: Arc::new(TokenAuthenticator), ..GatewayOptions::default() };
    World::with(options, ConnectionLimits::default()).await
}

#[tokio::test]
async fn without_a_credential_there_is_no_answer() {
    let world = world_with_tokens().await;
    let response = world.send(valid_request()).await;
    assert_eq!(response.status, 401);
    assert_eq!(response.header("www-authenticate"), Some("Bearer realm=\"ostler\""));
    assert_eq!(world.send(valid_request().with("Authorization", "Bearer ada")).await.status, 200);
    let response =
        world.send(valid_request().with("Authorization", "Bearer ada").with("Origin", "http://evil")).await;
    assert_eq!(response.status, 403, "a stranger's page learns nothing about credentials");
}

#[tokio::test]
async fn a_session_is_its_callers_alone() {
    let world = world_with_tokens().await;
    let opened = world.send(Request::initialize("2025-11-25").with("Authorization", "Bearer ada")).await;
    let list =
        Request::post(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).in_session(&opened.session());
    assert_eq!(world.send(list.clone().with("Authorization", "Bearer ada")).await.status, 200);
    assert_eq!(world.send(list.with("Authorization", "Bearer bob")).await.status, 404);
}

#[tokio::test]
async fn other_methods_are_not_allowed() {
    let world = World::new().await;
    for method in ["PUT", "PATCH", "OPTIONS"] {
        let response = world.send(Request::new(method, "/mcp")).await;
        assert_eq!(response.status, 405, "{method}");
        assert_eq!(response.header("allow"), Some("GET, POST, DELETE"));
    }
}

#[tokio::test]
async fn an_unknown_server_is_not_found() {
    let world = World::new().await;
    for name in ["nobody", "Not%20a%20name"] {
        let response = world.send(valid_request().to(&format!("/servers/{name}/mcp"))).await;
        assert_eq!(response.status, 404, "{name}");
        assert_eq!(response.code(), -32600);
    }
}

#[tokio::test]
async fn only_json_is_read_and_only_what_we_write_is_accepted() {
    let world = World::new().await;
    assert_eq!(world.send(valid_request().with("Content-Type", "text/plain")).await.status, 415);
    assert_eq!(world.send(valid_request().without("Content-Type")).await.status, 415);
    assert_eq!(
        world.send(valid_request().with("Content-Type", "application/json; charset=utf-8")).await.status,
        200
    );
    assert_eq!(world.send(valid_request().with("Accept", "text/html")).await.status, 406);
    assert_eq!(world.send(valid_request().without("Accept")).await.status, 200);
    let events = world.send(valid_request().with("Accept", "text/event-stream")).await;
    assert_eq!(events.header("content-type"), Some("text/event-stream"));
    assert!(events.body.starts_with("event: message\ndata: {"), "{events:?}");
}

#[tokio::test]
async fn a_body_beyond_the_cap_is_refused_whether_announced_or_not() {
    let options = GatewayOptions { max_body: 1_000, ..GatewayOptions::default() };
    let world = World::with(options, ConnectionLimits::default()).await;
    assert_eq!(world.send(Request::post("x".repeat(1_001))).await.status, 413);

    let mut client = world.connect().await;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        world.address
    );
    client.stream.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..3 {
        client.stream.write_all(format!("190\r\n{}\r\n", "x".repeat(400)).as_bytes()).await.unwrap();
    }
    assert_eq!(client.head().await.status, 413);
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_given_up() {
    let options = GatewayOptions { body_timeout: Duration::from_millis(50), ..GatewayOptions::default() };
    let world = World::with(options, ConnectionLimits::default()).await;
    let mut client = world.connect().await;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
        world.address
    );
    client.stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(client.head().await.status, 408);
}

#[tokio::test]
async fn refusals_are_told_wherever_they_come_from_and_nothing_else_is() {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let noting = Arc::clone(&told);
    let service = |gateway: &Gateway| {
        let on_refusal: OnRefusal = Arc::new(move |method, path, status, why| {
            noting.lock().unwrap().push(format!("{method} {path} {} {}", status.as_u16(), !why.is_empty()));
        });
        let routes = Router::new().route("/other", get(async || StatusCode::UNAUTHORIZED));
        HttpService::new(gateway.clone()).with_routes(routes).with_on_refusal(on_refusal)
    };
    let world = World::serving(GatewayOptions::default(), ConnectionLimits::default(), service).await;
    assert_eq!(world.send(valid_request()).await.status, 200);
    assert_eq!(world.send(valid_request().to("/servers/nobody/mcp")).await.status, 404);
    assert_eq!(world.send(valid_request().to("/nowhere")).await.status, 404);
    assert!(told.lock().unwrap().is_empty());
    let evil = |path: &str| valid_request().to(path).with("Host", "evil");
    assert_eq!(world.send(valid_request().with("Origin", "http://evil")).await.status, 403);
    assert_eq!(world.send(evil("/servers/a/mcp?x=1")).await.status, 403);
    assert_eq!(world.send(evil("/sse")).await.status, 403);
    assert_eq!(world.send(Request::new("GET", "/mcp/server-card").with("Host", "evil")).await.status, 403);
    assert_eq!(world.send(Request::new("GET", "/other")).await.status, 401);
    let expected = [
        "POST /mcp 403 true",
        "POST /servers/a/mcp 403 true",
        "POST /sse 403 true",
        "GET /mcp/server-card 403 true",
        "GET /other 401 false",
    ];
    assert_eq!(*told.lock().unwrap(), expected);
}

#[tokio::test]
async fn an_endpoint_behind_routes_answers_as_one_without() {
    let routes = |gateway: &Gateway| HttpService::from(gateway.router());
    let routed = World::serving(GatewayOptions::default(), ConnectionLimits::default(), routes).await;
    let direct = World::new().await;
    for request in [
        valid_request(),
        valid_request().to("/servers/nobody/mcp"),
        valid_request().to("/servers/no%62ody/mcp"),
        valid_request().to("/mcp?x=1"),
        valid_request().to("/mcp/"),
        valid_request().with("Origin", "null"),
        Request::post("{"),
        Request::new("GET", "/mcp"),
        Request::new("DELETE", "/mcp"),
        Request::new("PUT", "/mcp"),
        Request::new("POST", "/sse?sessionId=1"),
        Request::new("PUT", "/servers/nobody/sse"),
        Request::new("GET", "/mcp/server-card"),
        Request::new("POST", "/mcp/server-card"),
        Request::new("GET", "/servers/nobody/mcp/server-card"),
        Request::new("GET", "/.well-known/mcp/catalog.json"),
        Request::new("GET", "/.well-known/oauth-protected-resource/mcp"),
    ] {
        // Cards contain the host that was requested.
        let request = request.with("Host", "localhost");
        let (one, other) = (routed.send(request.clone()).await, direct.send(request).await);
        assert_eq!((one.status, &one.body), (other.status, &other.body));
        for header in ["content-type", "content-length", "allow"] {
            assert_eq!(one.header(header), other.header(header), "{header}");
        }
    }
}
