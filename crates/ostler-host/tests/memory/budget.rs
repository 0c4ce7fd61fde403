//! Calls of one dispatch.

use ostler_host::{Caller, Request};
use ostler_testkit::{Reply, Script, World};
use ostler_wire::Params;

use crate::{codes, secs};

#[tokio::test(start_paused = true)]
async fn of_a_hundred_parallel_calls_with_a_budget_of_ten_exactly_ten_reach_the_server() {
    let script = Script::echo().tool_that("slow", Reply::text("done").after(secs(1)));
    let mut world = World::new().server("a", script).open().await;
    world.me = Caller::new("ada", "researcher").with_budget(10);
    let results = world.call_many(100, "a", "slow").await;
    assert_eq!(codes(&results), [("ok", 10), ("over-budget", 90)]);
    assert_eq!(world.stage("a").count("slow"), 10);
}

#[tokio::test(start_paused = true)]
async fn refused_and_unknown_calls_are_free() {
    let world = World::new().server("a", Script::echo()).open().await;
    let ada = Caller::new("ada", "researcher").with_budget(1);
    for _ in 0..5 {
        assert_eq!(world.call_as(&ada, "a", "nothing").await.unwrap_err().code(), "unknown-tool");
        assert_eq!(world.call_as(&ada, "b", "echo").await.unwrap_err().code(), "unknown-server");
    }
    world.call_as(&ada, "a", "echo").await.unwrap();
    assert_eq!(world.call_as(&ada, "a", "echo").await.unwrap_err().code(), "over-budget");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_left_is_free_and_one_of_unknown_outcome_is_not() {
    let script = Script::echo().tool_that("die", Reply::crash());
    let world = World::new().server("a", script).open().await;
    let ada = Caller::new("ada", "researcher").with_budget(1);
    world.call("a", "echo").await.unwrap();
    world.host.stop("a").await.unwrap();
    for _ in 0..5 {
        assert_eq!(world.call_as(&ada, "a", "echo").await.unwrap_err().code(), "server-unavailable");
    }
    world.host.start("a").await.unwrap();
    assert_eq!(world.call_as(&ada, "a", "die").await.unwrap_err().code(), "outcome-unknown");
    assert_eq!(world.call_as(&ada, "a", "echo").await.unwrap_err().code(), "over-budget");
}

#[tokio::test(start_paused = true)]
async fn a_read_that_was_sent_and_lost_is_not_free() {
    let script = Script::new().on("resources/read", |_| Reply::crash());
    let world = World::new().server("a", script).open().await;
    let ada = Caller::new("ada", "researcher").with_budget(1);
    let read =
        || world.host.send(Request::new(&ada, "a", "resources/read", Params::resource_read("file:///x")));
    assert_eq!(read().await.unwrap_err().code(), "server-unavailable");
    assert_eq!(read().await.unwrap_err().code(), "over-budget");
}
