//! Delivery of requests when the connection to the server fails.

use std::sync::Mutex;

use axum::response::Response;
use serde_json::json;

use crate::fixture::{HttpFixture, LONG, code, spec};
use crate::scripted_endpoint::{RecordedRequest, ScriptedEndpoint, modern, raw, respond, stream};

/// Answers calls and closes the connection: a request that crosses with the end of a kept connection has an unknown
/// outcome, which is another test.
fn answer_and_close(got: &RecordedRequest) -> Option<Response> {
    got.is_call().then(|| {
        let mut response = got.text("echo");
        response.headers_mut().insert("connection", "close".parse().unwrap());
        response
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_between_calls_is_not_noticed() {
    let mut remote = ScriptedEndpoint::start(modern(answer_and_close));
    let stage = HttpFixture::connected_to(&remote).await;
    for _ in 0..5 {
        assert_eq!(stage.text("echo").await, "echo");
        remote.restart(modern(answer_and_close));
    }
    assert_eq!(stage.text("echo").await, "echo");
    assert_eq!(remote.calls(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_finds_nobody_waits_until_the_server_is_back() {
    let mut remote = ScriptedEndpoint::start(modern(answer_and_close));
    let stage = HttpFixture::connected_to(&remote).await;
    stage.text("echo").await;
    remote.stop();
    let (host, me) = (stage.host.clone(), stage.me.clone());
    let call = tokio::spawn(async move { host.call(&me, "remote", "echo", json!({})).await });
    // The call finds no endpoint as soon as the session has ended.
    ostler_testkit::eventually("it is noticed", LONG, || stage.status().last_error.is_some()).await;
    remote.restart(modern(answer_and_close));
    let answer = tokio::time::timeout(LONG, call).await.unwrap().unwrap().unwrap();
    assert_eq!((answer.text(), remote.calls()), ("echo".to_owned(), 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_answer_is_cut_off_is_unknown_and_runs_once() {
    let remote = ScriptedEndpoint::start(modern(|got| {
        got.is_call().then(|| {
            let (feed, response) = stream();
            feed.write("data: {\"jsonrpc\"");
            feed.cut();
            response
        })
    }));
    let stage = HttpFixture::connected_to(&remote).await;
    assert_eq!(code(&stage.call("echo").await), "outcome-unknown");
    assert_eq!(remote.calls(), 1);
    assert_eq!(stage.status().state.as_str(), "ready", "a broken connection is not a broken server");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_ends_without_the_answer_is_unknown_in_the_modern_era() {
    let remote = ScriptedEndpoint::start(modern(|got| {
        got.is_call().then(|| raw(200, "text/event-stream", "id: 1\ndata: {\"method\":\"x\"}\n\n"))
    }));
    let stage = HttpFixture::connected_to(&remote).await;
    assert_eq!(code(&stage.call("echo").await), "outcome-unknown");
    assert_eq!(remote.requests().iter().filter(|got| got.verb == "GET").count(), 0, "nothing is resumed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_error_is_unknown_for_a_call_and_repeated_for_a_list() {
    let lists = Mutex::new(0);
    let remote = ScriptedEndpoint::start(modern(move |got| match got.method() {
        "tools/list" => {
            *lists.lock().unwrap() += 1;
            (*lists.lock().unwrap() == 1).then(|| raw(502, "text/html", "<html>bad gateway</html>"))
        }
        "tools/call" => Some(raw(500, "text/plain", "it\nbroke")),
        _ => None,
    }));
    let stage = HttpFixture::connected_to(&remote).await;
    let outcome = stage.call("echo").await;
    assert_eq!(code(&outcome), "outcome-unknown");
    let cause = outcome.unwrap_err().cause().unwrap();
    assert_eq!(cause, "the server answered HTTP 500: it broke");
    assert_eq!((remote.requests_of("tools/list").len(), remote.calls()), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_answers_the_request_passes_whatever_its_status() {
    let remote = ScriptedEndpoint::start(modern(|got| got.is_call().then(|| got.error(500, -32042))));
    let stage = HttpFixture::connected_to(&remote).await;
    let error = stage.call("echo").await.unwrap_err();
    assert_eq!(error.rpc_code(), -32042);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_without_a_message_did_not_run() {
    let remote =
        ScriptedEndpoint::start(modern(|got| got.is_call().then(|| raw(413, "text/plain", "too much"))));
    let stage = HttpFixture::connected_to(&remote).await;
    let outcome = stage.call("echo").await;
    assert_eq!(code(&outcome), "server-unavailable");
    assert_eq!(remote.calls(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_within_the_origin_is_followed_with_its_body() {
    let remote = ScriptedEndpoint::start(modern(|got| {
        (got.path == "/mcp").then(|| respond(307, &[("location", "/elsewhere")], json!(null)))
    }));
    let stage = HttpFixture::connected_to(&remote).await;
    assert_eq!(stage.text("echo").await, "echo");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_to_another_host_is_refused_and_gets_nothing() {
    let other = ScriptedEndpoint::start(modern(|_| None));
    let target = other.url();
    let remote =
        ScriptedEndpoint::start(modern(move |_| Some(respond(307, &[("location", &target)], json!(null)))));
    let stage = HttpFixture::connected_to(&remote).await;
    let outcome = stage.host.start("remote").await;
    assert!(outcome.is_err());
    assert_eq!(other.requests().len(), 0, "no request and no header reaches another host");
    assert!(remote.requests().iter().all(|got| got.method() == "server/discover"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_that_would_change_the_method_is_refused() {
    for status in [301, 302, 303] {
        let remote = ScriptedEndpoint::start(modern(move |got| {
            (got.path == "/mcp").then(|| respond(status, &[("location", "/elsewhere")], json!(null)))
        }));
        let stage = HttpFixture::connected_to(&remote).await;
        assert!(stage.host.start("remote").await.is_err(), "{status}");
        assert!(remote.requests().iter().all(|got| got.path == "/mcp"), "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_closes_its_request() {
    let (tell, mut closed) = tokio::sync::mpsc::unbounded_channel();
    let remote = ScriptedEndpoint::start(modern(move |got| {
        got.is_call().then(|| {
            let (feed, response) = stream();
            feed.write(": here\n\n");
            let tell = tell.clone();
            tokio::spawn(async move {
                feed.unread().await;
                let _ = tell.send(());
            });
            response
        })
    }));
    let stage = HttpFixture::connected_to(&remote).await;
    // The list comes first, so that it uses up none of the call's timeout.
    stage.host.tools(&stage.me, "remote").await.unwrap();
    let request = stage.request("slow").with_timeout(std::time::Duration::from_secs(1));
    assert_eq!(code(&stage.host.send_to("remote", request).await), "timed-out");
    tokio::time::timeout(LONG, closed.recv()).await.unwrap().unwrap();
    assert_eq!(remote.requests_of("notifications/cancelled").len(), 0, "closing says it in the modern era");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_is_not_there_is_told_and_not_ejected() {
    let mut remote = ScriptedEndpoint::start(modern(|_| None));
    remote.stop();
    let mut spec = spec(&remote.url());
    spec.restart.first_delay = std::time::Duration::from_millis(1);
    spec.restart.max_delay = std::time::Duration::from_millis(1);
    let stage = HttpFixture::with_server(spec).await;
    let error = stage.host.start("remote").await.unwrap_err();
    assert!(error.to_string().contains("connection refused"), "{error:?}");
    let request = stage.request("echo").with_timeout(std::time::Duration::from_millis(500));
    assert!(stage.host.send_to("remote", request).await.is_err());
    assert!(!stage.status().ejected);
    assert_eq!(stage.status().restarts.used, 0);
}
