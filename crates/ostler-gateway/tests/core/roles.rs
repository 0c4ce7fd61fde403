//! Roles over random rules: a caller can use exactly the tools it is shown.

use std::collections::{BTreeMap, BTreeSet};

use ostler_core::config::Role;
use ostler_core::policy::glob;
use ostler_gateway::{Gateway, Scope};
use ostler_host::{Caller, Rules};
use ostler_testkit::{Reconfigure, Script, TestHost};
use ostler_wire::Era;
use proptest::prelude::*;
use serde_json::json;

use crate::client::{Client, gateway, server_scope};

const SERVERS: [&str; 3] = ["a", "ab", "b"];
const TOOLS: [&str; 5] = ["get", "set", "prompt:get", "a/get", "method:x"];
const ROLES: [&str; 3] = ["r", "local", "nobody"];

fn pattern() -> impl Strategy<Value = String> {
    let server = prop::sample::select(vec!["a", "ab", "b", "*", "a*", "?", "?b"]);
    let subject =
        prop::sample::select(vec!["*", "get", "?et", "s*", "prompt:*", "tool:*", "*get", "method:*", "?*"]);
    (server, subject).prop_map(|(server, subject)| format!("{server}/{subject}"))
}

fn role() -> impl Strategy<Value = Role> {
    let patterns = || prop::collection::vec(pattern(), 0..4);
    (patterns(), patterns()).prop_map(|(allow, deny)| Role { allow, deny, budget: None, max_in_flight: None })
}

/// Returns whether the rules allow a tool; a second implementation of their meaning.
fn is_allowed(roles: &BTreeMap<String, Role>, role: &str, server: &str, tool: &str) -> bool {
    let Some(role) = roles.get(role) else { return role == "local" };
    let is_odd = ["tool:", "prompt:", "resource:", "method:"].iter().any(|kind| tool.starts_with(kind));
    let name = if is_odd { format!("{server}/tool:{tool}") } else { format!("{server}/{tool}") };
    let any = |patterns: &[String]| patterns.iter().any(|pattern| glob::is_match(pattern, &name));
    any(&role.allow) && !any(&role.deny)
}

async fn listed(gateway: &Gateway, role: &str, face: Scope, era: Era) -> BTreeSet<String> {
    let mut client = Client::for_caller(Caller::new("x", role), gateway, face, era).await;
    let answer = client.request("tools/list", json!({})).await;
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

async fn check(roles: BTreeMap<String, Role>) {
    let script = || TOOLS.iter().fold(Script::new(), |script, tool| script.tool(tool));
    let opening = SERVERS.iter().fold(TestHost::new(), |world, server| world.server(server, script()));
    let world = opening.start().await;
    world.host.set_rules(Rules::from_roles(&roles)).await;
    let gateway = gateway(&world, |_| {});
    for role in ROLES {
        let mut client = Client::for_caller(Caller::new("x", role), &gateway, Scope::All, Era::Modern).await;
        let mut callable = BTreeSet::new();
        for (server, tool) in SERVERS.iter().flat_map(|server| TOOLS.iter().map(move |tool| (server, tool))) {
            let exposed = format!("{server}__{tool}");
            let is_called = client.call(&exposed, json!({})).await.get("result").is_some();
            assert_eq!(
                is_called,
                is_allowed(&roles, role, server, tool),
                "{role} calls {exposed} by {roles:?}"
            );
            callable.extend(is_called.then_some(exposed));
        }
        for era in [Era::Modern, Era::Legacy] {
            assert_eq!(listed(&gateway, role, Scope::All, era).await, callable, "{role} by {roles:?}");
        }
        for server in SERVERS {
            let prefix = format!("{server}__");
            let own = callable.iter().filter_map(|name| name.strip_prefix(&prefix));
            let own: BTreeSet<String> = own.map(str::to_owned).collect();
            let is_seen = world.host.may_see(&Caller::new("x", role), server);
            assert!(is_seen || own.is_empty());
            if is_seen {
                assert_eq!(
                    listed(&gateway, role, server_scope(server), Era::Modern).await,
                    own,
                    "{role} at {server}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_role_is_shown_what_it_can_call_and_nothing_else(r in role(), local in prop::option::of(role())) {
        let roles = [("r", Some(r)), ("local", local)];
        let roles = roles.into_iter().filter_map(|(name, role)| Some((name.to_owned(), role?))).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(check(roles));
    }
}
