//! A place where a host runs: one process after another.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use ostler_core::config::Role;
use ostler_host::{Caller, Host, HostOptions, Rules};
use ostler_relay::RelayName;
use ostler_relay::broker::memory::{BrokerPermissions, MemoryBroker};
use ostler_relay::journal::CallJournal;
use ostler_relay::service::{Service, ServiceOptions};
use ostler_testkit::{Reconfigure, Script, ScriptedReply, ScriptedServer, TestHost};

use crate::faulty_broker::FaultyBroker;
use crate::invariants::RelayInvariants;
use crate::network::RelaySimNetwork;

/// The servers of every host.
pub(crate) const SERVERS: [&str; 2] = ["s0", "s1"];
/// Calls that a host takes at once.
pub(crate) const MOST: usize = 12;

/// What all sites share.
pub(crate) struct RelaySimShared {
    pub(crate) broker: MemoryBroker,
    pub(crate) network: RelaySimNetwork,
    pub(crate) journal: Arc<dyn CallJournal>,
    pub(crate) invariants: Arc<RelayInvariants>,
}

/// A place where a host runs.
pub(crate) struct RelaySimHost {
    name: String,
    shared: Arc<RelaySimShared>,
    chance: Mutex<Rng>,
    /// How many processes there were.
    starts: Mutex<usize>,
    running: Mutex<Option<RunningHost>>,
}

/// A process.
#[derive(Clone)]
struct RunningHost {
    host: Host,
    service: Service,
    stages: Vec<ScriptedServer>,
    broker_user: String,
    is_dead: Arc<AtomicBool>,
}

impl RelaySimHost {
    pub(crate) fn new(number: usize, shared: Arc<RelaySimShared>, rng: &mut Rng) -> Self {
        let (chance, starts) = (Mutex::new(rng.fork()), Mutex::new(0));
        Self { name: format!("h{number}"), shared, chance, starts, running: Mutex::default() }
    }

    fn running(&self) -> Option<RunningHost> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The door of the process that runs.
    pub(crate) fn broker_user(&self) -> Option<String> {
        self.running().map(|running| running.broker_user)
    }

    /// Starts a process, if none runs.
    pub(crate) async fn start(&self) {
        if self.running().is_some() {
            return;
        }
        let mut rng = self.chance.lock().unwrap_or_else(PoisonError::into_inner).fork();
        let life = {
            let mut lives = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
            *lives += 1;
            *lives
        };
        let door = format!("{}.{life}", self.name);
        let host =
            Host::new(HostOptions { rules: rules(false), seed: Some(rng.u64(..)), ..HostOptions::default() });
        let mut stages = Vec::new();
        for server in SERVERS {
            let stage = ScriptedServer::new(self.script(&door, &mut rng));
            let mut spec = TestHost::spec(server);
            spec.breaker.failures = 0;
            (spec.restart.max, spec.restart.max_delay) = (1_000, Duration::from_millis(500));
            spec.max_call_time = Duration::from_secs(60);
            host.spawn_with(&Caller::local(), spec, Arc::new(stage.clone())).await.unwrap();
            stages.push(stage);
        }
        let (broker, is_dead) = FaultyBroker::wrap(
            self.shared.broker.for_user(&door, BrokerPermissions::all()),
            Arc::clone(&self.shared),
        );
        let mut options =
            ServiceOptions::new(RelayName::new("t").unwrap(), RelayName::new(&self.name).unwrap());
        (options.max_in_flight, options.clock) = (MOST, self.shared.invariants.clock);
        options.seed = Some(rng.u64(..));
        let service = Service::start(host.clone(), broker, Arc::clone(&self.shared.journal), options);
        self.shared.invariants.trace(&format!("{door} starts"));
        let running = RunningHost { host, service, stages, broker_user: door, is_dead };
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
    }

    /// Kills the process: from one moment to the next nobody hears of it. What
    /// it has sent to its servers they may carry out.
    pub(crate) fn kill(&self) {
        let killed = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(killed) = killed else { return };
        self.shared.invariants.trace(&format!("{} is killed", killed.broker_user));
        killed.is_dead.store(true, Ordering::Relaxed);
        self.shared.broker.disconnect(&killed.broker_user);
        tokio::spawn(async move {
            killed.service.drain(Duration::ZERO).await;
            killed.host.shutdown().await;
        });
    }

    /// Ends the process in order.
    pub(crate) async fn drain(&self, within: Duration) {
        let ending = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(ending) = ending else { return };
        self.shared.invariants.trace(&format!("{} drains", ending.broker_user));
        ending.service.drain(within).await;
        let watch = &self.shared.invariants;
        watch.expect(ending.service.status().in_flight == 0, || {
            format!("{}: calls are left", ending.broker_user)
        });
        watch.expect(ending.host.shutdown().await, || "the shutdown was not complete".into());
        for stage in &ending.stages {
            watch.expect(stage.in_flight() == 0, || format!("{}: requests are left", ending.broker_user));
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
        let in_flight: usize = running.stages.iter().map(ScriptedServer::in_flight).sum();
        self.shared
            .invariants
            .expect(in_flight <= MOST, || format!("{}: {in_flight} calls", running.broker_user));
    }

    /// A server whose tools answer with the argument that they were given.
    fn script(&self, door: &str, rng: &mut Rng) -> Script {
        let is_prompt = self.shared.invariants.is_prompt;
        let mut script = Script::new();
        if !is_prompt {
            script = script.start_after(Duration::from_millis(rng.u64(..1_500)));
        }
        let chance = Arc::new(Mutex::new(rng.fork()));
        for tool in ["work", "big", "extra", "secret"] {
            let (chance, watch) = (Arc::clone(&chance), Arc::clone(&self.shared.invariants));
            let door = door.to_owned();
            script = script.tool(tool).on(tool, move |asked| {
                let argument = argument_of(asked.arguments.as_deref());
                watch.record_execution(&door, tool, &argument);
                match watch.is_fault_free() {
                    true => ScriptedReply::text(&argument),
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

fn reply(watch: &RelayInvariants, tool: &str, argument: &str, rng: &mut Rng) -> ScriptedReply {
    let good = match tool {
        "big" if watch.has_large => {
            ScriptedReply::text(&format!("{argument} {}", "x".repeat(rng.usize(520_000..600_000))))
        }
        _ => ScriptedReply::text(argument),
    };
    let reply = match rng.u8(..40) {
        0 if !watch.is_prompt => ScriptedReply::crash(),
        1 => ScriptedReply::never(),
        2 => ScriptedReply::error(-32603, "broken"),
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
    Rules::from_roles(&[("all".to_owned(), role(&["*"])), ("some".to_owned(), some)].into())
}
