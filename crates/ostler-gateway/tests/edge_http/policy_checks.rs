//! Policy checks: exactly one for a call over HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ostler_core::config::Role;
use ostler_gateway::{ConnectionLimits, GatewayOptions};
use ostler_host::{CallArguments, Caller, Rules, Verdict};
use ostler_testkit::{Reconfigure, Script, ScriptedServer};
use tracing::span;

use crate::world::{Request, World};

/// Counts the policy checks.
#[derive(Clone, Default)]
struct PolicyCheckCounter(Arc<AtomicUsize>);

impl tracing::Subscriber for PolicyCheckCounter {
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

/// Returns the requests of both eras that call a tool on a path.
async fn calls(world: &World, path: &str, tool: &str) -> [Request; 2] {
    let body = |meta: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{{"name":"{tool}","arguments":{{}}{meta}}}}}"#
        )
    };
    let meta = r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let modern = Request::post(body(meta))
        .with("MCP-Protocol-Version", "2026-07-28")
        .with("Mcp-Method", "tools/call")
        .with("Mcp-Name", tool);
    let session = world.send(Request::initialize("2025-11-25").to(path)).await.session();
    [modern.to(path), Request::post(body("")).in_session(&session).to(path)]
}

/// Returns a world with two servers, of which the role of the callers allows one.
async fn world() -> World {
    let world = World::with(GatewayOptions::default(), ConnectionLimits::default()).await;
    for name in ["a", "b"] {
        let stage = Arc::new(ScriptedServer::new(Script::echo()));
        let spec = ostler_testkit::TestHost::spec(name).lazy();
        world.host.spawn_with(&Caller::operator(), spec, stage).await.unwrap();
    }
    let role = Role { allow: vec!["a/*".into()], deny: Vec::new(), budget: None, max_in_flight: None };
    world.host.set_rules(Rules::from_roles(&BTreeMap::from([("local".to_owned(), role)]))).await;
    world
}

/// Makes a call that succeeds.
async fn send_call(world: &World, call: &Request) {
    let response = world.send(call.clone()).await;
    assert!(response.json()["result"].is_object(), "{response:?}");
}

#[tokio::test]
async fn policy_is_asked_once_for_a_call_of_either_era_on_either_endpoint() {
    let world = world().await;
    for (path, tool) in [("/mcp", "a__echo"), ("/servers/a/mcp", "echo")] {
        for call in calls(&world, path, tool).await {
            send_call(&world, &call).await;
            let verdicts = PolicyCheckCounter::default();
            let _guard = tracing::subscriber::set_default(verdicts.clone());
            send_call(&world, &call).await;
            assert_eq!(verdicts.0.load(Ordering::Relaxed), 1, "{path}");
        }
    }
}

#[tokio::test]
async fn a_hook_is_asked_as_often_for_a_call_over_http_as_for_one_of_the_host() {
    let world = world().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    world.host.set_policy_hook(Some(Box::new(move |_, _, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Verdict::Allow
    })));
    let me = Caller::local();
    for (path, tool) in [("/mcp", "a__echo"), ("/servers/a/mcp", "echo")] {
        for call in calls(&world, path, tool).await {
            send_call(&world, &call).await;
            asked.store(0, Ordering::Relaxed);
            world.host.call(&me, "a", "echo", CallArguments::none()).await.unwrap();
            let by_host = asked.swap(0, Ordering::Relaxed);
            send_call(&world, &call).await;
            assert_eq!(asked.load(Ordering::Relaxed), by_host, "{path}");
        }
    }
}
