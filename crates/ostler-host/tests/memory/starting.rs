//! Starts: shared, supervised and bounded.

use ostler_core::error::UnavailableState;
use ostler_host::{Caller, Kind};
use ostler_testkit::{Script, ScriptedReply, TestHost};

use crate::{codes, ms, secs, state_of};

#[tokio::test(start_paused = true)]
async fn a_hundred_concurrent_first_calls_connect_once() {
    let world = TestHost::new().server("a", Script::echo().start_after(secs(1))).start().await;
    let results = world.call_many(100, "a", "echo").await;
    assert_eq!(codes(&results), [("ok", 100)]);
    assert_eq!((world.server("a").connects(), world.server("a").count("tools/list")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn sixty_four_calls_that_see_one_crash_are_one_restart() {
    let script = Script::echo().tool_replying("slow", ScriptedReply::text("done").after(secs(5)));
    let world = TestHost::new().server_with("a", script, |spec| spec.max_in_flight = 128).start().await;
    world.call("a", "echo").await.unwrap();
    let calls = world.start_calls(64, "a", "slow").await;
    assert_eq!(world.server("a").in_flight(), 64);
    world.crash("a");
    assert_eq!(codes(&calls.join_all().await), [("outcome-unknown", 64)]);
    world.call("a", "echo").await.unwrap();
    assert_eq!(world.server("a").connects(), 2);
    assert_eq!((world.status("a").restarts.used, world.status("a").consecutive_failures), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_noticed_when_it_happens_and_an_eager_server_comes_back_by_itself() {
    let world = TestHost::new().server_with("a", Script::echo(), |spec| spec.lazy = false).start().await;
    world.crash("a");
    world.advance(ms(100)).await;
    assert_eq!((world.state("a"), world.server("a").connects()), ("ready", 2));
}

#[tokio::test(start_paused = true)]
async fn the_sixth_generation_that_crashes_ejects_and_a_reload_brings_the_server_back() {
    let script = Script::echo().tool("die").on("die", |asked| match asked.generation {
        1..=6 => ScriptedReply::crash(),
        _ => ScriptedReply::text("alive"),
    });
    let world = TestHost::new().server_with("a", script, |spec| spec.breaker.failures = 0).start().await;
    for _ in 0..6 {
        assert_eq!(world.call("a", "die").await.unwrap_err().code(), "outcome-unknown");
        world.advance(secs(5)).await;
    }
    let error = world.call("a", "die").await.unwrap_err();
    assert_eq!(state_of(&error), UnavailableState::Ejected);
    assert_eq!(error.to_string(), "server `a` keeps failing: it ended with exit code 1");
    let action = "ejected after 6 failures in 5m; it is not tried again for 55s, unless it is reloaded";
    assert_eq!(error.cause().unwrap(), action);
    assert_eq!((world.server("a").connects(), world.status("a").ejected), (6, true));
    world.host.reload("a").await.unwrap();
    assert_eq!(world.call("a", "die").await.unwrap().text(), "alive");
    assert_eq!((world.status("a").ejected, world.status("a").restarts.used), (false, 0));
}

#[tokio::test(start_paused = true)]
async fn fifty_calls_on_a_server_that_never_starts_try_twice_and_all_hear_why() {
    let world = TestHost::new().server("a", Script::echo().failing_starts(|_| true)).start().await;
    for result in world.call_many(50, "a", "echo").await {
        assert_eq!(state_of(&result.unwrap_err()), UnavailableState::StartFailed);
    }
    assert_eq!(world.server("a").connects(), 2);
    let error = world.call("a", "echo").await.unwrap_err();
    assert_eq!((state_of(&error), world.server("a").connects()), (UnavailableState::StartFailed, 2));
    assert!(error.retry_after().is_some_and(|wait| wait <= secs(1)), "{error:?}");
    world.advance(secs(60)).await;
    assert_eq!(world.server("a").connects(), 2, "nobody wants it");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_worked_is_waited_for_however_often_it_fails_to_start() {
    let script = Script::echo()
        .tool_replying("die", ScriptedReply::crash())
        .failing_starts(|nth| (2..=5).contains(&nth));
    let world = TestHost::new().server("a", script).start().await;
    assert_eq!(world.call("a", "die").await.unwrap_err().code(), "outcome-unknown");
    world.call("a", "echo").await.unwrap();
    assert_eq!(world.server("a").connects(), 6);
}

#[tokio::test(start_paused = true)]
async fn an_ejected_server_says_so_to_later_callers_whatever_its_breaker_thinks() {
    let world = TestHost::new().server("a", Script::echo().failing_starts(|_| true)).start().await;
    for nth in 1..=50 {
        let state = if nth < 5 { UnavailableState::StartFailed } else { UnavailableState::Ejected };
        assert_eq!(state_of(&world.call("a", "echo").await.unwrap_err()), state);
        if nth < 5 {
            world.advance(secs(5)).await;
        }
    }
    assert_eq!(world.server("a").connects(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_the_next_session_as_long_as_its_own_deadline_allows() {
    let world = TestHost::new().server("a", Script::echo().failing_starts(|nth| nth == 1)).start().await;
    world.call("a", "echo").await.unwrap();
    assert_eq!(world.server("a").connects(), 2);
    let world = TestHost::new().server("a", Script::echo().start_after(secs(10))).start().await;
    let error = world.call_within(secs(1), "a", "echo").await.unwrap_err();
    assert_eq!(state_of(&error), UnavailableState::Starting);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_takes_too_long_fails_and_leaves_nothing() {
    let script = Script::echo().start_after(secs(400));
    let world = TestHost::new().server_with("a", script, |spec| spec.restart.max = 0).start().await;
    let error = world.call("a", "echo").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "server `a` keeps failing: it has not answered the MCP handshake within 1m"
    );
    assert_eq!(world.server("a").open_sessions(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_black_hole_is_asked_for_its_list_once_and_all_who_waited_share_the_outcome() {
    let script = Script::echo().on("tools/list", |_| ScriptedReply::never());
    let world = TestHost::new().server("a", script).start().await;
    let began = tokio::time::Instant::now();
    let results = world.call_many(20, "a", "echo").await;
    assert!(results.iter().all(Result::is_err));
    assert_eq!((world.server("a").count("tools/list"), began.elapsed()), (1, secs(60)));
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_callers_wait_for_the_servers_own_start_and_no_longer() {
    let never = secs(100_000);
    let slow = |spec: &mut ostler_host::ServerSpec| {
        (spec.restart.first_delay, spec.restart.max_delay) = (never, never);
    };
    for has_called in [true, false] {
        let script = Script::echo().start_after(secs(1)).tool_replying("die", ScriptedReply::crash());
        let world = TestHost::new().server_with("a", script, slow).start().await;
        if has_called {
            world.call("a", "echo").await.unwrap();
        } else {
            world.host.tools(&world.caller, "a").await.unwrap();
        }
        assert_eq!(world.call("a", "die").await.unwrap_err().code(), "outcome-unknown");
        let began = tokio::time::Instant::now();
        world.call("a", "echo").await.unwrap();
        assert!(began.elapsed() < secs(1) + ms(20), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_waits_for_a_start_never_says_that_something_may_have_run() {
    // The session begins while the list is waited for, and its first list takes long.
    let hanging =
        Script::echo().start_after(secs(5)).on("tools/list", |_| ScriptedReply::text("").after(secs(100)));
    let world = TestHost::new()
        .server("slow", Script::echo().start_after(secs(50)))
        .server("just", hanging)
        .start()
        .await;
    for offer in world.host.list(&Caller::local(), &ostler_host::Scope::All, Kind::Tools, secs(7)).await {
        let error = offer.error.unwrap();
        assert_eq!(state_of(&error), UnavailableState::Starting);
        assert!(!error.render().contains("may have been executed"), "{}", error.render());
    }
    assert_eq!((world.server("slow").connects(), world.server("just").connects()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn one_broken_server_among_eight_costs_a_list_no_time() {
    let mut world = TestHost::new().server("broken", Script::echo().failing_starts(|_| true));
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        world = world.server(name, Script::echo().start_after(ms(300)));
    }
    let world = world.start().await;
    // During the first start, during backoff, and after ejection.
    for wait in [0, 1, 30] {
        world.advance(secs(wait)).await;
        for has_offers in [true, false] {
            let began = tokio::time::Instant::now();
            let broken: Vec<_> = if has_offers {
                let offers =
                    world.host.list(&world.caller, &ostler_host::Scope::All, Kind::Tools, secs(30)).await;
                offers.into_iter().filter_map(|offer| Some((offer.server, offer.error?))).collect()
            } else {
                let found = world.host.discover(&world.caller).await;
                found.into_iter().filter_map(|one| Some((one.server, one.tools.err()?))).collect()
            };
            assert!(began.elapsed() < ms(400), "{:?}", began.elapsed());
            let [(server, error)] = &broken[..] else { panic!("{broken:?}") };
            assert_eq!(server.as_str(), "broken");
            assert!(error.to_string().contains("the script says so"), "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_dependency_is_ten_seconds_late_comes_up_after_one_list_by_itself() {
    let began = tokio::time::Instant::now();
    let script = Script::echo().failing_starts(move |_| began.elapsed() < secs(10));
    let world = TestHost::new().server("a", script).start().await;
    let offers = world.host.list(&world.caller, &ostler_host::Scope::All, Kind::Tools, secs(10)).await;
    assert!(offers[0].error.is_some() && began.elapsed() < secs(1));
    while world.state("a") != "ready" {
        assert!(began.elapsed() < secs(75), "it did not come up: {}", world.state("a"));
        world.advance(ms(500)).await;
        // After an ejection the next list is the one that tries again.
        if world.state("a") == "idle" {
            world.host.list(&world.caller, &ostler_host::Scope::All, Kind::Tools, secs(10)).await;
        }
    }
    assert!(world.server("a").connects() <= 7, "{} starts", world.server("a").connects());
    world.call("a", "echo").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_eager_server_whose_dependency_is_late_comes_up_without_any_caller() {
    let began = tokio::time::Instant::now();
    let script = Script::echo().failing_starts(move |nth| nth > 1 && began.elapsed() < secs(30));
    let world = TestHost::new().server_with("a", script, |spec| spec.lazy = false).start().await;
    world.crash("a");
    world.advance(secs(20)).await;
    assert_eq!(world.state("a"), "ejected");
    world.advance(secs(60)).await;
    assert_eq!((world.state("a"), world.status("a").consecutive_failures), ("ready", 1));
    world.call("a", "echo").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_list_that_waits_for_a_start_is_no_call_in_flight() {
    let script = Script::echo()
        .start_after(secs(50))
        .tool_replying("slow", ScriptedReply::text("done").after(secs(5)));
    let world = TestHost::new().server("a", script).start().await;
    let (host, me) = (world.host.clone(), world.caller.clone());
    let list = tokio::spawn(async move { host.tools(&me, "a").await });
    world.advance(secs(1)).await;
    assert_eq!((world.state("a"), world.host.calls_in_flight()), ("starting", 0));
    list.await.unwrap().unwrap();
    let calls = world.start_calls(3, "a", "slow").await;
    assert_eq!(world.host.calls_in_flight(), 3);
    calls.join_all().await;
    assert_eq!(world.host.calls_in_flight(), 0);
}
