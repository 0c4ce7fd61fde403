//! Simulated host: one process after another.

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

/// Servers of every host.
pub(crate) const SERVERS: [&str; 2] = ["s0", "s1"];
/// Limit of calls in flight per host.
pub(crate) const MOST: usize = 12;

/// State shared by all processes of a run.
pub(crate) struct RelaySimShared {
    pub(crate) broker: MemoryBroker,
    pub(crate) network: RelaySimNetwork,
    pub(crate) journal: Arc<dyn CallJournal>,
    pub(crate) invariants: Arc<RelayInvariants>,
}

/// Simulated host.
pub(crate) struct RelaySimHost {
    name: String,
    shared: Arc<RelaySimShared>,
    rng: Mutex<Rng>,
    /// Number of processes started.
    starts: Mutex<usize>,
    running: Mutex<Option<RunningHost>>,
}

/// A running process.
#[derive(Clone)]
struct RunningHost {
    host: Host,
    service: Service,
    servers: Vec<ScriptedServer>,
    broker_user: String,
    is_dead: Arc<AtomicBool>,
}

impl RelaySimHost {
    pub(crate) fn new(number: usize, shared: Arc<RelaySimShared>, rng: &mut Rng) -> Self {
        let (rng, starts) = (Mutex::new(rng.fork()), Mutex::new(0));
        Self { name: format!("h{number}"), shared, rng, starts, running: Mutex::default() }
    }

    fn running(&self) -> Option<RunningHost> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the broker user of the running process.
    pub(crate) fn broker_user(&self) -> Option<String> {
        self.running().map(|running| running.broker_user)
    }

    /// Starts a process unless one runs.
    pub(crate) async fn start(&self) {
        if self.running().is_some() {
            return;
        }
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner).fork();
        let start = {
            let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
            *starts += 1;
            *starts
        };
        let broker_user = format!("{}.{start}", self.name);
        let host =
            Host::new(HostOptions { rules: rules(false), seed: Some(rng.u64(..)), ..HostOptions::default() });
        let mut servers = Vec::new();
        for name in SERVERS {
            let server = ScriptedServer::new(self.script(&broker_user, &mut rng));
            let mut spec = TestHost::spec(name);
            spec.breaker.failures = 0;
            (spec.restart.max, spec.restart.max_delay) = (1_000, Duration::from_millis(500));
            spec.max_call_time = Duration::from_secs(60);
            host.spawn_with(&Caller::local(), spec, Arc::new(server.clone())).await.unwrap();
            servers.push(server);
        }
        let (broker, is_dead) = FaultyBroker::wrap(
            self.shared.broker.for_user(&broker_user, BrokerPermissions::all()),
            Arc::clone(&self.shared),
        );
        let mut options =
            ServiceOptions::new(RelayName::new("t").unwrap(), RelayName::new(&self.name).unwrap());
        (options.max_in_flight, options.clock) = (MOST, self.shared.invariants.clock);
        options.seed = Some(rng.u64(..));
        let service = Service::start(host.clone(), broker, Arc::clone(&self.shared.journal), options);
        self.shared.invariants.trace(&format!("{broker_user} starts"));
        let running = RunningHost { host, service, servers, broker_user, is_dead };
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
    }

    /// Kills the process: it sends nothing more, while its servers may execute what it has sent.
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

    /// Drains the process.
    pub(crate) async fn drain(&self, within: Duration) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(running) = running else { return };
        self.shared.invariants.trace(&format!("{} drains", running.broker_user));
        running.service.drain(within).await;
        let invariants = &self.shared.invariants;
        invariants.expect(running.service.status().in_flight == 0, || {
            format!("{}: calls are left", running.broker_user)
        });
        invariants.expect(running.host.shutdown().await, || "the shutdown was not complete".into());
        for server in &running.servers {
            invariants
                .expect(server.in_flight() == 0, || format!("{}: requests are left", running.broker_user));
        }
    }

    /// Crashes one server.
    pub(crate) fn crash_server(&self, number: usize) {
        if let Some(running) = self.running() {
            running.servers[number % SERVERS.len()].crash();
        }
    }

    /// Grants or revokes one tool for the role `some`.
    pub(crate) async fn set_rules(&self, has_extra: bool) {
        let host = self.running().map(|running| running.host.clone());
        if let Some(host) = host {
            host.set_rules(rules(has_extra)).await;
        }
    }

    pub(crate) fn check_limits(&self) {
        let Some(running) = self.running() else { return };
        let in_flight: usize = running.servers.iter().map(ScriptedServer::in_flight).sum();
        self.shared
            .invariants
            .expect(in_flight <= MOST, || format!("{}: {in_flight} calls", running.broker_user));
    }

    /// Returns the script of a server whose tools answer with their argument.
    fn script(&self, broker_user: &str, rng: &mut Rng) -> Script {
        let is_prompt = self.shared.invariants.is_prompt;
        let mut script = Script::new();
        if !is_prompt {
            script = script.start_after(Duration::from_millis(rng.u64(..1_500)));
        }
        let rng = Arc::new(Mutex::new(rng.fork()));
        for tool in ["work", "big", "extra", "secret"] {
            let (rng, invariants) = (Arc::clone(&rng), Arc::clone(&self.shared.invariants));
            let broker_user = broker_user.to_owned();
            script = script.tool(tool).on(tool, move |call| {
                let argument = argument_of(call.arguments.as_deref());
                invariants.record_execution(&broker_user, tool, &argument);
                match invariants.is_fault_free() {
                    true => ScriptedReply::text(&argument),
                    false => reply(&invariants, tool, &argument, &mut rng.lock().unwrap()),
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

fn reply(invariants: &RelayInvariants, tool: &str, argument: &str, rng: &mut Rng) -> ScriptedReply {
    let success = match tool {
        "big" if invariants.has_large => {
            ScriptedReply::text(&format!("{argument} {}", "x".repeat(rng.usize(520_000..600_000))))
        }
        _ => ScriptedReply::text(argument),
    };
    let reply = match rng.u8(..40) {
        0 if !invariants.is_prompt => ScriptedReply::crash(),
        1 => ScriptedReply::never(),
        2 => ScriptedReply::error(-32603, "broken"),
        _ => success,
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
