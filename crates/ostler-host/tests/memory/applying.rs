//! Application of snapshots: servers, rules, limits and pins are applied together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_core::config::{DisabledServer, PinMode, Role};
use ostler_core::pins::{LockFile, LockSection, LockedServer, Pin, PinPolicy};
use ostler_core::status::ServerState;
use ostler_host::upstream::Connector;
use ostler_host::{
    Applied, CacheRule, CacheScopeRule, CallArguments, CallError, Caller, ConnectorFactory, Host,
    HostOptions, Kind, Limits, Request, Rules, Scope, ServerName, ServerSpec, ServerTransport, Snapshot,
    ToolRules,
};
use ostler_testkit::{Script, ScriptedReply, ScriptedServer, run_until_stalled};
use ostler_wire::Params;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::secs;

/// Tools of every variant of a server.
const TOOLS: [&str; 3] = ["a", "b", "c"];

/// A tool as a variant of a server defines it.
fn definition(tool: &str, variant: &str) -> Value {
    json!({"name": tool, "description": format!("as {variant} has it"), "inputSchema": {"type": "object"}})
}

/// A prompt or a resource as a variant of a server defines it.
fn other_definition(kind: Kind, item: &str, variant: &str) -> Value {
    let key = if kind == Kind::Prompts { "name" } else { "uri" };
    json!({key: own_name(kind, item), "name": item, "description": format!("as {variant} has it")})
}

/// Returns the name or URI of an item at its server.
fn own_name(kind: Kind, item: &str) -> String {
    if kind == Kind::Resources { format!("t://{item}") } else { item.to_owned() }
}

fn script(variant: &str) -> Script {
    let list = |member: &str, kind| {
        let items = TOOLS.map(|item| other_definition(kind, item, variant));
        ScriptedReply::result(json!({member: items}).to_string())
    };
    let replies = [
        ("prompts/list", list("prompts", Kind::Prompts)),
        ("resources/list", list("resources", Kind::Resources)),
        ("resources/templates/list", ScriptedReply::result(r#"{"resourceTemplates":[]}"#)),
        (
            "prompts/get",
            ScriptedReply::result(json!({"messages": [], "content": [text(variant)]}).to_string()),
        ),
        (
            "resources/read",
            ScriptedReply::result(json!({"contents": [], "content": [text(variant)]}).to_string()),
        ),
    ];
    let mut script = Script::new().capabilities(r#"{"tools":{},"prompts":{},"resources":{}}"#);
    for tool in TOOLS {
        let reply = ScriptedReply::text(variant);
        script = script.definition(definition(tool, variant)).on(tool, move |_| reply.clone());
    }
    for (method, reply) in replies {
        script = script.on(method, move |_| reply.clone());
    }
    script
}

/// Returns a part of an answer, in the place where answers of tools have it.
fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn name(text: &str) -> ServerName {
    ServerName::new(text).unwrap()
}

fn role(allow: Vec<String>) -> Role {
    Role { allow, deny: Vec::new(), budget: None, max_in_flight: None }
}

/// Rules by which the role `dev` may use the items of one name.
fn rules(item: &str) -> Rules {
    let allow = ["", "prompt:", "resource:t://"].map(|kind| format!("s/{kind}{item}"));
    Rules::from_roles(&BTreeMap::from([("dev".to_owned(), role(allow.into()))]))
}

/// The server `s` in a variant, of which the role `dev` may use the items of the same name as they are defined there.
/// Answers of one tool are cached.
fn snapshot(variant: &str, is_lazy: bool) -> Snapshot {
    let mut spec = ServerSpec::stdio(name("s"), "in-memory").args([variant]);
    spec.tool.insert("c".into(), ToolRules { cache: CacheRule::For(secs(60)), ..ToolRules::default() });
    let pin = |definition: Value| Pin::from_definition(definition.to_string().as_bytes()).unwrap();
    let mut locked = LockedServer::with_tools(
        "",
        TOOLS.map(|tool| (tool.to_owned(), pin(definition(tool, variant)))).into(),
    );
    for (section, kind) in [(LockSection::Prompts, Kind::Prompts), (LockSection::Resources, Kind::Resources)]
    {
        let pins = TOOLS.map(|item| (own_name(kind, item), pin(other_definition(kind, item, variant))));
        locked.sections.insert(section, pins.into());
    }
    Snapshot {
        disabled: Vec::new(),
        servers: vec![if is_lazy { spec.lazy() } else { spec }],
        rules: rules(variant),
        limits: Limits::default(),
        pins: Some(PinPolicy::new(PinMode::Enforce, LockFile { servers: [(name("s"), locked)].into() })),
    }
}

/// Servers in memory, made from the first argument of their specs.
fn connectors(
    script: impl Fn(&str) -> Script + Send + Sync + 'static,
) -> (ConnectorFactory, Arc<Mutex<Vec<ScriptedServer>>>) {
    let stages = Arc::new(Mutex::new(Vec::new()));
    let made = Arc::clone(&stages);
    let connectors: ConnectorFactory = Arc::new(move |spec| {
        let ServerTransport::Stdio(process) = &spec.transport else { return None };
        let stage = ScriptedServer::new(script(process.args.first()?));
        made.lock().unwrap().push(stage.clone());
        Some(Arc::new(stage) as Arc<dyn Connector>)
    });
    (connectors, stages)
}

fn host(script: impl Fn(&str) -> Script + Send + Sync + 'static) -> Host {
    let (connectors, _) = connectors(script);
    Host::new(HostOptions { connector_factory: Some(connectors), ..HostOptions::default() })
}

fn failed(applied: &Applied) -> Vec<(&str, &'static str)> {
    applied.failed.iter().map(|(name, error)| (name.as_str(), error.code())).collect()
}

async fn call(host: &Host, caller: &Caller, scope: &Scope, tool: &str) -> Result<String, CallError> {
    ask(host, caller, scope, (Kind::Tools, tool)).await
}

async fn ask(
    host: &Host,
    caller: &Caller,
    scope: &Scope,
    (kind, item): (Kind, &str),
) -> Result<String, CallError> {
    let exposed = if *scope == Scope::All { format!("s__{item}") } else { item.to_owned() };
    let request = match kind {
        Kind::Tools => Request::tool_call(caller, &exposed, CallArguments::none())?,
        Kind::Prompts => Request::new(caller, "prompts/get", Params::prompt_get(&exposed, None).unwrap()),
        _ => Request::new(caller, "resources/read", Params::resource_read(&own_name(kind, item))),
    };
    let target = host.resolve(scope, request).await?;
    Ok(host.send(target).await?.text())
}

/// Kinds of requested items, and the error of a caller that may not use one.
const KINDS: [(Kind, &str); 3] =
    [(Kind::Tools, "unknown-tool"), (Kind::Prompts, "unknown-prompt"), (Kind::Resources, "unknown-resource")];

/// Asserts the allowed outcomes of a call while snapshots change: an answer of the variant that allows its item, or no
/// item of that name. Rules of one snapshot beside pins or servers of another would give an answer of another variant,
/// or an unapproved definition. Only calls of the old variant meet the latter, while its successor starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_call_meets_rules_pins_and_servers_of_one_snapshot() {
    let host = host(script);
    host.apply(snapshot("a", false)).await;
    let mut before = "a";
    storm(&host, KINDS.as_slice(), Defined::ByVariant, async |host, variant, rng, replacing| {
        let is_lazy = rng.bool();
        let has_successor = !is_lazy && variant != before;
        before = variant;
        replacing.fetch_add(u64::from(has_successor), Ordering::SeqCst);
        let applied = host.apply(snapshot(variant, is_lazy)).await;
        replacing.fetch_add(u64::from(has_successor), Ordering::SeqCst);
        assert!(applied.failed.is_empty() && applied.starting.is_empty(), "{applied:?}");
    })
    .await;
}

/// Each snapshot lets its role use two tools, the filter of its server another two, and its pins approve the one that
/// is in both. Two parts of different snapshots would let another tool through, or allow an unapproved one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_call_of_a_server_that_keeps_its_process_meets_rules_rights_and_pins_of_one_snapshot() {
    let (connectors, stages) = connectors(|_| script("a"));
    let host = Host::new(HostOptions { connector_factory: Some(connectors), ..HostOptions::default() });
    host.apply(narrowed("a")).await;
    storm(&host, &KINDS[..1], Defined::Once, async |host, tool, _, _| {
        let applied = host.apply(narrowed(tool)).await;
        assert_eq!(applied.changed.len() + applied.unchanged.len(), 1, "{applied:?}");
    })
    .await;
    let connects: Vec<u64> = stages.lock().unwrap().iter().map(ScriptedServer::connects).collect();
    assert_eq!(connects, [1], "the process was replaced");
}

/// The server `s`, of which rules, filter and pins together leave one tool.
fn narrowed(tool: &str) -> Snapshot {
    let at = TOOLS.iter().position(|it| *it == tool).unwrap();
    let [next, last] = [TOOLS[(at + 1) % 3], TOOLS[(at + 2) % 3]];
    let mut spec = ServerSpec::stdio(name("s"), "in-memory").args(["any"]);
    spec.tools.allow = vec![tool.to_owned(), last.to_owned()];
    let pin = |it: &str| {
        let approved = if it == tool { definition(it, "a") } else { definition(it, "nobody") };
        (it.to_owned(), Pin::from_definition(approved.to_string().as_bytes()).unwrap())
    };
    let locked = LockedServer::with_tools("", TOOLS.map(pin).into());
    let allow = [tool, next].map(|it| format!("s/{it}"));
    Snapshot {
        disabled: Vec::new(),
        servers: vec![spec],
        rules: Rules::from_roles(&BTreeMap::from([("dev".to_owned(), role(allow.into()))])),
        limits: Limits::default(),
        pins: Some(PinPolicy::new(PinMode::Enforce, LockFile { servers: [(name("s"), locked)].into() })),
    }
}

/// Origin of the tool definition and of the answer that callers meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defined {
    /// The variant with the tool's name.
    ByVariant,
    /// One process.
    Once,
}

/// Applies 1,000 random snapshots under 32 callers. `replacing` is odd while a successor starts, whose predecessor has
/// unapproved definitions.
#[expect(clippy::print_stdout, reason = "the seed is for whoever repeats a run that failed")]
async fn storm(
    host: &Host,
    kinds: &'static [(Kind, &'static str)],
    defined: Defined,
    mut apply: impl AsyncFnMut(&Host, &'static str, &mut fastrand::Rng, &AtomicU64),
) {
    let seed = std::env::var("OSTLER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("OSTLER_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let is_over = Arc::new(AtomicBool::new(false));
    let (answered, replacing) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut callers = JoinSet::new();
    for number in 0..32_u64 {
        let (host, is_over, answered) = (host.clone(), Arc::clone(&is_over), Arc::clone(&answered));
        let replacing = Arc::clone(&replacing);
        let mut rng = fastrand::Rng::with_seed(seed ^ number);
        callers.spawn(async move {
            let caller = Caller::new(format!("caller-{number}"), "dev");
            let scopes = [Scope::All, Scope::Server(name("s"))];
            let whose = |tool: &str| if defined == Defined::Once { "a".to_owned() } else { tool.to_owned() };
            while !is_over.load(Ordering::Acquire) {
                let (tool, scope) = (TOOLS[rng.usize(..TOOLS.len())], &scopes[rng.usize(..2)]);
                if rng.u8(..4) == 0 {
                    let listings = host.list(&caller, scope, Kind::Tools, secs(5)).await;
                    let items: Vec<_> = listings.into_iter().flat_map(|listing| listing.items).collect();
                    assert!(items.len() <= 1, "tools of several snapshots are listed");
                    for item in items {
                        let listed: Value = serde_json::from_slice(&item.item.definition).unwrap();
                        let expected = definition(&item.item.name, &whose(&item.item.name));
                        assert_eq!(listed, expected, "a tool of another variant is listed");
                    }
                    continue;
                }
                let (kind, unknown) = kinds[rng.usize(..kinds.len())];
                let began = replacing.load(Ordering::SeqCst);
                match ask(&host, &caller, scope, (kind, tool)).await {
                    Ok(answer) => {
                        assert_eq!(answer, whose(tool), "a server of another snapshot answered");
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) if error.code() == "definition-changed" => {
                        let is_replacing = began % 2 == 1 || replacing.load(Ordering::SeqCst) != began;
                        assert!(is_replacing, "rules met pins or a server of another snapshot: {error:?}");
                    }
                    Err(error) => assert_eq!(error.code(), unknown, "{error:?}"),
                }
                tokio::task::yield_now().await;
            }
        });
    }
    for _ in 0..1_000 {
        apply(host, TOOLS[rng.usize(..TOOLS.len())], &mut rng, &replacing).await;
        tokio::task::yield_now().await;
    }
    is_over.store(true, Ordering::Release);
    callers.join_all().await;
    let answered = answered.load(Ordering::Relaxed);
    assert!(answered > 100, "only {answered} calls were answered, so that nothing was tried");
    host.shutdown().await;
}

/// A server that can be started once, as a spec and as the next config has it: without the tool `a`.
fn restricted(mut wanted: Snapshot, args: &str) -> Snapshot {
    for spec in &mut wanted.servers {
        *spec = ServerSpec::stdio(spec.name.clone(), "in-memory").args([args]);
        spec.tools.deny = vec!["a".to_owned()];
    }
    wanted
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_taken_from_all_is_gone_at_once_and_its_server_keeps_its_process() {
    let (connectors, stages) = connectors(|_| script("a").failing_starts(|nth| nth > 1));
    let host = Host::new(HostOptions { connector_factory: Some(connectors), ..HostOptions::default() });
    let open = Snapshot { rules: Rules::default(), pins: None, ..snapshot("a", false) };
    host.apply(open.clone()).await;
    let (me, scope) = (Caller::local(), Scope::All);
    assert_eq!(call(&host, &me, &scope, "a").await.unwrap(), "a");
    let applied = host.apply(restricted(open, "a")).await;
    assert_eq!((applied.changed, applied.failed.len()), (vec![name("s")], 0));
    assert_eq!(call(&host, &me, &scope, "a").await.unwrap_err().code(), "unknown-tool");
    let listings = host.list(&me, &scope, Kind::Tools, secs(1)).await;
    let listed: Vec<&str> =
        listings.iter().flat_map(|listing| &listing.items).map(|item| &*item.item.name).collect();
    assert_eq!(listed, ["b", "c"]);
    assert_eq!(call(&host, &me, &scope, "b").await.unwrap(), "a");
    assert_eq!(stages.lock().unwrap().iter().map(ScriptedServer::connects).collect::<Vec<_>>(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_successor_fails_or_hangs_at_its_start_has_the_rights_of_the_new_spec() {
    for (successor, outcome) in [("broken", "failed"), ("hung", "starting")] {
        let host = host(|variant| match variant {
            "broken" => Script::new().failing_starts(|_| true),
            "hung" => script("b").start_after(secs(100_000)),
            variant => script(variant),
        });
        let open = Snapshot { rules: Rules::default(), pins: None, ..snapshot("a", false) };
        host.apply(open.clone()).await;
        let (me, scope) = (Caller::local(), Scope::All);
        assert_eq!(call(&host, &me, &scope, "a").await.unwrap(), "a");
        let began = Instant::now();
        let mut at_once = None;
        let wanted = restricted(open, successor);
        let applied = host
            .apply_with(wanted.clone(), || {
                at_once = Some((began.elapsed(), host.may_use(&me, "s", Kind::Tools, "a")));
            })
            .await;
        assert_eq!(at_once, Some((Duration::ZERO, false)), "{successor}");
        assert_eq!((applied.failed.len(), applied.starting.len()).0, usize::from(outcome == "failed"));
        assert_eq!(applied.starting.len(), usize::from(outcome == "starting"));
        assert_eq!(call(&host, &me, &scope, "a").await.unwrap_err().code(), "unknown-tool", "{successor}");
        assert_eq!(call(&host, &me, &scope, "b").await.unwrap(), "a", "the server from before is gone");
        assert_ne!(host.snapshot().servers, wanted.servers, "it would not be tried again");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_host_decides_with_each_call_needs_no_other_process() {
    let (connectors, stages) = connectors(|_| script("a"));
    let host = Host::new(HostOptions { connector_factory: Some(connectors), ..HostOptions::default() });
    let open = Snapshot { rules: Rules::default(), pins: None, ..snapshot("a", false) };
    host.apply(open.clone()).await;
    let edits: [fn(&mut ServerSpec); 8] = [
        |spec| spec.trust = true,
        |spec| spec.validate = false,
        |spec| spec.cache_scope = CacheScopeRule::Private,
        |spec| spec.max_call_time = secs(100),
        |spec| spec.card = Some("/no/such/card.json".to_owned()),
        |spec| spec.is_pinned = false,
        |spec| spec.tools.deny = vec!["b".to_owned()],
        |spec| spec.tool.clear(),
    ];
    let mut wanted = open;
    for edit in edits {
        edit(&mut wanted.servers[0]);
        host.apply(wanted.clone()).await;
        assert_eq!(host.snapshot().servers, wanted.servers);
        call(&host, &Caller::local(), &Scope::All, "a").await.unwrap();
    }
    wanted.servers[0].keep_alive *= 2;
    host.apply(wanted).await;
    let connects: Vec<u64> = stages.lock().unwrap().iter().map(ScriptedServer::connects).collect();
    assert_eq!(connects, [1, 1], "one process for all of that, and one for another supervision");
    assert_eq!(host.status()[0].generation, 1);
}

#[tokio::test(start_paused = true)]
async fn answers_are_not_remembered_any_longer_once_the_config_forbids_it() {
    let (connectors, stages) = connectors(|_| script("a"));
    let host = Host::new(HostOptions { connector_factory: Some(connectors), ..HostOptions::default() });
    let open = Snapshot { rules: Rules::default(), pins: None, ..snapshot("a", false) };
    host.apply(open.clone()).await;
    let (me, scope) = (Caller::local(), Scope::All);
    let count = || stages.lock().unwrap()[0].count("c");
    for _ in 0..2 {
        call(&host, &me, &scope, "c").await.unwrap();
    }
    assert_eq!(count(), 1);
    let mut forbidden = open;
    forbidden.servers[0]
        .tool
        .insert("c".into(), ToolRules { cache: CacheRule::Never, ..ToolRules::default() });
    host.apply(forbidden).await;
    for _ in 0..2 {
        call(&host, &me, &scope, "c").await.unwrap();
    }
    assert_eq!(count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_the_config_makes_private_is_asked_for_again_by_each_caller() {
    let (connectors, stages) = connectors(|_| script("a"));
    let host = Host::new(HostOptions { connector_factory: Some(connectors), ..HostOptions::default() });
    let open = Snapshot { rules: Rules::default(), pins: None, ..snapshot("a", false) };
    host.apply(open.clone()).await;
    let list = async || {
        for caller in ["ada", "bob"].map(|name| Caller::new(name, "local")) {
            host.list(&caller, &Scope::Server(name("s")), Kind::Tools, secs(1)).await;
        }
        stages.lock().unwrap()[0].count("tools/list")
    };
    let shared = list().await;
    let mut private = open;
    private.servers[0].cache_scope = CacheScopeRule::Private;
    host.apply(private).await;
    assert_eq!(list().await, shared + 2);
}

#[tokio::test(start_paused = true)]
async fn rules_do_not_wait_for_whoever_spawns_a_server_of_the_snapshot() {
    let host = host(|variant| match variant {
        "slow" => script("b").start_after(secs(40)),
        variant => script(variant),
    });
    host.apply(snapshot("a", false)).await;
    let spawning = tokio::spawn({
        let host = host.clone();
        let slow = ServerSpec::stdio(name("s"), "in-memory").args(["slow"]);
        async move { host.spawn(&Caller::operator(), slow).await }
    });
    run_until_stalled().await;
    let (began, mut after) = (Instant::now(), None);
    let wanted = Snapshot { pins: None, ..snapshot("c", false) };
    let applied = host.apply_with(wanted.clone(), || after = Some(began.elapsed())).await;
    assert_eq!((after, applied.starting), (Some(Duration::ZERO), vec![name("s")]));
    spawning.await.unwrap().unwrap();
    run_until_stalled().await;
    assert_eq!(host.snapshot().servers, wanted.servers, "the snapshot came after what was spawned");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_tells_what_became_of_each_server() {
    let host = host(|variant| match variant {
        "broken" => Script::new().failing_starts(|_| true),
        variant => script(variant),
    });
    let server =
        |server: &str, variant: &str| ServerSpec::stdio(name(server), "in-memory").args([variant]).lazy();
    let eager = |server: &str, variant: &str| ServerSpec::stdio(name(server), "in-memory").args([variant]);
    let wanted = |servers: Vec<ServerSpec>| Snapshot { servers, ..host.snapshot() };
    let first = vec![server("same", "a"), server("other", "a"), server("gone", "a"), eager("stays", "a")];
    let applied = host.apply(wanted(first)).await;
    assert_eq!(applied.added, ["same", "other", "gone", "stays"].map(name));
    let no_place = ServerSpec { max_in_flight: 0, ..server("refused", "a") };
    let second = vec![
        server("same", "a"),
        server("other", "b"),
        eager("stays", "broken"),
        server("new", "a"),
        server("new", "b"),
        no_place,
    ];
    let applied = host.apply(wanted(second)).await;
    let Applied { added, changed, removed, unchanged, .. } = &applied;
    assert_eq!((added, changed), (&vec![name("new")], &vec![name("other")]));
    assert_eq!((removed, unchanged), (&vec![name("gone")], &vec![name("same")]));
    let mut failures = failed(&applied);
    failures.sort_unstable();
    assert_eq!(
        failures,
        [("new", "invalid-argument"), ("refused", "invalid-argument"), ("stays", "server-unavailable")]
    );
    let me = Caller::local();
    let answer = host.call(&me, "stays", "a", CallArguments::none()).await.unwrap();
    assert_eq!(answer.text(), "a", "the server from before was taken away");
    assert_eq!(host.servers(&Caller::operator()).len(), 4);
    assert_eq!(
        host.snapshot().servers.len(),
        5,
        "what could not be taken is tried again with the next snapshot"
    );
}

#[tokio::test(start_paused = true)]
async fn what_goes_with_the_rules_of_a_snapshot_is_done_once_they_are_in_force_and_not_before() {
    let host = host(|variant| match variant {
        "slow" => script("b").start_after(secs(40)),
        variant => script(variant),
    });
    host.apply(snapshot("a", false)).await;
    let slow = ServerSpec::stdio(name("s"), "in-memory").args(["slow"]);
    let wanted = Snapshot { servers: vec![slow], ..snapshot("b", false) };
    let (began, mut done) = (Instant::now(), None);
    host.apply_with(wanted.clone(), || done = Some((began.elapsed(), host.snapshot().rules == wanted.rules)))
        .await;
    let (after, is_in_force) = done.unwrap();
    assert!(is_in_force && after.is_zero(), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn rules_do_not_wait_for_a_server_that_starts_slowly() {
    let host = host(|variant| match variant {
        "slow" => script("b").start_after(secs(40)),
        variant => script(variant),
    });
    host.apply(snapshot("a", false)).await;
    let (caller, scope) = (Caller::new("ada", "dev"), Scope::All);
    assert_eq!(call(&host, &caller, &scope, "a").await.unwrap(), "a");
    let slow = ServerSpec::stdio(name("s"), "in-memory").args(["slow"]);
    let wanted = Snapshot { servers: vec![slow], pins: None, ..snapshot("b", false) };
    let applying = tokio::spawn({
        let host = host.clone();
        async move { host.apply(wanted).await }
    });
    run_until_stalled().await;
    assert_eq!(call(&host, &caller, &scope, "a").await.unwrap_err().code(), "unknown-tool");
    assert_eq!(
        call(&host, &caller, &scope, "b").await.unwrap(),
        "a",
        "the server from before serves meanwhile"
    );
    assert_eq!(applying.await.unwrap().starting, [name("s")]);
    tokio::time::sleep(secs(31)).await;
    assert_eq!(call(&host, &caller, &scope, "b").await.unwrap(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_newer_snapshot_does_not_wait_for_the_servers_of_an_older_one() {
    let host = host(|variant| match variant {
        "slow" => script("b").start_after(secs(50)),
        variant => script(variant),
    });
    host.apply(snapshot("a", false)).await;
    let slow = ServerSpec::stdio(name("s"), "in-memory").args(["slow"]);
    let older = tokio::spawn({
        let (host, wanted) = (host.clone(), Snapshot { servers: vec![slow], ..host.snapshot() });
        async move { host.apply(wanted).await }
    });
    tokio::time::sleep(secs(15)).await;
    assert_eq!(older.await.unwrap().starting, [name("s")]);
    let began = tokio::time::Instant::now();
    let newer = host.apply(snapshot("c", true)).await;
    assert_eq!(newer.changed, [name("s")]);
    assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
    tokio::time::sleep(secs(60)).await;
    let caller = Caller::new("ada", "dev");
    assert_eq!(call(&host, &caller, &Scope::All, "c").await.unwrap(), "c");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_start_is_not_sent_once_the_rules_have_taken_it_away() {
    for (kind, unknown) in KINDS {
        let (connectors, stages) = connectors(|variant| script(variant).start_after(secs(20)));
        let host = Host::new(HostOptions { connector_factory: Some(connectors), ..HostOptions::default() });
        let only = Snapshot { pins: None, ..snapshot("c", true) };
        host.apply(only.clone()).await;
        let asking = tokio::spawn({
            let host = host.clone();
            let (caller, scope) = (Caller::new("ada", "dev"), Scope::Server(name("s")));
            async move { ask(&host, &caller, &scope, (kind, "c")).await }
        });
        run_until_stalled().await;
        host.apply(Snapshot { rules: rules("a"), ..only }).await;
        assert_eq!(asking.await.unwrap().unwrap_err().code(), unknown, "{kind:?}");
        let stage = stages.lock().unwrap()[0].clone();
        let sent = stage.requests().into_iter().filter(|asked| !asked.method.ends_with("/list"));
        assert_eq!(sent.map(|asked| asked.method).collect::<Vec<_>>(), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_start_is_not_sent_once_its_server_may_not_offer_it() {
    let (connectors, stages) = connectors(|variant| script(variant).start_after(secs(20)));
    let host = Host::new(HostOptions { connector_factory: Some(connectors), ..HostOptions::default() });
    let open = Snapshot { rules: Rules::default(), pins: None, ..snapshot("c", true) };
    host.apply(open.clone()).await;
    let asking = tokio::spawn({
        let host = host.clone();
        async move { call(&host, &Caller::local(), &Scope::Server(name("s")), "c").await }
    });
    run_until_stalled().await;
    let mut closed = open;
    closed.servers[0].tools.deny = vec!["c".to_owned()];
    host.apply(closed).await;
    assert_eq!(asking.await.unwrap().unwrap_err().code(), "unknown-tool");
    assert_eq!(stages.lock().unwrap()[0].count("c"), 0);
}

/// Applies the rollback with the server of the older snapshot in each state between starting and ready: once for each
/// round of the scheduler after the moment at which that server comes up.
#[tokio::test(start_paused = true)]
async fn a_rollback_stands_also_while_the_server_that_it_takes_back_becomes_ready() {
    const ROUNDS: u32 = 40;
    let host = host(|variant| match variant {
        "slow" => script("b").start_after(secs(40)),
        variant => script(variant),
    });
    let caller = Caller::new("ada", "dev");
    for rounds in 0..ROUNDS {
        host.apply(snapshot("a", false)).await;
        let up = tokio::time::Instant::now() + secs(40);
        let slow = ServerSpec::stdio(name("s"), "in-memory").args(["slow"]);
        let applied = host.apply(Snapshot { servers: vec![slow], ..host.snapshot() }).await;
        assert_eq!(applied.starting, [name("s")]);
        let rollback = tokio::spawn({
            let host = host.clone();
            async move {
                tokio::time::sleep_until(up).await;
                for _ in 0..rounds {
                    pass().await;
                }
                host.apply(snapshot("a", false)).await
            }
        });
        rollback.await.unwrap();
        run_until_stalled().await;
        assert_eq!(host.snapshot().servers, snapshot("a", false).servers, "after {rounds} rounds");
        assert_eq!(call(&host, &caller, &Scope::All, "a").await.unwrap(), "a", "after {rounds} rounds");
    }
}

/// Lets every other task that is ready run once.
async fn pass() {
    let mut has_passed = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_passed, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_applied_snapshot_that_is_dropped_leaves_no_server_behind() {
    let (connectors, stages) = connectors(|variant| match variant {
        "slow" => script("b").start_after(secs(5)),
        variant => script(variant),
    });
    let host = Host::new(HostOptions { connector_factory: Some(connectors), ..HostOptions::default() });
    host.apply(snapshot("a", false)).await;
    let slow = ServerSpec::stdio(name("s"), "in-memory").args(["slow"]);
    let wanted = Snapshot { servers: vec![slow], ..host.snapshot() };
    assert!(tokio::time::timeout(secs(1), host.apply(wanted)).await.is_err());
    run_until_stalled().await;
    tokio::time::sleep(secs(30)).await;
    let open: Vec<usize> = stages.lock().unwrap().iter().map(ScriptedServer::open_sessions).collect();
    assert_eq!(open, [1, 0], "the server that was being prepared is still there");
    assert_eq!(call(&host, &Caller::new("ada", "dev"), &Scope::All, "a").await.unwrap(), "a");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_can_not_be_used_says_why_to_callers_that_may_see_it() {
    let (connectors, _) = connectors(script);
    let host = Host::new(HostOptions { connector_factory: Some(connectors), ..HostOptions::default() });
    let spec = |server: &str| ServerSpec::stdio(name(server), "in-memory").args(["a"]).lazy();
    let off = DisabledServer { spec: spec("off"), cause: "secret".into(), remedy: "enable it".into() };
    let bad = ServerSpec { max_in_flight: 0, ..spec("bad") };
    let rules = Rules::from_roles(&BTreeMap::from(
        [("dev", "s/*"), ("ops", "*/a")].map(|(name, allow)| (name.to_owned(), role(vec![allow.to_owned()]))),
    ));
    let wanted =
        Snapshot { servers: vec![spec("s"), bad], disabled: vec![off], rules, ..snapshot("a", true) };
    let applied = host.apply(Snapshot { pins: None, ..wanted.clone() }).await;
    assert_eq!(applied.failed.len(), 1);

    let operator = Caller::operator();
    let names: Vec<_> = host.status().into_iter().map(|status| status.name.to_string()).collect();
    assert_eq!(names, ["bad", "off", "s"]);
    assert_eq!(host.status_of("off").unwrap().state, ServerState::Disabled);
    assert_eq!(host.unusable_reason("bad").unwrap().code(), "invalid-argument");
    let listed = host.list(&operator, &Scope::All, Kind::Tools, secs(1)).await;
    let listed: Vec<_> = listed.iter().map(|one| (one.server.as_str(), one.error.is_some())).collect();
    assert_eq!(listed, [("bad", true), ("s", false)], "what is meant to be off is no failure");

    let ask = async |caller: &Caller, scope: Scope, tool: &str| {
        let request = Request::new(caller, "tools/call", Params::tool_call(tool, None).unwrap());
        host.resolve(&scope, request).await.unwrap_err()
    };
    let one = |server: &str| Scope::Server(name(server));
    for error in [
        ask(&operator, one("off"), "a").await,
        ask(&operator, Scope::All, "off__a").await,
        host.tools(&operator, "off").await.unwrap_err(),
        host.card("off").await.unwrap_err(),
        host.start("off").await.unwrap_err(),
    ] {
        assert_eq!(error.code(), "server-unavailable");
        assert!(error.render().contains("secret"), "{}", error.render());
    }
    let ops = Caller::new("ada", "ops");
    for server in ["off", "bad"] {
        let error = ask(&ops, one(server), "a").await;
        assert_eq!(error.code(), "server-unavailable");
        assert!(!error.render().contains("secret") && !error.render().contains("max_in_flight"));
    }
    let dev = Caller::new("ann", "dev");
    for server in ["off", "bad"] {
        assert_eq!(ask(&dev, one(server), "a").await.code(), "unknown-server");
        assert_eq!(ask(&dev, Scope::All, &format!("{server}__a")).await.code(), "unknown-tool");
    }
    assert_eq!(host.visible_status(&dev).len(), 1);

    let servers = vec![spec("s"), spec("off"), spec("bad")];
    host.apply(Snapshot { servers, disabled: Vec::new(), ..host.snapshot() }).await;
    assert!(host.unusable_reason("off").is_none() && host.unusable_reason("bad").is_none());
    assert_eq!(host.tools(&operator, "off").await.unwrap().len(), TOOLS.len());
}
