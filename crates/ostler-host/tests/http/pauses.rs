//! Pauses: servers that send `Retry-After`, and calls that are slow.

use std::time::{Duration, Instant};

use ostler_core::error::UnavailableState;
use serde_json::{Value, json};

use crate::fixture::{HttpFixture, LONG, code, spec, unavailable};
use crate::scripted_endpoint::{ScriptedEndpoint, modern, respond, stream};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_a_pause_gets_it() {
    // The `Date` of a response is its server's, independent of the local clock.
    let date = ("date", "Wed, 21 Oct 2015 07:27:30 GMT");
    for (status, wait) in [(429, "30"), (503, "30"), (503, "Wed, 21 Oct 2015 07:28:00 GMT")] {
        let remote = ScriptedEndpoint::start(modern(move |got| {
            got.is_call().then(|| respond(status, &[("retry-after", wait), date], Value::Null))
        }));
        let stage = HttpFixture::connected_to(&remote).await;
        let (state, retry_after) = unavailable(stage.call("echo").await);
        assert_eq!((state, retry_after), (UnavailableState::BreakerOpen, Some(Duration::from_secs(30))));
        for _ in 0..50 {
            let began = Instant::now();
            let (_, retry_after) = unavailable(stage.call("echo").await);
            assert!(retry_after.unwrap() > Duration::from_secs(20));
            assert!(began.elapsed() < Duration::from_secs(5), "at once");
        }
        assert_eq!(remote.calls(), 1, "no storm");
        assert_eq!(stage.status().state.as_str(), "ready", "the session stays");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_answers_the_handshake_is_left_alone_and_not_ejected() {
    let feeds = std::sync::Mutex::new(Vec::new());
    let remote = ScriptedEndpoint::start(move |_| {
        let (feed, response) = stream();
        feeds.lock().unwrap().push(feed);
        response
    });
    let mut spec = spec(&remote.url());
    spec.start_timeout = Duration::from_millis(50);
    spec.restart.max = 2;
    (spec.restart.first_delay, spec.restart.max_delay) = (Duration::ZERO, Duration::ZERO);
    let stage = HttpFixture::with_server(spec).await;
    let (host, me) = (stage.host.clone(), stage.me.clone());
    let waiting = tokio::spawn(async move { host.call(&me, "remote", "echo", json!({})).await });
    ostler_testkit::eventually("five starts", LONG, || stage.status().consecutive_failures == 5).await;
    let status = stage.status();
    assert_eq!((status.state.as_str(), status.ejected, status.restarts.used), ("backoff", false, 0));
    let (state, retry_after) = unavailable(stage.call("echo").await);
    assert_eq!(state, UnavailableState::BreakerOpen);
    assert!(retry_after.unwrap() > Duration::from_secs(5), "as long as the breaker says");
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_pause_calls_pass_again() {
    let remote = ScriptedEndpoint::start({
        let has_paused = std::sync::atomic::AtomicBool::new(false);
        modern(move |got| {
            let is_first = got.is_call() && !has_paused.swap(true, std::sync::atomic::Ordering::SeqCst);
            is_first.then(|| respond(429, &[("retry-after", "1")], Value::Null))
        })
    });
    let stage = HttpFixture::connected_to(&remote).await;
    // The list request precedes the call, and is not paused.
    stage.host.tools(&stage.me, "remote").await.unwrap();
    let first = stage.call("echo").await;
    let mut outcome = first;
    let began = Instant::now();
    while let Err(error) = &outcome {
        let wait = error.retry_after().expect("it says when to come back");
        assert!(began.elapsed() < Duration::from_secs(20), "{}", error.render());
        tokio::time::sleep(wait).await;
        outcome = stage.call("echo").await;
    }
    assert_eq!(outcome.unwrap().text(), "echo");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_gives_a_call_more_time_and_silence_does_not() {
    let remote = ScriptedEndpoint::start(modern(|got| {
        got.is_call().then(|| {
            let (feed, response) = stream();
            let (got, token) = (got.clone(), got.body["params"]["_meta"]["progressToken"].clone());
            tokio::spawn(async move {
                let beats = if got.tool() == "slow" { 8 } else { 0 };
                for beat in 0..beats {
                    tokio::time::sleep(Duration::from_millis(250)).await;
                    let params = json!({"progressToken": token, "progress": beat});
                    feed.send(
                        &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}),
                    );
                }
                if beats > 0 {
                    feed.send(&got.message("done"));
                }
                feed.unread().await;
            });
            response
        })
    }));
    let mut spec = spec(&remote.url());
    spec.call_timeout = Duration::from_secs(1);
    let stage = HttpFixture::with_server(spec).await;
    let (heard, beats) = std::sync::mpsc::channel();
    let sink = move |_| heard.send(()).unwrap();
    let request = stage.request("slow").on_progress(std::sync::Arc::new(sink));
    assert_eq!(stage.host.send_to("remote", request).await.unwrap().text(), "done");
    assert_eq!(beats.try_iter().count(), 8);
    assert_eq!(code(&stage.call("echo").await), "timed-out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_endpoint_is_not_connected_to_again_and_again() {
    const AT_ONCE: usize = 32;
    const ROUNDS: usize = 8;
    let remote = ScriptedEndpoint::start(modern(|_| None));
    let stage = std::sync::Arc::new(HttpFixture::connected_to(&remote).await);
    for _ in 0..ROUNDS {
        let calls: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let stage = std::sync::Arc::clone(&stage);
                tokio::spawn(async move { stage.text("echo").await })
            })
            .collect();
        for call in calls {
            assert_eq!(call.await.unwrap(), "echo");
        }
    }
    let peers: std::collections::HashSet<_> = remote.requests().into_iter().map(|got| got.peer).collect();
    // A few more connections than are in use may be opened if a permit is free a moment later.
    assert!(peers.len() <= 2 * AT_ONCE, "{} connections", peers.len());
}
