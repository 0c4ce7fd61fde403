//! Liveness probes: distinguish a busy server from a hung one.

use ostler_testkit::{Script, ScriptedReply, TestHost};

use crate::{ms, secs};

fn eager(spec: &mut ostler_host::ServerSpec) {
    spec.lazy = false;
}

#[tokio::test(start_paused = true)]
async fn an_idle_server_is_asked_every_half_minute_whether_it_lives() {
    let world = TestHost::new().server_with("a", Script::echo(), eager).start().await;
    world.advance(secs(30) - ms(1)).await;
    assert_eq!(world.server("a").count("ping"), 0);
    world.advance(ms(1)).await;
    assert_eq!(world.server("a").count("ping"), 1);
    world.advance(secs(300)).await;
    assert_eq!((world.server("a").count("ping"), world.status("a").generation), (11, 1));
}

#[tokio::test(start_paused = true)]
async fn an_error_is_an_answer_too() {
    let script = Script::echo().on("ping", |_| ScriptedReply::error(-32601, "no such method"));
    let world = TestHost::new().server_with("a", script, eager).start().await;
    world.advance(secs(600)).await;
    assert_eq!(world.status("a").generation, 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_nothing_is_restarted_after_three_misses() {
    let world = TestHost::new().server_with("a", Script::echo(), eager).start().await;
    world.server("a").hang();
    world.advance(secs(45) - ms(1)).await;
    assert_eq!((world.server("a").count("ping"), world.status("a").generation), (3, 1));
    world.advance(ms(200)).await;
    assert_eq!((world.state("a"), world.status("a").generation), ("ready", 2));
    let last_error = world.status("a").last_error.unwrap();
    assert_eq!(last_error.message, "the server hangs: 3 liveness probes went unanswered");
    world.call("a", "echo").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_on_a_server_that_answers_probes_is_left_alone() {
    let script = Script::echo().tool_replying("slow", ScriptedReply::text("done").after(secs(59)));
    let world = TestHost::new().server("a", script).start().await;
    assert_eq!(world.call("a", "slow").await.unwrap().text(), "done");
    assert_eq!((world.server("a").count("ping"), world.status("a").generation), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_hanging_server_is_found_out_while_its_call_still_waits() {
    let script = Script::echo().tool_replying("slow", ScriptedReply::text("done").after(secs(1)));
    let world = TestHost::new().server("a", script).start().await;
    world.call("a", "echo").await.unwrap();
    world.server("a").hang();
    let began = tokio::time::Instant::now();
    let error = world.call("a", "slow").await.unwrap_err();
    // Half the call's time, and three unanswered probes.
    assert_eq!((error.code(), began.elapsed()), ("outcome-unknown", secs(45)));
    world.call("a", "echo").await.unwrap();
    assert_eq!(world.status("a").generation, 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_times_out_makes_the_host_ask_at_once() {
    let script = Script::echo().tool_replying("never", ScriptedReply::never());
    let world = TestHost::new().server_with("a", script, |spec| spec.call_timeout = secs(8)).start().await;
    world.call("a", "echo").await.unwrap();
    let before = world.server("a").count("ping");
    world.call("a", "never").await.unwrap_err();
    world.advance(ms(1)).await;
    assert!(world.server("a").count("ping") > before);
    assert_eq!((world.state("a"), world.status("a").generation), ("ready", 1));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_probes_but_answers_calls_is_left_alone_while_it_does() {
    let script =
        Script::echo().on("ping", |_| ScriptedReply::never()).tool_replying("never", ScriptedReply::never());
    let world = TestHost::new().server_with("a", script, |spec| spec.call_timeout = secs(8)).start().await;
    world.call("a", "echo").await.unwrap();
    let stuck = world.start_call("a", "never").await;
    for _ in 0..40 {
        world.advance(secs(1)).await;
        world.call("a", "echo").await.unwrap();
    }
    assert_eq!(stuck.await.unwrap().unwrap_err().code(), "timed-out");
    assert!(world.server("a").count("ping") > 0);
    assert_eq!(world.status("a").generation, 1);
}
