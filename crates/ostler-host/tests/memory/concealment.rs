//! Concealment: a hidden item looks like a missing one to the caller.

use ostler_core::error::CallError;
use ostler_core::policy::ToolFilter;
use ostler_host::{Caller, Kind, Verdict};
use ostler_testkit::{Script, TestHost};

fn deny() -> Verdict {
    Verdict::Deny { reason: "the rules say so".into() }
}

fn same(hidden: &CallError, unknown: &CallError) {
    assert_eq!(hidden, unknown);
    assert_eq!(hidden.render(), unknown.render());
    assert_eq!((hidden.to_string(), hidden.data()), (unknown.to_string(), unknown.data()));
    assert_eq!((hidden.rpc_code(), hidden.exit_code()), (unknown.rpc_code(), unknown.exit_code()));
}

#[tokio::test(start_paused = true)]
async fn a_hidden_server_is_an_unknown_one_for_everything_a_caller_can_do() {
    let hidden = TestHost::new().server("a", Script::echo()).server("secret", Script::echo()).start().await;
    hidden.host.set_policy_hook(Some(Box::new(|_, server, _| match server {
        "secret" => deny(),
        _ => Verdict::Allow,
    })));
    let plain = TestHost::new().server("a", Script::echo()).start().await;
    for name in ["secret", "secre"] {
        let (here, there) = (&hidden.host, &plain.host);
        let me = Caller::local();
        same(&hidden.call(name, "echo").await.unwrap_err(), &plain.call(name, "echo").await.unwrap_err());
        same(&here.tools(&me, name).await.unwrap_err(), &there.tools(&me, name).await.unwrap_err());
        same(&here.bind(&me, name).await.unwrap_err(), &there.bind(&me, name).await.unwrap_err());
    }
    let found = hidden.host.discover(&hidden.caller).await;
    assert_eq!(found.iter().map(|found| found.server.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(hidden.server("secret").connects(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hidden_tool_is_an_unknown_one_whoever_hides_it() {
    let plain = TestHost::new().server("a", Script::echo()).start().await;
    let by_hook = TestHost::new().server("a", Script::echo().tool("erase")).start().await;
    by_hook.host.set_policy_hook(Some(Box::new(|_, _, tool| match tool {
        Some("erase") => deny(),
        _ => Verdict::Allow,
    })));
    let filter = || ToolFilter { deny: vec!["erase".into()], ..ToolFilter::everything() };
    let with_secret = Script::echo().tool("erase");
    let by_filter = TestHost::new().server_with("a", with_secret, |spec| spec.tools = filter()).start().await;
    for world in [&by_hook, &by_filter] {
        for tool in ["erase", "eras", "ehco"] {
            world.call("a", "echo").await.unwrap();
            plain.call("a", "echo").await.unwrap();
            same(&world.call("a", tool).await.unwrap_err(), &plain.call("a", tool).await.unwrap_err());
        }
        let listed = world.host.tools(&world.caller, "a").await.unwrap();
        assert_eq!(listed.iter().map(|listed| listed.tool.name.as_str()).collect::<Vec<_>>(), ["echo"]);
        assert_eq!(world.server("a").count("erase"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn rules_are_asked_per_caller() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    world.host.set_policy_hook(Some(Box::new(|caller, _, _| match caller.principal() {
        "mallory" => deny(),
        _ => Verdict::Allow,
    })));
    world.call("a", "echo").await.unwrap();
    let mallory = Caller::new("mallory", "guest");
    assert_eq!(world.call_as(&mallory, "a", "echo").await.unwrap_err().code(), "unknown-server");
    assert!(world.host.discover(&mallory).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hook_is_asked_about_every_form_of_a_uri() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    world.host.set_policy_hook(Some(Box::new(|_, _, subject| match subject {
        Some(subject) if !subject.starts_with("resource:file:///tmp/") => deny(),
        _ => Verdict::Allow,
    })));
    let may = |uri| world.host.may_use(&world.caller, "a", Kind::Resources, uri);
    assert!(may("file:///tmp/x") && may("file:///tmp/./x"));
    for uri in ["file:///tmp/../etc/passwd", "file:///tmp/x?/../../etc", "file:///tmp/.\t./etc"] {
        assert!(!may(uri), "{uri:?}");
    }
}
