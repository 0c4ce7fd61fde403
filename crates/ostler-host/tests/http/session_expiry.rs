//! Session expiry: legacy sessions that the server forgets, and streams that resume elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::http::Method;
use ostler_host::LogLevel;
use serde_json::{Value, json};

use crate::fixture::{HttpFixture, LONG, code};
use crate::scripted_endpoint::{RecordedRequest, ScriptedEndpoint, legacy, raw, respond};

/// Makes a server that does not know the session `s1` once the switch is on.
fn forgetful(status: u16, body: Value) -> (ScriptedEndpoint, Arc<AtomicBool>) {
    let has_forgotten = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&has_forgotten);
    let remote = ScriptedEndpoint::start(legacy(move |got: &RecordedRequest| {
        let is_stale = got.header("mcp-session-id") == Some("s1") && switch.load(Ordering::SeqCst);
        is_stale.then(|| respond(status, &[], body.clone()))
    }));
    (remote, has_forgotten)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_has_expired_is_opened_again_unnoticed() {
    let error =
        json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "No valid session"}});
    for (status, body) in [(404, Value::Null), (404, json!({"error": "x"})), (400, error)] {
        let (remote, has_forgotten) = forgetful(status, body);
        let stage = HttpFixture::connected_to(&remote).await;
        stage.text("echo").await;
        has_forgotten.store(true, Ordering::SeqCst);
        assert_eq!(stage.text("echo").await, "echo");
        let status = stage.status();
        assert_eq!((status.generation, status.restarts.used, status.consecutive_failures), (1, 0, 0));
        assert_eq!(remote.requests_of("initialize").len(), 2);
        assert_eq!(remote.requests_of("tools/call").last().unwrap().header("mcp-session-id"), Some("s2"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_opened_again_is_told_what_the_one_before_was_told() {
    let has_forgotten = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&has_forgotten);
    let remote = ScriptedEndpoint::start(legacy(move |got: &RecordedRequest| {
        if got.header("mcp-session-id") == Some("s1") && switch.load(Ordering::SeqCst) {
            return Some(respond(404, &[], Value::Null));
        }
        match got.method() {
            "initialize" => {
                let id = if switch.load(Ordering::SeqCst) { "s2" } else { "s1" };
                let mut response = got.result(json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}, "logging": {}, "resources": {"subscribe": true}},
                    "serverInfo": {"name": "remote", "version": "1"},
                }));
                response.headers_mut().insert("mcp-session-id", id.parse().unwrap());
                Some(response)
            }
            "resources/subscribe" | "logging/setLevel" => Some(got.result(json!({}))),
            _ => None,
        }
    }));
    let stage = HttpFixture::connected_to(&remote).await;
    stage.text("echo").await;
    stage.host.request_log_level(&stage.me, "remote", LogLevel::Notice);
    let _held = stage.host.subscribe(&stage.me, "remote", "file:///a").await.unwrap();
    let told = |method: &str, session: &str| {
        let of = remote
            .requests_of(method)
            .into_iter()
            .filter(|got| got.header("mcp-session-id") == Some(session));
        of.map(|got| got.body["params"].clone()).collect::<Vec<_>>()
    };
    ostler_testkit::eventually("the level is set", LONG, || told("logging/setLevel", "s1").len() == 1).await;
    has_forgotten.store(true, Ordering::SeqCst);
    stage.text("echo").await;
    let is_told =
        || !told("logging/setLevel", "s2").is_empty() && !told("resources/subscribe", "s2").is_empty();
    ostler_testkit::eventually("it is told again", LONG, is_told).await;
    assert_eq!(told("logging/setLevel", "s2")[0]["level"], "info");
    assert_eq!(told("resources/subscribe", "s2")[0]["uri"], "file:///a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_what_it_is_told_is_not_told_for_ever() {
    let remote = ScriptedEndpoint::start(legacy(|got| match got.method() {
        "initialize" => None,
        "resources/subscribe" if got.header("mcp-session-id") == Some("s1") => Some(got.result(json!({}))),
        "resources/subscribe" => Some(respond(404, &[], Value::Null)),
        _ if got.is_call() && got.header("mcp-session-id") == Some("s1") && got.tool() == "slow" => {
            Some(respond(404, &[], Value::Null))
        }
        _ => None,
    }));
    let stage = HttpFixture::connected_to(&remote).await;
    let began = Instant::now();
    let _held = stage.host.subscribe(&stage.me, "remote", "file:///a").await.unwrap();
    assert_eq!(stage.text("slow").await, "slow");
    let told_again = || {
        let told = remote.requests_of("resources/subscribe");
        told.iter().filter(|got| got.header("mcp-session-id") != Some("s1")).count()
    };
    ostler_testkit::eventually("it is told in two more sessions", LONG, || told_again() >= 2).await;
    for _ in 0..50 {
        stage.text("echo").await;
    }
    // On a slow machine the next round may be due already.
    let rounds = usize::try_from(began.elapsed().as_secs()).unwrap() / 10;
    assert!(told_again() <= 2 + 2 * rounds);
    assert!(remote.requests_of("initialize").len() <= 3 + rounds);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_that_find_it_expired_share_one_handshake() {
    let (remote, has_forgotten) = forgetful(404, Value::Null);
    let stage = HttpFixture::connected_to(&remote).await;
    stage.text("echo").await;
    has_forgotten.store(true, Ordering::SeqCst);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (host, me) = (stage.host.clone(), stage.me.clone());
        calls.spawn(async move { host.call(&me, "remote", "echo", json!({})).await });
    }
    assert!(calls.join_all().await.iter().all(Result::is_ok));
    assert_eq!(remote.requests_of("initialize").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_at_once_is_not_asked_for_ever() {
    let remote = ScriptedEndpoint::start(legacy(|got| got.is_call().then(|| respond(404, &[], Value::Null))));
    let stage = HttpFixture::connected_to(&remote).await;
    assert_eq!(code(&stage.call("echo").await), "server-unavailable");
    assert_eq!((remote.requests_of("initialize").len(), remote.calls()), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_whose_stream_ends_early_is_picked_up_after_the_wait_it_asks_for() {
    let remote = ScriptedEndpoint::start(legacy(|got| match (&got.verb, got.header("last-event-id")) {
        (&Method::POST, _) if got.is_call() => {
            Some(raw(200, "text/event-stream", "id: first\nretry: 400\ndata:\n\n"))
        }
        (&Method::GET, Some("first")) => Some(raw(200, "text/event-stream", "id: second\ndata: \n\n")),
        (&Method::GET, Some("second")) => {
            let message =
                json!({"jsonrpc": "2.0", "id": 1001, "result": crate::scripted_endpoint::content("late")});
            Some(raw(200, "text/event-stream", format!("data: {message}\n\n")))
        }
        _ => None,
    }));
    let stage = HttpFixture::connected_to(&remote).await;
    let began = Instant::now();
    assert_eq!(stage.text("echo").await, "late");
    assert!(began.elapsed() >= Duration::from_millis(800), "the wait is the server's wish, twice");
    assert_eq!(remote.calls(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_can_not_be_picked_up_is_unknown() {
    let remote = ScriptedEndpoint::start(legacy(|got| {
        got.is_call().then(|| raw(200, "text/event-stream", "id: first\nretry: 1\ndata:\n\n"))
    }));
    let stage = HttpFixture::connected_to(&remote).await;
    assert_eq!(code(&stage.call("echo").await), "outcome-unknown");
    assert_eq!(remote.calls(), 1);
}
