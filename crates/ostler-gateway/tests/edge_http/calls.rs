//! Slow calls: frames before the answer, and clients that leave.

use std::sync::{Arc, Mutex};

use ostler_gateway::{ConnectionLimits, GatewayOptions};
use ostler_host::Caller;
use ostler_testkit::{eventually, fake_mcp_spec};

use crate::world::{Client, PATIENCE, Request, World};

/// Returns a world with one server, and the outcome of each request to it.
async fn world() -> (World, Arc<Mutex<Vec<String>>>) {
    let world = World::with(GatewayOptions::default(), ConnectionLimits::default()).await;
    let ended: Arc<Mutex<Vec<String>>> = Arc::default();
    let ends = Arc::clone(&ended);
    world.host.spawn(&Caller::local(), fake_mcp_spec("fake", &[])).await.unwrap();
    // The list is known from here on, so that only calls are in flight.
    world.host.tools(&Caller::local(), "fake").await.unwrap();
    world.host.set_recorder(Some(Arc::new(move |record| ends.lock().unwrap().push(record.outcome.into()))));
    (world, ended)
}

fn in_flight(world: &World) -> usize {
    world.host.status_of("fake").unwrap().in_flight
}

const META: &str = r#""_meta":{"progressToken":"p","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

fn modern(tool: &str, arguments: &str) -> Request {
    let params = format!(r#"{{"name":"{tool}","arguments":{arguments},{META}}}"#);
    Request::post(format!(r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{params}}}"#))
        .with("MCP-Protocol-Version", "2026-07-28")
        .with("Mcp-Method", "tools/call")
        .with("Mcp-Name", tool)
        .to("/servers/fake/mcp")
}

fn legacy(session: &str, tool: &str, arguments: &str) -> Request {
    let params = format!(r#"{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":"p"}}}}"#);
    Request::post(format!(r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{params}}}"#))
        .to("/servers/fake/mcp")
        .in_session(session)
}

async fn session(world: &World, version: &str) -> String {
    world.send(Request::initialize(version).to("/servers/fake/mcp")).await.session()
}

/// Reads events until one has this text.
async fn events_until(client: &mut Client, text: &str) -> String {
    let mut said = String::new();
    while !said.contains(text) {
        said.push_str(&client.chunk().await.unwrap_or_else(|| panic!("the stream ended: {said}")));
    }
    said
}

#[tokio::test]
async fn a_quick_answer_is_one_json_object() {
    let (world, _) = world().await;
    let response = world.send(modern("echo", r#"{"a":1}"#)).await;
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.json()["result"]["structuredContent"]["a"], 1);
    let session = session(&world, "2025-11-25").await;
    let response = world.send(legacy(&session, "echo", r#"{"a":2}"#)).await;
    assert_eq!(response.json()["result"]["structuredContent"]["a"], 2);
}

#[tokio::test]
async fn progress_comes_before_the_answer_on_one_stream() {
    let (world, _) = world().await;
    let response = world.send(modern("progress", r#"{"count":3,"ms":1}"#)).await;
    assert_eq!((response.status, response.header("content-type")), (200, Some("text/event-stream")));
    let events: Vec<serde_json::Value> = response
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.len(), 4, "{response:?}");
    assert!(events[..3].iter().all(|event| event["method"] == "notifications/progress"));
    assert_eq!(events[3]["id"], 9);
}

#[tokio::test]
async fn a_client_that_reads_json_only_gets_the_answer_alone() {
    let (world, _) = world().await;
    let response =
        world.send(modern("progress", r#"{"count":3,"ms":1}"#).with("Accept", "application/json")).await;
    assert_eq!(response.json()["id"], 9);
    let session = session(&world, "2025-11-25").await;
    let request = legacy(&session, "progress", r#"{"count":3,"ms":20}"#).with("Accept", "application/json");
    assert_eq!(world.send(request).await.json()["id"], 9);
}

#[tokio::test]
async fn a_modern_client_that_leaves_has_cancelled() {
    let (world, ended) = world().await;
    let mut client = world.connect().await;
    client.start(modern("hang", "{}")).await;
    eventually("the call is under way", PATIENCE, || in_flight(&world) == 1).await;
    drop(client);
    eventually("the call is cancelled", PATIENCE, || in_flight(&world) == 0).await;

    let mut client = world.connect().await;
    client.start(modern("progress", r#"{"count":100000,"ms":1}"#)).await;
    assert_eq!(client.head().await.status, 200);
    drop(client);
    eventually("the stream is cancelled", PATIENCE, || in_flight(&world) == 0).await;
    assert_eq!(*ended.lock().unwrap(), ["cancelled", "cancelled"]);
}

#[tokio::test]
async fn a_legacy_client_that_leaves_has_not_cancelled() {
    let (world, ended) = world().await;
    let session = session(&world, "2025-11-25").await;
    let mut client = world.connect().await;
    client.start(legacy(&session, "sleep", r#"{"ms":300}"#)).await;
    eventually("the call is under way", PATIENCE, || in_flight(&world) == 1).await;
    drop(client);
    eventually("the call is over", PATIENCE, || in_flight(&world) == 0).await;
    assert_eq!(*ended.lock().unwrap(), ["ok"]);
}

#[tokio::test]
async fn answers_that_nobody_comes_for_are_kept_up_to_a_bound() {
    let (world, ended) = world().await;
    let session = session(&world, "2025-11-25").await;
    let large = format!(r#"{{"size":{}}}"#, 15 << 20);
    for number in 1..=5 {
        let mut client = world.connect().await;
        client.start(legacy(&session, "blob", &large)).await;
        assert_eq!(client.head().await.header("content-type"), Some("text/event-stream"));
        drop(client);
        eventually("the call is over", PATIENCE, || ended.lock().unwrap().len() == number).await;
    }
    let get = |number| {
        let resume = Request::new("GET", "/servers/fake/mcp").in_session(&session);
        resume.with("Last-Event-ID", &format!("{number}-0"))
    };
    let mut last = world.connect().await;
    last.start(get(5)).await;
    assert_eq!(last.head().await.status, 200);
    events_until(&mut last, r#""id":9"#).await;
    assert_eq!(world.send(get(1)).await.status, 404);
}

#[tokio::test]
async fn a_legacy_client_comes_back_for_what_it_missed() {
    let (world, _) = world().await;
    let session = session(&world, "2025-11-25").await;
    let mut client = world.connect().await;
    client.start(legacy(&session, "progress", r#"{"count":10,"ms":20}"#)).await;
    assert_eq!(client.head().await.header("content-type"), Some("text/event-stream"));
    let begin = events_until(&mut client, "notifications/progress").await;
    assert!(begin.starts_with("id: 1-0\nretry: 3000\ndata: \n\n"), "{begin}");
    drop(client);

    let mut again = world.connect().await;
    let resume = Request::new("GET", "/servers/fake/mcp").in_session(&session).with("Last-Event-ID", "1-1");
    again.start(resume.clone()).await;
    assert_eq!(again.head().await.status, 200);
    let rest = events_until(&mut again, r#""id":9"#).await;
    let rest = rest.strip_prefix("id: 1-1\nretry: 3000\ndata: \n\n").unwrap();
    assert!(rest.starts_with("id: 1-2\n"), "nothing twice, nothing missing: {rest}");
    assert_eq!(rest.matches("notifications/progress").count(), 9);
    assert_eq!(again.chunk().await, None);
    assert_eq!(world.send(resume).await.status, 404, "what was read to its end is forgotten");
}

#[tokio::test]
async fn older_revisions_get_no_event_without_a_message() {
    let (world, _) = world().await;
    let session = session(&world, "2025-06-18").await;
    let response = world.send(legacy(&session, "sleep", r#"{"ms":60}"#)).await;
    assert!(response.body.starts_with("id: 1-1\nevent: message\ndata: {"), "{response:?}");
}

#[tokio::test]
async fn a_legacy_client_cancels_by_saying_so() {
    let (world, ended) = world().await;
    let session = session(&world, "2025-11-25").await;
    let mut client = world.connect().await;
    client.start(legacy(&session, "hang", "{}")).await;
    eventually("the call is under way", PATIENCE, || in_flight(&world) == 1).await;
    let cancel = |id: &str| {
        Request::post(format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"enough"}}}}"#
        ))
        .to("/servers/fake/mcp")
        .in_session(&session)
    };
    assert_eq!(world.send(cancel(r#""9""#)).await.status, 202);
    assert!(ended.lock().unwrap().is_empty(), "another id is another request");
    assert_eq!(world.send(cancel("9")).await.status, 202);
    eventually("the call is cancelled", PATIENCE, || in_flight(&world) == 0).await;
    assert!(!client.head_and_body().await.body.contains("\"id\":9"), "nobody expects an answer");
    assert_eq!(*ended.lock().unwrap(), ["cancelled"]);
}

#[tokio::test]
async fn the_end_of_a_session_cancels_its_calls() {
    let (world, _) = world().await;
    let session = session(&world, "2025-11-25").await;
    let mut client = world.connect().await;
    client.start(legacy(&session, "hang", "{}")).await;
    eventually("the call is under way", PATIENCE, || in_flight(&world) == 1).await;
    let delete = Request::new("DELETE", "/servers/fake/mcp").in_session(&session);
    assert_eq!(world.send(delete).await.status, 204);
    eventually("the call is cancelled", PATIENCE, || in_flight(&world) == 0).await;
}

#[tokio::test]
async fn a_session_belongs_to_one_endpoint() {
    let (world, _) = world().await;
    let session = session(&world, "2025-11-25").await;
    let list = Request::post(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).in_session(&session);
    assert_eq!(world.send(list.clone().to("/servers/fake/mcp")).await.status, 200);
    assert_eq!(world.send(list).await.status, 404);
}

#[tokio::test]
async fn a_second_stream_takes_over_from_the_first() {
    let (world, _) = world().await;
    let session = session(&world, "2025-11-25").await;
    let open = Request::new("GET", "/servers/fake/mcp").in_session(&session);
    let mut first = world.connect().await;
    first.start(open.clone()).await;
    assert_eq!(first.head().await.status, 200);
    let mut second = world.connect().await;
    second.start(open).await;
    assert_eq!(second.head().await.status, 200);
    assert!(first.chunk().await.unwrap().starts_with("id: 0-0\n"));
    assert_eq!(first.chunk().await, None);
}
