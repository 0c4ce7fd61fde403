//! Crashes: the errors that callers get, and the counts of tool executions and server starts.

use ostler_core::fault::Exit;
use ostler_core::spec::{RetryRule, ToolRules};
use ostler_core::status::CircuitState;
use ostler_host::ServerSpec;
use ostler_testkit::{eventually, fake_mcp_spec};
use serde_json::json;

use crate::fixture::{LONG, ProcessFixture, code_of, none, restarting_forever};

fn fake(stage: &ProcessFixture) -> ServerSpec {
    restarting_forever(fake_mcp_spec(
        "fake",
        &["--ledger", &stage.path("ledger"), "--starts", &stage.path("starts")],
    ))
}

/// Returns the executions of a tool: the pid and the idempotency key of each.
fn executions(stage: &ProcessFixture, tool: &str) -> Vec<(String, String)> {
    let lines = stage.lines("ledger");
    let fields = lines.iter().map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>());
    fields.filter(|fields| fields[1] == tool).map(|fields| (fields[0].clone(), fields[2].clone())).collect()
}

#[tokio::test]
async fn one_crash_seen_by_sixty_four_calls_is_one_restart() {
    let stage = ProcessFixture::guarded();
    stage
        .spawn(ServerSpec {
            restart: Default::default(),
            breaker: Default::default(),
            max_in_flight: 128,
            ..fake(&stage)
        })
        .await;
    let calls = async { stage.calls(64, "fake", "sleep", |_| json!({"ms": 60_000}).into()).await };
    let crash = async {
        stage.until_lines("ledger", 64).await;
        stage.process("fake").kill();
    };
    let (outcomes, ()) = tokio::join!(calls, crash);
    for outcome in &outcomes {
        assert_eq!(code_of(outcome), "outcome-unknown");
    }
    assert_eq!(stage.text("fake", "text", json!({"text": "back"})).await, "back");
    let status = stage.status("fake");
    assert_eq!((status.restarts.used, status.generation, status.circuit), (1, 2, CircuitState::Closed));
    assert_eq!(stage.lines("starts").len(), 2);
    assert_eq!(executions(&stage, "sleep").len(), 64, "none was run again");
    stage.close().await;
}

#[tokio::test]
async fn a_server_that_died_idle_is_back_before_anybody_calls() {
    let stage = ProcessFixture::guarded();
    stage.spawn(fake(&stage)).await;
    let first = stage.process("fake");
    first.kill();
    stage.until("fake", "is up again", |status| status.generation == 2 && status.active).await;
    assert_ne!(stage.process("fake"), first);
    assert_eq!(stage.text("fake", "text", json!({"text": "back"})).await, "back");
    assert_eq!(stage.status("fake").last_error.unwrap().exit, Some(Exit::Signal(9)));
    stage.close().await;
}

#[tokio::test]
async fn a_lazy_server_that_died_idle_is_started_by_the_next_call_only() {
    let stage = ProcessFixture::guarded();
    stage.spawn(fake(&stage).lazy()).await;
    stage.text("fake", "pid", none()).await;
    stage.process("fake").kill();
    stage.until("fake", "is noticed to be gone", |status| !status.active).await;
    assert_eq!(stage.lines("starts").len(), 1);
    assert_eq!(stage.text("fake", "text", json!({"text": "back"})).await, "back");
    assert_eq!(stage.lines("starts").len(), 2);
    stage.close().await;
}

#[tokio::test]
async fn a_call_to_a_server_that_has_just_died_succeeds_on_a_fresh_process() {
    let stage = ProcessFixture::guarded();
    stage.spawn(fake(&stage)).await;
    for round in 0..20 {
        let process = stage.process("fake");
        process.kill();
        // Gone, pipes included; the host may or may not have noticed.
        eventually("the server is dead", LONG, || process.is_reaped()).await;
        let pid = stage.text("fake", "pid", none()).await;
        assert_ne!(pid, process.pid.to_string(), "round {round}");
    }
    let pids = executions(&stage, "pid");
    assert_eq!(pids.len(), 20);
    stage.close().await;
}

#[tokio::test]
async fn a_call_whose_server_is_killed_after_it_was_sent_ran_once_and_is_unknown() {
    let stage = ProcessFixture::guarded();
    stage.spawn(fake(&stage)).await;
    let call = stage.spawn_call("fake", "sleep", json!({"ms": 60_000}));
    stage.until_lines("ledger", 1).await;
    stage.process("fake").kill();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "outcome-unknown");
    assert!(error.cause().unwrap().contains("signal 9"), "{}", error.render());
    assert_eq!(stage.text("fake", "text", json!({"text": "back"})).await, "back");
    assert_eq!(executions(&stage, "sleep").len(), 1);
    stage.close().await;
}

#[tokio::test]
async fn a_call_that_crashes_its_server_ran_once_and_is_unknown() {
    let stage = ProcessFixture::guarded();
    stage.spawn(fake(&stage)).await;
    for when in ["before", "middle"] {
        let outcome = stage.call("fake", "crash", json!({ "when": when })).await;
        assert_eq!(code_of(&outcome), "outcome-unknown", "{when}");
    }
    // A server's claims about its own tool do not count until the tool is approved.
    assert_eq!(code_of(&stage.call("fake", "crash_safe", none()).await), "outcome-unknown");
    assert_eq!(executions(&stage, "crash").len(), 2);
    assert_eq!(executions(&stage, "crash_safe").len(), 1);
    stage.close().await;
}

#[tokio::test]
async fn a_tool_that_is_safe_to_repeat_is_repeated_once_under_the_same_key() {
    let stage = ProcessFixture::guarded();
    let mut spec = fake(&stage);
    spec.tool.insert("crash".into(), ToolRules { retry: RetryRule::Safe, ..ToolRules::default() });
    stage.spawn(spec).await;
    let once = json!({"when": "before", "once": stage.path("once")});
    assert_eq!(stage.text("fake", "crash", once).await, "survived");
    let runs = executions(&stage, "crash");
    assert_eq!(runs.len(), 2);
    assert_ne!(runs[0].0, runs[1].0, "on two processes");
    assert_eq!(runs[0].1, runs[1].1, "under one key");
    assert!(!runs[0].1.is_empty());

    assert_eq!(code_of(&stage.call("fake", "crash", none()).await), "outcome-unknown");
    assert_eq!(executions(&stage, "crash").len(), 4, "a second crash is not repeated again");
    stage.close().await;
}

#[tokio::test]
async fn an_answer_given_just_before_a_crash_arrives() {
    let stage = ProcessFixture::guarded();
    stage.spawn(fake(&stage)).await;
    for round in 1..=20 {
        assert_eq!(stage.text("fake", "crash", json!({"when": "after"})).await, "survived", "round {round}");
        // A call that met the dying process would rightly have an unknown outcome.
        stage.until("fake", "is up again", |status| status.generation > round && status.active).await;
    }
    assert_eq!(executions(&stage, "crash").len(), 20);
    stage.close().await;
}

#[tokio::test]
async fn a_server_that_closes_its_output_is_replaced() {
    let stage = ProcessFixture::guarded();
    stage.spawn(fake(&stage)).await;
    let first = stage.process("fake");
    assert_eq!(code_of(&stage.call("fake", "close_stdout", none()).await), "outcome-unknown");
    assert_ne!(stage.text("fake", "pid", none()).await, first.pid.to_string());
    eventually("the mute process is ended", LONG, || !first.is_alive()).await;
    stage.close().await;
}

#[tokio::test]
async fn the_exit_code_of_a_crash_is_told() {
    let stage = ProcessFixture::guarded();
    stage.spawn(fake(&stage)).await;
    stage.call("fake", "stderr", json!({"bytes": 80})).await.unwrap();
    let error = stage.call("fake", "exit", json!({"code": 7})).await.unwrap_err();
    assert!(error.cause().unwrap().contains("code 7"), "{}", error.render());
    stage.until("fake", "is up again", |status| status.generation == 2 && status.active).await;
    let last = stage.status("fake").last_error.unwrap();
    assert_eq!(last.exit, Some(Exit::Code(7)));
    assert_eq!(last.stderr, ["e".repeat(79)]);
    stage.close().await;
}

#[tokio::test]
async fn a_server_that_says_no_is_a_server_that_works() {
    let stage = ProcessFixture::guarded();
    stage.spawn(ServerSpec { breaker: Default::default(), ..fake(&stage) }).await;
    let first = stage.process("fake");
    for _ in 0..10 {
        assert!(stage.call("fake", "fail", json!({"text": "could not connect"})).await.unwrap().is_error());
        let refusal = json!({"code": -32602, "message": "connection closed"});
        assert_eq!(code_of(&stage.call("fake", "rpc_error", refusal).await), "upstream-error");
    }
    assert_eq!(code_of(&stage.call("fake", "no_such_tool", none()).await), "unknown-tool");
    let status = stage.status("fake");
    assert_eq!(stage.process("fake"), first);
    assert_eq!(
        (status.restarts.used, status.consecutive_failures, status.circuit),
        (0, 0, CircuitState::Closed)
    );
    assert_eq!(executions(&stage, "fail").len() + executions(&stage, "rpc_error").len(), 20, "each ran once");
    stage.close().await;
}
