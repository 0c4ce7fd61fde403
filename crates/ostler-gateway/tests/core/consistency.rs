//! Consistency of lists and resolution: a client can use exactly the items it is shown.

use std::collections::{BTreeMap, BTreeSet};

use ostler_core::config::Role;
use ostler_gateway::Scope;
use ostler_host::{Caller, Rules};
use ostler_testkit::{ReceivedRequest, Reconfigure, Script, ScriptedReply, TestHost};
use ostler_wire::Era;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::client::{Client, gateway, server_scope};

const SERVERS: [&str; 2] = ["a", "b"];
const ITEMS: [&str; 3] = ["x", "y", "z"];

/// Patterns of random rules; `#` stands for a server and `$` for an item.
const PATTERNS: [&str; 8] =
    ["*", "#/*", "#/$", "*/$", "#/prompt:$", "*/prompt:*", "#/resource:t://$", "*/resource:*"];

/// Kind of item: its list method, and the request for one item.
struct ItemKind {
    list: &'static str,
    member: &'static str,
    get: &'static str,
    key: &'static str,
}

const KINDS: [ItemKind; 3] = [
    ItemKind { list: "tools/list", member: "tools", get: "tools/call", key: "name" },
    ItemKind { list: "prompts/list", member: "prompts", get: "prompts/get", key: "name" },
    ItemKind { list: "resources/list", member: "resources", get: "resources/read", key: "uri" },
];

fn script() -> Script {
    let answer = |asked: &ReceivedRequest| {
        let items = |key: &str, begin: &str| {
            let names = ITEMS.map(|item| format!("{begin}{item}"));
            json!(names.map(|name| json!({key: name, "name": name})))
        };
        let result = match asked.method.as_str() {
            "prompts/list" => json!({"prompts": items("name", "")}),
            "resources/list" => json!({"resources": items("uri", "t://")}),
            "resources/templates/list" => json!({"resourceTemplates": []}),
            "prompts/get" => json!({"messages": []}),
            _ => json!({"contents": []}),
        };
        ScriptedReply::result(result.to_string())
    };
    let capabilities = r#"{"tools":{},"prompts":{},"resources":{}}"#;
    let script =
        ITEMS.iter().fold(Script::new().capabilities(capabilities), |script, item| script.tool(item));
    ["prompts/list", "resources/list", "resources/templates/list", "prompts/get", "resources/read"]
        .iter()
        .fold(script, |script, method| script.on(method, answer))
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

/// Returns the names in a client's list; empty if its server is unknown to the client.
async fn listed(client: &mut Client, kind: &ItemKind) -> BTreeSet<String> {
    let answer = client.request(kind.list, json!({})).await;
    let items = answer["result"][kind.member].as_array().cloned().unwrap_or_default();
    items.iter().map(|item| item[kind.key].as_str().unwrap().to_owned()).collect()
}

/// Returns the names of all items whose request the client gets an answer to.
async fn usable(client: &mut Client, scope: &Scope, kind: &ItemKind) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for item in ITEMS {
        match (kind.key, scope) {
            ("uri", _) => _ = names.insert(format!("t://{item}")),
            (_, Scope::Server(_)) => _ = names.insert(item.to_owned()),
            (_, Scope::All) => names.extend(SERVERS.map(|server| format!("{server}__{item}"))),
        }
    }
    let mut usable = BTreeSet::new();
    for name in names {
        let params = match kind.get {
            "tools/call" => json!({kind.key: name, "arguments": {}}),
            _ => json!({kind.key: name}),
        };
        let answer: Value = client.request(kind.get, params).await;
        if answer["result"].is_object() {
            usable.insert(name);
        }
    }
    usable
}

async fn check(roles: &BTreeMap<String, Role>, era: Era) -> Result<(), TestCaseError> {
    let world = TestHost::new().server("a", script()).server("b", script()).start().await;
    world.host.set_rules(Rules::from_roles(roles)).await;
    let gateway = gateway(&world, |_| {});
    for role in roles.keys().map(String::as_str).chain(["nobody", "local"]) {
        let caller = Caller::new("ada", role);
        for scope in [Scope::All, server_scope("a"), server_scope("b")] {
            // A session with a server that is hidden can't be opened.
            let is_hidden =
                scope.server().is_some_and(|server| !world.host.may_see(&caller, server.as_str()));
            let era = if is_hidden { Era::Modern } else { era };
            let mut client = Client::for_caller(caller.clone(), &gateway, scope.clone(), era).await;
            for kind in &KINDS {
                let (listed, usable) =
                    (listed(&mut client, kind).await, usable(&mut client, &scope, kind).await);
                prop_assert_eq!(listed, usable, "{} {:?} {}", role, scope, kind.list);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn what_a_client_is_shown_is_what_it_can_use_for_every_role_scope_and_kind(
        roles in prop::collection::btree_map("[pq]", role(), 1..3),
        is_modern in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(check(&roles, if is_modern { Era::Modern } else { Era::Legacy }))?;
    }
}
