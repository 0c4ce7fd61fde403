//! Servers of every era, and handshakes that fail.

use std::time::Duration;

use ostler_core::error::UnavailableState;
use ostler_host::{HostOptions, ServerSpec};
use ostler_testkit::{fake_mcp_spec, guard_command, read_processes};
use serde_json::json;

use crate::fixture::{LONG, ProcessFixture, none, restarting_forever, unavailable};

#[tokio::test]
async fn servers_of_both_eras_answer() {
    let stage = ProcessFixture::guarded();
    for (name, first_methods) in [
        ("both", &["server/discover\t"][..]),
        ("modern", &["server/discover\t"]),
        ("legacy", &["server/discover\t", "initialize\t"]),
    ] {
        stage.spawn_fake(name, &["--era", name, "--requests", &stage.path(name)]).await;
        assert_eq!(stage.text(name, "text", json!({"text": "here"})).await, "here");
        let mut methods = stage.lines(name);
        // A modern server also gets a listen request, at any time.
        methods.retain(|method| method != "subscriptions/listen\t");
        assert_eq!(methods[..first_methods.len()], *first_methods, "{name}");
        assert_eq!(methods[first_methods.len()], "tools/list\t", "{name}");
    }
    stage.close().await;
}

/// Makes a spec that falls back to the legacy handshake after a second of silence.
fn silent(args: &[&str]) -> ServerSpec {
    let mut spec = restarting_forever(fake_mcp_spec("fake", args));
    spec.start_timeout = Duration::from_secs(3);
    spec
}

fn probes(stage: &ProcessFixture) -> usize {
    stage.lines("requests").iter().filter(|line| line.starts_with("server/discover")).count()
}

#[tokio::test]
async fn a_server_that_is_silent_to_the_probe_is_initialized_on_the_same_process_and_remembered() {
    let stage = ProcessFixture::guarded();
    let args =
        ["--era", "silent-probe", "--starts", &stage.path("starts"), "--requests", &stage.path("requests")];
    stage.spawn(silent(&args)).await;
    assert_eq!(stage.text("fake", "text", json!({"text": "here"})).await, "here");
    assert_eq!(stage.lines("starts").len(), 1, "no process is ended to be asked differently");

    stage.process("fake").kill();
    stage.until("fake", "is up again", |status| status.generation == 2 && status.active).await;
    assert_eq!(stage.text("fake", "text", json!({"text": "again"})).await, "again");
    assert_eq!((stage.lines("starts").len(), probes(&stage)), (2, 1), "its era is known by now");
    stage.close().await;
}

#[tokio::test]
async fn the_era_of_a_server_outlives_the_host() {
    let state = tempfile::tempdir().unwrap();
    let options = || HostOptions {
        guard: Some(guard_command()),
        state_dir: Some(state.path().to_owned()),
        ..HostOptions::default()
    };
    let requests = state.path().join("requests");
    let args = ["--era", "legacy", "--requests", requests.to_str().unwrap()];
    for _ in 0..2 {
        let stage = ProcessFixture::with_options(options());
        stage.spawn(fake_mcp_spec("fake", &args)).await;
        let record = state.path().join("starts/fake.json");
        ostler_testkit::eventually("the start is on record", LONG, || record.is_file()).await;
        stage.close().await;
    }
    let asked = ostler_testkit::read_lines(&requests);
    assert_eq!(asked, ["server/discover\t", "initialize\t", "initialize\t"]);
}

#[tokio::test]
async fn a_handshake_that_fails_is_told_and_its_process_ended() {
    let stage = ProcessFixture::guarded();
    for (switch, words) in [("--bad-version", "1999-01-01"), ("--handshake-error", "-32603")] {
        let file = stage.path(switch.trim_start_matches('-'));
        let spec = fake_mcp_spec("fake", &[switch, "--starts", &file]);
        let error = stage.host.spawn(&stage.me, spec).await.unwrap_err();
        let (state, cause) = unavailable(&error);
        assert_eq!(state, UnavailableState::StartFailed);
        assert!(cause.contains("handshake failed") && cause.contains(words), "{switch}: {cause}");
        assert!(read_processes(file.as_ref()).is_empty(), "{switch}");
        assert_eq!(stage.call("fake", "echo", none()).await.unwrap_err().code(), "unknown-server");
    }
    stage.close().await;
}
