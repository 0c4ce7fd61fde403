//! Outages: remote servers that are down for a while, or are no MCP servers.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::error::UnavailableState;
use ostler_core::spec::{RetryRule, ToolRules};
use ostler_core::status::ServerState;
use ostler_host::{Caller, Host, HostOptions, Kind, ListWait, Scope, ServerName, ServerSpec, StartRetry};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::fixture::{HttpFixture, LONG, spec, unavailable};
use crate::scripted_endpoint::{ScriptedEndpoint, modern, raw};

/// Makes a spec whose calls may be retried: one that crosses with the end of its connection has an unknown outcome.
fn repeatable(url: &str) -> ServerSpec {
    let mut spec = spec(url);
    spec.tool.insert("echo".into(), ToolRules { retry: RetryRule::Safe, ..ToolRules::default() });
    spec
}

/// Makes calls from several callers while the server is down for this long; returns the delay between its return and
/// each response.
async fn calls_while_away(away: Duration) -> Vec<Duration> {
    let mut remote = ScriptedEndpoint::start(modern(|_| None));
    let stage = Arc::new(HttpFixture::with_server(repeatable(&remote.url())).await);
    stage.text("echo").await;
    remote.stop();
    let gone = Instant::now();
    let mut calls = JoinSet::new();
    for n in 0..8 {
        let stage = Arc::clone(&stage);
        calls.spawn(async move {
            // Some calls come early and some late.
            tokio::time::sleep_until(gone + away * n / 8).await;
            stage.text("echo").await;
            Instant::now()
        });
    }
    tokio::time::sleep_until(gone + away).await;
    remote.restart(modern(|_| None));
    let back = Instant::now();
    let answered = calls.join_all().await;
    assert_eq!(stage.status().consecutive_failures, 0);
    answered.into_iter().map(|at| at.saturating_duration_since(back)).collect()
}

#[tokio::test]
async fn calls_wait_for_a_server_that_is_away_for_a_moment() {
    for away in [300, 1_000, 5_000] {
        let after = calls_while_away(Duration::from_millis(away)).await;
        // Five seconds is the longest delay; the rest is for a busy machine.
        assert!(after.iter().all(|after| *after < Duration::from_secs(15)), "away for {away} ms: {after:?}");
    }
}

#[tokio::test]
async fn a_list_does_not_wait_for_a_server_that_went_away_after_it_had_worked() {
    let mut remote = ScriptedEndpoint::start(modern(|_| None));
    let mut spec = spec(&remote.url());
    // A list that waited would exceed the test's timeout.
    spec.call_timeout = Duration::from_secs(3_600);
    let stage = HttpFixture::with_server(spec).await;
    stage.text("echo").await;
    remote.stop();
    for _ in 0..2 {
        let definitions = tokio::time::timeout(LONG, stage.host.definitions("remote")).await;
        let error = definitions.expect("it waits for no other start").unwrap_err();
        assert!(error.to_string().contains("nothing listens at 127.0.0.1:"), "{error}");
        let tools = tokio::time::timeout(LONG, stage.host.tools(&stage.me, "remote")).await;
        let error = tools.expect("neither does a filtered list").unwrap_err();
        assert!(error.to_string().contains("nothing listens at 127.0.0.1:"), "{error}");
    }
}

#[tokio::test]
async fn a_list_for_a_call_waits_for_a_server_that_is_away_like_the_call() {
    let mut remote = ScriptedEndpoint::start(modern(|_| None));
    let stage = HttpFixture::with_server(repeatable(&remote.url())).await;
    stage.text("echo").await;
    remote.stop();
    stage.host.definitions("remote").await.unwrap_err();
    let scope = Scope::Server(ServerName::new("remote").unwrap());
    let starts = stage.status().starts_total;
    let back = async {
        ostler_testkit::eventually("another start", LONG, || stage.status().starts_total > starts).await;
        remote.restart(modern(|_| None));
    };
    let list = stage.host.list(&stage.me, &scope, Kind::Tools, ListWait::ForCall);
    let (listings, ()) = tokio::join!(list, back);
    assert!(listings[0].error.is_none(), "{:?}", listings[0].error);
}

#[tokio::test]
async fn a_server_that_was_never_reached_is_told_at_once_and_tried_again_by_the_next_call() {
    let mut remote = ScriptedEndpoint::start(modern(|_| None));
    let url = remote.url();
    remote.stop();
    let unknown =
        ("http://no-such-host.invalid/mcp", "the host name `no-such-host.invalid` can't be resolved");
    for (url, cause) in [(url.as_str(), "nothing listens at 127.0.0.1:"), unknown] {
        let stage = HttpFixture::with_server(spec(url)).await;
        let error = stage.call("echo").await.unwrap_err();
        let said = error.to_string();
        assert!(said.starts_with(&format!("server `remote` can't be used: {cause}")), "{said}");
        assert_eq!(stage.status().starts_total, 1);
        let (state, retry_after) = unavailable(Err(error));
        assert!(retry_after.is_some_and(|wait| wait <= Duration::from_secs(5)));
        assert_eq!((state, stage.status().state), (UnavailableState::CannotStart, ServerState::Backoff));
    }
    let stage = HttpFixture::with_server(spec(&url)).await;
    stage.call("echo").await.unwrap_err();
    remote.restart(modern(|_| None));
    while stage.call("echo").await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_server_that_was_reached_in_an_earlier_run_is_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let mut remote = ScriptedEndpoint::start(modern(|_| None));
    let open = async |start_patience| {
        let state_dir = Some(home.path().to_owned());
        let host =
            Host::new(HostOptions { state_dir, start_retry: start_patience, ..HostOptions::default() });
        let stage = HttpFixture { host, me: Caller::local() };
        stage.host.spawn(&stage.me, repeatable(&remote.url())).await.unwrap();
        stage
    };
    let stage = open(StartRetry::Budget).await;
    stage.text("echo").await;
    let is_kept = || home.path().join("starts/remote.json").exists();
    ostler_testkit::eventually("the start is on record", LONG, is_kept).await;
    stage.host.shutdown().await;
    let (hasty, patient) = (open(StartRetry::Once).await, open(StartRetry::Budget).await);
    remote.stop();
    let error = hasty.call("echo").await;
    assert_eq!(unavailable(error).0, UnavailableState::CannotStart, "a command does not wait");
    let back = async {
        ostler_testkit::eventually("three starts", LONG, || patient.status().starts_total >= 3).await;
        remote.restart(modern(|_| None));
    };
    let (answer, ()) = tokio::join!(patient.call("echo"), back);
    assert_eq!(answer.unwrap().text(), "echo");
}

#[tokio::test]
async fn an_address_without_mcp_is_asked_once_and_told_as_such() {
    let pages: [(u16, &str, &str); 5] = [
        (404, "text/plain", "it answered HTTP 404: nothing"),
        (405, "text/plain", "it answered HTTP 405: nothing"),
        (302, "text/plain", "it answered HTTP 302: nothing"),
        (200, "text/html", "does not speak MCP: it answered `text/html` in place of JSON or an event stream"),
        (200, "application/json", "does not speak MCP: "),
    ];
    for (status, kind, cause) in pages {
        let remote = ScriptedEndpoint::start(move |_| raw(status, kind, "nothing"));
        let stage = HttpFixture::connected_to(&remote).await;
        let error = stage.call("echo").await.unwrap_err();
        let said = error.to_string();
        assert!(
            said.starts_with("server `remote` can't be used: its `url` ") && said.contains(cause),
            "{said}"
        );
        let asked = remote.requests().len();
        assert_eq!(unavailable(stage.call("echo").await).0, UnavailableState::CannotStart);
        assert_eq!((remote.requests().len(), stage.status().starts_total), (asked, 1));
        assert!(stage.status().ejected);
    }
}

#[tokio::test]
async fn an_address_without_tls_is_told_once_with_what_to_write() {
    let remote = ScriptedEndpoint::start(modern(|_| None));
    let stage = HttpFixture::with_server(spec(&format!("https://{}/mcp", remote.address))).await;
    let said = stage.call("echo").await.unwrap_err().render();
    assert!(said.contains("the server speaks no TLS") && said.contains("with http://"), "{said}");
    assert_eq!((stage.status().starts_total, stage.status().ejected), (1, true));
}

#[tokio::test]
async fn an_endpoint_that_worked_is_waited_for_while_a_proxy_answers_in_its_place() {
    let mut remote = ScriptedEndpoint::start(modern(|_| None));
    let stage = HttpFixture::with_server(repeatable(&remote.url())).await;
    stage.text("echo").await;
    remote.stop();
    let call = stage.call("echo");
    let back = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        remote.restart(|_| raw(404, "text/html", "no backend"));
        while remote.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        remote.restart(modern(|_| None));
    };
    let (answer, ()) = tokio::join!(call, back);
    assert_eq!(answer.unwrap().text(), "echo");
}

#[tokio::test]
async fn a_single_command_gives_up_after_the_second_answer_with_a_fault_of_the_server() {
    let remote = ScriptedEndpoint::start(|_| raw(500, "text/plain", "database is down"));
    let start_patience = StartRetry::Once;
    let host = Host::new(HostOptions { start_retry: start_patience, ..HostOptions::default() });
    let stage = HttpFixture { host, me: Caller::local() };
    stage.host.spawn(&stage.me, repeatable(&remote.url()).lazy()).await.unwrap();
    let error = stage.call("echo").await.unwrap_err();
    let said = error.render();
    assert!(said.contains("server `remote` can't be used: the server answered HTTP 500"), "{said}");
    assert!(said.contains("the fault is at the server") && !said.contains("try again in"), "{said}");
    assert_eq!(
        (unavailable(Err(error)), stage.status().starts_total),
        ((UnavailableState::CannotStart, None), 2)
    );
}
