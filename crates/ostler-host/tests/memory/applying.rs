//! One snapshot: servers, rules, limits and pins are applied together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_core::config::{DisabledServer, PinMode, Role};
use ostler_core::pins::{LockFile, LockSection, LockedServer, Pin, PinPolicy};
use ostler_core::status::ServerState;
use ostler_host::upstream::Connector;
use ostler_host::{
    Applied, CacheRule, CallArguments, CallError, Caller, ConnectorFactory, Host, HostOptions, Kind, Limits,
    Request, Rules, Scope, ServerName, ServerSpec, ServerTransport, Snapshot, ToolRules,
};
use ostler_testkit::{Script, ScriptedReply, ScriptedServer, run_until_stalled};
use ostler_wire::Params;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::secs;

/// The tools of every variant of a server.
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

/// The name or URI of an item at its server.
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

/// A part of an answer, in the place where answers of tools have it.
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
/// Answers of one tool are remembered.
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

/// Kinds of items that are asked for, and what a caller that may not use one is told.
const KINDS: [(Kind, &str); 3] =
    [(Kind::Tools, "unknown-tool"), (Kind::Prompts, "unknown-prompt"), (Kind::Resources, "unknown-resource")];

/// What a call may come to while snapshots change: an answer of the variant that its item is allowed in, or no item of
/// that name. Rules of one snapshot beside pins or servers of another would come to an answer of another variant, or to
/// a definition that nobody has approved.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[expect(clippy::print_stdout, reason = "the seed is for whoever repeats a run that failed")]
async fn every_call_meets_rules_pins_and_servers_of_one_snapshot() {
    let seed = std::env::var("OSTLER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("OSTLER_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let host = host(script);
    host.apply(snapshot("a", false)).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU64::new(0));
    let mut callers = JoinSet::new();
    for number in 0..32_u64 {
        let (host, is_over, answered) = (host.clone(), Arc::clone(&is_over), Arc::clone(&answered));
        let mut rng = fastrand::Rng::with_seed(seed ^ number);
        callers.spawn(async move {
            let caller = Caller::new(format!("caller-{number}"), "dev");
            let scopes = [Scope::All, Scope::Server(name("s"))];
            while !is_over.load(Ordering::Acquire) {
                let (tool, scope) = (TOOLS[rng.usize(..TOOLS.len())], &scopes[rng.usize(..2)]);
                if rng.u8(..4) == 0 {
                    let listings = host.list(&caller, scope, Kind::Tools, secs(5)).await;
                    for item in listings.into_iter().flat_map(|listing| listing.items) {
                        let listed: Value = serde_json::from_slice(&item.item.definition).unwrap();
                        let expected = definition(&item.item.name, &item.item.name);
                        assert_eq!(listed, expected, "a tool of another variant is listed");
                    }
                    continue;
                }
                let (kind, unknown) = KINDS[rng.usize(..KINDS.len())];
                match ask(&host, &caller, scope, (kind, tool)).await {
                    Ok(answer) => {
                        assert_eq!(answer, tool, "a server of another snapshot answered");
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => assert_eq!(error.code(), unknown, "{error:?}"),
                }
                tokio::task::yield_now().await;
            }
        });
    }
    for _ in 0..1_000 {
        let variant = TOOLS[rng.usize(..TOOLS.len())];
        let applied = host.apply(snapshot(variant, rng.bool())).await;
        assert!(applied.failed.is_empty(), "{applied:?}");
        tokio::task::yield_now().await;
    }
    is_over.store(true, Ordering::Release);
    callers.join_all().await;
    let answered = answered.load(Ordering::Relaxed);
    assert!(answered > 100, "only {answered} calls were answered, so that nothing was tried");
    host.shutdown().await;
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
    assert!(is_in_force && after >= secs(10), "{after:?}");
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
    tokio::time::sleep(secs(11)).await;
    assert_eq!(call(&host, &caller, &scope, "a").await.unwrap_err().code(), "unknown-tool");
    assert_eq!(
        call(&host, &caller, &scope, "b").await.unwrap(),
        "a",
        "the server from before serves meanwhile"
    );
    assert_eq!(applying.await.unwrap().starting, [name("s")]);
    tokio::time::sleep(secs(30)).await;
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

/// The rollback finds the server of the older snapshot in each state between starting and ready: it is applied as many
/// rounds of the scheduler after the moment at which that server comes up as there are.
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
