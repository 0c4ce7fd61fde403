//! Listen requests to modern servers, with and without support for them.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::response::Response;
use ostler_host::HostNotification;
use ostler_host::upstream::ServerNotification;
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;

use crate::fixture::{HttpFixture, LONG};
use crate::scripted_endpoint::{EventFeed, RecordedRequest, ScriptedEndpoint, modern, raw, respond, stream};

/// The listen requests received, each with its stream.
type Feeds = Mutex<Vec<(RecordedRequest, EventFeed)>>;

/// Makes a server that announces changes of its tools, with its answer to a listen request.
fn announcing(listen: impl Fn(&RecordedRequest) -> Response + Send + Sync + 'static) -> ScriptedEndpoint {
    ScriptedEndpoint::start(modern(move |got| match got.method() {
        "server/discover" => Some(got.result(json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {"listChanged": true}, "resources": {"subscribe": true}},
            "serverInfo": {"name": "remote", "version": "1"},
        }))),
        "subscriptions/listen" => Some(listen(got)),
        _ => None,
    }))
}

/// Makes a server that accepts every listen request and leaves the streams to the test.
fn listening_endpoint() -> (ScriptedEndpoint, Arc<Feeds>) {
    let feeds: Arc<Feeds> = Arc::default();
    let open = Arc::clone(&feeds);
    let remote = announcing(move |got| {
        let (feed, response) = stream();
        feed.write("retry: 10\n\n");
        open.lock().unwrap().push((got.clone(), feed));
        response
    });
    (remote, feeds)
}

fn acknowledge(feeds: &Feeds, nth: usize) {
    let (got, feed) = feeds.lock().unwrap()[nth].clone();
    feed.send(&json!({
        "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
        "params": {
            "notifications": got.body["params"]["notifications"],
            "_meta": {"io.modelcontextprotocol/subscriptionId": got.body["id"]},
        },
    }));
}

fn change(feeds: &Feeds, nth: usize) {
    let (got, feed) = feeds.lock().unwrap()[nth].clone();
    feed.send(&json!({
        "jsonrpc": "2.0", "method": "notifications/tools/list_changed",
        "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": got.body["id"]}},
    }));
}

async fn streams(feeds: &Feeds, count: usize) {
    ostler_testkit::eventually("a stream", LONG, || feeds.lock().unwrap().len() == count).await;
}

/// Returns the number of list requests that this many lookups cost.
async fn list_requests(stage: &HttpFixture, remote: &ScriptedEndpoint, looks: usize) -> usize {
    let before = remote.requests_of("tools/list").len();
    for _ in 0..looks {
        stage.host.tools(&stage.me, "remote").await.unwrap();
    }
    remote.requests_of("tools/list").len() - before
}

/// Fetches the list until it is cached.
async fn until_kept(stage: &HttpFixture, remote: &ScriptedEndpoint) {
    let end = Instant::now() + LONG;
    while list_requests(stage, remote, 1).await > 0 {
        assert!(Instant::now() < end, "the list is asked for every time");
    }
}

async fn next(events: &mut Receiver<HostNotification>) -> ServerNotification {
    tokio::time::timeout(LONG, events.recv()).await.expect("an event comes").unwrap().notification
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_good_from_the_acknowledgement_until_a_change_is_told() {
    let (remote, feeds) = listening_endpoint();
    let stage = HttpFixture::connected_to(&remote).await;
    stage.text("echo").await;
    streams(&feeds, 1).await;
    assert_eq!(list_requests(&stage, &remote, 3).await, 3, "nothing is promised yet");
    let mut events = stage.host.notifications();
    acknowledge(&feeds, 0);
    until_kept(&stage, &remote).await;
    change(&feeds, 0);
    assert_eq!(next(&mut events).await, ServerNotification::ToolsChanged);
    assert_eq!(list_requests(&stage, &remote, 3).await, 1);
    let asked = &remote.requests_of("subscriptions/listen")[0];
    assert_eq!(asked.header("mcp-method"), Some("subscriptions/listen"));
    assert_eq!(asked.body["params"]["notifications"], json!({"toolsListChanged": true}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_ends_is_asked_for_again_and_the_time_between_counts_as_a_change() {
    let (remote, feeds) = listening_endpoint();
    let stage = HttpFixture::connected_to(&remote).await;
    let mut events = stage.host.notifications();
    stage.text("echo").await;
    for round in 0..3 {
        streams(&feeds, round + 1).await;
        acknowledge(&feeds, round);
        until_kept(&stage, &remote).await;
        // Its sender is dropped with it, so the stream ends.
        let (got, _) = feeds.lock().unwrap()[round].clone();
        feeds.lock().unwrap()[round] = (got, stream().0);
        assert_eq!(next(&mut events).await, ServerNotification::ToolsChanged);
        assert!(list_requests(&stage, &remote, 1).await > 0, "what was promised has ended");
    }
    assert_eq!(stage.status().generation, 1, "the session goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_can_not_be_listened_to_is_asked_once_and_listed_every_time() {
    let unknown = |got: &RecordedRequest| json!({"jsonrpc": "2.0", "id": got.body["id"], "error": {"code": -32601, "message": "no"}});
    let as_events =
        move |got: &RecordedRequest| raw(200, "text/event-stream", format!("data: {}\n\n", unknown(got)));
    type Listen = Box<dyn Fn(&RecordedRequest) -> Response + Send + Sync>;
    let ways: [Listen; 4] = [
        Box::new(move |got| respond(404, &[], unknown(got))),
        Box::new(move |got| respond(200, &[], unknown(got))),
        Box::new(as_events),
        Box::new(|_| respond(405, &[], Value::Null)),
    ];
    for listen in ways {
        let remote = announcing(listen);
        let stage = HttpFixture::connected_to(&remote).await;
        stage.text("echo").await;
        let asked = || remote.requests_of("subscriptions/listen").len();
        ostler_testkit::eventually("it is asked", LONG, || asked() == 1).await;
        assert_eq!(list_requests(&stage, &remote, 3).await, 3);
        stage.text("echo").await;
        let status = stage.status();
        assert_eq!((asked(), status.generation, status.consecutive_failures), (1, 1, 0));
        assert_eq!(status.last_error, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_wishes_take_the_place_of_earlier_ones_once_they_are_acknowledged() {
    let (remote, feeds) = listening_endpoint();
    let stage = HttpFixture::connected_to(&remote).await;
    stage.text("echo").await;
    streams(&feeds, 1).await;
    acknowledge(&feeds, 0);
    until_kept(&stage, &remote).await;
    let held = stage.host.subscribe(&stage.me, "remote", "file:///a").await.unwrap();
    streams(&feeds, 2).await;
    let wishes = feeds.lock().unwrap()[1].0.body["params"]["notifications"].clone();
    assert_eq!(wishes, json!({"toolsListChanged": true, "resourceSubscriptions": ["file:///a"]}));
    let mut events = stage.host.notifications();
    change(&feeds, 0);
    assert_eq!(
        next(&mut events).await,
        ServerNotification::ToolsChanged,
        "the first one is heard until then"
    );
    acknowledge(&feeds, 1);
    let first = feeds.lock().unwrap()[0].1.clone();
    tokio::time::timeout(LONG, first.unread()).await.expect("the first one is left");
    change(&feeds, 1);
    assert_eq!(next(&mut events).await, ServerNotification::ToolsChanged);
    drop(held);
    streams(&feeds, 3).await;
    let wishes = feeds.lock().unwrap()[2].0.body["params"]["notifications"].clone();
    assert_eq!(wishes, json!({"toolsListChanged": true}));
}
