//! Simulated worker: one process after another.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use ostler_host::{Answer, CallArguments, CallError, Caller, Host, HostOptions, Request};
use ostler_relay::broker::memory::BrokerPermissions;
use ostler_relay::worker::{ServerMirror, Worker, WorkerOptions};
use ostler_relay::{RelayName, WallClock};
use tokio::time::{Instant, timeout};

use crate::faulty_broker::FaultyBroker;
use crate::sim_host::{RelaySimShared, SERVERS};

/// Tolerance for the end of a call after its timeout.
const LATE: Duration = Duration::from_millis(100);

/// Simulated worker.
pub(crate) struct RelaySimWorker {
    name: String,
    role: &'static str,
    shared: Arc<RelaySimShared>,
    rng: Mutex<Rng>,
    calls: AtomicUsize,
    running: Mutex<Option<RunningWorker>>,
}

/// A running process.
#[derive(Clone)]
pub(crate) struct RunningWorker {
    host: Host,
    worker: Worker,
    _mirror: Arc<ServerMirror>,
    is_dead: Arc<AtomicBool>,
}

/// Call of one caller.
pub(crate) struct RelaySimCall {
    pub(crate) server: &'static str,
    pub(crate) tool: &'static str,
    /// Timeout of the call.
    pub(crate) limit: Duration,
    /// Time after which the caller drops the call.
    pub(crate) leaves: Option<Duration>,
}

impl RelaySimWorker {
    pub(crate) fn new(number: usize, shared: Arc<RelaySimShared>, rng: &mut Rng) -> Self {
        let role = if rng.bool() { "all" } else { "some" };
        let (rng, calls) = (Mutex::new(rng.fork()), AtomicUsize::new(0));
        Self { name: format!("w{number}"), role, shared, rng, calls, running: Mutex::default() }
    }

    pub(crate) fn running(&self) -> Option<RunningWorker> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the broker user, which is the worker's name.
    pub(crate) fn broker_user(&self) -> &str {
        &self.name
    }

    /// Starts a process unless one runs.
    pub(crate) fn start(&self) {
        if self.running().is_some() {
            return;
        }
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner).fork();
        let host = Host::new(HostOptions { seed: Some(rng.u64(..)), ..HostOptions::default() });
        let broker = self.shared.broker.for_user(&self.name, worker_permissions(self.role, &self.name));
        let (broker, is_dead) = FaultyBroker::wrap(broker, Arc::clone(&self.shared));
        let name = |text: &str| RelayName::new(text).unwrap();
        let mut options = WorkerOptions::new(name("t"), name(self.role), name(&self.name));
        // Clocks of workers are off by up to five seconds.
        let skewed = self.shared.invariants.clock.now() + rng.u64(..10_000) - 5_000;
        (options.clock, options.seed) = (WallClock::starting_at(skewed), Some(rng.u64(..)));
        let worker = Worker::start(broker, options);
        let mirror = Arc::new(worker.mirror(host.clone()));
        self.shared.invariants.trace(&format!("{} starts", self.name));
        let running = RunningWorker { host, worker, _mirror: mirror, is_dead };
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
    }

    /// Kills the process without a shutdown.
    pub(crate) fn kill(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(running) = running else { return };
        self.shared.invariants.trace(&format!("{} vanishes", self.name));
        running.is_dead.store(true, Ordering::Relaxed);
        self.shared.broker.disconnect(&self.name);
        tokio::spawn(running.shutdown());
    }

    /// Shuts the process down.
    pub(crate) async fn shutdown(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(running) = running else { return };
        self.shared
            .invariants
            .expect(running.host.status().iter().all(|server| server.in_flight == 0), || {
                format!("{}: calls are left", self.name)
            });
        running.shutdown().await;
    }

    /// Calls a tool and reports the end to the invariants.
    pub(crate) async fn call(&self, call: &RelaySimCall) -> Option<Result<Answer, CallError>> {
        let running = self.running()?;
        let invariants = &self.shared.invariants;
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let argument = format!("{}-{}-{number}", self.name, self.role);
        invariants.trace(&format!("{argument} asks for {}/{}", call.server, call.tool));
        let (caller, began) = (Caller::local(), Instant::now());
        let arguments = CallArguments::raw(format!("{{\"n\":\"{argument}\"}}"));
        let request = Request::tool_call(&caller, call.tool, arguments).unwrap().with_timeout(call.limit);
        let sending =
            timeout(call.leaves.unwrap_or(Duration::MAX), running.host.send_to(call.server, request));
        let result = sending.await.ok();
        let took = began.elapsed();
        let most = call.limit + LATE;
        invariants.expect(took <= most, || format!("{argument} took {took:?} of {most:?}"));
        invariants.record_end(&argument, result.as_ref(), took);
        if let Some(Ok(_)) = &result {
            let may_use = self.role == "all" || call.tool != "secret";
            invariants.expect(may_use, || format!("{argument} has used the secret tool"));
        }
        result
    }

    /// Lists the tools of a server and checks the role's permissions.
    pub(crate) async fn list(&self, server: &str) {
        let Some(running) = self.running() else { return };
        let listed = running.host.tools(&Caller::local(), server).await.unwrap_or_default();
        let may_see = |tool: &str| self.role == "all" || tool != "secret";
        let is_permitted = listed.iter().all(|listed| may_see(&listed.tool.name));
        self.shared.invariants.expect(is_permitted, || format!("{} was shown {listed:?}", self.name));
    }

    /// Checks that calls succeed again once the faults have ended.
    pub(crate) async fn assert_recovers(&self, within: Duration) {
        for server in SERVERS {
            let call = RelaySimCall { server, tool: "work", limit: within, leaves: None };
            let deadline = Instant::now() + within;
            while let Some(error) = self.call(&call).await.and_then(Result::err) {
                if Instant::now() < deadline {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    continue;
                }
                let problem = self.running().and_then(|running| running.worker.problem());
                let name = &self.name;
                let what = format!("{name}: {server} can't be called in fair weather, {problem:?}, {error}");
                return self.shared.invariants.expect(false, || what);
            }
        }
    }
}

impl RunningWorker {
    async fn shutdown(self) {
        self.worker.shutdown().await;
        self.host.shutdown().await;
    }
}

/// Returns the permissions of a worker at the broker.
fn worker_permissions(role: &str, worker: &str) -> BrokerPermissions {
    let publish = [
        format!("ostler.t.manifest.{role}.{worker}"),
        format!("ostler.t.call.{role}.{worker}"),
        format!("ostler.t.control.{worker}.*"),
    ];
    let subscribe = [
        format!("ostler.t.progress.{worker}.*"),
        "ostler.t.heartbeat.*".into(),
        format!("_INBOX_{worker}.>"),
    ];
    BrokerPermissions { publish: publish.into(), subscribe: subscribe.into(), may_respond: false }
}
