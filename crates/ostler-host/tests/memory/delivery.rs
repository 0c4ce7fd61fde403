//! Delivery: requests that were sent, that were not, and that may be repeated.

use bytes::Bytes;
use ostler_core::fault::{Delivery, Fault, FaultKind};
use ostler_core::spec::{RetryRule, ToolRules};
use ostler_host::Request;
use ostler_testkit::{Script, ScriptedReply, TestHost};
use ostler_wire::Params;

use crate::secs;

/// A server that dies at the first request for `work` and works after that.
fn dies_once(first: ScriptedReply) -> Script {
    Script::echo().tool("work").on("work", move |asked| match asked.nth {
        1 => first.clone(),
        _ => ScriptedReply::text("second"),
    })
}

fn safe(spec: &mut ostler_host::ServerSpec) {
    spec.tool.insert("work".into(), ToolRules { retry: RetryRule::Safe, ..ToolRules::default() });
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_not_sent_is_sent_on_the_fresh_session_and_the_caller_notices_nothing() {
    let world = TestHost::new().server("a", dies_once(ScriptedReply::crash_before_read())).start().await;
    assert_eq!(world.call("a", "work").await.unwrap().text(), "second");
    let asked = world.server("a").requests_for("work");
    assert_eq!(asked.iter().map(|asked| asked.generation).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(asked[0].key, asked[1].key);
    assert!(asked[0].key.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_outcome_is_unknown_says_so_and_ran_once_at_most() {
    let world = TestHost::new().server("a", dies_once(ScriptedReply::crash())).start().await;
    let error = world.call("a", "work").await.unwrap_err();
    assert_eq!((error.code(), error.delivery()), ("outcome-unknown", Some(Delivery::Unknown)));
    world.advance(secs(60)).await;
    assert_eq!(world.server("a").count("work"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_safe_to_repeat_is_repeated_once_on_the_new_session() {
    let world = TestHost::new().server_with("a", dies_once(ScriptedReply::crash()), safe).start().await;
    assert_eq!(world.call("a", "work").await.unwrap().text(), "second");
    let asked = world.server("a").requests_for("work");
    assert_eq!(asked.iter().map(|asked| asked.generation).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(asked[0].key, asked[1].key);
}

#[tokio::test(start_paused = true)]
async fn a_safe_tool_that_dies_twice_is_not_tried_a_third_time() {
    let script = Script::echo().tool_replying("work", ScriptedReply::crash());
    let world = TestHost::new().server_with("a", script, safe).start().await;
    assert_eq!(world.call("a", "work").await.unwrap_err().code(), "outcome-unknown");
    assert_eq!(world.server("a").count("work"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_safe_tool_whose_repeat_finds_no_server_may_still_have_run() {
    let change = |spec: &mut ostler_host::ServerSpec| {
        safe(spec);
        spec.restart.max = 0;
    };
    let world = TestHost::new().server_with("a", dies_once(ScriptedReply::crash()), change).start().await;
    let error = world.call("a", "work").await.unwrap_err();
    assert_eq!((error.code(), error.delivery()), ("outcome-unknown", Some(Delivery::Unknown)));
}

#[tokio::test(start_paused = true)]
async fn a_safe_tool_whose_repeat_is_not_sent_may_still_have_run() {
    let script = Script::echo().tool("work").on("work", |asked| match asked.nth {
        1 => ScriptedReply::crash(),
        _ => ScriptedReply::fault(Fault::not_sent(FaultKind::Congested)),
    });
    let world = TestHost::new().server_with("a", script, safe).start().await;
    let error = world.call("a", "work").await.unwrap_err();
    assert_eq!((error.code(), error.delivery()), ("outcome-unknown", Some(Delivery::Unknown)));
}

#[tokio::test(start_paused = true)]
async fn a_call_has_its_time_once_from_the_moment_that_its_server_is_up() {
    let script = Script::echo().start_after(secs(15)).tool_replying("never", ScriptedReply::never());
    let world = TestHost::new().server("a", script).start().await;
    let began = tokio::time::Instant::now();
    assert_eq!(world.call("a", "never").await.unwrap_err().code(), "timed-out");
    assert_eq!(began.elapsed(), secs(15 + 60), "neither the start nor the list takes from it");

    let script = Script::new().start_after(secs(15)).on("resources/read", |_| ScriptedReply::never());
    let world = TestHost::new().server("a", script).start().await;
    let began = tokio::time::Instant::now();
    let request = Request::new(&world.caller, "resources/read", Params::resource_read("file:///x"));
    assert_eq!(world.host.send_to("a", request).await.unwrap_err().code(), "timed-out");
    assert_eq!((began.elapsed(), world.server("a").count("resources/read")), (secs(15 + 60), 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_spent_its_time_on_waiting_says_nothing_about_the_server() {
    let script = Script::new().on("resources/read", |_| ScriptedReply::never());
    let one_place = |spec: &mut ostler_host::ServerSpec| spec.max_in_flight = 1;
    let world = TestHost::new().server_with("a", script, one_place).start().await;
    let read = |uri| {
        world.host.send_to("a", Request::new(&world.caller, "resources/read", Params::resource_read(uri)))
    };
    let late = async {
        world.advance(secs(1)).await;
        read("file:///y").await
    };
    let (first, second) = tokio::join!(read("file:///x"), late);
    assert_eq!([first.unwrap_err().code(), second.unwrap_err().code()], ["timed-out", "timed-out"]);
    assert_eq!(world.status("a").consecutive_failures, 1);
}

#[tokio::test(start_paused = true)]
async fn a_read_is_repeated_once() {
    let read = |deaths: usize| {
        Script::new().on("resources/read", move |asked| match asked.nth {
            nth if nth <= deaths => ScriptedReply::crash(),
            _ => ScriptedReply::result(r#"{"contents":[]}"#),
        })
    };
    for (deaths, outcome, requests) in [(1, "ok", 2), (2, "server-unavailable", 2)] {
        let world = TestHost::new().server("a", read(deaths)).start().await;
        let request = Request::new(&world.caller, "resources/read", Params::resource_read("file:///x"));
        let result = world.host.send_to("a", request).await;
        assert_eq!(result.map_or_else(|error| error.code(), |_| "ok"), outcome);
        assert_eq!(world.server("a").count("resources/read"), requests);
    }
}

#[tokio::test(start_paused = true)]
async fn a_continuation_is_never_repeated() {
    for death in [ScriptedReply::crash(), ScriptedReply::crash_before_read()] {
        let world = TestHost::new().server_with("a", dies_once(death), safe).start().await;
        let raw = r#"{"name":"work","arguments":{},"inputResponses":{}}"#;
        let params = Params::parse(Bytes::from_static(raw.as_bytes())).unwrap();
        world.host.send_to("a", Request::new(&world.caller, "tools/call", params)).await.unwrap_err();
        world.advance(secs(60)).await;
        assert_eq!(world.server("a").count("work"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_timed_out_is_cancelled_and_not_repeated() {
    let world = TestHost::new().server("a", dies_once(ScriptedReply::never())).start().await;
    let error = world.call("a", "work").await.unwrap_err();
    assert_eq!((error.code(), error.delivery()), ("timed-out", Some(Delivery::Unknown)));
    assert_eq!((world.server("a").count("work"), world.server("a").cancelled()), (1, 1));
    world.call("a", "echo").await.unwrap();
    assert_eq!(world.server("a").connects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_cancels_its_call_at_the_server() {
    let script = Script::echo().tool_replying("slow", ScriptedReply::text("done").after(secs(10)));
    let world = TestHost::new().server("a", script).start().await;
    let call = world.start_call("a", "slow").await;
    assert_eq!(world.server("a").in_flight(), 1);
    call.abort();
    world.advance(secs(1)).await;
    assert_eq!((world.server("a").in_flight(), world.server("a").cancelled()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_could_not_even_be_looked_up_in_time_was_not_sent() {
    let script = Script::echo().on("tools/list", |_| ScriptedReply::never());
    let world = TestHost::new().server("a", script).start().await;
    let error = world.call_within(secs(1), "a", "echo").await.unwrap_err();
    assert_eq!((error.code(), error.delivery()), ("timed-out", Some(Delivery::NotSent)));
}

#[tokio::test(start_paused = true)]
async fn two_calls_never_have_the_same_idempotency_key() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    world.call_many(100, "a", "echo").await;
    assert_eq!((world.server("a").count("echo"), world.server("a").most_executions("echo")), (100, 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_time_is_over_is_not_sent() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    world.call("a", "echo").await.unwrap();
    let error = world.call_within(secs(0), "a", "echo").await.unwrap_err();
    assert_eq!((error.code(), error.delivery()), ("timed-out", Some(Delivery::NotSent)));
    assert_eq!(world.server("a").count("echo"), 1);
}
