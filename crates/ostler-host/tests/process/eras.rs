//! Servers of every era, and handshakes that fail.

use ostler_core::error::UnavailableState;
use ostler_testkit::{fake_spec, procs_in};
use serde_json::json;

use crate::stage::{Stage, none, tireless, unavailable};

#[tokio::test]
async fn servers_of_both_eras_answer() {
    let stage = Stage::guarded();
    for (name, first_methods) in [
        ("both", &["server/discover\t"][..]),
        ("modern", &["server/discover\t"]),
        ("legacy", &["server/discover\t", "initialize\t"]),
    ] {
        stage.spawn_fake(name, &["--era", name, "--requests", &stage.path(name)]).await;
        assert_eq!(stage.text(name, "text", json!({"text": "here"})).await, "here");
        let mut methods = stage.lines(name);
        // A modern server is also asked to tell of changes, at its own time.
        methods.retain(|method| method != "subscriptions/listen\t");
        assert_eq!(methods[..first_methods.len()], *first_methods, "{name}");
        assert_eq!(methods[first_methods.len()], "tools/list\t", "{name}");
    }
    stage.close().await;
}

#[tokio::test]
async fn a_server_that_is_silent_to_the_probe_is_started_again_and_remembered() {
    let stage = Stage::guarded();
    let args =
        ["--era", "silent-probe", "--starts", &stage.path("starts"), "--requests", &stage.path("requests")];
    stage.spawn(tireless(fake_spec("fake", &args))).await;
    assert_eq!(stage.text("fake", "text", json!({"text": "here"})).await, "here");
    assert_eq!(stage.lines("starts").len(), 2, "one to be probed, one to work");

    stage.process("fake").kill();
    stage.until("fake", "is up again", |status| status.generation == 2 && status.active).await;
    assert_eq!(stage.text("fake", "text", json!({"text": "again"})).await, "again");
    assert_eq!(stage.lines("starts").len(), 3);
    let probes = stage.lines("requests").iter().filter(|line| line.starts_with("server/discover")).count();
    assert_eq!(probes, 1, "its era is known by now");
    stage.close().await;
}

#[tokio::test]
async fn a_handshake_that_fails_is_told_and_its_process_ended() {
    let stage = Stage::guarded();
    for (switch, words) in [("--bad-version", "1999-01-01"), ("--handshake-error", "-32603")] {
        let file = stage.path(switch.trim_start_matches('-'));
        let spec = fake_spec("fake", &[switch, "--starts", &file]);
        let error = stage.host.spawn(&stage.me, spec).await.unwrap_err();
        let (state, cause) = unavailable(&error);
        assert_eq!(state, UnavailableState::StartFailed);
        assert!(cause.contains("handshake failed") && cause.contains(words), "{switch}: {cause}");
        assert!(procs_in(file.as_ref()).is_empty(), "{switch}");
        assert_eq!(stage.call("fake", "echo", none()).await.unwrap_err().code(), "unknown-server");
    }
    stage.close().await;
}
