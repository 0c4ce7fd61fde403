//! A place where a worker runs: one process after another.

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

/// A call may end this much later than it should.
const LATE: Duration = Duration::from_millis(100);

/// A place where a worker runs.
pub(crate) struct RelaySimWorker {
    name: String,
    role: &'static str,
    shared: Arc<RelaySimShared>,
    chance: Mutex<Rng>,
    calls: AtomicUsize,
    running: Mutex<Option<RunningWorker>>,
}

/// A process.
#[derive(Clone)]
pub(crate) struct RunningWorker {
    host: Host,
    worker: Worker,
    _mirror: Arc<ServerMirror>,
    is_dead: Arc<AtomicBool>,
}

/// What one caller wants.
pub(crate) struct RelaySimCall {
    pub(crate) server: &'static str,
    pub(crate) tool: &'static str,
    /// How long it may take.
    pub(crate) limit: Duration,
    /// When the caller leaves.
    pub(crate) leaves: Option<Duration>,
}

impl RelaySimWorker {
    pub(crate) fn new(number: usize, shared: Arc<RelaySimShared>, rng: &mut Rng) -> Self {
        let role = if rng.bool() { "all" } else { "some" };
        let (chance, calls) = (Mutex::new(rng.fork()), AtomicUsize::new(0));
        Self { name: format!("w{number}"), role, shared, chance, calls, running: Mutex::default() }
    }

    pub(crate) fn running(&self) -> Option<RunningWorker> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The name of its door, which is the worker's.
    pub(crate) fn broker_user(&self) -> &str {
        &self.name
    }

    /// Starts a process, if none runs.
    pub(crate) fn start(&self) {
        if self.running().is_some() {
            return;
        }
        let mut rng = self.chance.lock().unwrap_or_else(PoisonError::into_inner).fork();
        let host = Host::new(HostOptions { seed: Some(rng.u64(..)), ..HostOptions::default() });
        let door = self.shared.broker.for_user(&self.name, worker_permissions(self.role, &self.name));
        let (broker, is_dead) = FaultyBroker::wrap(door, Arc::clone(&self.shared));
        let name = |text: &str| RelayName::new(text).unwrap();
        let mut options = WorkerOptions::new(name("t"), name(self.role), name(&self.name));
        // A worker's clock may be wrong by seconds.
        let skewed = self.shared.invariants.clock.now() + rng.u64(..10_000) - 5_000;
        (options.clock, options.seed) = (WallClock::starting_at(skewed), Some(rng.u64(..)));
        let worker = Worker::start(broker, options);
        let mirror = Arc::new(worker.mirror(host.clone()));
        self.shared.invariants.trace(&format!("{} starts", self.name));
        let running = RunningWorker { host, worker, _mirror: mirror, is_dead };
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
    }

    /// The process vanishes: from one moment to the next nobody hears of it.
    pub(crate) fn kill(&self) {
        let gone = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(gone) = gone else { return };
        self.shared.invariants.trace(&format!("{} vanishes", self.name));
        gone.is_dead.store(true, Ordering::Relaxed);
        self.shared.broker.disconnect(&self.name);
        tokio::spawn(gone.shutdown());
    }

    /// Ends the process in order.
    pub(crate) async fn shutdown(&self) {
        let ending = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(ending) = ending else { return };
        self.shared
            .invariants
            .expect(ending.host.status().iter().all(|server| server.in_flight == 0), || {
                format!("{}: calls are left", self.name)
            });
        ending.shutdown().await;
    }

    /// Calls a tool, and has the end of it watched.
    pub(crate) async fn call(&self, wish: &RelaySimCall) -> Option<Result<Answer, CallError>> {
        let running = self.running()?;
        let watch = &self.shared.invariants;
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let argument = format!("{}-{}-{number}", self.name, self.role);
        watch.trace(&format!("{argument} asks for {}/{}", wish.server, wish.tool));
        let (caller, began) = (Caller::local(), Instant::now());
        let arguments = CallArguments::raw(format!("{{\"n\":\"{argument}\"}}"));
        let request = Request::tool_call(&caller, wish.tool, arguments).unwrap().with_timeout(wish.limit);
        let sending =
            timeout(wish.leaves.unwrap_or(Duration::MAX), running.host.send_to(wish.server, request));
        let result = sending.await.ok();
        let took = began.elapsed();
        let most = wish.limit + LATE;
        watch.expect(took <= most, || format!("{argument} took {took:?} of {most:?}"));
        watch.record_end(&argument, result.as_ref(), took);
        if let Some(Ok(_)) = &result {
            let may_use = self.role == "all" || wish.tool != "secret";
            watch.expect(may_use, || format!("{argument} has used the secret tool"));
        }
        result
    }

    /// Looks at what there is to use.
    pub(crate) async fn list(&self, server: &str) {
        let Some(running) = self.running() else { return };
        let listed = running.host.tools(&Caller::local(), server).await.unwrap_or_default();
        let may_see = |tool: &str| self.role == "all" || tool != "secret";
        let is_clean = listed.iter().all(|listed| may_see(&listed.tool.name));
        self.shared.invariants.expect(is_clean, || format!("{} was shown {listed:?}", self.name));
    }

    /// When everything is well again, so is every call.
    pub(crate) async fn assert_recovers(&self, within: Duration) {
        for server in SERVERS {
            let wish = RelaySimCall { server, tool: "work", limit: within, leaves: None };
            let deadline = Instant::now() + within;
            while let Some(error) = self.call(&wish).await.and_then(Result::err) {
                if Instant::now() < deadline {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    continue;
                }
                let trouble = self.running().and_then(|running| running.worker.problem());
                let name = &self.name;
                let what = format!("{name}: {server} can't be called in fair weather, {trouble:?}, {error}");
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

/// What the broker lets a worker do.
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
