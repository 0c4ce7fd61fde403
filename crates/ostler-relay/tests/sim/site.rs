//! A place where a host runs: one process after another.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use ostler_core::config::Role;
use ostler_host::{Caller, Host, HostOptions, Rules};
use ostler_relay::Name;
use ostler_relay::broker::memory::{MemoryBroker, Rights};
use ostler_relay::journal::Journal;
use ostler_relay::service::{Service, ServiceOptions};
use ostler_testkit::{Reconfigure, Reply, Script, Stage, World};

use crate::door::Door;
use crate::sky::Sky;
use crate::watch::Watch;

/// The servers of every host.
pub(crate) const SERVERS: [&str; 2] = ["s0", "s1"];
/// Calls that a host takes at once.
pub(crate) const MOST: usize = 12;

/// What all sites share.
pub(crate) struct Ground {
    pub(crate) broker: MemoryBroker,
    pub(crate) sky: Sky,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) watch: Arc<Watch>,
}

/// A place where a host runs.
pub(crate) struct Site {
    name: String,
    ground: Arc<Ground>,
    chance: Mutex<Rng>,
    /// How many processes there were.
    lives: Mutex<usize>,
    running: Mutex<Option<Running>>,
}

/// A process.
#[derive(Clone)]
struct Running {
    host: Host,
    service: Service,
    stages: Vec<Stage>,
    door: String,
    is_dead: Arc<AtomicBool>,
}

impl Site {
    pub(crate) fn new(number: usize, ground: Arc<Ground>, rng: &mut Rng) -> Self {
        let (chance, lives) = (Mutex::new(rng.fork()), Mutex::new(0));
        Self { name: format!("h{number}"), ground, chance, lives, running: Mutex::default() }
    }

    fn running(&self) -> Option<Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The door of the process that runs.
    pub(crate) fn door(&self) -> Option<String> {
        self.running().map(|running| running.door)
    }

    /// Starts a process, if none runs.
    pub(crate) async fn start(&self) {
        if self.running().is_some() {
            return;
        }
        let mut rng = self.chance.lock().unwrap_or_else(PoisonError::into_inner).fork();
        let life = {
            let mut lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
            *lives += 1;
            *lives
        };
        let door = format!("{}.{life}", self.name);
        let host =
            Host::new(HostOptions { rules: rules(false), seed: Some(rng.u64(..)), ..HostOptions::default() });
        let mut stages = Vec::new();
        for server in SERVERS {
            let stage = Stage::new(self.script(&door, &mut rng));
            let mut spec = World::spec(server);
            spec.breaker.failures = 0;
            (spec.restart.max, spec.restart.max_delay) = (1_000, Duration::from_millis(500));
            spec.max_call_time = Duration::from_secs(60);
            host.spawn_with(&Caller::local(), spec, Arc::new(stage.clone())).await.unwrap();
            stages.push(stage);
        }
        let (broker, is_dead) =
            Door::make(self.ground.broker.door(&door, Rights::all()), Arc::clone(&self.ground));
        let mut options = ServiceOptions::new(Name::new("t").unwrap(), Name::new(&self.name).unwrap());
        (options.max_in_flight, options.clock) = (MOST, self.ground.watch.clock);
        options.seed = Some(rng.u64(..));
        let service = Service::start(host.clone(), broker, Arc::clone(&self.ground.journal), options);
        self.ground.watch.trace(&format!("{door} starts"));
        let running = Running { host, service, stages, door, is_dead };
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
    }

    /// Kills the process: from one moment to the next nobody hears of it. What
    /// it has sent to its servers they may carry out.
    pub(crate) fn kill(&self) {
        let killed = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(killed) = killed else { return };
        self.ground.watch.trace(&format!("{} is killed", killed.door));
        killed.is_dead.store(true, Ordering::Relaxed);
        self.ground.broker.cut(&killed.door);
        tokio::spawn(async move {
            killed.service.drain(Duration::ZERO).await;
            killed.host.shutdown().await;
        });
    }

    /// Ends the process in order.
    pub(crate) async fn end(&self, within: Duration) {
        let ending = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(ending) = ending else { return };
        self.ground.watch.trace(&format!("{} drains", ending.door));
        ending.service.drain(within).await;
        let watch = &self.ground.watch;
        watch.expect(ending.service.status().in_flight == 0, || format!("{}: calls are left", ending.door));
        watch.expect(ending.host.shutdown().await, || "the shutdown was not complete".into());
        for stage in &ending.stages {
            watch.expect(stage.in_flight() == 0, || format!("{}: requests are left", ending.door));
        }
    }

    /// One of its servers crashes.
    pub(crate) fn crash_server(&self, number: usize) {
        if let Some(running) = self.running() {
            running.stages[number % SERVERS.len()].crash();
        }
    }

    /// The role that may use less may use one tool more, or not any longer.
    pub(crate) async fn set_rules(&self, has_extra: bool) {
        let host = self.running().map(|running| running.host.clone());
        if let Some(host) = host {
            host.set_rules(rules(has_extra)).await;
        }
    }

    pub(crate) fn check_limits(&self) {
        let Some(running) = self.running() else { return };
        let in_flight: usize = running.stages.iter().map(Stage::in_flight).sum();
        self.ground.watch.expect(in_flight <= MOST, || format!("{}: {in_flight} calls", running.door));
    }

    /// A server whose tools answer with the argument that they were given.
    fn script(&self, door: &str, rng: &mut Rng) -> Script {
        let is_prompt = self.ground.watch.is_prompt;
        let mut script = Script::new();
        if !is_prompt {
            script = script.start_after(Duration::from_millis(rng.u64(..1_500)));
        }
        let chance = Arc::new(Mutex::new(rng.fork()));
        for tool in ["work", "big", "extra", "secret"] {
            let (chance, watch) = (Arc::clone(&chance), Arc::clone(&self.ground.watch));
            let door = door.to_owned();
            script = script.tool(tool).on(tool, move |asked| {
                let argument = argument_of(asked.arguments.as_deref());
                watch.note_execution(&door, tool, &argument);
                match watch.is_fair() {
                    true => Reply::text(&argument),
                    false => reply(&watch, tool, &argument, &mut chance.lock().unwrap()),
                }
            });
        }
        script
    }
}

fn argument_of(arguments: Option<&str>) -> String {
    let arguments: BTreeMap<String, String> =
        serde_json::from_str(arguments.unwrap_or("{}")).unwrap_or_default();
    arguments.get("n").cloned().unwrap_or_default()
}

fn reply(watch: &Watch, tool: &str, argument: &str, rng: &mut Rng) -> Reply {
    let good = match tool {
        "big" if watch.has_large => {
            Reply::text(&format!("{argument} {}", "x".repeat(rng.usize(520_000..600_000))))
        }
        _ => Reply::text(argument),
    };
    let reply = match rng.u8(..40) {
        0 if !watch.is_prompt => Reply::crash(),
        1 => Reply::never(),
        2 => Reply::error(-32603, "broken"),
        _ => good,
    };
    match rng.u8(..3) {
        0 => reply,
        1 => reply.after(Duration::from_millis(rng.u64(..300))),
        _ => reply.after(Duration::from_millis(rng.u64(..6_000))),
    }
}

fn rules(has_extra: bool) -> Rules {
    let role = |allow: &[&str]| Role {
        allow: allow.iter().map(|&rule| rule.to_owned()).collect(),
        deny: Vec::new(),
        budget: None,
        max_in_flight: None,
    };
    let some = match has_extra {
        true => role(&["*/work", "*/big", "*/extra"]),
        false => role(&["*/work", "*/big"]),
    };
    Rules::of(&[("all".to_owned(), role(&["*"])), ("some".to_owned(), some)].into())
}
