//! Unguarded servers: programs that can't be a guard keep them in process groups.

use ostler_core::status::Containment;
use ostler_host::ServerSpec;
use ostler_testkit::{Proc, eventually, fake_mcp, fake_mcp_spec};
use serde_json::json;

use crate::fixture::{LONG, ProcessFixture, code_of, none, restarting_forever};

#[tokio::test]
async fn status_says_that_a_process_group_is_all_there_is() {
    let stage = ProcessFixture::unguarded();
    stage.spawn_fake("fake", &[]).await;
    assert_eq!(stage.status("fake").containment, Containment::ProcessGroup);
    assert_eq!(stage.process("fake").parent(), Some(Proc::current()));
    stage.close().await;
}

#[tokio::test]
async fn stop_ends_the_whole_group() {
    let stage = ProcessFixture::unguarded();
    let name = fake_mcp_spec("wrapped", &[]).name;
    let holding = stage.path("holding");
    let line = format!(
        "'{}' --ignore-sigterm --ignore-stdin-close --fork-holding-stdio '{holding}'; true",
        fake_mcp().display()
    );
    stage.spawn(ServerSpec::stdio(name, "sh").args(["-c", &line])).await;
    assert_eq!(stage.text("wrapped", "text", json!({"text": "here"})).await, "here");
    let all = Proc::current().descendants();
    assert_eq!(all.len(), 3, "the shell, the server and its child");
    stage.host.stop("wrapped").await.unwrap();
    eventually("nothing of the group is left", LONG, || all.iter().all(|proc| !proc.is_alive())).await;
    stage.close().await;
}

#[tokio::test]
async fn a_crashed_server_is_replaced_and_the_rest_of_its_group_ended() {
    let stage = ProcessFixture::unguarded();
    let holding = stage.path("holding");
    stage.spawn(restarting_forever(fake_mcp_spec("fake", &["--fork-holding-stdio", &holding]))).await;
    let first = Proc::current().descendants();
    assert_eq!(first.len(), 2);
    assert_eq!(code_of(&stage.call("fake", "exit", json!({"code": 7})).await), "outcome-unknown");
    assert_ne!(stage.text("fake", "pid", none()).await, first[0].pid.to_string());
    eventually("the first group is gone", LONG, || first.iter().all(|proc| !proc.is_alive())).await;
    assert!(stage.status("fake").last_error.unwrap().message.contains("code 7"));
    stage.close().await;
}

#[tokio::test]
async fn a_server_that_hangs_at_start_is_given_up() {
    let stage = ProcessFixture::unguarded();
    let mut spec = fake_mcp_spec("fake", &["--hang-at-start", "--ignore-sigterm", "--ignore-stdin-close"]);
    spec.start_timeout = std::time::Duration::from_millis(300);
    assert_eq!(stage.host.spawn(&stage.me, spec).await.unwrap_err().code(), "server-unavailable");
    eventually("the process is gone", LONG, || Proc::current().descendants().is_empty()).await;
    stage.close().await;
}
