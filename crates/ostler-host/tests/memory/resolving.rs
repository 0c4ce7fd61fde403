//! One list, one resolution: a caller can use exactly the items that it is shown, and policy is asked once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ostler_core::config::Role;
use ostler_host::{CallArguments, Caller, Kind, Request, Rules, Scope, ServerName, Verdict};
use ostler_testkit::{ReceivedRequest, Reconfigure, Script, ScriptedReply, TestHost};
use ostler_wire::Params;
use proptest::prelude::*;
use serde_json::json;
use tracing::span;

use crate::secs;

const SERVERS: [&str; 3] = ["a", "b", "c"];
const ITEMS: [&str; 3] = ["x", "y", "z"];
const KINDS: [Kind; 3] = [Kind::Tools, Kind::Prompts, Kind::Resources];

/// Rules that random configs are made of; `#` stands for a server and `$` for an item.
const PATTERNS: [&str; 8] =
    ["*", "#/*", "#/$", "*/$", "#/prompt:$", "*/prompt:*", "#/resource:t://$", "*/resource:*"];

fn script() -> Script {
    let seen = |asked: &ReceivedRequest| {
        let list = |key: &str, begin: &str| {
            let names = ITEMS.map(|item| format!("{begin}{item}"));
            json!(names.map(|name| json!({key: name, "name": name})))
        };
        let (member, list) = match asked.method.as_str() {
            "prompts/list" => ("prompts", list("name", "")),
            "resources/list" => ("resources", list("uri", "t://")),
            "resources/templates/list" => ("resourceTemplates", json!([])),
            _ => ("content", json!([])),
        };
        ScriptedReply::result(json!({member: list}).to_string())
    };
    let capabilities = r#"{"tools":{},"prompts":{},"resources":{}}"#;
    let script =
        ITEMS.iter().fold(Script::new().capabilities(capabilities), |script, item| script.tool(item));
    ["prompts/list", "resources/list", "resources/templates/list"]
        .iter()
        .fold(script, |script, method| script.on(method, seen))
}

fn pattern() -> impl Strategy<Value = String> {
    let parts = (
        prop::sample::select(&PATTERNS[..]),
        prop::sample::select(&SERVERS[..]),
        prop::sample::select(&ITEMS[..]),
    );
    parts.prop_map(|(pattern, server, item)| pattern.replace('#', server).replace('$', item))
}

fn role() -> impl Strategy<Value = Role> {
    (prop::collection::vec(pattern(), 0..4), prop::collection::vec(pattern(), 0..3))
        .prop_map(|(allow, deny)| Role { allow, deny, budget: None, max_in_flight: None })
}

/// A request for an item, by the name under which a scope shows it.
fn request<'a>(caller: &'a Caller, kind: Kind, name: &str) -> Request<'a> {
    match kind {
        Kind::Tools => Request::tool_call(caller, name, CallArguments::none()).unwrap(),
        Kind::Prompts => Request::new(caller, "prompts/get", Params::prompt_get(name, None).unwrap()),
        _ => Request::new(caller, "resources/read", Params::resource_read(name)),
    }
}

/// Returns server and own name of each item that resolves.
async fn usable(world: &TestHost, caller: &Caller, scope: &Scope, kind: Kind) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for server in SERVERS {
        for item in ITEMS {
            let own = if kind == Kind::Resources { format!("t://{item}") } else { item.to_owned() };
            let name = match scope {
                Scope::All if kind != Kind::Resources => format!("{server}__{item}"),
                _ => own.clone(),
            };
            if scope.server().is_some_and(|only| only.as_str() != server) {
                continue;
            }
            if let Ok(target) = world.host.resolve(scope, request(caller, kind, &name)).await
                && !target.is_hidden()
            {
                found.insert((target.server().to_string(), own));
            }
        }
    }
    found
}

async fn check(roles: &BTreeMap<String, Role>) -> Result<(), TestCaseError> {
    let world =
        TestHost::new().server("a", script()).server("b", script()).server("c", script()).start().await;
    world.host.set_rules(Rules::from_roles(roles)).await;
    let scopes = SERVERS.map(|server| Scope::Server(ServerName::new(server).unwrap()));
    for role in roles.keys().map(String::as_str).chain(["nobody", "local"]) {
        let caller = Caller::new("ada", role);
        for scope in [Scope::All].iter().chain(&scopes) {
            for kind in KINDS {
                let listed: BTreeSet<(String, String)> = world
                    .host
                    .list(&caller, scope, kind, secs(10))
                    .await
                    .into_iter()
                    .flat_map(|listing| {
                        let server = listing.server.to_string();
                        listing
                            .items
                            .into_iter()
                            .map(move |listed| (server.clone(), listed.item.name.to_string()))
                    })
                    .collect();
                let usable = usable(&world, &caller, scope, kind).await;
                prop_assert_eq!(listed, usable, "{} {:?} {:?}", role, scope, kind);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_is_listed_is_what_resolves_for_every_role_scope_and_kind(
        roles in prop::collection::btree_map("[pq]", role(), 1..3)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(check(&roles))?;
    }
}

/// Counts the queries of the rules.
#[derive(Clone, Default)]
struct VerdictCounter(Arc<AtomicUsize>);

impl tracing::Subscriber for VerdictCounter {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "ostler::policy"
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn policy_is_asked_once_for_a_call() {
    let world = TestHost::new().server("a", Script::echo()).server("b", Script::echo()).start().await;
    let role = Role { allow: vec!["a/*".into()], deny: Vec::new(), budget: None, max_in_flight: None };
    world.host.set_rules(Rules::from_roles(&[("dev".to_owned(), role)].into())).await;
    let caller = Caller::new("ada", "dev");
    let scopes = [(Scope::All, "a__echo"), (Scope::Server(ServerName::new("a").unwrap()), "echo")];
    for (scope, name) in &scopes {
        let call = async || {
            let target = world.host.resolve(scope, request(&caller, Kind::Tools, name)).await.unwrap();
            world.host.send(target).await.unwrap()
        };
        call().await;
        let verdicts = VerdictCounter::default();
        let _guard = tracing::subscriber::set_default(verdicts.clone());
        call().await;
        assert_eq!(verdicts.0.load(Ordering::Relaxed), 1, "{scope:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn rules_that_change_between_resolving_and_sending_hold_for_the_request() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    let role =
        |allow: &str| Role { allow: vec![allow.into()], deny: Vec::new(), budget: None, max_in_flight: None };
    let rules = |allow: &str| Rules::from_roles(&[("dev".to_owned(), role(allow))].into());
    world.host.set_rules(rules("a/*")).await;
    let caller = Caller::new("ada", "dev");
    for (scope, name) in [(Scope::All, "a__echo"), (Scope::Server(ServerName::new("a").unwrap()), "echo")] {
        world.host.set_rules(rules("a/*")).await;
        let target = world.host.resolve(&scope, request(&caller, Kind::Tools, name)).await.unwrap();
        world.host.set_rules(rules("a/other")).await;
        let error = world.host.send(target).await.unwrap_err();
        assert_eq!(error.code(), "unknown-tool", "{error:?}");
        assert_eq!(world.server("a").count("tools/call"), 0, "{scope:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_removed_between_resolving_and_sending_is_unknown() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    let me = world.caller.clone();
    let target = world.host.resolve(&Scope::All, request(&me, Kind::Tools, "a__echo")).await.unwrap();
    world.host.remove("a").await.unwrap();
    assert_eq!(world.host.send(target).await.unwrap_err().code(), "unknown-server");
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_server_that_never_came_up_is_on_record() {
    let broken = Script::echo().failing_starts(|_| true);
    let world = TestHost::new().server("a", Script::echo()).server("b", broken).start().await;
    let records = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&records);
    world.host.set_recorder(Some(Arc::new(move |record| {
        let is_denied = record.denied_by.is_some();
        kept.lock().unwrap().push((
            record.server.to_owned(),
            record.subject.to_owned(),
            record.outcome,
            is_denied,
        ));
    })));
    let role = Role { allow: vec!["b/ok".into()], deny: Vec::new(), budget: None, max_in_flight: None };
    world.host.set_rules(Rules::from_roles(&[("dev".to_owned(), role)].into())).await;
    for (caller, tool) in [(Caller::new("ada", "dev"), "ok"), (Caller::new("ada", "dev"), "hidden")] {
        let exposed = format!("b__{tool}");
        world.host.resolve(&Scope::All, request(&caller, Kind::Tools, &exposed)).await.unwrap_err();
    }
    let expected = [
        ("b".to_owned(), "ok".to_owned(), "server-unavailable", false),
        ("b".to_owned(), "hidden".to_owned(), "unknown-tool", true),
    ];
    assert_eq!(*records.lock().unwrap(), expected);
}

/// Queries of the policy hook about the caller `ada`; a query about the server itself is an empty text.
fn record_hook_questions(world: &TestHost) -> Arc<Mutex<Vec<String>>> {
    let book = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&book);
    world.host.set_policy_hook(Some(Box::new(move |caller, _, subject| {
        if caller.principal() == "ada" {
            asked.lock().unwrap().push(subject.unwrap_or_default().to_owned());
        }
        Verdict::Allow
    })));
    book
}

fn completion(reference: &serde_json::Value) -> Params {
    let argument = json!({"name": "n", "value": ""});
    Params::parse(json!({"ref": reference, "argument": argument}).to_string().into()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_policy_hook_is_asked_once_for_the_server_and_once_for_what_is_wanted_of_it() {
    let templates = r#"{"resourceTemplates":[{"uriTemplate":"v://{n}","name":"v"}]}"#;
    let script = script()
        .capabilities(r#"{"tools":{},"prompts":{},"resources":{},"completions":{}}"#)
        .on("resources/templates/list", move |_| ScriptedReply::result(templates))
        .on("prompts/get", |_| ScriptedReply::result("{}"))
        .on("resources/read", |_| ScriptedReply::result("{}"))
        .on("completion/complete", |_| ScriptedReply::result(r#"{"completion":{"values":[]}}"#));
    let world = TestHost::new().server("a", script).server("b", Script::echo()).start().await;
    let book = record_hook_questions(&world);
    let (ada, all) = (Caller::new("ada", "local"), Scope::All);
    let complete = |reference| Request::new(&ada, "completion/complete", completion(&reference));
    let requests = [
        (request(&ada, Kind::Tools, "a__x"), "x"),
        (request(&ada, Kind::Prompts, "a__x"), "prompt:x"),
        (request(&ada, Kind::Resources, "t://x"), "resource:t://x"),
        (complete(json!({"type": "ref/prompt", "name": "a__x"})), "prompt:x"),
        (complete(json!({"type": "ref/resource", "uri": "v://{n}"})), "resource:v://{n}"),
        (complete(json!({"type": "ref/resource", "uri": "t://x"})), "resource:t://x"),
    ];
    for (request, wanted) in requests {
        // The first one fetches the lists, which are filtered by the same hook.
        for _ in 0..2 {
            book.lock().unwrap().clear();
            let target = world.host.resolve(&all, request.clone()).await.unwrap();
            world.host.send(target).await.unwrap();
        }
        assert_eq!(*book.lock().unwrap(), ["", wanted], "{request:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_servers_could_read_differently_goes_to_none_under_exposed_names_either() {
    let world = TestHost::new().server("a", script()).server("b", Script::echo()).start().await;
    for scope in [Scope::All, Scope::Server(ServerName::new("a").unwrap())] {
        let exposed = if scope == Scope::All { "a__x" } else { "x" };
        let odd = completion(&json!({"type": "ref/prompt", "name": exposed, "Name": "y"}));
        let resolved =
            world.host.resolve(&scope, Request::new(&world.caller, "completion/complete", odd)).await;
        assert_eq!(resolved.unwrap_err().code(), "invalid-argument", "{scope:?}");
    }
}
