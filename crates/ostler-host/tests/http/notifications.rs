//! Notifications of remote servers.

use std::sync::{Arc, Mutex};

use axum::http::Method;
use ostler_host::upstream::ServerNotification;
use serde_json::json;

use crate::fixture::{HttpFixture, LONG};
use crate::scripted_endpoint::{EventFeed, ScriptedEndpoint, legacy, stream};

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_servers_stream_is_followed_and_picked_up_where_it_ended() {
    let feeds: Arc<Mutex<Vec<EventFeed>>> = Arc::default();
    let open = Arc::clone(&feeds);
    let remote = ScriptedEndpoint::start(legacy(move |got| {
        (got.verb == Method::GET).then(|| {
            let (feed, response) = stream();
            feed.write("retry: 10\n\n");
            open.lock().unwrap().push(feed);
            response
        })
    }));
    let stage = HttpFixture::connected_to(&remote).await;
    stage.text("echo").await;
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    for round in 0..3 {
        ostler_testkit::eventually("a stream", LONG, || feeds.lock().unwrap().len() > round).await;
        let lists = remote.requests_of("tools/list").len();
        let feed = feeds.lock().unwrap()[round].clone();
        feed.write(format!("id: e{round}\ndata: {changed}\n\n"));
        // The list is fetched again once the change was received.
        let mut asked = lists;
        let end = std::time::Instant::now() + LONG;
        while asked == lists {
            assert!(std::time::Instant::now() < end, "the change is not heard");
            stage.host.tools(&stage.me, "remote").await.unwrap();
            asked = remote.requests_of("tools/list").len();
        }
        drop(feed);
        feeds.lock().unwrap()[round] = stream().0;
    }
    let gets: Vec<_> = remote.requests().into_iter().filter(|got| got.verb == Method::GET).collect();
    assert_eq!(gets[0].header("last-event-id"), None);
    assert_eq!(gets[1].header("last-event-id"), Some("e0"));
    assert_eq!(gets[2].header("last-event-id"), Some("e1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_stream_is_asked_for_one_once() {
    let remote = ScriptedEndpoint::start(legacy(|_| None));
    let stage = HttpFixture::connected_to(&remote).await;
    for _ in 0..5 {
        stage.text("echo").await;
    }
    stage.host.stop("remote").await.unwrap();
    assert_eq!(remote.requests().iter().filter(|got| got.verb == Method::GET).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_kept_only_while_its_server_can_be_heard() {
    let feed: Arc<Mutex<Option<EventFeed>>> = Arc::default();
    let open = Arc::clone(&feed);
    let remote = ScriptedEndpoint::start(legacy(move |got| {
        let mut open = open.lock().unwrap();
        (got.verb == Method::GET && open.is_none()).then(|| {
            let (feed, response) = stream();
            *open = Some(feed);
            response
        })
    }));
    let stage = HttpFixture::connected_to(&remote).await;
    let mut events = stage.host.notifications();
    let look = async || {
        let before = remote.requests_of("tools/list").len();
        stage.host.tools(&stage.me, "remote").await.unwrap();
        remote.requests_of("tools/list").len() - before
    };
    let end = std::time::Instant::now() + LONG;
    while look().await > 0 {
        assert!(std::time::Instant::now() < end, "the list is asked for every time");
    }
    // The stream ends without an event id to resume at, and there is no other.
    *feed.lock().unwrap() = Some(stream().0);
    let told = tokio::time::timeout(LONG, events.recv()).await.unwrap().unwrap();
    assert_eq!(told.notification, ServerNotification::ToolsChanged);
    assert_eq!((look().await, look().await), (1, 1));
}
