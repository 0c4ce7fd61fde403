//! Credentials: the operator's are sent, no others are, and wrong ones cause no retry storm.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ostler_core::error::UnavailableState;
use serde_json::Value;

use crate::fixture::{HttpFixture, spec, spec_with, unavailable};
use crate::scripted_endpoint::{RecordedRequest, ScriptedEndpoint, modern, respond};

fn refuse(got: &RecordedRequest) -> axum::response::Response {
    let _ = got;
    respond(401, &[("www-authenticate", "Bearer resource_metadata=\"https://x.example\"")], Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_wants_credentials_says_so_and_is_left_alone() {
    let remote = ScriptedEndpoint::start(refuse);
    let stage = HttpFixture::connected_to(&remote).await;
    for _ in 0..50 {
        let (state, retry_after) = unavailable(stage.call("echo").await);
        assert_eq!(state, UnavailableState::NeedsAuth);
        assert!(retry_after.is_some());
    }
    assert_eq!(remote.requests().len(), 1, "no storm");
    let status = stage.status();
    assert_eq!(
        (status.state.as_str(), status.restarts.used, status.consecutive_failures),
        ("needs_auth", 0, 0)
    );
    let message = status.last_error.unwrap().message;
    assert_eq!(message, "the server answered HTTP 401: Bearer resource_metadata=\"https://x.example\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_are_revoked_during_a_session_end_it_until_a_reload() {
    let is_revoked = Arc::new(AtomicBool::new(false));
    let revoked = Arc::clone(&is_revoked);
    let remote =
        ScriptedEndpoint::start(modern(move |got| revoked.load(Ordering::SeqCst).then(|| refuse(got))));
    let stage = HttpFixture::connected_to(&remote).await;
    stage.text("echo").await;
    is_revoked.store(true, Ordering::SeqCst);
    assert_eq!(unavailable(stage.call("echo").await).0, UnavailableState::NeedsAuth);
    ostler_testkit::eventually("the session ends", crate::fixture::LONG, || {
        stage.status().state.as_str() == "needs_auth"
    })
    .await;
    let before = remote.requests().len();
    for _ in 0..20 {
        assert_eq!(unavailable(stage.call("echo").await).0, UnavailableState::NeedsAuth);
    }
    assert_eq!(remote.requests().len(), before, "no storm");
    is_revoked.store(false, Ordering::SeqCst);
    stage.host.reload("remote").await.unwrap();
    assert_eq!(stage.text("echo").await, "echo");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_headers_go_out_with_every_request_and_are_read_at_each_start() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("token");
    std::fs::write(&secret, "first\n").unwrap();
    let remote = ScriptedEndpoint::start(modern(|_| None));
    let value = format!("Bearer ${{file:{}}}", secret.display());
    let headers = [("Authorization", value.as_str()), ("X-Team", "a"), ("Accept", "text/plain")];
    let stage = HttpFixture::with_server(spec_with(&remote.url(), &headers)).await;
    stage.text("echo").await;
    std::fs::write(&secret, "second\n").unwrap();
    stage.host.reload("remote").await.unwrap();
    stage.text("echo").await;
    let got = remote.requests();
    assert!(got.iter().all(|got| got.header("x-team") == Some("a")));
    assert!(got.iter().all(|got| got.header("accept") == Some("application/json, text/event-stream")));
    let tokens: Vec<_> = got.iter().filter_map(|got| got.header("authorization")).collect();
    assert_eq!((tokens[0], tokens[tokens.len() - 1]), ("Bearer first", "Bearer second"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reference_that_leads_nowhere_is_told_before_anything_is_sent() {
    let remote = ScriptedEndpoint::start(modern(|_| None));
    let headers = [("Authorization", "Bearer ${env:OSTLER_TEST_NO_SUCH_VARIABLE}")];
    let stage = HttpFixture::with_server(spec_with(&remote.url(), &headers)).await;
    let error = stage.host.start("remote").await.unwrap_err();
    assert!(error.to_string().contains("`OSTLER_TEST_NO_SUCH_VARIABLE` is not set"), "{error:?}");
    assert_eq!(remote.requests().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_the_address_shows_in_an_error() {
    let stage = HttpFixture::with_server(spec("http://me:hunter2@127.0.0.1:1/mcp?token=hunter3")).await;
    let error = stage.host.start("remote").await.unwrap_err();
    let shown = format!("{error:?} {} {:?}", error.render(), stage.status());
    assert!(!shown.contains("hunter"), "{shown}");
}
