//! List changes: listeners are notified, with and without a notification of the server.

use ostler_core::config::Role;
use ostler_host::upstream::ServerNotification;
use ostler_host::{CallArguments, Caller, HostNotification, LogLevel, Request, Rules, Scope};
use ostler_testkit::{Reconfigure, Script, ScriptedReply, TestHost, run_until_stalled};
use ostler_wire::Params;
use serde_json::json;
use tokio::sync::broadcast::Receiver;

use crate::secs;

fn received(events: &mut Receiver<HostNotification>) -> Vec<ServerNotification> {
    std::iter::from_fn(|| events.try_recv().ok()).map(|told| told.notification).collect()
}

/// A server whose list differs in every session.
fn changing_per_session(script: Script) -> Script {
    script.on("tools/list", |asked| {
        ScriptedReply::result(json!({"tools": [{"name": format!("t{}", asked.generation)}]}).to_string())
    })
}

#[tokio::test(start_paused = true)]
async fn an_announced_change_is_told_once() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    world.host.tools(&world.caller, "a").await.unwrap();
    let mut events = world.host.notifications();
    world.server("a").emit(ServerNotification::ToolsChanged);
    world.server("a").emit(ServerNotification::Log("{}".into()));
    assert_eq!(
        received(&mut events),
        [ServerNotification::ToolsChanged, ServerNotification::Log("{}".into())]
    );
    world.host.tools(&world.caller, "a").await.unwrap();
    assert!(received(&mut events).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_differs_after_a_restart_is_told_of() {
    for script in [Script::new(), Script::new().modern()] {
        let world = TestHost::new()
            .server_with("a", changing_per_session(script), |spec| spec.lazy = false)
            .start()
            .await;
        world.host.tools(&world.caller, "a").await.unwrap();
        let mut events = world.host.notifications();
        let version = world.host.lists_version();
        world.crash("a");
        world.advance(secs(1)).await;
        assert_eq!(received(&mut events), [ServerNotification::ToolsChanged]);
        assert!(world.host.lists_version() > version);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_the_same_after_a_restart_is_not_told_of() {
    let world = TestHost::new().server_with("a", Script::echo(), |spec| spec.lazy = false).start().await;
    world.host.tools(&world.caller, "a").await.unwrap();
    let mut events = world.host.notifications();
    let version = world.host.lists_version();
    world.crash("a");
    world.advance(secs(1)).await;
    assert_eq!(world.server("a").count("tools/list"), 2, "it was looked at again");
    assert!(received(&mut events).is_empty());
    assert_eq!(world.host.lists_version(), version);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_again_where_nobody_listens() {
    let world = TestHost::new().server_with("a", Script::echo(), |spec| spec.lazy = false).start().await;
    world.host.tools(&world.caller, "a").await.unwrap();
    world.crash("a");
    world.advance(secs(1)).await;
    assert_eq!(world.server("a").count("tools/list"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unannounced_change_is_told_when_it_is_found() {
    let script = Script::new().without_list_changed().on("tools/list", |asked| {
        ScriptedReply::result(
            json!({"tools": [{"name": if asked.nth < 3 { "old" } else { "new" }}]}).to_string(),
        )
    });
    let world = TestHost::new().server("a", script).start().await;
    let mut events = world.host.notifications();
    for _ in 0..2 {
        world.host.tools(&world.caller, "a").await.unwrap();
    }
    assert!(received(&mut events).is_empty(), "the first list is news to nobody who has asked for it");
    world.host.tools(&world.caller, "a").await.unwrap();
    assert_eq!(received(&mut events), [ServerNotification::ToolsChanged]);
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_that_is_not_listened_to_is_asked_again() {
    let world = TestHost::new().server("a", Script::echo().modern()).start().await;
    for _ in 0..2 {
        world.host.tools(&world.caller, "a").await.unwrap();
    }
    assert_eq!(world.server("a").count("tools/list"), 2, "its capability alone promises nothing");
    assert_eq!(world.server("a").listen_requests(), [Vec::<String>::new()]);
}

#[tokio::test(start_paused = true)]
async fn the_version_of_lists_rises_when_servers_come_and_go() {
    let mut world = TestHost::new().start().await;
    let before = world.host.lists_version();
    world.spawn(TestHost::spec("a").lazy(), Script::echo()).await.unwrap();
    let with_server = world.host.lists_version();
    world.host.remove("a").await.unwrap();
    assert!(before < with_server && with_server < world.host.lists_version());
}

#[tokio::test(start_paused = true)]
async fn another_policy_hook_is_told_of_as_a_change_of_all_lists() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    let mut events = world.host.notifications();
    let hook = |_: &Caller, _: &str, _: Option<&str>| ostler_host::Verdict::Allow;
    let lists = [
        ServerNotification::ToolsChanged,
        ServerNotification::PromptsChanged,
        ServerNotification::ResourcesChanged,
    ];
    for hook in [Some(Box::new(hook) as _), None] {
        let version = world.host.lists_version();
        world.host.set_policy_hook(hook);
        assert_eq!(received(&mut events), lists);
        assert!(world.host.lists_version() > version);
    }
    world.host.set_policy_hook(None);
    assert!(received(&mut events).is_empty(), "there was no hook before either");
}

#[tokio::test(start_paused = true)]
async fn what_a_callers_own_session_says_is_told_to_nobody_else() {
    use ostler_core::spec::Isolation;
    let own = |spec: &mut ostler_host::ServerSpec| spec.isolation = Isolation::Caller;
    let world =
        TestHost::new().server_with("own", Script::echo(), own).server("all", Script::echo()).start().await;
    let (ann, bob) = (Caller::new("ann", "r"), Caller::new("bob", "r"));
    for server in ["own", "all"] {
        world.call_as(&ann, server, "echo").await.unwrap();
    }
    let mut events = world.host.notifications();
    world.server("own").emit(ServerNotification::Log("{}".into()));
    world.server("all").emit(ServerNotification::Log("{}".into()));
    let (own, all) = (events.try_recv().unwrap(), events.try_recv().unwrap());
    assert!(world.host.may_receive(&ann, &own) && !world.host.may_receive(&bob, &own));
    assert!(world.host.may_receive(&ann, &all) && world.host.may_receive(&bob, &all));
    world
        .host
        .set_policy_hook(Some(Box::new(|_, _, _| ostler_host::Verdict::Deny { reason: String::new() })));
    assert!(!world.host.may_receive(&ann, &all));
}

#[tokio::test(start_paused = true)]
async fn what_is_known_of_an_isolated_server_is_known_over_all_its_sessions() {
    use ostler_core::spec::Isolation;
    let own = |spec: &mut ostler_host::ServerSpec| spec.isolation = Isolation::Caller;
    let script = Script::new().on("tools/list", |asked| {
        ScriptedReply::result(
            json!({"tools": [{"name": "shared"}, {"name": format!("n{}", asked.nth)}]}).to_string(),
        )
    });
    let world = TestHost::new().server_with("a", script, own).start().await;
    for caller in [Caller::new("ann", "r"), Caller::new("bob", "r")] {
        world.host.tools(&caller, "a").await.unwrap();
    }
    let ann = Caller::new("ann", "r");
    for tool in ["a__n1", "a__n2", "a__shared"] {
        let request = Request::tool_call(&ann, tool, CallArguments::none()).unwrap();
        assert!(world.host.resolve(&Scope::All, request).await.is_ok(), "{tool}");
    }
    assert_eq!(world.server("a").count("tools/list"), 2, "no list was asked for again");
}

#[tokio::test(start_paused = true)]
async fn the_most_verbose_log_level_counts_in_every_session() {
    let logging = |script: Script| script.capabilities(r#"{"tools":{},"logging":{}}"#);
    let levels = |world: &TestHost, server: &str| -> Vec<String> {
        world.server(server).requests_for("logging/setLevel").into_iter().map(|asked| asked.params).collect()
    };
    let script = || logging(Script::echo().on("logging/setLevel", |_| ScriptedReply::result("{}")));
    let world = TestHost::new()
        .server("a", script())
        .server("modern", script().modern())
        .server("mute", Script::echo())
        .start()
        .await;
    for server in ["a", "modern", "mute"] {
        world.call(server, "echo").await.unwrap();
        for level in [LogLevel::Warning, LogLevel::Error, LogLevel::Debug] {
            world.host.request_log_level(&world.caller, server, level);
            run_until_stalled().await;
        }
    }
    assert_eq!(levels(&world, "a"), [r#"{"level":"info"}"#, r#"{"level":"debug"}"#]);
    world.crash("a");
    world.call("a", "echo").await.unwrap();
    run_until_stalled().await;
    assert_eq!(levels(&world, "a")[2..], [r#"{"level":"debug"}"#]);
    assert!(levels(&world, "modern").is_empty() && levels(&world, "mute").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_log_line_of_no_call_is_for_callers_without_restrictions_at_its_server() {
    use ostler_core::spec::Isolation;
    let own = |spec: &mut ostler_host::ServerSpec| spec.isolation = Isolation::Caller;
    let world =
        TestHost::new().server_with("own", Script::echo(), own).server("all", Script::echo()).start().await;
    let role = |allow: &str| {
        let allow = vec![allow.to_owned(), "own/echo".to_owned()];
        Role { allow, deny: Vec::new(), budget: None, max_in_flight: None }
    };
    let roles = [("free".to_owned(), role("all/*")), ("few".to_owned(), role("all/echo"))];
    world.host.set_rules(Rules::from_roles(&roles.into())).await;
    let (free, few) = (Caller::new("ann", "free"), Caller::new("bob", "few"));
    for server in ["own", "all"] {
        world.call_as(&few, server, "echo").await.unwrap();
    }
    let mut events = world.host.notifications();
    world.server("own").emit(ServerNotification::Log("{}".into()));
    world.server("all").emit(ServerNotification::Log("{}".into()));
    let (own, all) = (events.try_recv().unwrap(), events.try_recv().unwrap());
    assert!(world.host.may_receive(&free, &all) && !world.host.may_receive(&few, &all));
    assert!(world.host.may_receive(&few, &own), "a session of its own tells of nobody else");
}

#[tokio::test(start_paused = true)]
async fn what_changes_a_session_for_all_of_its_callers_is_no_request() {
    let answer = |script: Script, method: &'static str| script.on(method, |_| ScriptedReply::result("{}"));
    let methods = [
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "subscriptions/listen",
        "initialize",
    ];
    let world = TestHost::new().server("a", methods.into_iter().fold(Script::echo(), answer)).start().await;
    for method in methods {
        let params = Params::parse(r#"{"level":"debug","uri":"a:1"}"#.into()).unwrap();
        let request = Request::new(&world.caller, method, params);
        let error = world.host.send_to("a", request).await.unwrap_err();
        assert_eq!(error.code(), "unknown-method", "{method}");
        assert!(world.server("a").requests_for(method).is_empty(), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_live_session_of_a_caller_is_told_what_it_has_to_say() {
    let own = |spec: &mut ostler_host::ServerSpec| spec.isolation = ostler_core::spec::Isolation::Caller;
    let world = TestHost::new().server_with("a", Script::echo(), own).start().await;
    world.host.notify(&world.caller, "a", "notifications/roots/list_changed", None).unwrap();
    world.call("a", "echo").await.unwrap();
    assert!(world.server("a").notifications().is_empty(), "nothing is started to be told");
    world.host.notify(&world.caller, "a", "notifications/roots/list_changed", None).unwrap();
    assert_eq!(world.server("a").notifications(), ["notifications/roots/list_changed"]);
}
