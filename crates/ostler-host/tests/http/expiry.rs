//! Legacy sessions that the server forgets, and streams that go on elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::http::Method;
use serde_json::{Value, json};

use crate::remote::{Got, Remote, legacy, raw, respond};
use crate::stage::{Stage, code};

/// A server that does not know the session `s1` once the switch is on.
fn forgetful(status: u16, body: Value) -> (Remote, Arc<AtomicBool>) {
    let has_forgotten = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&has_forgotten);
    let remote = Remote::start(legacy(move |got: &Got| {
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
        let stage = Stage::of(&remote).await;
        stage.text("echo").await;
        has_forgotten.store(true, Ordering::SeqCst);
        assert_eq!(stage.text("echo").await, "echo");
        let status = stage.status();
        assert_eq!((status.generation, status.restarts.used, status.consecutive_failures), (1, 0, 0));
        assert_eq!(remote.of("initialize").len(), 2);
        assert_eq!(remote.of("tools/call").last().unwrap().header("mcp-session-id"), Some("s2"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_that_find_it_expired_share_one_handshake() {
    let (remote, has_forgotten) = forgetful(404, Value::Null);
    let stage = Stage::of(&remote).await;
    stage.text("echo").await;
    has_forgotten.store(true, Ordering::SeqCst);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (host, me) = (stage.host.clone(), stage.me.clone());
        calls.spawn(async move { host.call(&me, "remote", "echo", json!({})).await });
    }
    assert!(calls.join_all().await.iter().all(Result::is_ok));
    assert_eq!(remote.of("initialize").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_at_once_is_not_asked_for_ever() {
    let remote = Remote::start(legacy(|got| got.is_call().then(|| respond(404, &[], Value::Null))));
    let stage = Stage::of(&remote).await;
    assert_eq!(code(&stage.call("echo").await), "server-unavailable");
    assert_eq!((remote.of("initialize").len(), remote.calls()), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_whose_stream_ends_early_is_picked_up_after_the_wait_it_asks_for() {
    let remote = Remote::start(legacy(|got| match (&got.verb, got.header("last-event-id")) {
        (&Method::POST, _) if got.is_call() => {
            Some(raw(200, "text/event-stream", "id: first\nretry: 400\ndata:\n\n"))
        }
        (&Method::GET, Some("first")) => Some(raw(200, "text/event-stream", "id: second\ndata: \n\n")),
        (&Method::GET, Some("second")) => {
            let message = json!({"jsonrpc": "2.0", "id": 1001, "result": crate::remote::content("late")});
            Some(raw(200, "text/event-stream", format!("data: {message}\n\n")))
        }
        _ => None,
    }));
    let stage = Stage::of(&remote).await;
    let began = Instant::now();
    assert_eq!(stage.text("echo").await, "late");
    assert!(began.elapsed() >= Duration::from_millis(800), "the wait is the server's wish, twice");
    assert_eq!(remote.calls(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_can_not_be_picked_up_is_unknown() {
    let remote = Remote::start(legacy(|got| {
        got.is_call().then(|| raw(200, "text/event-stream", "id: first\nretry: 1\ndata:\n\n"))
    }));
    let stage = Stage::of(&remote).await;
    assert_eq!(code(&stage.call("echo").await), "outcome-unknown");
    assert_eq!(remote.calls(), 1);
}
