//! The breaker between callers and a failing server.

use ostler_core::caller::Caller;
use ostler_core::error::UnavailableState;
use ostler_core::fault::{Delivery, Fault, FaultKind};
use ostler_core::status::CircuitState;
use ostler_testkit::{Script, ScriptedReply, ScriptedServer, TestHost};

use crate::{codes, ms, secs, state_of};

/// Answer of a gateway whose server is down.
fn broken() -> ScriptedReply {
    ScriptedReply::fault(Fault::unknown(FaultKind::Status { code: 502, text: "down".into() }))
}

/// A server whose tool `work` fails for its first `failures` calls, and is slow after that.
async fn failing(failures: usize) -> TestHost {
    let script = Script::echo().tool("work").on("work", move |asked| match asked.nth {
        nth if nth <= failures => broken(),
        _ => ScriptedReply::text("works").after(secs(1)),
    });
    TestHost::new().server("a", script).start().await
}

/// Makes five failing calls, and waits until the breaker is half open.
async fn half_open(world: &TestHost) {
    for _ in 0..5 {
        assert_eq!(world.call("a", "work").await.unwrap_err().code(), "outcome-unknown");
    }
    let error = world.call("a", "work").await.unwrap_err();
    assert_eq!(state_of(&error), UnavailableState::BreakerOpen);
    assert_eq!(error.retry_after(), Some(secs(30)));
    world.advance(secs(30)).await;
}

fn work(stage: &ScriptedServer) -> usize {
    stage.count("work")
}

#[tokio::test(start_paused = true)]
async fn of_a_thousand_callers_at_half_open_one_reaches_the_server() {
    let world = failing(5).await;
    half_open(&world).await;
    let results = world.call_many(1_000, "a", "work").await;
    assert_eq!(codes(&results), [("ok", 1), ("server-unavailable", 999)]);
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        assert_eq!((state_of(error), error.retry_after()), (UnavailableState::BreakerOpen, Some(secs(1))));
    }
    assert_eq!(work(world.server("a")), 6);
    world.call("a", "work").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_opens_again_for_twice_as_long() {
    let world = failing(6).await;
    half_open(&world).await;
    world.call("a", "work").await.unwrap_err();
    let error = world.call("a", "work").await.unwrap_err();
    assert_eq!(error.retry_after(), Some(secs(60)));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_probe_gives_the_permit_back_and_the_next_caller_probes() {
    let world = failing(5).await;
    half_open(&world).await;
    let probe = world.start_call("a", "work").await;
    assert_eq!(state_of(&world.call("a", "work").await.unwrap_err()), UnavailableState::BreakerOpen);
    probe.abort();
    world.advance(ms(1)).await;
    world.call("a", "work").await.unwrap();
    assert_eq!(work(world.server("a")), 7);
}

#[tokio::test(start_paused = true)]
async fn a_late_success_from_before_the_trip_does_not_close_it() {
    let script = Script::echo()
        .tool_replying("slow", ScriptedReply::text("late").after(secs(10)))
        .tool_replying("work", broken());
    let world = TestHost::new().server("a", script).start().await;
    let early = world.start_call("a", "slow").await;
    for _ in 0..5 {
        world.call("a", "work").await.unwrap_err();
    }
    assert_eq!(early.await.unwrap().unwrap().text(), "late");
    let error = world.call("a", "work").await.unwrap_err();
    assert_eq!((state_of(&error), error.retry_after()), (UnavailableState::BreakerOpen, Some(secs(20))));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_no_is_a_server_that_works() {
    for no in [
        ScriptedReply::tool_error("disconnected"),
        ScriptedReply::error(-32602, "connect: broken pipe, restart me"),
        ScriptedReply::error(-32603, "internal"),
        ScriptedReply::error(-32600, "invalid"),
        ScriptedReply::error(-32700, "parse"),
    ] {
        let world = TestHost::new().server("a", Script::echo().tool_replying("no", no)).start().await;
        for _ in 0..20 {
            let _ = world.call("a", "no").await;
        }
        let status = world.status("a");
        assert_eq!((status.consecutive_failures, status.generation), (0, 1));
        assert_eq!(world.server("a").count("no"), 20);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_does_not_close_it() {
    let script = Script::echo().without_list_changed().tool_replying("work", broken());
    let world = TestHost::new().server("a", script).start().await;
    for _ in 0..4 {
        world.call("a", "work").await.unwrap_err();
        world.host.tools(&world.caller, "a").await.unwrap();
    }
    assert_eq!(world.status("a").consecutive_failures, 4);
    world.call("a", "work").await.unwrap_err();
    world.advance(secs(30)).await;
    world.host.tools(&world.caller, "a").await.unwrap();
    world.call("a", "work").await.unwrap_err();
    let error = world.call("a", "work").await.unwrap_err();
    assert_eq!(error.retry_after(), Some(secs(60)), "the call was the probe, and it failed");
}

#[tokio::test(start_paused = true)]
async fn a_list_passes_it() {
    let script = Script::echo().without_list_changed().tool_replying("die", ScriptedReply::crash());
    let world = TestHost::new().server_with("a", script, |spec| spec.breaker.failures = 1).start().await;
    world.call("a", "die").await.unwrap_err();
    assert_eq!(state_of(&world.call("a", "echo").await.unwrap_err()), UnavailableState::BreakerOpen);
    world.host.tools(&world.caller, "a").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_restart_does_not_close_it() {
    let script = Script::echo().tool_replying("die", ScriptedReply::crash());
    let world = TestHost::new().server_with("a", script, |spec| spec.breaker.failures = 2).start().await;
    for _ in 0..2 {
        world.call("a", "die").await.unwrap_err();
    }
    world.advance(secs(5)).await;
    assert_eq!(state_of(&world.call("a", "echo").await.unwrap_err()), UnavailableState::BreakerOpen);
    world.advance(secs(30)).await;
    world.call("a", "echo").await.unwrap();
    assert_eq!(world.server("a").connects(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_less_patience_than_the_server_deserves_says_nothing_about_it() {
    let script = Script::echo().tool_replying("slow", ScriptedReply::text("done").after(secs(10)));
    let world = TestHost::new().server("a", script).start().await;
    for _ in 0..20 {
        let error = world.call_within(secs(1), "a", "slow").await.unwrap_err();
        assert_eq!(error.code(), "timed-out");
    }
    assert_eq!((world.status("a").consecutive_failures, world.server("a").cancelled()), (0, 20));
}

#[tokio::test(start_paused = true)]
async fn an_unusable_answer_fails_its_call_and_nothing_else() {
    let oversize = ScriptedReply::fault(Fault { delivery: Delivery::Answered, kind: FaultKind::Oversize(1) });
    for reply in [ScriptedReply::malformed(), oversize] {
        let world = TestHost::new().server("a", Script::echo().tool_replying("babble", reply)).start().await;
        for _ in 0..20 {
            assert_eq!(world.call("a", "babble").await.unwrap_err().code(), "upstream-protocol");
        }
        let status = world.status("a");
        assert_eq!((status.consecutive_failures, status.generation), (0, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn failures_of_one_caller_hold_back_that_caller_at_that_tool_and_nobody_else() {
    let script = Script::echo().tool_replying("work", broken());
    let world = TestHost::new().server("a", script).start().await;
    for _ in 0..5 {
        world.call("a", "work").await.unwrap_err();
    }
    let error = world.call("a", "work").await.unwrap_err();
    assert_eq!(state_of(&error), UnavailableState::BreakerOpen);
    assert_eq!(error.cause().unwrap(), "5 of your calls to `work` in a row failed");
    world.call("a", "echo").await.unwrap();
    let other = Caller::new("bob", "local");
    let error = world.call_as(&other, "a", "work").await.unwrap_err();
    assert_eq!(error.code(), "outcome-unknown", "it reaches the server");
    assert_eq!((world.status("a").circuit, world.server("a").count("work")), (CircuitState::Closed, 6));
}

#[tokio::test(start_paused = true)]
async fn failures_of_two_callers_hold_everybody_back() {
    let script = Script::echo().tool_replying("work", broken());
    let world = TestHost::new().server("a", script).start().await;
    let (bob, cyd) = (Caller::new("bob", "local"), Caller::new("cyd", "local"));
    for caller in [&world.caller, &bob, &world.caller, &bob, &bob] {
        world.call_as(caller, "a", "work").await.unwrap_err();
    }
    let error = world.call_as(&cyd, "a", "echo").await.unwrap_err();
    assert_eq!((state_of(&error), error.retry_after()), (UnavailableState::BreakerOpen, Some(secs(30))));
}
