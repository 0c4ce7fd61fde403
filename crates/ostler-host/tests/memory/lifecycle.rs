//! Lifecycle operations: stop, start, reload and remove.

use ostler_core::error::UnavailableState;
use ostler_testkit::{Script, ScriptedReply, TestHost, run_until_stalled};

use crate::{codes, ms, secs, state_of};

fn slow() -> Script {
    Script::echo().tool_replying("slow", ScriptedReply::text("done").after(secs(3)))
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_calls_finish_and_closes_the_session() {
    let world = TestHost::new().server("a", slow()).start().await;
    let call = world.start_call("a", "slow").await;
    let (host, began) = (world.host.clone(), tokio::time::Instant::now());
    let stop = tokio::spawn(async move { host.stop("a").await });
    run_until_stalled().await;
    assert_eq!(world.state("a"), "draining");
    assert_eq!(state_of(&world.call("a", "echo").await.unwrap_err()), UnavailableState::Stopped);
    assert_eq!(call.await.unwrap().unwrap().text(), "done");
    stop.await.unwrap().unwrap();
    assert_eq!((world.state("a"), world.server("a").closed()), ("stopped", vec![1]));
    assert_eq!(began.elapsed(), secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_calls_no_longer_than_the_drain_time() {
    let script = Script::echo().tool_replying("never", ScriptedReply::never());
    let world = TestHost::new().server("a", script).start().await;
    let call = world.start_call("a", "never").await;
    let began = tokio::time::Instant::now();
    world.host.stop("a").await.unwrap();
    assert_eq!(began.elapsed(), secs(5));
    assert_eq!(call.await.unwrap().unwrap_err().code(), "outcome-unknown");
    assert_eq!(world.server("a").open_sessions(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_server_stays_stopped_until_it_is_started() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    world.call("a", "echo").await.unwrap();
    world.host.stop("a").await.unwrap();
    world.advance(secs(3_600)).await;
    assert_eq!(state_of(&world.call("a", "echo").await.unwrap_err()), UnavailableState::Stopped);
    assert_eq!(world.server("a").connects(), 1);
    world.host.start("a").await.unwrap();
    world.call("a", "echo").await.unwrap();
    assert_eq!(world.server("a").connects(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_binder_does_not_undo_a_stop() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    world.host.stop("a").await.unwrap();
    let error = world.host.bind(&world.caller, "a").await.unwrap_err();
    assert_eq!(state_of(&error), UnavailableState::Stopped);
    assert_eq!((world.state("a"), world.server("a").connects()), ("stopped", 0));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_server_says_so_whatever_its_breaker_thinks() {
    let script = Script::echo().tool_replying("broken", ScriptedReply::error(-32603, "broken"));
    let world = TestHost::new().server("a", script).start().await;
    for _ in 0..5 {
        world.call("a", "broken").await.unwrap_err();
    }
    world.host.stop("a").await.unwrap();
    assert_eq!(state_of(&world.call("a", "echo").await.unwrap_err()), UnavailableState::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_starting_ends_the_start_and_tells_who_waits() {
    let world = TestHost::new().server("a", Script::echo().start_after(secs(10))).start().await;
    let call = world.start_call("a", "echo").await;
    world.host.stop("a").await.unwrap();
    assert_eq!(state_of(&call.await.unwrap().unwrap_err()), UnavailableState::Stopped);
    world.advance(secs(60)).await;
    assert_eq!((world.state("a"), world.server("a").open_sessions()), ("stopped", 0));
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_is_overtaken_by_a_start_ends() {
    let world = TestHost::new().server("a", slow()).start().await;
    let _call = world.start_call("a", "slow").await;
    let host = world.host.clone();
    let stop = tokio::spawn(async move { host.stop("a").await });
    run_until_stalled().await;
    world.host.start("a").await.unwrap();
    tokio::time::timeout(secs(60), stop).await.expect("the stop ends").unwrap().unwrap();
    assert_eq!(world.state("a"), "ready");
}

#[tokio::test(start_paused = true)]
async fn a_stop_returns_when_the_sessions_before_the_last_are_gone_too() {
    let script = slow().close_after(secs(2));
    let world = TestHost::new().server("a", script).start().await;
    let _call = world.start_call("a", "slow").await;
    world.host.reload("a").await.unwrap();
    world.host.stop("a").await.unwrap();
    assert_eq!((world.server("a").connects(), world.server("a").open_sessions()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn calls_that_run_during_a_reload_are_answered_by_the_old_session_and_the_next_by_the_new_one() {
    let world = TestHost::new().server("a", slow()).start().await;
    let calls = world.start_calls(32, "a", "slow").await;
    world.host.reload("a").await.unwrap();
    let next = world.call("a", "echo").await.unwrap();
    assert_eq!(next.generation, Some(2));
    for result in calls.join_all().await {
        assert_eq!(result.unwrap().generation, Some(1));
    }
    world.advance(ms(1)).await;
    assert_eq!((world.server("a").closed(), world.server("a").open_sessions()), (vec![1], 1));
}

#[tokio::test(start_paused = true)]
async fn a_reload_of_a_server_that_does_not_start_says_why() {
    let world = TestHost::new().server("a", Script::echo().failing_starts(|nth| nth > 1)).start().await;
    world.call("a", "echo").await.unwrap();
    let error = world.host.reload("a").await.unwrap_err();
    assert_eq!(state_of(&error), UnavailableState::StartFailed);
    assert_eq!(error.to_string(), "server `a` could not be started: the script says so");
}

#[tokio::test(start_paused = true)]
async fn a_reload_while_starting_starts_afresh() {
    let world = TestHost::new().server("a", Script::echo().as_process().start_after(secs(2))).start().await;
    let call = world.start_call("a", "echo").await;
    world.advance(secs(1)).await;
    world.host.reload("a").await.unwrap();
    assert_eq!(call.await.unwrap().unwrap().generation, Some(2));
    assert_eq!((world.server("a").open_sessions(), world.host.process_count()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_removed_server_is_unknown_and_nothing_of_it_is_left() {
    let world = TestHost::new().server("a", slow()).start().await;
    let calls = world.start_calls(3, "a", "slow").await;
    world.host.remove("a").await.unwrap();
    assert_eq!(codes(&calls.join_all().await), [("ok", 3)]);
    assert_eq!(world.server("a").open_sessions(), 0);
    assert_eq!(world.call("a", "echo").await.unwrap_err().code(), "unknown-server");
    assert_eq!(world.host.stop("a").await.unwrap_err().code(), "unknown-server");
}
