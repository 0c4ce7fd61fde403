//! Response cache.

use ostler_core::spec::{CacheRule, CacheScopeRule, ToolRules};
use ostler_host::upstream::ServerNotification;
use ostler_host::{Answer, Caller, Kind, Request, Verdict};
use ostler_testkit::{Script, ScriptedReply, TestHost};
use ostler_wire::{CacheScopeHint, Params};

use crate::{ms, secs};

/// A server whose tool `fact` gives another answer every time, fresh for ten seconds.
fn facts(scope: &'static str) -> Script {
    Script::echo()
        .tool("fact")
        .on("fact", move |asked| ScriptedReply::cacheable(&format!("fact {}", asked.nth), secs(10), scope))
}

fn ada() -> Caller {
    Caller::new("ada", "researcher")
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_good_from_its_receipt_on_however_slow_it_was() {
    let script = Script::echo().tool("fact").on("fact", |asked| {
        ScriptedReply::cacheable(&asked.nth.to_string(), secs(10), "private").after(secs(30))
    });
    let world = TestHost::new().server("a", script).start().await;
    world.call("a", "fact").await.unwrap();
    world.advance(secs(10) - ms(1)).await;
    let hit = world.call("a", "fact").await.unwrap();
    assert_eq!((hit.text().as_str(), hit.is_cached(), hit.ttl), ("1", true, ms(1)));
    world.advance(ms(1)).await;
    assert_eq!(world.call("a", "fact").await.unwrap().text(), "2");
}

#[tokio::test(start_paused = true)]
async fn a_hit_is_charged_to_the_callers_budget() {
    let world = TestHost::new().server("a", facts("public")).start().await;
    let ada = ada().with_budget(3);
    for _ in 0..3 {
        world.call_as(&ada, "a", "fact").await.unwrap();
    }
    assert_eq!(world.call_as(&ada, "a", "fact").await.unwrap_err().code(), "over-budget");
    assert_eq!(world.server("a").count("fact"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_private_answer_never_crosses_callers_and_a_public_one_does() {
    for (scope, requests) in [("private", 2), ("public", 1), ("shared", 2)] {
        let world = TestHost::new().server("a", facts(scope)).start().await;
        let mine = world.call("a", "fact").await.unwrap();
        let hers = world.call_as(&ada(), "a", "fact").await.unwrap();
        assert_eq!(mine.text() == hers.text(), scope == "public", "{scope}");
        assert_eq!(world.server("a").count("fact"), requests, "{scope}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_sixty_fifth_answer_of_a_tool_displaces_the_least_recently_used() {
    let world = TestHost::new().server("a", facts("private")).start().await;
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
    let world = TestHost::new().server("a", facts("private")).start().await;
    world.call_with("a", "fact", r#"{"x":1,"y":2}"#).await.unwrap();
    assert!(world.call_with("a", "fact", r#"{ "y" : 2, "x" : 1 }"#).await.unwrap().is_cached());
    let (one, two) = (r#"{"id":9007199254740993}"#, r#"{"id":9007199254740992}"#);
    let (first, second) = (world.call_with("a", "fact", one).await, world.call_with("a", "fact", two).await);
    assert_ne!(first.unwrap().text(), second.unwrap().text());
    assert_eq!(world.server("a").count("fact"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_changed_list_forgets_everything_of_the_tools() {
    let world = TestHost::new().server("a", facts("private")).start().await;
    world.call("a", "fact").await.unwrap();
    world.server("a").emit(ServerNotification::PromptsChanged);
    assert!(world.call("a", "fact").await.unwrap().is_cached());
    world.server("a").emit(ServerNotification::ToolsChanged);
    assert!(!world.call("a", "fact").await.unwrap().is_cached());
}

#[tokio::test(start_paused = true)]
async fn an_answer_asked_for_before_an_invalidation_is_not_kept() {
    let script = Script::echo()
        .tool("fact")
        .on("fact", |_| ScriptedReply::cacheable("old", secs(100), "private").after(secs(2)));
    let world = TestHost::new().server("a", script).start().await;
    world.call("a", "echo").await.unwrap();
    let call = world.start_call("a", "fact").await;
    world.server("a").emit(ServerNotification::ToolsChanged);
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
        let world = TestHost::new()
            .server("a", Script::echo().tool_replying("x", ScriptedReply::result(result)))
            .start()
            .await;
        world.call("a", "x").await.unwrap();
        assert!(!world.call("a", "x").await.unwrap().is_cached(), "{result}");
    }
    let error = ScriptedReply::error(-32000, r#"{"ttlMs":10000}"#);
    let world = TestHost::new().server("a", Script::echo().tool_replying("x", error)).start().await;
    world.call("a", "x").await.unwrap_err();
    world.call("a", "x").await.unwrap_err();
    assert_eq!((world.server("a").count("x"), world.host.cache_stats().entries), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn the_operator_may_demand_and_forbid() {
    let table = [(CacheRule::For(secs(5)), "echo", true), (CacheRule::Never, "fact", false)];
    for (cache, tool, is_kept) in table {
        let rules = ToolRules { cache, ..ToolRules::default() };
        let world = TestHost::new()
            .server_with("a", facts("public"), |spec| spec.tool = [(tool.into(), rules)].into())
            .start()
            .await;
        world.call("a", tool).await.unwrap();
        assert_eq!(world.call("a", tool).await.unwrap().is_cached(), is_kept, "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hit_is_served_while_the_breaker_is_open_and_while_the_server_is_down() {
    let script = facts("private").tool_replying("die", ScriptedReply::crash());
    let world = TestHost::new().server_with("a", script, |spec| spec.breaker.failures = 1).start().await;
    world.call("a", "fact").await.unwrap();
    world.call("a", "die").await.unwrap_err();
    assert_eq!(world.call("a", "echo").await.unwrap_err().code(), "server-unavailable");
    assert!(world.call("a", "fact").await.unwrap().is_cached());
    world.crash("a");
    assert!(world.call("a", "fact").await.unwrap().is_cached());
}

#[tokio::test(start_paused = true)]
async fn stop_reload_and_respawn_forget_everything() {
    let mut world = TestHost::new().server("a", facts("public")).start().await;
    world.call("a", "fact").await.unwrap();
    world.host.reload("a").await.unwrap();
    assert!(!world.call("a", "fact").await.unwrap().is_cached(), "after a reload");
    world.host.stop("a").await.unwrap();
    world.call("a", "fact").await.unwrap_err();
    world.host.start("a").await.unwrap();
    assert!(!world.call("a", "fact").await.unwrap().is_cached(), "after a stop");
    let mut other = TestHost::spec("a").lazy();
    other.keep_alive = secs(1);
    world.spawn(other, facts("public")).await.unwrap();
    assert!(!world.call("a", "fact").await.unwrap().is_cached(), "after a respawn");
    assert_eq!(world.host.cache_stats().entries, 1);
}

fn read<'a>(caller: &'a Caller, uri: &str) -> Request<'a> {
    Request::new(caller, "resources/read", Params::resource_read(uri))
}

/// A server whose resources take five seconds to read.
fn library() -> Script {
    let contents = |n: usize| ScriptedReply::result(format!(r#"{{"contents":[{{"text":"{n}"}}]}}"#));
    Script::new().on("resources/read", move |asked| contents(asked.nth).after(secs(5)))
}

#[tokio::test(start_paused = true)]
async fn identical_concurrent_reads_share_one_request() {
    let world = TestHost::new().server("a", library()).start().await;
    let (me, ada) = (Caller::local(), ada());
    let send = |caller, uri| world.host.send_to("a", read(caller, uri));
    let (a, b, other, hers) =
        tokio::join!(send(&me, "x:1"), send(&me, "x:1"), send(&me, "x:2"), send(&ada, "x:1"));
    assert_eq!(a.unwrap().body, b.unwrap().body);
    assert!(other.is_ok() && hers.is_ok());
    assert_eq!(
        world.server("a").count("resources/read"),
        3,
        "another resource and another caller are not shared"
    );
}

#[tokio::test(start_paused = true)]
async fn a_shared_read_goes_on_when_the_caller_that_began_it_leaves() {
    let world = TestHost::new().server("a", library()).start().await;
    let begin = || {
        let (host, me) = (world.host.clone(), world.caller.clone());
        tokio::spawn(async move { host.send_to("a", read(&me, "x:1")).await })
    };
    let first = begin();
    world.advance(secs(1)).await;
    let second = begin();
    world.advance(secs(1)).await;
    first.abort();
    second.await.unwrap().unwrap();
    assert_eq!(world.server("a").count("resources/read"), 1);
}

#[tokio::test(start_paused = true)]
async fn reads_one_after_the_other_are_not_shared() {
    let world = TestHost::new().server("a", library()).start().await;
    for _ in 0..2 {
        world.host.send_to("a", read(&world.caller, "x:1")).await.unwrap();
    }
    assert_eq!(world.server("a").count("resources/read"), 2);
}

/// Makes the parameters of a request.
type ParamsFactory = fn() -> Params;

/// Returns the answers of two callers to the same request, one after the other.
async fn both(world: &TestHost, method: &str, params: ParamsFactory) -> (Answer, Answer) {
    let (me, ada) = (Caller::local(), ada());
    let mine = world.host.send_to("a", Request::new(&me, method, params())).await.unwrap();
    let hers = world.host.send_to("a", Request::new(&ada, method, params())).await.unwrap();
    (mine, hers)
}

#[tokio::test(start_paused = true)]
async fn of_no_method_does_a_private_answer_cross_callers() {
    let requests: [(&str, &str, ParamsFactory); 5] = [
        ("tools/list", "tools", || Params::list(None)),
        ("prompts/list", "prompts", || Params::list(None)),
        ("resources/list", "resources", || Params::list(None)),
        ("resources/templates/list", "resourceTemplates", || Params::list(None)),
        ("resources/read", "contents", || Params::resource_read("x:1")),
    ];
    for (method, member, params) in requests {
        for (scope, is_shared) in
            [(r#","cacheScope":"public""#, true), (r#","cacheScope":"private""#, false), ("", false)]
        {
            let script = Script::new().capabilities(r#"{"tools":{},"prompts":{},"resources":{}}"#).on(
                method,
                move |asked| {
                    ScriptedReply::result(format!(
                        r#"{{"{member}":[],"nth":{},"ttlMs":60000{scope}}}"#,
                        asked.nth
                    ))
                },
            );
            let world = TestHost::new().server("a", script).start().await;
            let (mine, hers) = both(&world, method, params).await;
            assert_eq!(mine.body == hers.body, is_shared, "{method} {scope}");
            let (again, _) = both(&world, method, params).await;
            assert!(again.is_cached() && again.body == mine.body, "{method} {scope}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_tokens_of_one_role_share_nothing_private_and_one_caller_of_two_roles_does() {
    let world = TestHost::new().server("a", facts("private")).start().await;
    let of = async |principal: &str, role: &str| {
        world.call_as(&Caller::new(principal, role), "a", "fact").await.unwrap().text()
    };
    let first = of("ada", "researcher").await;
    assert_ne!(of("bob", "researcher").await, first);
    assert_eq!(of("ada", "writer").await, first);
}

#[tokio::test(start_paused = true)]
async fn what_a_new_role_hides_is_not_recalled_either() {
    let world = TestHost::new().server("a", facts("public")).start().await;
    world.call_as(&ada(), "a", "fact").await.unwrap();
    world.host.set_policy_hook(Some(Box::new(|caller, _, tool| match (caller.role(), tool) {
        ("writer", Some("fact")) => Verdict::Deny { reason: "not for writers".into() },
        _ => Verdict::Allow,
    })));
    let error = world.call_as(&Caller::new("ada", "writer"), "a", "fact").await.unwrap_err();
    assert_eq!(error.code(), "unknown-tool");
    assert!(world.call_as(&ada(), "a", "fact").await.unwrap().is_cached());
}

#[tokio::test(start_paused = true)]
async fn the_operator_may_say_that_nothing_is_public() {
    let world = TestHost::new()
        .server_with("a", facts("public"), |spec| spec.cache_scope = CacheScopeRule::Private)
        .start()
        .await;
    let mine = world.call("a", "fact").await.unwrap();
    let hers = world.call_as(&ada(), "a", "fact").await.unwrap();
    assert_ne!(mine.text(), hers.text());
    for answer in [&mine, &hers, &world.call("a", "fact").await.unwrap()] {
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((&body["cacheScope"], answer.scope), (&"private".into(), CacheScopeHint::Private));
    }
    assert_eq!(world.server("a").count("fact"), 2);
}

/// A server whose list of tools is fresh for a minute.
fn lists(scope: &'static str) -> Script {
    Script::new().on("tools/list", move |asked| {
        let tool = format!(r#"{{"name":"t{}","inputSchema":{{"type":"object"}}}}"#, asked.nth);
        ScriptedReply::result(format!(r#"{{"tools":[{tool}],"ttlMs":60000{scope}}}"#))
    })
}

#[tokio::test(start_paused = true)]
async fn a_list_that_a_server_calls_private_is_shown_to_nobody_else() {
    let private = r#","cacheScope":"private""#;
    let table = [
        ("modern, private", lists(private).modern(), false),
        ("modern, silent", lists("").modern(), false),
        ("modern, public", lists(r#","cacheScope":"public""#).modern(), true),
        ("legacy, which can't say", lists(""), true),
    ];
    for (what, script, is_shared) in table {
        let world = TestHost::new().server("a", script).start().await;
        let names = async |caller: &Caller| {
            let offers = world.host.list(caller, &ostler_host::Scope::All, Kind::Tools, secs(1)).await;
            offers[0].items.iter().map(|item| item.item.name.to_string()).collect::<Vec<_>>()
        };
        let mine = names(&world.caller).await;
        assert_eq!(names(&world.caller).await, mine, "{what}: it is good for a minute");
        assert_eq!(names(&ada()).await == mine, is_shared, "{what}");
        let of_tools = world.host.tools(&ada(), "a").await.unwrap();
        assert_eq!(of_tools[0].tool.name == mine[0], is_shared, "{what}");
        world.advance(secs(600)).await;
        assert_eq!(world.state("a"), "idle", "{what}");
        let discovered = world.host.discover(&Caller::new("eve", "x")).await;
        let hers = &discovered[0].tools.as_ref().unwrap()[0].tool.name;
        let is_woken = world.server("a").connects() > 1;
        assert_eq!((*hers == mine[0], is_woken), (is_shared, !is_shared), "{what}: of a sleeping server");
    }
}

#[tokio::test(start_paused = true)]
async fn callers_who_wait_for_a_private_list_at_once_each_get_their_own() {
    let script = Script::new().modern().on("tools/list", |asked| {
        let tool = format!(r#"{{"name":"t{}","inputSchema":{{"type":"object"}}}}"#, asked.nth);
        ScriptedReply::result(format!(r#"{{"tools":[{tool}],"ttlMs":60000,"cacheScope":"private"}}"#))
            .after(secs(1))
    });
    let world = TestHost::new().server("a", script).start().await;
    let (me, ada) = (Caller::local(), ada());
    let (mine, again, hers) =
        tokio::join!(world.host.tools(&me, "a"), world.host.tools(&me, "a"), world.host.tools(&ada, "a"),);
    let name = |listed: &[ostler_host::ListedTool]| listed[0].tool.name.clone();
    let (mine, again, hers) = (mine.unwrap(), again.unwrap(), hers.unwrap());
    assert_eq!(name(&mine), name(&again));
    assert_ne!(name(&mine), name(&hers));
}

/// A modern server that lists `t1` to its first caller, `t2` to the next one, and so on.
fn private_lists(announces: bool) -> Script {
    let capabilities = if announces { r#"{"tools":{"listChanged":true}}"# } else { r#"{"tools":{}}"# };
    lists(r#","cacheScope":"private""#).modern().capabilities(capabilities).tool("t1").tool("t2")
}

#[tokio::test(start_paused = true)]
async fn callers_who_are_shown_different_lists_do_not_make_each_other_list_again() {
    let world = TestHost::new().server("a", private_lists(false)).start().await;
    let mut events = world.host.notifications();
    let name = async |caller: &Caller| world.host.tools(caller, "a").await.unwrap()[0].tool.name.clone();
    for _ in 0..5 {
        assert_eq!((name(&world.caller).await, name(&ada()).await), ("t1".into(), "t2".into()));
    }
    assert_eq!(world.server("a").count("tools/list"), 2);
    assert!(events.try_recv().is_err(), "nothing has changed for anybody");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_one_was_shown_can_be_called_whoever_listed_last() {
    for announces in [false, true] {
        let world = TestHost::new().server("a", private_lists(announces)).start().await;
        world.host.tools(&world.caller, "a").await.unwrap();
        world.host.tools(&ada(), "a").await.unwrap();
        world.call("a", "t1").await.unwrap();
        world.call_as(&ada(), "a", "t2").await.unwrap();
        assert_eq!(world.call("a", "t2").await.unwrap_err().code(), "unknown-tool");
        assert_eq!(world.server("a").count("tools/list"), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_private_list_that_changes_is_told_of_once_and_asked_for_by_everybody() {
    let world = TestHost::new().server("a", private_lists(false)).start().await;
    let name = async |caller: &Caller| world.host.tools(caller, "a").await.unwrap()[0].tool.name.clone();
    name(&world.caller).await;
    world.advance(secs(30)).await;
    name(&ada()).await;
    let mut events = world.host.notifications();
    world.advance(secs(31)).await;
    assert_eq!(name(&world.caller).await, "t3", "its minute is over");
    assert!(matches!(events.try_recv().unwrap().notification, ServerNotification::ToolsChanged));
    assert_eq!((name(&ada()).await, name(&world.caller).await), ("t4".into(), "t3".into()));
    assert!(events.try_recv().is_err(), "everybody has been told");
}

#[tokio::test(start_paused = true)]
async fn every_miss_is_counted_also_before_anything_is_remembered() {
    let world = TestHost::new().server("a", facts("public")).start().await;
    let counts = || {
        let cache = world.host.status_of("a").unwrap().cache;
        (cache.hits, cache.misses)
    };
    world.call("a", "echo").await.unwrap();
    assert_eq!(counts(), (0, 1));
    world.call("a", "fact").await.unwrap();
    assert_eq!(counts(), (0, 2));
    world.call("a", "fact").await.unwrap();
    world.call("a", "echo").await.unwrap();
    assert_eq!(counts(), (1, 3));
    assert_eq!(world.host.cache_stats().misses, 3);
}

#[tokio::test(start_paused = true)]
async fn of_a_removed_server_no_counts_are_kept() {
    let mut world = TestHost::new().server("a", facts("public")).start().await;
    for _ in 0..2 {
        world.call("a", "fact").await.unwrap();
    }
    assert_eq!(world.status("a").cache.hits, 1);
    world.host.remove("a").await.unwrap();
    world.spawn(TestHost::spec("a").lazy(), facts("public")).await.unwrap();
    assert_eq!(world.status("a").cache.hits, 0);
    assert_eq!(world.status("a").cache.misses, 0);
}
