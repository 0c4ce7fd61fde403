//! The four kinds of lists, by one server and by all.

use ostler_host::{CallArguments, Caller, HostOptions, Kind, Request, Scope, ServerListing, Verdict};
use ostler_testkit::{Script, ScriptedReply, TestHost, run_until_stalled};
use ostler_wire::Params;
use serde_json::{Value, json};

use crate::secs;

const ALL: &str =
    r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}"#;

fn list(member: &str, items: &[Value], next: Option<&str>) -> ScriptedReply {
    ScriptedReply::result(json!({member: items, "nextCursor": next}).to_string())
}

/// A server with two pages and a malformed item in each of its lists.
fn librarian() -> Script {
    let mut script = Script::echo().capabilities(ALL);
    for kind in [Kind::Prompts, Kind::Resources, Kind::Templates] {
        script = script.on(kind.method(), move |asked| {
            let item = |name: &str| json!({kind.name_member(): name, "x-order": [2, 1]});
            match asked.cursor.as_deref() {
                None => list(kind.member(), &[item("a"), json!({"x": 1})], Some("2")),
                Some(_) => list(kind.member(), &[item("b"), json!(7), item("a")], None),
            }
        });
    }
    script
}

fn names(offer: &ServerListing) -> Vec<&str> {
    offer.items.iter().map(|item| &*item.item.name).collect()
}

async fn listing(world: &TestHost, server: &str, kind: Kind) -> ServerListing {
    ostler_testkit::list_one(&world.host, &world.caller, server, kind, secs(10)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_list_is_read_to_its_end_and_a_bad_item_is_left_out_alone() {
    let world = TestHost::new().server("a", librarian()).start().await;
    for kind in [Kind::Prompts, Kind::Resources, Kind::Templates] {
        let offer = listing(&world, "a", kind).await;
        assert_eq!(names(&offer), ["a", "b"], "{kind:?}");
        assert_eq!(
            offer.items[0].item.definition,
            json!({kind.name_member(): "a", "x-order": [2, 1]}).to_string()
        );
        assert!(offer.error.is_none());
    }
    assert_eq!(names(&listing(&world, "a", Kind::Tools).await), ["echo"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_a_server_does_not_have_is_empty() {
    // The server declares prompts and then answers that it has no such method.
    let script = Script::echo().capabilities(r#"{"tools":{},"prompts":{}}"#);
    let world = TestHost::new().server("a", script).start().await;
    world.call("a", "echo").await.unwrap();
    for kind in [Kind::Prompts, Kind::Resources, Kind::Templates] {
        assert!(names(&listing(&world, "a", kind).await).is_empty(), "{kind:?}");
    }
    assert_eq!(world.server("a").count("prompts/list"), 1);
    assert_eq!(world.server("a").count("resources/list"), 0, "it does not declare any");
    assert_eq!(world.server("a").count("resources/templates/list"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_leaves_the_last_known_one_with_the_error_beside_it() {
    let script = Script::echo().without_list_changed().on("tools/list", |asked| match asked.nth {
        1 => list("tools", &[json!({"name": "echo"})], None),
        _ => ScriptedReply::error(-32000, "not now"),
    });
    let world = TestHost::new().server("a", script).start().await;
    assert!(listing(&world, "a", Kind::Tools).await.error.is_none());
    let again = listing(&world, "a", Kind::Tools).await;
    assert_eq!((names(&again), again.error.as_ref().unwrap().code()), (vec!["echo"], "upstream-error"));
    assert_eq!(
        ostler_testkit::list_one(&world.host, &world.caller, "b", Kind::Tools, secs(1))
            .await
            .unwrap_err()
            .code(),
        "unknown-server"
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_list_is_waited_for_with_patience_and_less_so_where_one_is_known() {
    let script = Script::new().without_list_changed().on("tools/list", |asked| {
        list("tools", &[json!({"name": format!("t{}", asked.nth)})], None).after(secs(5))
    });
    let world = TestHost::new().server_with("a", script, |spec| spec.lazy = false).start().await;
    let mut events = world.host.notifications();
    let version = world.host.lists_version();
    let began = tokio::time::Instant::now();
    let offers = world.host.list(&world.caller, &ostler_host::Scope::All, Kind::Tools, secs(3)).await;
    assert_eq!(began.elapsed(), secs(3));
    assert_eq!(offers[0].error.as_ref().unwrap().code(), "timed-out");
    assert!(offers[0].items.is_empty());
    assert_eq!(world.host.lists_version(), version);

    world.advance(secs(3)).await;
    assert!(world.host.lists_version() > version, "the asking went on");
    let request = Request::tool_call(&world.caller, "a__t1", CallArguments::none()).unwrap();
    assert!(world.host.resolve(&Scope::All, request).await.is_ok());
    assert_eq!(world.server("a").count("tools/list"), 1);
    let told = events.try_recv().unwrap();
    assert_eq!(
        told.notification,
        ostler_host::upstream::ServerNotification::ToolsChanged,
        "who was answered without it hears of it"
    );

    let began = tokio::time::Instant::now();
    let offers = world.host.list(&world.caller, &ostler_host::Scope::All, Kind::Tools, secs(30)).await;
    assert_eq!(began.elapsed(), secs(2));
    assert_eq!((names(&offers[0]), offers[0].error.is_some()), (vec!["t1"], true));
}

#[tokio::test(start_paused = true)]
async fn all_servers_are_asked_at_once_and_a_sick_one_is_told_of_in_its_place() {
    let slow =
        || Script::new().on("tools/list", |_| list("tools", &[json!({"name": "t"})], None).after(secs(2)));
    let world = TestHost::new()
        .server("c", slow())
        .server("a", slow())
        .server_with("b", Script::echo().failing_starts(|_| true), |spec| spec.restart.max = 0)
        .start()
        .await;
    let began = tokio::time::Instant::now();
    let offers = world.host.list(&world.caller, &ostler_host::Scope::All, Kind::Tools, secs(10)).await;
    assert_eq!(began.elapsed(), secs(2));
    let told: Vec<_> = offers.iter().map(|offer| (offer.server.as_str(), offer.error.is_none())).collect();
    assert_eq!(told, [("a", true), ("b", false), ("c", true)]);
}

#[tokio::test(start_paused = true)]
async fn no_list_waits_for_a_server_whose_last_start_failed() {
    let sick = Script::echo().start_after(secs(3)).failing_starts(|nth| nth <= 3);
    let world = TestHost::new().server("sick", sick).server("well", Script::echo()).start().await;
    let mut events = world.host.notifications();
    let first = world.host.list(&world.caller, &ostler_host::Scope::All, Kind::Tools, secs(10)).await;
    assert_eq!(first[0].error.as_ref().unwrap().code(), "server-unavailable");
    let mut lists = 0;
    loop {
        let began = tokio::time::Instant::now();
        let offers = world.host.list(&world.caller, &ostler_host::Scope::All, Kind::Tools, secs(10)).await;
        // A zero timer takes up to its granularity.
        assert!(began.elapsed() < std::time::Duration::from_millis(5), "list {lists}: {:?}", began.elapsed());
        assert_eq!(names(&offers[1]), ["echo"]);
        match &offers[0].error {
            Some(error) => assert!(error.to_string().contains("the script says so"), "{error}"),
            None => break,
        }
        lists += 1;
        assert!(lists < 200, "it comes up at its fourth start");
        world.advance(std::time::Duration::from_millis(250)).await;
    }
    assert!(lists > 20, "its starts were under way for seconds");
    assert_eq!(world.server("sick").connects(), 4);
    let mut told = std::iter::from_fn(|| events.try_recv().ok());
    let is_told = told.any(|told| {
        told.server.as_str() == "sick"
            && told.notification == ostler_host::upstream::ServerNotification::ToolsChanged
    });
    assert!(is_told, "clients that were answered without it hear of it");
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_server_is_not_woken_for_a_list_that_is_known() {
    let world = TestHost::new().server("a", librarian()).start().await;
    world.host.list(&world.caller, &ostler_host::Scope::All, Kind::Prompts, secs(10)).await;
    world.advance(secs(300)).await;
    assert_eq!(world.state("a"), "idle");
    let offers = world.host.list(&world.caller, &ostler_host::Scope::All, Kind::Prompts, secs(10)).await;
    assert_eq!(names(&offers[0]), ["a", "b"]);
    assert_eq!((world.state("a"), world.server("a").connects()), ("idle", 1));
}

#[tokio::test(start_paused = true)]
async fn what_an_offer_is_good_for_is_what_its_server_says() {
    let public = |_: &_| ScriptedReply::result(r#"{"tools":[],"ttlMs":5000,"cacheScope":"public"}"#);
    let world = TestHost::new()
        .server("a", Script::new().without_list_changed().on("tools/list", public))
        .start()
        .await;
    listing(&world, "a", Kind::Tools).await;
    world.advance(secs(2)).await;
    let offer = listing(&world, "a", Kind::Tools).await;
    assert_eq!((offer.ttl, offer.is_public), (secs(3), true));
}

#[tokio::test(start_paused = true)]
async fn what_the_rules_hide_is_in_no_list_and_can_not_be_used() {
    let script = librarian()
        .on("prompts/get", |_| ScriptedReply::result("{}"))
        .on("resources/read", |_| ScriptedReply::result("{}"));
    let world = TestHost::new().server("s", script).start().await;
    world.host.set_policy_hook(Some(Box::new(|_, _, what| match what {
        Some("prompt:b" | "resource:b") => Verdict::Deny { reason: "a test says so".into() },
        _ => Verdict::Allow,
    })));
    for kind in [Kind::Prompts, Kind::Resources, Kind::Templates] {
        assert_eq!(names(&listing(&world, "s", kind).await), ["a"], "{kind:?}");
        assert!(
            world.host.may_use(&world.caller, "s", kind, "a")
                && !world.host.may_use(&world.caller, "s", kind, "b")
        );
    }
    let prompt = |name: &str| Params::prompt_get(name, None).unwrap();
    let complete = |reference: Value| Params::parse(json!({"ref": reference}).to_string().into()).unwrap();
    let requests = [
        ("prompts/get", prompt("b"), "unknown-prompt"),
        ("resources/read", Params::resource_read("b"), "unknown-resource"),
        ("completion/complete", complete(json!({"type": "ref/prompt", "name": "b"})), "unknown-prompt"),
        ("completion/complete", complete(json!({"type": "ref/resource", "uri": "b"})), "unknown-resource"),
    ];
    for (method, params, code) in requests {
        let error = world.host.send_to("s", Request::new(&world.caller, method, params)).await.unwrap_err();
        assert_eq!((error.code(), error.rpc_code()), (code, -32602));
        assert_eq!(world.server("s").count(method), 0, "{method}");
    }
    world.host.send_to("s", Request::new(&world.caller, "prompts/get", prompt("a"))).await.unwrap();
    world
        .host
        .send_to("s", Request::new(&world.caller, "resources/read", Params::resource_read("a")))
        .await
        .unwrap();
    let refused = world.host.subscribe(&world.caller, "s", "b").await.unwrap_err();
    assert_eq!(refused.code(), "unknown-resource");
}

#[tokio::test(start_paused = true)]
async fn lists_of_every_kind_are_kept_for_the_next_run() {
    let state = tempfile::tempdir().unwrap();
    let keep = |options: &mut HostOptions| options.state_dir = Some(state.path().to_owned());
    let world = TestHost::new().options(keep).server("a", librarian()).start().await;
    for kind in Kind::ALL {
        world.host.list(&world.caller, &ostler_host::Scope::All, kind, secs(10)).await;
    }
    let file = state.path().join("lists/a.json");
    while !std::fs::read_to_string(&file).is_ok_and(|text| text.contains("resourceTemplates")) {
        tokio::task::yield_now().await;
    }
    drop(world);

    let world = TestHost::new().options(keep).server("a", librarian()).start().await;
    for kind in Kind::ALL {
        let offers = world.host.list(&world.caller, &ostler_host::Scope::All, kind, secs(10)).await;
        assert_eq!(offers[0].items.len(), if kind == Kind::Tools { 1 } else { 2 });
    }
    assert_eq!(world.server("a").connects(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_server_says_of_itself_is_known_after_its_session_has_ended() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    assert!(world.host.known_server_info(&world.caller, "a").is_none());
    assert_eq!(world.server("a").connects(), 0);
    assert_eq!(world.host.server_info(&world.caller, "a").await.unwrap().version, "2025-11-25");
    world.advance(secs(400)).await;
    assert_eq!(world.state("a"), "idle");
    assert!(world.host.known_server_info(&world.caller, "a").is_some());
    assert_eq!(world.host.servers(&world.caller).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_server_wants_to_know_is_asked_for_each_client_by_itself() {
    let wants_input = r#"{"resultType":"input_required","requestState":"s"}"#;
    let script =
        Script::new().on("resources/read", move |_| ScriptedReply::result(wants_input).after(secs(1)));
    let world = TestHost::new().server("a", script.capabilities(ALL)).start().await;
    let read = || {
        let (host, me) = (world.host.clone(), Caller::local());
        tokio::spawn(async move {
            let params = Params::resource_read("u");
            host.send_to("a", Request::new(&me, "resources/read", params).from_modern_client()).await
        })
    };
    let (first, second) = (read(), read());
    run_until_stalled().await;
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    let asked = world.server("a").requests_for("resources/read");
    let for_clients = asked.iter().filter(|asked| asked.is_for_client).count();
    assert_eq!((asked.len(), for_clients), (3, 2), "once together, then each for itself");
}
