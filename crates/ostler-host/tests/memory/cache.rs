//! Remembered answers.

use ostler_core::spec::{CacheRule, ToolRules};
use ostler_host::upstream::Event;
use ostler_host::{Caller, Request};
use ostler_testkit::{Reply, Script, World};
use ostler_wire::Params;

use crate::{ms, secs};

/// A server whose tool `fact` gives another answer every time, good for ten seconds.
fn facts(scope: &'static str) -> Script {
    Script::echo()
        .tool("fact")
        .on("fact", move |asked| Reply::cacheable(&format!("fact {}", asked.nth), secs(10), scope))
}

fn ada() -> Caller {
    Caller::new("ada", "researcher")
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_good_from_its_receipt_on_however_slow_it_was() {
    let script = Script::echo()
        .tool("fact")
        .on("fact", |asked| Reply::cacheable(&asked.nth.to_string(), secs(10), "private").after(secs(30)));
    let world = World::new().server("a", script).open().await;
    world.call("a", "fact").await.unwrap();
    world.advance(secs(10) - ms(1)).await;
    let hit = world.call("a", "fact").await.unwrap();
    assert_eq!((hit.text().as_str(), hit.is_cached(), hit.ttl), ("1", true, ms(1)));
    world.advance(ms(1)).await;
    assert_eq!(world.call("a", "fact").await.unwrap().text(), "2");
}

#[tokio::test(start_paused = true)]
async fn a_hit_is_charged_to_the_callers_budget() {
    let world = World::new().server("a", facts("public")).open().await;
    let ada = ada().with_budget(3);
    for _ in 0..3 {
        world.call_as(&ada, "a", "fact").await.unwrap();
    }
    assert_eq!(world.call_as(&ada, "a", "fact").await.unwrap_err().code(), "over-budget");
    assert_eq!(world.stage("a").count("fact"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_private_answer_never_crosses_callers_and_a_public_one_does() {
    for (scope, requests) in [("private", 2), ("public", 1), ("shared", 2)] {
        let world = World::new().server("a", facts(scope)).open().await;
        let mine = world.call("a", "fact").await.unwrap();
        let hers = world.call_as(&ada(), "a", "fact").await.unwrap();
        assert_eq!(mine.text() == hers.text(), scope == "public", "{scope}");
        assert_eq!(world.stage("a").count("fact"), requests, "{scope}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_sixty_fifth_answer_of_a_tool_displaces_the_least_recently_used() {
    let world = World::new().server("a", facts("private")).open().await;
    let ask = async |n: usize| world.call_with("a", "fact", &format!("{{\"n\":{n}}}")).await.unwrap();
    for n in 0..64 {
        assert!(!ask(n).await.is_cached());
    }
    assert!(ask(0).await.is_cached());
    assert!(!ask(64).await.is_cached());
    assert!(ask(0).await.is_cached(), "it was used just now");
    assert!(!ask(1).await.is_cached(), "it was the least recently used");
    assert_eq!(world.host.cache_stats().entries, 64);
}

#[tokio::test(start_paused = true)]
async fn the_order_of_keys_does_not_matter_and_big_integers_do() {
    let world = World::new().server("a", facts("private")).open().await;
    world.call_with("a", "fact", r#"{"x":1,"y":2}"#).await.unwrap();
    assert!(world.call_with("a", "fact", r#"{ "y" : 2, "x" : 1 }"#).await.unwrap().is_cached());
    let (one, two) = (r#"{"id":9007199254740993}"#, r#"{"id":9007199254740992}"#);
    let (first, second) = (world.call_with("a", "fact", one).await, world.call_with("a", "fact", two).await);
    assert_ne!(first.unwrap().text(), second.unwrap().text());
    assert_eq!(world.stage("a").count("fact"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_changed_list_forgets_everything_of_the_tools() {
    let world = World::new().server("a", facts("private")).open().await;
    world.call("a", "fact").await.unwrap();
    world.stage("a").announce(Event::PromptsChanged);
    assert!(world.call("a", "fact").await.unwrap().is_cached());
    world.stage("a").announce(Event::ToolsChanged);
    assert!(!world.call("a", "fact").await.unwrap().is_cached());
}

#[tokio::test(start_paused = true)]
async fn an_answer_asked_for_before_an_invalidation_is_not_kept() {
    let script = Script::echo()
        .tool("fact")
        .on("fact", |_| Reply::cacheable("old", secs(100), "private").after(secs(2)));
    let world = World::new().server("a", script).open().await;
    world.call("a", "echo").await.unwrap();
    let call = world.begin("a", "fact").await;
    world.stage("a").announce(Event::ToolsChanged);
    call.await.unwrap().unwrap();
    assert!(!world.call("a", "fact").await.unwrap().is_cached());
    assert!(world.call("a", "fact").await.unwrap().is_cached());
}

#[tokio::test(start_paused = true)]
async fn errors_and_unfinished_answers_are_not_kept() {
    let unkept = [
        r#"{"content":[],"isError":true,"ttlMs":10000}"#,
        r#"{"resultType":"input_required","ttlMs":10000}"#,
        r#"{"resultType":"task","ttlMs":10000}"#,
        r#"{"content":[],"ttlMs":0}"#,
        r#"{"content":[],"ttlMs":-1}"#,
        r#"{"content":[]}"#,
    ];
    for result in unkept {
        let world =
            World::new().server("a", Script::echo().tool_that("x", Reply::result(result))).open().await;
        world.call("a", "x").await.unwrap();
        assert!(!world.call("a", "x").await.unwrap().is_cached(), "{result}");
    }
    let error = Reply::error(-32000, r#"{"ttlMs":10000}"#);
    let world = World::new().server("a", Script::echo().tool_that("x", error)).open().await;
    world.call("a", "x").await.unwrap_err();
    world.call("a", "x").await.unwrap_err();
    assert_eq!((world.stage("a").count("x"), world.host.cache_stats().entries), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn the_operator_may_demand_and_forbid() {
    let table = [(CacheRule::For(secs(5)), "echo", true), (CacheRule::Never, "fact", false)];
    for (cache, tool, is_kept) in table {
        let rules = ToolRules { cache, ..ToolRules::default() };
        let world = World::new()
            .server_with("a", facts("public"), |spec| spec.tool = [(tool.into(), rules)].into())
            .open()
            .await;
        world.call("a", tool).await.unwrap();
        assert_eq!(world.call("a", tool).await.unwrap().is_cached(), is_kept, "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hit_is_served_while_the_breaker_is_open_and_while_the_server_is_down() {
    let script = facts("private").tool_that("broken", Reply::error(-32603, "broken"));
    let world = World::new().server("a", script).open().await;
    world.call("a", "fact").await.unwrap();
    for _ in 0..5 {
        world.call("a", "broken").await.unwrap_err();
    }
    assert_eq!(world.call("a", "echo").await.unwrap_err().code(), "server-unavailable");
    assert!(world.call("a", "fact").await.unwrap().is_cached());
    world.crash("a");
    assert!(world.call("a", "fact").await.unwrap().is_cached());
}

#[tokio::test(start_paused = true)]
async fn stop_reload_and_respawn_forget_everything() {
    let mut world = World::new().server("a", facts("public")).open().await;
    world.call("a", "fact").await.unwrap();
    world.host.reload("a").await.unwrap();
    assert!(!world.call("a", "fact").await.unwrap().is_cached(), "after a reload");
    world.host.stop("a").await.unwrap();
    world.call("a", "fact").await.unwrap_err();
    world.host.start("a").await.unwrap();
    assert!(!world.call("a", "fact").await.unwrap().is_cached(), "after a stop");
    let mut other = World::spec("a").lazy();
    other.keep_alive = secs(1);
    world.spawn(other, facts("public")).await.unwrap();
    assert!(!world.call("a", "fact").await.unwrap().is_cached(), "after a respawn");
    assert_eq!(world.host.cache_stats().entries, 1);
}

fn read<'a>(caller: &'a Caller, uri: &str) -> Request<'a> {
    Request::new(caller, "a", "resources/read", Params::resource_read(uri))
}

/// A server whose resources take five seconds to read.
fn library() -> Script {
    let contents = |n: usize| Reply::result(format!(r#"{{"contents":[{{"text":"{n}"}}]}}"#));
    Script::new().on("resources/read", move |asked| contents(asked.nth).after(secs(5)))
}

#[tokio::test(start_paused = true)]
async fn identical_concurrent_reads_share_one_request() {
    let world = World::new().server("a", library()).open().await;
    let (me, ada) = (Caller::local(), ada());
    let send = |caller, uri| world.host.send(read(caller, uri));
    let (a, b, other, hers) =
        tokio::join!(send(&me, "x:1"), send(&me, "x:1"), send(&me, "x:2"), send(&ada, "x:1"));
    assert_eq!(a.unwrap().body, b.unwrap().body);
    assert!(other.is_ok() && hers.is_ok());
    assert_eq!(
        world.stage("a").count("resources/read"),
        3,
        "another resource and another caller are not shared"
    );
}

#[tokio::test(start_paused = true)]
async fn a_shared_read_goes_on_when_the_caller_that_began_it_leaves() {
    let world = World::new().server("a", library()).open().await;
    let begin = || {
        let (host, me) = (world.host.clone(), world.me.clone());
        tokio::spawn(async move { host.send(read(&me, "x:1")).await })
    };
    let first = begin();
    world.advance(secs(1)).await;
    let second = begin();
    world.advance(secs(1)).await;
    first.abort();
    second.await.unwrap().unwrap();
    assert_eq!(world.stage("a").count("resources/read"), 1);
}

#[tokio::test(start_paused = true)]
async fn reads_one_after_the_other_are_not_shared() {
    let world = World::new().server("a", library()).open().await;
    for _ in 0..2 {
        world.host.send(read(&world.me, "x:1")).await.unwrap();
    }
    assert_eq!(world.stage("a").count("resources/read"), 2);
}
