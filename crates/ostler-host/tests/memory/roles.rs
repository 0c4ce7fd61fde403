//! Rules of roles: the same policy for lists, calls, notifications and events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ostler_core::config::Role;
use ostler_core::error::CallError;
use ostler_core::policy::{Decider, DecidingPattern, Subject};
use ostler_core::server_name::ServerName;
use ostler_host::upstream::ServerNotification;
use ostler_host::{Caller, HostNotification, Request, Rules, Verdict};
use ostler_testkit::{Reconfigure, Script, ScriptedReply, TestHost};
use ostler_wire::Params;
use serde_json::{Value, json};

fn rules(roles: &[(&str, &[&str], &[&str])]) -> Rules {
    let owned = |patterns: &[&str]| patterns.iter().map(|&pattern| pattern.to_owned()).collect();
    let role = |(name, allow, deny): &(&str, &[&str], &[&str])| {
        (
            (*name).to_owned(),
            Role { allow: owned(allow), deny: owned(deny), budget: None, max_in_flight: None },
        )
    };
    Rules::from_roles(&roles.iter().map(role).collect::<BTreeMap<_, _>>())
}

fn ann() -> Caller {
    Caller::new("ann", "r")
}

fn list(member: &str, name: &str, names: &[&str]) -> String {
    let items: Vec<Value> = names.iter().map(|item| json!({name: item, "name": item})).collect();
    json!({member: items}).to_string()
}

/// A server with two items of each kind, and a method of its own.
fn everything() -> Script {
    let prompts = list("prompts", "name", &["plan", "hush"]);
    let resources = list("resources", "uri", &["x://plan", "x://hush"]);
    let templates = list("resourceTemplates", "uriTemplate", &["t://plan/{id}", "t://hush/{id}"]);
    let known = |asked: &ostler_testkit::ReceivedRequest| match asked.name.as_deref() {
        Some("x://plan" | "x://hush") => ScriptedReply::result("{}"),
        _ => ScriptedReply::error(-32002, "I have no such thing"),
    };
    Script::new()
        .capabilities(r#"{"tools":{},"prompts":{},"resources":{"subscribe":true},"completions":{}}"#)
        .tool("plan")
        .tool("hush")
        .on("prompts/list", move |_| ScriptedReply::result(prompts.clone()))
        .on("resources/list", move |_| ScriptedReply::result(resources.clone()))
        .on("resources/templates/list", move |_| ScriptedReply::result(templates.clone()))
        .on("prompts/get", |_| ScriptedReply::result("{}"))
        .on("resources/read", known)
        .on("resources/subscribe", |_| ScriptedReply::result("{}"))
        .on("completion/complete", |_| ScriptedReply::result(r#"{"completion":{"values":[]}}"#))
        .on("vendor/do", |_| ScriptedReply::result("{}"))
}

async fn world(roles: &[(&str, &[&str], &[&str])]) -> TestHost {
    let world = TestHost::new().server("a", everything()).server("b", everything()).start().await;
    world.host.set_rules(rules(roles)).await;
    world
}

async fn ask(world: &TestHost, caller: &Caller, method: &str, params: Value) -> Result<(), CallError> {
    let params = Params::parse(params.to_string().into()).unwrap();
    world.host.send_to("a", Request::new(caller, method, params)).await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn a_role_lists_and_calls_what_its_rules_allow() {
    let world = world(&[("r", &["a/plan", "b/*"], &["*/hush"])]).await;
    let found = world.host.discover(&ann()).await;
    let names = |at: usize| -> Vec<String> {
        found[at].tools.as_ref().unwrap().iter().map(|tool| tool.exposed_name.clone()).collect()
    };
    assert_eq!((names(0), names(1)), (vec!["a__plan".to_owned()], vec!["b__plan".to_owned()]));
    world.call_as(&ann(), "a", "plan").await.unwrap();
    assert_eq!(world.call_as(&ann(), "a", "hush").await.unwrap_err().code(), "unknown-tool");
    assert_eq!(world.call_as(&ann(), "b", "hush").await.unwrap_err().code(), "unknown-tool");
    world.call("b", "hush").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_role_that_nobody_wrote_down_sees_no_server() {
    let world = world(&[("other", &["*"], &[])]).await;
    assert!(world.host.servers(&ann()).is_empty());
    assert_eq!(world.call_as(&ann(), "a", "plan").await.unwrap_err().code(), "unknown-server");
    assert_eq!(world.host.servers(&Caller::operator()).len(), 2);
    assert_eq!(world.host.servers(&Caller::local()).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn local_callers_follow_a_rule_about_them_and_the_operator_none() {
    let world = world(&[("local", &["b/*"], &[])]).await;
    assert_eq!(world.call("a", "plan").await.unwrap_err().code(), "unknown-server");
    world.call_as(&Caller::operator(), "a", "plan").await.unwrap();
    world.host.set_policy_hook(Some(Box::new(|_, _, _| Verdict::Deny { reason: "no".into() })));
    let refused = world.call_as(&Caller::operator(), "a", "plan").await.unwrap_err();
    assert_eq!(refused.code(), "unknown-server", "the hook is asked about everybody");
}

#[tokio::test(start_paused = true)]
async fn methods_that_only_the_server_knows_are_denied_unless_allowed() {
    let world =
        world(&[("r", &["a/plan"], &[]), ("all", &["a/*"], &[]), ("odd", &["a/method:vendor/*"], &[])]).await;
    let refused = ask(&world, &ann(), "vendor/do", json!({})).await.unwrap_err();
    assert_eq!((refused.code(), refused.rpc_code()), ("unknown-method", -32601));
    assert_eq!(ask(&world, &ann(), "tasks/list", json!({})).await.unwrap_err().code(), "unknown-method");
    assert_eq!(world.server("a").count("vendor/do"), 0);
    for role in ["all", "odd", "local"] {
        ask(&world, &Caller::new("x", role), "vendor/do", json!({})).await.unwrap();
    }
    world.call("a", "plan").await.unwrap();
    for role in ["r", "all"] {
        let told = world.host.notify(&Caller::new("x", role), "a", "notifications/vendor", None);
        assert_eq!(told.is_ok(), role == "all");
    }
    world.host.notify(&ann(), "a", "notifications/roots/list_changed", None).unwrap();
    let heard = world.server("a").notifications();
    let vendor = heard.iter().filter(|line| line.contains("notifications/vendor")).count();
    let roots = heard.iter().filter(|line| line.contains("roots/list_changed")).count();
    assert_eq!((vendor, roots), (1, 0), "no caller's roots are those of a shared session: {heard:?}");
}

#[tokio::test(start_paused = true)]
async fn a_tool_can_not_be_named_into_a_rule_about_prompts() {
    let world = TestHost::new().server("a", Script::new().tool("prompt:x").tool("method:x")).start().await;
    world
        .host
        .set_rules(rules(&[("r", &["a/prompt:*", "a/method:*"], &[]), ("s", &["a/tool:*"], &[])]))
        .await;
    assert!(world.host.tools(&ann(), "a").await.unwrap().is_empty());
    assert_eq!(world.call_as(&ann(), "a", "prompt:x").await.unwrap_err().code(), "unknown-tool");
    world.call_as(&Caller::new("bob", "s"), "a", "prompt:x").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn other_rules_hold_at_once_and_clients_are_told() {
    let world = world(&[("r", &["*"], &[])]).await;
    world.call_as(&ann(), "a", "hush").await.unwrap();
    let (mut events, version) = (world.host.notifications(), world.host.lists_version());
    world.host.set_rules(rules(&[("r", &["*"], &[])])).await;
    assert_eq!(world.host.lists_version(), version, "the same rules are no change");
    world.host.set_rules(rules(&[("r", &["*"], &["a/hush"])])).await;
    assert_eq!(world.call_as(&ann(), "a", "hush").await.unwrap_err().code(), "unknown-tool");
    assert!(world.host.lists_version() > version);
    assert!(matches!(events.try_recv().unwrap().notification, ServerNotification::ToolsChanged));
    world.host.set_rules(rules(&[("r", &["*"], &[])])).await;
    world.call_as(&ann(), "a", "hush").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_the_rules_refuse_is_recorded_with_the_rule() {
    let world = world(&[("r", &["a/*"], &["*/hush", "a/method:*"])]).await;
    let records = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&records);
    world.host.set_recorder(Some(Arc::new(move |record| {
        book.lock().unwrap().push((record.outcome, record.denied_by.map(str::to_owned)));
    })));
    world.call_as(&ann(), "a", "hush").await.unwrap_err();
    world.call_as(&ann(), "b", "plan").await.unwrap_err();
    world.call_as(&Caller::new("x", "nobody"), "a", "plan").await.unwrap_err();
    world.host.subscribe(&Caller::new("x", "nobody"), "a", "x://plan").await.unwrap_err();
    ask(&world, &ann(), "vendor/do", json!({})).await.unwrap_err();
    world.call_as(&ann(), "a", "nonesuch").await.unwrap_err();
    let records = records.lock().unwrap();
    let shown: Vec<(&str, &str)> =
        records.iter().map(|(outcome, denied)| (*outcome, denied.as_deref().unwrap_or("-"))).collect();
    assert_eq!(
        shown,
        [
            ("unknown-tool", "role `r`: deny pattern `*/hush` matches"),
            ("unknown-server", "role `r`: no allow pattern matches"),
            ("unknown-server", "role `nobody`: the role is not in the config"),
            ("unknown-resource", "role `nobody`: the role is not in the config"),
            ("unknown-method", "role `r`: deny pattern `a/method:*` matches"),
            ("unknown-tool", "-"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_hidden_and_what_is_missing_are_refused_alike() {
    let world = world(&[("r", &["*"], &["*/hush", "*/prompt:hush", "*/resource:?://hush*"])]).await;
    let complete = |key: &str, name: String| json!({"ref": {"type": "ref", key: name}, "argument": {}});
    type ArgumentsFactory = Box<dyn Fn(&str) -> Value>;
    let table: [(&str, ArgumentsFactory); 5] = [
        ("tools/call", Box::new(|name| json!({"name": name}))),
        ("prompts/get", Box::new(|name| json!({"name": name}))),
        ("resources/read", Box::new(|name| json!({"uri": format!("x://{name}")}))),
        ("completion/complete", Box::new(move |name| complete("name", name.to_owned()))),
        ("completion/complete", Box::new(move |name| complete("uri", format!("t://{name}/{{id}}")))),
    ];
    for (method, params) in table {
        ask(&world, &ann(), method, params("plan")).await.unwrap();
        let before = world.server("a").count(method);
        let hidden = ask(&world, &ann(), method, params("hush")).await.unwrap_err();
        assert_eq!(world.server("a").count(method), before, "the server is not asked");
        let missing = ask(&world, &ann(), method, params("none")).await.unwrap_err();
        assert_eq!(hidden.render().replace("hush", "none"), missing.render(), "{method}");
        assert_eq!(hidden.data(), missing.data(), "{method}");
    }
    let subscribe = |uri: &'static str| {
        let world = &world;
        async move { world.host.subscribe(&ann(), "a", uri).await.map(drop) }
    };
    subscribe("x://plan").await.unwrap();
    subscribe("t://plan/7").await.unwrap();
    let (hidden, missing) =
        (subscribe("x://hush").await.unwrap_err(), subscribe("x://none").await.unwrap_err());
    assert_eq!(hidden.render().replace("hush", "none"), missing.render());
    let free = ask(&world, &world.caller, "resources/read", json!({"uri": "x://none"})).await.unwrap_err();
    assert_eq!(free.code(), "upstream-error", "whom nothing is hidden from reads the server's own words");
}

#[tokio::test(start_paused = true)]
async fn a_completion_needs_everything_that_it_names() {
    let world = world(&[("r", &["*"], &["*/prompt:hush"])]).await;
    for reference in [
        r#"{"name":"hush","uri":"t://plan/{id}"}"#,
        r#"{"name":"plan","name":"hush"}"#,
        r#"{"name":["hush"]}"#,
        r#"{"name":"plan","Name":"hush"}"#,
    ] {
        let params = Params::parse(format!(r#"{{"ref":{reference}}}"#).into()).unwrap();
        let caller = ann();
        let request = Request::new(&caller, "completion/complete", params);
        assert_eq!(world.host.send_to("a", request).await.unwrap_err().rpc_code(), -32602, "{reference}");
    }
    assert_eq!(world.server("a").count("completion/complete"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_resource_can_not_be_spelled_around_a_rule() {
    let world = world(&[("r", &["a/resource:x://plan*"], &["a/resource:x://plan/hush"])]).await;
    for uri in [
        "x://plan/../hush",
        "x://plan/%2e%2e/hush",
        "x://plan/./hush",
        "x://plan/%68ush",
        "x://plan/a/../hush",
    ] {
        let error = ask(&world, &ann(), "resources/read", json!({"uri": uri})).await.unwrap_err();
        assert_eq!(error.code(), "unknown-resource", "{uri}");
    }
    // A server might read unreadable parameters as something that the rules forbid.
    for raw in [r#"{"uri":"x://hush\ud800"}"#, r#"{"uri":["x://hush"]}"#, "{}"] {
        let params = Params::parse(raw.into()).unwrap();
        let caller = ann();
        let error =
            world.host.send_to("a", Request::new(&caller, "resources/read", params)).await.unwrap_err();
        assert_eq!(error.rpc_code(), -32602, "{raw}");
    }
    assert_eq!(world.server("a").count("resources/read"), 0);
    ask(&world, &ann(), "resources/read", json!({"uri": "x://plan"})).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nobody_hears_of_what_it_may_not_use() {
    let world = world(&[("r", &["a/plan", "a/resource:x://plan"], &[])]).await;
    let event = |server: &str, event: ServerNotification| HostNotification {
        server: ServerName::new(server).unwrap(),
        partition: "".into(),
        notification: event,
    };
    let updated = |uri: &str| ServerNotification::ResourceUpdated(json!({"uri": uri}).to_string().into());
    let hears = |event: &HostNotification| world.host.may_receive(&ann(), event);
    assert!(hears(&event("a", updated("x://plan"))) && !hears(&event("a", updated("x://hush"))));
    assert!(
        hears(&event("a", ServerNotification::ToolsChanged))
            && !hears(&event("b", ServerNotification::ToolsChanged))
    );
    world.host.remove("b").await.unwrap();
    assert!(!hears(&event("b", ServerNotification::ToolsChanged)), "nor that it is gone");
    assert!(world.host.may_receive(&world.caller, &event("b", ServerNotification::ToolsChanged)));
}

#[tokio::test(start_paused = true)]
async fn the_host_explains_what_decides() {
    let world = world(&[("r", &["a/*"], &["*/hush"])]).await;
    let explain = |caller: &Caller, server: &str, name: &str| {
        let explanation = world.host.explain(caller, server, Some(Subject::Tool(name)));
        (explanation.is_allowed, explanation.decider)
    };
    assert_eq!(explain(&ann(), "a", "plan"), (true, Decider::Role(DecidingPattern::Allow("a/*".into()))));
    assert_eq!(explain(&ann(), "a", "hush"), (false, Decider::Role(DecidingPattern::Deny("*/hush".into()))));
    assert_eq!(explain(&ann(), "c", "plan"), (false, Decider::UnknownServer));
    assert_eq!(explain(&Caller::operator(), "a", "hush"), (true, Decider::Operator));
    world.host.set_policy_hook(Some(Box::new(|_, _, _| Verdict::Deny { reason: "closed".into() })));
    assert_eq!(explain(&ann(), "a", "plan"), (false, Decider::Hook { reason: "closed".into() }));
}
