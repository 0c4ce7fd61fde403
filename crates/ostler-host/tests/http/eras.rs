//! Transport and era detection: found once, and remembered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::http::Method;
use serde_json::{Value, json};

use crate::fixture::{HttpFixture, LONG, code};
use crate::scripted_endpoint::{EventFeed, ScriptedEndpoint, legacy, modern, raw, respond, stream};

fn methods(remote: &ScriptedEndpoint) -> Vec<String> {
    remote.requests().iter().map(|got| format!("{} {}", got.verb, got.method())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_modern_server_is_discovered_and_never_initialized() {
    let remote = ScriptedEndpoint::start(modern(|_| None));
    let stage = HttpFixture::connected_to(&remote).await;
    stage.text("echo").await;
    assert_eq!(methods(&remote), ["POST server/discover", "POST tools/list", "POST tools/call"]);
    let status = stage.status();
    assert_eq!(
        (status.protocol.as_deref(), status.pid, status.transport),
        (Some("2026-07-28"), None, "http")
    );
    assert_eq!(serde_json::to_value(status.containment).unwrap(), "none");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_server_is_initialized_and_its_era_remembered() {
    let refusals: [fn() -> axum::response::Response; 3] = [
        || raw(404, "text/html", "<html>"),
        || respond(405, &[], Value::Null),
        || raw(400, "text/plain", "what?"),
    ];
    for refuse in refusals {
        let remote =
            ScriptedEndpoint::start(legacy(move |got| (got.method() == "server/discover").then(refuse)));
        let stage = HttpFixture::connected_to(&remote).await;
        stage.text("echo").await;
        stage.host.reload("remote").await.unwrap();
        stage.text("echo").await;
        let posts = remote.requests().into_iter().filter(|got| got.verb == Method::POST);
        let found: Vec<_> = posts.map(|got| got.method().to_owned()).collect();
        let opening = ["initialize", "notifications/initialized", "tools/list", "tools/call"];
        assert_eq!(found[0], "server/discover");
        assert_eq!(found[1..5], opening);
        assert_eq!(found.iter().filter(|method| *method == "server/discover").count(), 1, "remembered");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_session_says_its_id_and_version_and_is_deleted() {
    let remote = ScriptedEndpoint::start(legacy(|_| None));
    let stage = HttpFixture::connected_to(&remote).await;
    stage.text("echo").await;
    stage.host.stop("remote").await.unwrap();
    let got = remote.requests();
    let initialize = got.iter().find(|got| got.method() == "initialize").unwrap();
    assert_eq!(initialize.header("mcp-session-id"), None);
    assert_eq!(initialize.header("mcp-protocol-version"), None);
    for got in got.iter().filter(|got| !["server/discover", "initialize"].contains(&got.method())) {
        assert_eq!(got.header("mcp-session-id"), Some("s1"), "{got:?}");
        assert_eq!(got.header("mcp-protocol-version"), Some("2025-11-25"), "{got:?}");
    }
    assert_eq!(got.last().unwrap().verb, Method::DELETE);
    assert!(got.iter().all(|got| got.header("mcp-name").is_none() || got.method() == "server/discover"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_server_may_answer_with_events() {
    let remote = ScriptedEndpoint::start(legacy(|got| match got.method() {
        "tools/call" => Some(raw(200, "text/event-stream", format!("data: {}\n\n", got.message("streamed")))),
        _ => None,
    }));
    let stage = HttpFixture::connected_to(&remote).await;
    assert_eq!(stage.text("echo").await, "streamed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_server_is_told_when_a_call_is_given_up() {
    let remote = ScriptedEndpoint::start(legacy(|got| {
        got.is_call().then(|| {
            let (feed, response) = stream();
            feed.write(": here\n\n");
            tokio::spawn(async move { feed.unread().await });
            response
        })
    }));
    let stage = HttpFixture::connected_to(&remote).await;
    // The list comes first, so that it uses up none of the call's timeout.
    stage.host.tools(&stage.me, "remote").await.unwrap();
    let request = stage.request("slow").with_timeout(std::time::Duration::from_secs(1));
    assert_eq!(code(&stage.host.send_to("remote", request).await), "timed-out");
    ostler_testkit::eventually("it is told", LONG, || {
        remote.requests_of("notifications/cancelled").len() == 1
    })
    .await;
    let (call, told) =
        (&remote.requests_of("tools/call")[0], &remote.requests_of("notifications/cancelled")[0]);
    assert_eq!(told.body["params"]["requestId"], call.body["id"]);
}

/// Makes a server of 2024-11-05: responses come on the stream that a GET has opened.
fn sse_endpoint(target: &'static str) -> ScriptedEndpoint {
    sse_endpoint_that_forgets(target, Arc::default())
}

/// Makes the same server; the switch makes it forget its stream, once.
fn sse_endpoint_that_forgets(target: &'static str, forgets: Arc<AtomicBool>) -> ScriptedEndpoint {
    let open: Arc<Mutex<Option<EventFeed>>> = Arc::default();
    ScriptedEndpoint::start(move |got| {
        if got.verb == Method::GET {
            let (feed, response) = stream();
            feed.write(format!("event: endpoint\ndata: {target}\n\n"));
            *open.lock().unwrap() = Some(feed);
            return response;
        }
        if forgets.swap(false, Ordering::SeqCst) {
            return respond(404, &[], Value::Null);
        }
        if got.path != "/messages" {
            return respond(405, &[], Value::Null);
        }
        let result = match got.method() {
            "initialize" => json!({"protocolVersion": "2024-11-05", "capabilities": {"tools": {}},
                "serverInfo": {"name": "old", "version": "1"}}),
            "tools/list" => json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}},
                {"name": "hang", "inputSchema": {"type": "object"}}]}),
            "tools/call" if got.tool() == "hang" => {
                *open.lock().unwrap() = None;
                return respond(202, &[], Value::Null);
            }
            "tools/call" => crate::scripted_endpoint::content("from the old days"),
            _ => return respond(202, &[], Value::Null),
        };
        let message = json!({"jsonrpc": "2.0", "id": got.body["id"], "result": result});
        open.lock().unwrap().as_ref().unwrap().send(&message);
        raw(202, "text/plain", "Accepted")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_the_oldest_transport_is_understood() {
    let remote = sse_endpoint("/messages?session=1");
    let stage = HttpFixture::connected_to(&remote).await;
    for _ in 0..3 {
        assert_eq!(stage.text("echo").await, "from the old days");
    }
    assert_eq!(stage.status().protocol.as_deref(), Some("2024-11-05"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_its_stream_is_the_end_of_an_oldest_session() {
    let remote = sse_endpoint("/messages");
    let stage = HttpFixture::connected_to(&remote).await;
    assert_eq!(stage.text("echo").await, "from the old days");
    assert_eq!(code(&stage.call("hang").await), "outcome-unknown");
    assert_eq!(stage.text("echo").await, "from the old days");
    assert_eq!(stage.status().generation, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oldest_session_that_the_server_forgets_is_opened_again_unnoticed() {
    let forgets = Arc::new(AtomicBool::new(false));
    let remote = sse_endpoint_that_forgets("/messages", Arc::clone(&forgets));
    let stage = HttpFixture::connected_to(&remote).await;
    assert_eq!(stage.text("echo").await, "from the old days");
    forgets.store(true, Ordering::SeqCst);
    assert_eq!(stage.text("echo").await, "from the old days");
    let opened = remote.requests_of("initialize").iter().filter(|got| got.path == "/messages").count();
    assert_eq!((opened, stage.status().restarts.used), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_not_sent_to_another_host() {
    let remote = sse_endpoint("http://127.0.0.2:1/messages");
    let stage = HttpFixture::connected_to(&remote).await;
    let error = stage.host.start("remote").await.unwrap_err();
    assert!(error.to_string().contains("another host"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_speaks_no_mcp_is_told() {
    let remote = ScriptedEndpoint::start(|_| raw(200, "text/html", "<html>welcome</html>"));
    let stage = HttpFixture::connected_to(&remote).await;
    let error = stage.host.start("remote").await.unwrap_err();
    assert!(error.to_string().contains("text/html"), "{error:?}");
}
