//! World of one simulation: made from a seed, run to its end.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use ostler_core::spec::{CacheRule, Isolation, RetryRule, ServerSpec, ToolRules};
use ostler_host::upstream::Connector;
use ostler_host::{Caller, Host, HostOptions, Verdict};
use ostler_testkit::{Script, ScriptedReply, ScriptedServer, TestHost, run_until_stalled};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::actors;
use crate::invariants::{HostSimLimits, InvariantChecker};
use crate::watched_server::{WatchedConnector, WatchedServer};

/// Observations of one simulation.
pub(crate) struct HostSimRun {
    pub(crate) violations: Vec<String>,
    pub(crate) trace: Vec<String>,
    pub(crate) outcomes: BTreeSet<&'static str>,
}

/// Hard deadline of a call in every simulated world.
pub(crate) const MAX_CALL_TIME: Duration = Duration::from_secs(60);

/// The server that guests may not see, and the tool they may not see on any server.
pub(crate) const SECRET_SERVER: &str = "s1";
pub(crate) const SECRET_TOOL: &str = "admin";

/// State that the actors of a simulation share.
pub(crate) struct HostSimWorld {
    pub(crate) host: Host,
    pub(crate) invariants: Arc<InvariantChecker>,
    pub(crate) servers: Vec<String>,
    /// Every registration ever made, the newest of a name last.
    registrations: Mutex<Vec<Arc<WatchedServer>>>,
}

impl HostSimWorld {
    pub(crate) fn registrations(&self) -> Vec<Arc<WatchedServer>> {
        self.registrations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn current_registration(&self, server: &str) -> Option<Arc<WatchedServer>> {
        self.registrations()
            .into_iter()
            .rfind(|scene| scene.spec.name.as_str() == server && scene.is_registered())
    }

    /// Registers or replaces a server, with a random spec.
    pub(crate) async fn spawn(&self, server: &str, rng: &mut Rng) {
        let spec = spec(server, rng);
        let scene =
            WatchedServer::new(spec.clone(), ScriptedServer::new(script(rng)), Arc::clone(&self.invariants));
        self.registrations.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&scene));
        let connector: Arc<dyn Connector> = Arc::new(WatchedConnector(Arc::clone(&scene)));
        let spawned = self.host.spawn_with(&Caller::local(), spec, connector).await;
        if spawned.is_ok() {
            scene.register();
        }
        let what = spawned.map_or_else(|error| error.code().to_owned(), |spawned| format!("{spawned:?}"));
        self.invariants.trace(&format!("spawn {server}: {what}"));
    }
}

/// Returns whether the rules of every simulated world let a caller use a tool.
pub(crate) fn may_see(role: &str, server: &str, tool: Option<&str>) -> bool {
    role != "guest" || (server != SECRET_SERVER && tool != Some(SECRET_TOOL))
}

/// Runs the simulation of a seed to its end.
pub(crate) async fn run_seed(seed: u64) -> HostSimRun {
    let mut rng = Rng::with_seed(seed);
    let limits =
        HostSimLimits { processes: rng.usize(1..=3), in_flight: rng.usize(4..=24), cache_bytes: 4_096 };
    let watch = Arc::new(InvariantChecker::new(limits));
    let shared = Arc::new(begin(&mut rng, &watch));
    for server in &shared.servers {
        shared.spawn(server, &mut rng).await;
    }
    let mut actors = JoinSet::new();
    for n in 0..rng.usize(4..=8) {
        actors.spawn(actors::call(Arc::clone(&shared), n, rng.fork()));
    }
    for _ in 0..2 {
        actors.spawn(actors::operate(Arc::clone(&shared), rng.fork()));
    }
    actors.spawn(actors::inject_faults(Arc::clone(&shared), rng.fork()));
    let ended = timeout(Duration::from_secs(3_600), actors.join_all()).await;
    watch.expect(ended.is_ok(), || "somebody waits for ever".into());
    end(shared, &watch).await;
    let mut notes = watch.observations();
    HostSimRun {
        violations: std::mem::take(&mut notes.violations),
        trace: std::mem::take(&mut notes.trace),
        outcomes: std::mem::take(&mut notes.outcomes),
    }
}

fn begin(rng: &mut Rng, watch: &Arc<InvariantChecker>) -> HostSimWorld {
    let HostSimLimits { processes, in_flight, cache_bytes } = watch.limits;
    let host = Host::new(HostOptions {
        max_processes: processes,
        max_in_flight: in_flight,
        cache_bytes,
        cache_entries_per_tool: 4,
        seed: Some(rng.u64(..)),
        ..HostOptions::default()
    });
    host.set_policy_hook(Some(Box::new(|caller, server, tool| match may_see(caller.role(), server, tool) {
        true => Verdict::Allow,
        false => Verdict::Deny { reason: "guests may not".into() },
    })));
    let records = Arc::clone(watch);
    host.set_recorder(Some(Arc::new(move |record| {
        // A list that a rule refuses is recorded, and is no call.
        if record.method.ends_with("/list") {
            return;
        }
        records
            .trace(&format!("{} {} {} {}", record.principal, record.server, record.subject, record.outcome));
        let mut notes = records.observations();
        notes.ended += 1;
        notes.outcomes.insert(record.outcome);
    })));
    watch.set_host(Some(host.clone()));
    let servers = (0..rng.usize(2..=4)).map(|n| format!("s{n}")).collect();
    HostSimWorld { host, invariants: Arc::clone(watch), servers, registrations: Mutex::default() }
}

/// Checks that nothing is in use after all callers have left, and that nothing is left after the shutdown.
async fn end(shared: Arc<HostSimWorld>, watch: &InvariantChecker) {
    // Longer than any work that a departed caller has started.
    tokio::time::sleep(3 * MAX_CALL_TIME).await;
    for status in shared.host.status() {
        let in_use = (status.leases, status.in_flight, status.queued);
        watch.expect(in_use == (0, 0, 0), || format!("{}: {in_use:?} still in use", status.name));
        watch.expect(!(status.lazy && status.active), || format!("{}: lazy, unused and up", status.name));
    }
    watch.check_ends();
    watch.expect(shared.host.shutdown().await, || "the shutdown was not complete".into());
    watch.expect(shared.host.process_count() == 0, || "processes are left".into());
    watch.set_host(None);
    for scene in shared.registrations() {
        let (name, stage) = (&scene.spec.name, &scene.stage);
        watch.expect(stage.open_sessions() == 0, || {
            format!("{name}: {} sessions left", stage.open_sessions())
        });
        watch.expect(stage.in_flight() == 0, || format!("{name}: requests left"));
        for (tool, most) in [("work", 1), ("admin", 1), ("fact", 1), ("safe", 2), ("shared", 1)] {
            let times = stage.most_executions(tool);
            watch.expect(times <= most, || format!("{name}: one call of {tool} ran {times} times"));
        }
    }
    drop(shared);
    run_until_stalled().await;
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    watch.expect(tasks == 0, || format!("{tasks} tasks are left"));
}

fn seconds(rng: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(rng.u64(range.start * 1_000..range.end * 1_000))
}

/// Small limits, so that all of them are reached.
fn spec(server: &str, rng: &mut Rng) -> ServerSpec {
    let mut spec = TestHost::spec(server);
    spec.lazy = rng.u8(..4) > 0;
    spec.isolation = Isolation::Shared;
    spec.keep_alive = seconds(rng, 1..20);
    (spec.start_timeout, spec.call_timeout) = (seconds(rng, 1..5), seconds(rng, 2..10));
    spec.max_call_time = MAX_CALL_TIME;
    (spec.max_in_flight, spec.max_queued) = (rng.usize(1..6), rng.usize(0..6));
    spec.drain = seconds(rng, 1..4);
    (spec.restart.max, spec.restart.window) = (rng.u32(1..5), seconds(rng, 10..60));
    spec.restart.max_delay = seconds(rng, 1..3);
    spec.restart.readmit_after = rng.bool().then(|| Duration::from_secs(10));
    (spec.breaker.failures, spec.breaker.reset) = (rng.u32(0..5), seconds(rng, 1..8));
    let safe = ToolRules { retry: RetryRule::Safe, ..ToolRules::default() };
    let shared = ToolRules { cache: CacheRule::For(Duration::from_secs(5)), ..ToolRules::default() };
    spec.tool = [("safe".to_owned(), safe), ("shared".to_owned(), shared)].into();
    spec
}

/// A server that mostly works.
fn script(rng: &mut Rng) -> Script {
    let mark = rng.u64(..);
    let (starts, replies) = (Mutex::new(rng.fork()), Arc::new(Mutex::new(rng.fork())));
    let mut script = Script::new()
        .start_after(Duration::from_millis(rng.u64(..2_000)))
        .close_after(Duration::from_millis(rng.u64(..500)))
        .failing_starts(move |_| starts.lock().unwrap().u8(..5) == 0);
    if rng.bool() {
        script = script.as_process();
    }
    if rng.bool() {
        script = script.without_list_changed();
    }
    for tool in ["work", "safe", "fact", "shared", SECRET_TOOL] {
        let replies = Arc::clone(&replies);
        script = script.tool(tool).on(tool, move |asked| {
            let text = format!("{mark:x} {}", asked.number);
            let good = match tool {
                "fact" => ScriptedReply::cacheable(&text, Duration::from_secs(5), "private"),
                _ => ScriptedReply::text(&text),
            };
            reply(good, &mut replies.lock().unwrap())
        });
    }
    script
}

fn reply(good: ScriptedReply, rng: &mut Rng) -> ScriptedReply {
    let reply = match rng.u8(..40) {
        0 | 1 => ScriptedReply::crash(),
        2 => ScriptedReply::crash_before_read(),
        3 => ScriptedReply::never(),
        4 | 5 => ScriptedReply::malformed(),
        6..9 => ScriptedReply::error(-32603, "broken"),
        9 => ScriptedReply::error(-32602, "no"),
        10 => ScriptedReply::tool_error("no"),
        _ => good,
    };
    match rng.u8(..3) {
        0 => reply,
        _ => reply.after(Duration::from_millis(rng.u64(..3_000))),
    }
}
