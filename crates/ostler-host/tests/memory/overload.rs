//! Overload: more callers than a server or the host can take.

use ostler_core::caller::Caller;
use ostler_host::{Kind, Request};
use ostler_testkit::{Script, ScriptedReply, TestHost, run_until_stalled};
use ostler_wire::Params;

use crate::{codes, ms, secs};

fn slow() -> Script {
    Script::echo().tool_replying("slow", ScriptedReply::text("done").after(secs(10)))
}

#[tokio::test(start_paused = true)]
async fn one_caller_has_half_of_the_places_and_the_rest_of_its_calls_wait() {
    let world = TestHost::new().server("a", slow()).start().await;
    world.call("a", "echo").await.unwrap();
    let calls = world.start_calls(160, "a", "slow").await;
    let status = world.status("a");
    assert_eq!((world.server("a").in_flight(), status.in_flight, status.queued), (32, 32, 128));
    let bob = Caller::new("bob", "local");
    world.call_as(&bob, "a", "echo").await.unwrap();
    assert_eq!(codes(&calls.join_all().await), [("ok", 160)]);
    assert_eq!((world.server("a").most_in_flight(), world.status("a").queued), (33, 0));
}

#[tokio::test(start_paused = true)]
async fn the_caller_after_the_last_place_in_the_queue_is_shed_at_once() {
    let world = TestHost::new().server("a", slow()).start().await;
    world.call("a", "echo").await.unwrap();
    let _calls = world.start_calls(320, "a", "slow").await;
    let began = tokio::time::Instant::now();
    let error = world.call("a", "echo").await.unwrap_err();
    assert_eq!((error.code(), began.elapsed()), ("overloaded", ms(0)));
    assert_eq!(error.retry_after(), Some(secs(1)));
    assert_eq!(world.status("a").queued, 256);
}

#[tokio::test(start_paused = true)]
async fn a_queued_caller_that_goes_away_frees_its_place() {
    let narrow = |spec: &mut ostler_host::ServerSpec| (spec.max_in_flight, spec.max_queued) = (1, 1);
    let world = TestHost::new().server_with("a", slow(), narrow).start().await;
    world.call("a", "echo").await.unwrap();
    let _first = world.start_call("a", "slow").await;
    let queued = world.start_call("a", "slow").await;
    assert_eq!(world.call("a", "echo").await.unwrap_err().code(), "overloaded");
    queued.abort();
    let next = world.start_call("a", "echo").await;
    assert_eq!(world.status("a").queued, 1);
    next.await.unwrap().unwrap();
    assert_eq!(world.server("a").count("slow"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_queues_past_its_deadline_is_told_that_it_was_crowded_out() {
    let narrow = |spec: &mut ostler_host::ServerSpec| (spec.max_in_flight, spec.max_queued) = (1, 1);
    let world = TestHost::new().server_with("a", slow(), narrow).start().await;
    world.call("a", "echo").await.unwrap();
    let _first = world.start_call("a", "slow").await;
    let error = world.call_within(secs(2), "a", "echo").await.unwrap_err();
    assert_eq!((error.code(), world.server("a").count("echo")), ("overloaded", 1));
}

#[tokio::test(start_paused = true)]
async fn the_host_takes_so_many_calls_in_all() {
    let opening = TestHost::new().options(|options| options.max_in_flight = 10);
    let world = opening.server("a", slow()).server("b", slow()).start().await;
    world.call("a", "echo").await.unwrap();
    world.call("b", "echo").await.unwrap();
    let (a, b) = (world.start_calls(8, "a", "slow").await, world.start_calls(8, "b", "slow").await);
    assert_eq!(codes(&a.join_all().await), [("ok", 8)]);
    assert_eq!(codes(&b.join_all().await), [("ok", 2), ("overloaded", 6)]);
}

#[tokio::test(start_paused = true)]
async fn callers_that_wait_for_a_list_are_counted_too() {
    let script = Script::echo().start_after(secs(5));
    let world =
        TestHost::new().options(|options| options.max_in_flight = 10).server("a", script).start().await;
    assert_eq!(codes(&world.call_many(100, "a", "echo").await), [("ok", 10), ("overloaded", 90)]);
}

#[tokio::test(start_paused = true)]
async fn one_stuck_server_never_slows_another() {
    let stuck = Script::echo().start_after(secs(15)).tool_replying("never", ScriptedReply::never());
    let world = TestHost::new().server("stuck", stuck).server("b", Script::echo()).start().await;
    let _calls = world.start_calls(500, "stuck", "never").await;
    let began = tokio::time::Instant::now();
    assert_eq!(codes(&world.call_many(200, "b", "echo").await), [("ok", 200)]);
    assert_eq!(began.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_shared_read_is_counted_until_it_ends_and_so_is_everybody_who_waits_for_it() {
    let script = Script::new().on("resources/read", |_| ScriptedReply::result("{}").after(secs(5)));
    let world =
        TestHost::new().options(|options| options.max_in_flight = 2).server("a", script).start().await;
    let read = |uri: &'static str| {
        let (host, me) = (world.host.clone(), world.caller.clone());
        tokio::spawn(async move {
            host.send_to("a", Request::new(&me, "resources/read", Params::resource_read(uri))).await
        })
    };
    let (first, second) = (read("x:1"), read("x:1"));
    run_until_stalled().await;
    assert_eq!(read("x:2").await.unwrap().unwrap_err().code(), "overloaded");
    first.abort();
    second.abort();
    run_until_stalled().await;
    let third = read("x:2");
    run_until_stalled().await;
    assert_eq!(world.server("a").in_flight(), 2, "the first read goes on without its callers");
    assert_eq!(read("x:3").await.unwrap().unwrap_err().code(), "overloaded");
    third.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_stops_waiting_for_the_list_of_somebody_else_leaves_nothing_behind() {
    let script = Script::echo()
        .capabilities(r#"{"tools":{},"prompts":{}}"#)
        .on("prompts/list", |_| ScriptedReply::never());
    let world =
        TestHost::new().options(|options| options.max_in_flight = 2).server("a", script).start().await;
    world.call("a", "echo").await.unwrap();
    for _ in 0..10 {
        let late = ostler_testkit::list_one(&world.host, &world.caller, "a", Kind::Prompts, secs(1))
            .await
            .unwrap_err();
        assert_eq!(late.code(), "timed-out");
    }
    assert_eq!(world.server("a").count("prompts/list"), 1);
    world.call("a", "echo").await.expect("only the one round is counted");
}

#[tokio::test(start_paused = true)]
async fn a_list_without_end_is_given_up_in_time() {
    let script = Script::echo().capabilities(r#"{"tools":{},"prompts":{}}"#).on("prompts/list", |asked| {
        ScriptedReply::result(format!(r#"{{"prompts":[],"nextCursor":"{}"}}"#, asked.nth)).after(secs(5))
    });
    let world = TestHost::new().server("a", script).start().await;
    let began = tokio::time::Instant::now();
    let endless = ostler_testkit::list_one(&world.host, &world.caller, "a", Kind::Prompts, secs(4_000))
        .await
        .unwrap_err();
    assert_eq!(endless.code(), "timed-out");
    assert!(began.elapsed() <= secs(125), "{:?}", began.elapsed());
}
