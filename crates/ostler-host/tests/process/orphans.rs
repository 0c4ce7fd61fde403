//! Orphans: no process that a server starts outlives it.

use std::time::Duration;

use ostler_host::ServerSpec;
use ostler_testkit::{Proc, eventually, fake_mcp, fake_mcp_spec, read_processes};
use serde_json::json;

use crate::fixture::{LONG, ProcessFixture, code_of, none, restarting_forever};

/// Every way to leave a process behind, each recorded in a file of its name.
const STRAYS: [&str; 4] = ["--fork-setsid", "--double-fork", "--fork-holding-stdio", "--clear-env-child"];

/// Spawns a server that leaves every kind of process behind and ignores its end.
fn hostile(stage: &ProcessFixture, name: &str) -> ServerSpec {
    let mut args = vec!["--ignore-sigterm".to_owned(), "--ignore-stdin-close".to_owned()];
    args.extend(strays(stage, name));
    fake_mcp_spec(name, &args.iter().map(String::as_str).collect::<Vec<_>>())
}

fn strays(stage: &ProcessFixture, name: &str) -> Vec<String> {
    STRAYS.iter().flat_map(|switch| [(*switch).to_owned(), stage.path(&format!("{name}{switch}"))]).collect()
}

/// Returns the processes that a server has left so far and that still run.
fn left_by(stage: &ProcessFixture, name: &str) -> Vec<Proc> {
    STRAYS.iter().flat_map(|switch| read_processes(&stage.file(&format!("{name}{switch}")))).collect()
}

fn alive(procs: &[Proc]) -> Vec<(Proc, String)> {
    procs.iter().filter(|proc| proc.is_alive()).map(|proc| (*proc, proc.name())).collect()
}

#[tokio::test]
async fn stop_ends_everything_a_hostile_server_started_and_nothing_else() {
    let stage = ProcessFixture::guarded();
    stage.spawn(hostile(&stage, "one")).await;
    stage.spawn(hostile(&stage, "two")).await;
    let (one, two) = (stage.guard("one").descendants(), stage.guard("two").descendants());
    assert_eq!((one.len(), two.len()), (5, 5), "each server and its four strays");
    assert_eq!(left_by(&stage, "one").len(), 4);

    stage.host.stop("one").await.unwrap();
    assert_eq!(alive(&one), []);
    assert_eq!(alive(&two).len(), 5);
    assert_eq!(stage.text("two", "text", json!({"text": "still here"})).await, "still here");
    stage.host.stop("two").await.unwrap();
    assert_eq!(alive(&two), []);
    stage.close().await;
}

#[tokio::test]
async fn stop_ends_what_runs_behind_a_wrapper() {
    let stage = ProcessFixture::guarded();
    let name = fake_mcp_spec("wrapped", &[]).name;
    let words = strays(&stage, "wrapped").join("' '");
    let line = format!("'{}' --ignore-sigterm --ignore-stdin-close '{words}'; true", fake_mcp().display());
    stage.spawn(ServerSpec::stdio(name, "sh").args(["-c", &line])).await;
    assert_eq!(stage.text("wrapped", "text", json!({"text": "here"})).await, "here");
    let all = stage.guard("wrapped").descendants();
    assert_eq!(all.len(), 6, "the shell, the server and its strays");
    stage.host.stop("wrapped").await.unwrap();
    assert_eq!(alive(&all), []);
    stage.close().await;
}

#[tokio::test]
async fn what_a_crashed_server_leaves_is_ended_and_does_not_hold_up_its_restart() {
    let stage = ProcessFixture::guarded();
    stage.spawn(restarting_forever(hostile(&stage, "fake"))).await;
    let first = stage.guard("fake").descendants();
    assert_eq!(first.len(), 5);
    assert_eq!(code_of(&stage.call("fake", "crash", none()).await), "outcome-unknown");
    assert_eq!(stage.text("fake", "text", json!({"text": "back"})).await, "back");
    assert_ne!(alive(&first), [], "the restart waits for no stray that is deaf to SIGTERM");
    eventually("leftovers of the crashed server are gone", LONG, || alive(&first).is_empty()).await;
    assert_eq!(stage.guard("fake").descendants().len(), 5, "those of the new one are not touched");
    stage.host.stop("fake").await.unwrap();
    assert_eq!(alive(&left_by(&stage, "fake")), []);
    stage.close().await;
}

#[tokio::test]
async fn a_reload_ends_everything_of_the_old_process() {
    let stage = ProcessFixture::guarded();
    stage.spawn(hostile(&stage, "fake")).await;
    let old = stage.guard("fake").descendants();
    stage.host.reload("fake").await.unwrap();
    assert_eq!(stage.text("fake", "text", json!({"text": "new"})).await, "new");
    eventually("everything of the old process is gone", LONG, || alive(&old).is_empty()).await;
    assert_eq!(stage.guard("fake").descendants().len(), 5);
    stage.close().await;
}

#[tokio::test]
async fn shutdown_ends_twenty_hostile_servers() {
    let stage = ProcessFixture::guarded();
    let names: Vec<String> = (0..20).map(|n| format!("s{n}")).collect();
    for name in &names {
        let mut spec = hostile(&stage, name);
        spec.start_timeout = Duration::from_secs(60);
        stage.spawn(spec).await;
    }
    let all: Vec<Proc> = names.iter().flat_map(|name| stage.guard(name).descendants()).collect();
    assert_eq!(all.len(), 100);
    assert!(stage.host.shutdown().await);
    assert_eq!(alive(&all), []);
    stage.close().await;
}
