//! Subscriptions: counted, renewed, and ended with the last subscriber.

use ostler_core::spec::Isolation;
use ostler_host::{Caller, ServerSpec};
use ostler_testkit::{Script, ScriptedReply, TestHost, run_until_stalled};

use crate::secs;

fn script() -> Script {
    Script::echo()
        .capabilities(r#"{"tools":{},"resources":{"subscribe":true}}"#)
        .on("resources/subscribe", |asked| match asked.name.as_deref() {
            Some("x://no") => ScriptedReply::error(-32002, "no such resource"),
            _ => ScriptedReply::result("{}"),
        })
        .on("resources/unsubscribe", |_| ScriptedReply::result("{}"))
}

fn subscribe_requests(world: &TestHost) -> Vec<(String, String)> {
    let asked = world.server("a").requests();
    let about = asked.into_iter().filter(|asked| asked.method.starts_with("resources/"));
    about.map(|asked| (asked.method.replace("resources/", ""), asked.name.unwrap_or_default())).collect()
}

fn lines(told: &[(String, String)]) -> Vec<String> {
    told.iter().map(|(method, uri)| format!("{method} {uri}")).collect()
}

#[tokio::test(start_paused = true)]
async fn the_first_one_in_subscribes_and_the_last_one_out_ends_it() {
    let world = TestHost::new().server("a", script()).start().await;
    let first = world.host.subscribe(&world.caller, "a", "x://1").await.unwrap();
    let second = world.host.subscribe(&world.caller, "a", "x://1").await.unwrap();
    let other = world.host.subscribe(&world.caller, "a", "x://2").await.unwrap();
    drop(first);
    run_until_stalled().await;
    assert_eq!(lines(&subscribe_requests(&world)), ["subscribe x://1", "subscribe x://2"]);
    drop((second, other));
    run_until_stalled().await;
    assert_eq!(lines(&subscribe_requests(&world))[2..], ["unsubscribe x://1", "unsubscribe x://2"]);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_keeps_its_server_up_and_the_end_of_it_lets_it_go() {
    let world = TestHost::new().server("a", script()).start().await;
    let held = world.host.subscribe(&world.caller, "a", "x://1").await.unwrap();
    world.advance(secs(3_600)).await;
    assert_eq!(world.state("a"), "ready");
    drop(held);
    world.advance(secs(301)).await;
    assert_eq!(world.state("a"), "idle");
}

#[tokio::test(start_paused = true)]
async fn a_new_session_is_told_what_the_old_one_was() {
    let world = TestHost::new().server("a", script()).start().await;
    let _held = world.host.subscribe(&world.caller, "a", "x://1").await.unwrap();
    drop(world.host.subscribe(&world.caller, "a", "x://2").await.unwrap());
    run_until_stalled().await;
    world.crash("a");
    world.advance(secs(1)).await;
    assert_eq!(lines(&subscribe_requests(&world)).last().unwrap(), "subscribe x://1");
    assert_eq!(subscribe_requests(&world).len(), 4);
    assert_eq!(world.server("a").requests_for("x://1")[1].generation, 2);
}

#[tokio::test(start_paused = true)]
async fn what_the_server_says_to_a_subscription_is_the_callers_answer() {
    let world = TestHost::new().server("a", script()).start().await;
    let error = world.host.subscribe(&world.caller, "a", "x://no").await.unwrap_err();
    assert_eq!((error.code(), error.rpc_code()), ("upstream-error", -32002));
    run_until_stalled().await;
    assert_eq!(lines(&subscribe_requests(&world)), ["subscribe x://no"], "what never was does not end");
    world.host.subscribe(&world.caller, "a", "x://no").await.unwrap_err();
    assert_eq!(subscribe_requests(&world).len(), 2, "it is asked for again");
}

#[tokio::test(start_paused = true)]
async fn who_leaves_while_subscribing_leaves_nothing_behind() {
    let slow = script().on("resources/subscribe", |_| ScriptedReply::result("{}").after(secs(5)));
    let world = TestHost::new().server("a", slow).start().await;
    let (host, me) = (world.host.clone(), world.caller.clone());
    let leaving = tokio::spawn(async move { host.subscribe(&me, "a", "x://1").await });
    run_until_stalled().await;
    assert_eq!(subscribe_requests(&world).len(), 1);
    leaving.abort();
    run_until_stalled().await;
    assert_eq!(lines(&subscribe_requests(&world)), ["subscribe x://1", "unsubscribe x://1"]);
    world.advance(secs(301)).await;
    assert_eq!(world.state("a"), "idle");
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_is_listened_to_with_the_resources_of_the_moment() {
    let world = TestHost::new().server("a", script().modern()).start().await;
    let first = world.host.subscribe(&world.caller, "a", "x://1").await.unwrap();
    let second = world.host.subscribe(&world.caller, "a", "x://2").await.unwrap();
    let again = world.host.subscribe(&world.caller, "a", "x://2").await.unwrap();
    drop((first, again));
    run_until_stalled().await;
    world.crash("a");
    world.advance(secs(1)).await;
    let listened = world.server("a").listen_requests();
    let listened: Vec<Vec<&str>> =
        listened.iter().map(|uris| uris.iter().map(String::as_str).collect()).collect();
    assert_eq!(listened, [vec![], vec!["x://1"], vec!["x://1", "x://2"], vec!["x://2"], vec!["x://2"]]);
    assert!(subscribe_requests(&world).is_empty(), "it knows no such requests");
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn one_caller_has_half_of_the_subscriptions_and_leaves_the_rest_to_others() {
    let world = TestHost::new().server("a", script()).start().await;
    let (ada, bob) = (Caller::new("ada", "local"), Caller::new("bob", "local"));
    let mut held = Vec::new();
    let refused = loop {
        match world.host.subscribe(&ada, "a", &format!("x://{}", held.len())).await {
            Ok(subscription) => held.push(subscription),
            Err(error) => break error,
        }
    };
    assert_eq!((refused.code(), held.len()), ("overloaded", 512));
    assert!(refused.to_string().contains("512 resources of server `a`"), "{refused}");
    let others = world.host.subscribe(&bob, "a", "x://other").await.unwrap();
    let _shared = world.host.subscribe(&bob, "a", "x://0").await.unwrap();
    world.host.subscribe(&ada, "a", "x://other").await.unwrap_err();
    drop((held.pop(), others));
    run_until_stalled().await;
    let _next = world.host.subscribe(&ada, "a", "x://next").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slow_subscription_holds_up_nobody_at_another_resource() {
    let slow = script().on("resources/subscribe", |asked| match asked.name.as_deref() {
        Some("x://slow") => ScriptedReply::result("{}").after(secs(20)),
        _ => ScriptedReply::result("{}"),
    });
    let world = TestHost::new().server("a", slow).start().await;
    let (host, me) = (world.host.clone(), world.caller.clone());
    let slow = tokio::spawn(async move { host.subscribe(&me, "a", "x://slow").await });
    run_until_stalled().await;
    let _held = world.host.subscribe(&Caller::new("bob", "local"), "a", "x://1").await.unwrap();
    assert!(!slow.is_finished(), "it waited for the slow one");
    let _slow = slow.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_a_process_of_its_own_has_all_of_its_subscriptions() {
    let own = |spec: &mut ServerSpec| spec.isolation = Isolation::Caller;
    let world = TestHost::new().server_with("a", script(), own).start().await;
    let mut held = Vec::new();
    while let Ok(subscription) =
        world.host.subscribe(&world.caller, "a", &format!("x://{}", held.len())).await
    {
        held.push(subscription);
    }
    assert_eq!(held.len(), 1_024);
}
