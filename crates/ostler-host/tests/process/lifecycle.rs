//! Process lifecycle: idle, drained, replaced, and gone.

use std::time::Duration;

use ostler_core::error::UnavailableState;
use ostler_core::spec::RestartSettings;
use ostler_core::status::ServerState;
use ostler_host::{HostOptions, Request, ServerSpec, SpawnOutcome};
use ostler_testkit::{eventually, fake_mcp, fake_mcp_spec, guard_command, read_processes};
use serde_json::json;

use crate::fixture::{LONG, ProcessFixture, none, unavailable};

#[tokio::test]
async fn an_unused_lazy_server_is_ended_without_anybody_calling() {
    let stage = ProcessFixture::guarded();
    let mut spec = fake_mcp_spec("fake", &[]).lazy();
    spec.keep_alive = Duration::from_millis(200);
    stage.spawn(spec).await;
    let first = stage.text("fake", "pid", none()).await;
    let process = stage.process("fake");
    eventually("the process is gone", LONG, || process.is_reaped()).await;
    let status = stage.status("fake");
    assert_eq!(
        (status.state, status.pid, status.leases, status.restarts.used),
        (ServerState::Idle, None, 0, 0)
    );
    assert_ne!(stage.text("fake", "pid", none()).await, first, "and it comes back when it is needed");
    stage.close().await;
}

#[tokio::test]
async fn stop_lets_a_running_call_finish_and_then_ends_the_process() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &["--ledger", &stage.path("ledger")]).await;
    let process = stage.process("fake");
    let call = stage.spawn_call("fake", "sleep", json!({"ms": 500}));
    stage.until_lines("ledger", 1).await;
    let stop = {
        let host = stage.host.clone();
        tokio::spawn(async move { host.stop("fake").await })
    };
    stage.until("fake", "drains", |status| status.state == ServerState::Draining).await;
    let refused = stage.call("fake", "pid", none()).await.unwrap_err();
    assert_eq!(unavailable(&refused).0, UnavailableState::Stopped);
    assert_eq!(call.await.unwrap().unwrap().text(), "slept");
    stop.await.unwrap().unwrap();
    assert!(process.is_reaped(), "stop returns when nothing is left");

    let refused = stage.call("fake", "pid", none()).await.unwrap_err();
    assert_eq!(unavailable(&refused).0, UnavailableState::Stopped);
    stage.host.start("fake").await.unwrap();
    assert_eq!(stage.text("fake", "text", json!({"text": "back"})).await, "back");
    stage.close().await;
}

#[tokio::test]
async fn stop_waits_for_a_call_that_hangs_no_longer_than_it_says() {
    let stage = ProcessFixture::guarded();
    let mut spec = fake_mcp_spec("fake", &["--ledger", &stage.path("ledger")]);
    spec.drain = Duration::from_millis(200);
    stage.spawn(spec).await;
    let process = stage.process("fake");
    let call = stage.spawn_call("fake", "hang", none());
    stage.until_lines("ledger", 1).await;
    stage.host.stop("fake").await.unwrap();
    assert!(process.is_reaped());
    assert_eq!(call.await.unwrap().unwrap_err().code(), "outcome-unknown");
    stage.close().await;
}

#[tokio::test]
async fn a_server_that_is_stopped_may_leave_by_itself() {
    let stage = ProcessFixture::guarded();
    let name = fake_mcp_spec("fake", &[]).name;
    let line = format!("'{}'; echo $? > '{}'", fake_mcp().display(), stage.path("code"));
    stage.spawn(ServerSpec::stdio(name, "sh").args(["-c", &line])).await;
    stage.host.stop("fake").await.unwrap();
    assert_eq!(stage.lines("code"), ["0"], "the end of its input is enough");
    stage.close().await;
}

#[tokio::test]
async fn stop_waits_for_what_a_crash_has_left() {
    let stage = ProcessFixture::guarded();
    let (setsid, twice) = (stage.path("setsid"), stage.path("twice"));
    let mut spec = fake_mcp_spec("fake", &["--fork-setsid", &setsid, "--double-fork", &twice]);
    let never = Duration::from_secs(100_000);
    spec.restart = RestartSettings { first_delay: never, max_delay: never, ..spec.restart };
    stage.spawn(spec).await;
    let all = stage.guard("fake").descendants();
    assert_eq!(all.len(), 3);
    stage.process("fake").kill();
    stage.until("fake", "waits before its restart", |status| status.state == ServerState::Backoff).await;
    stage.host.stop("fake").await.unwrap();
    assert!(all.iter().all(|proc| !proc.is_alive()), "stop returned before the strays were gone");
    stage.close().await;
}

#[tokio::test]
async fn stop_ends_a_server_that_is_still_starting() {
    let stage = ProcessFixture::guarded();
    stage.spawn(fake_mcp_spec("fake", &["--hang-at-start", "--starts", &stage.path("starts")]).lazy()).await;
    let call = stage.spawn_call("fake", "echo", none());
    stage.until_lines("starts", 1).await;
    stage.host.stop("fake").await.unwrap();
    assert_eq!(unavailable(&call.await.unwrap().unwrap_err()).0, UnavailableState::Stopped);
    let starts = stage.file("starts");
    eventually("the half-started process is gone", LONG, || read_processes(&starts).is_empty()).await;
    stage.close().await;
}

#[tokio::test]
async fn a_reload_leaves_running_calls_on_the_old_process() {
    let stage = ProcessFixture::guarded();
    let mut spec = fake_mcp_spec("fake", &["--ledger", &stage.path("ledger")]);
    // Longer than the calls take, even on a busy machine.
    spec.drain = LONG;
    stage.spawn(spec).await;
    let old = stage.process("fake");
    // One less than a caller's limit, so that the next call need not wait for them.
    let calls = async { stage.calls(31, "fake", "sleep", |_| json!({"ms": 5_000}).into()).await };
    let reload = async {
        stage.until_lines("ledger", 31).await;
        stage.host.reload("fake").await.unwrap();
        let answer = stage.call("fake", "pid", none()).await.unwrap();
        assert_eq!(answer.generation, Some(2));
        assert_ne!(answer.text(), old.pid.to_string());
        assert!(old.is_alive(), "it still has calls to answer");
    };
    let (outcomes, ()) = tokio::join!(calls, reload);
    for outcome in outcomes {
        let answer = outcome.unwrap();
        assert_eq!((answer.text().as_str(), answer.generation), ("slept", Some(1)));
    }
    eventually("the old process is gone", LONG, || old.is_reaped()).await;
    stage.close().await;
}

#[tokio::test]
async fn another_spec_under_a_known_name_replaces_the_process_and_the_same_does_not() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &["--name", "one"]).await;
    let old = stage.process("fake");
    let same = stage.host.spawn(&stage.me, fake_mcp_spec("fake", &["--name", "one"])).await.unwrap();
    assert_eq!((same, stage.process("fake")), (SpawnOutcome::Unchanged, old));

    let broken = fake_mcp_spec("fake", &["--exit-at-start", "1"]);
    stage.host.spawn(&stage.me, broken).await.unwrap_err();
    assert_eq!(
        stage.text("fake", "pid", none()).await,
        old.pid.to_string(),
        "a failed replacement changes nothing"
    );

    let other = stage.host.spawn(&stage.me, fake_mcp_spec("fake", &["--name", "two"])).await.unwrap();
    assert_eq!(other, SpawnOutcome::Replaced);
    assert_ne!(stage.text("fake", "pid", none()).await, old.pid.to_string());
    eventually("the replaced process is gone", LONG, || old.is_reaped()).await;
    stage.close().await;
}

#[tokio::test]
async fn removing_a_server_ends_its_process() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &[]).await;
    let process = stage.process("fake");
    stage.host.remove("fake").await.unwrap();
    assert!(process.is_reaped());
    assert_eq!(stage.call("fake", "pid", none()).await.unwrap_err().code(), "unknown-server");
    stage.close().await;
}

#[tokio::test]
async fn room_for_no_process_starts_none() {
    let guard = Some(guard_command());
    let stage =
        ProcessFixture::with_options(HostOptions { guard, max_processes: 0, ..HostOptions::default() });
    stage.spawn(fake_mcp_spec("fake", &["--starts", &stage.path("starts")]).lazy()).await;
    let request = Request::tool_call(&stage.me, "pid", none().into()).unwrap();
    let error =
        stage.host.send_to("fake", request.with_timeout(Duration::from_millis(200))).await.unwrap_err();
    assert_eq!(error.code(), "overloaded");
    assert!(stage.lines("starts").is_empty());
    stage.close().await;
}

#[tokio::test]
async fn a_host_that_is_dropped_ends_its_servers() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &["--ignore-stdin-close"]).await;
    let process = stage.process("fake");
    drop(stage);
    eventually("the server is gone", LONG, || process.is_reaped()).await;
}
