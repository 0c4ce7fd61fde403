//! Worker side of the relay: servers of remote hosts as upstream sessions.
//!
//! ```text
//! host ── Connector, ServerSession ─▶ session.rs ── request.rs ──▶ in_flight/ ◀── subscriptions.rs ◀── broker
//!                                         │ lists                  pending.rs      │ heartbeats, manifest
//!                                     manifest.rs ◀────────────────────────────────┘
//! outbox.rs   cancellations, responses, acknowledgements
//! mirror.rs   registers the manifest's servers at a host
//! status.rs   the current problem, for people
//! ```
//!
//! Sessions are independent of connections: a lost broker ends none of them. Calls that have not left wait for the
//! next connection until their deadline; for calls that have left, the worker asks the host for their state.

mod chunk_assembly;
mod hosts;
mod in_flight;
mod manifest;
mod mirror;
mod outbox;
mod pending;
mod request;
mod server_requests;
mod session;
mod status;
mod subscriptions;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ostler_core::server_name::ServerName;
use ostler_host::Host;
use ostler_host::upstream::Connector;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, interval};

use self::hosts::KnownHosts;
use self::in_flight::RelayedCalls;
use self::manifest::ManifestRefresh;
use self::outbox::Outbox;
use self::session::{RelayConnector, RelaySessions};
use crate::broker::Broker;
use crate::call_id::{CallId, Instance};
use crate::clock::WallClock;
use crate::manifest::Manifest;
use crate::name::RelayName;
use crate::reconnect::{BrokerConnection, LinkReport, LinkState, Reconnector, StatusSink};
use crate::subject::{Subjects, WorkerInbox};

pub use self::mirror::{MirrorReadiness, ServerMirror};

/// Interval of signs of life while calls are in flight.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Timeout for cancellations to leave at shutdown.
const SHUTDOWN_FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// Options of a worker.
#[derive(Clone)]
pub struct WorkerOptions {
    /// Tenant whose hosts the worker uses.
    pub tenant: RelayName,
    /// Role of the worker; its credentials must permit it.
    pub role: RelayName,
    /// Name of the worker; its credentials must permit it.
    pub name: RelayName,
    /// Clock of the deadlines.
    pub clock: WallClock,
    /// Seed of the RNG (tests only).
    pub seed: Option<u64>,
    /// Callback for connection events.
    pub status_sink: StatusSink,
}

impl WorkerOptions {
    /// Returns options with the system clock and a status sink that logs.
    pub fn new(tenant: RelayName, role: RelayName, name: RelayName) -> Self {
        let status_sink: StatusSink = Arc::new(|report: &LinkReport| tracing::info!("{report}"));
        Self { tenant, role, name, clock: WallClock::new(), seed: None, status_sink }
    }
}

impl fmt::Debug for WorkerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerOptions")
            .field("tenant", &self.tenant)
            .field("role", &self.role)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Handle of one worker instance. Clones, connectors and sessions share it; the worker ends with
/// the last of them.
#[derive(Clone)]
pub struct Worker(Arc<WorkerOwner>);

struct WorkerOwner {
    core: Arc<WorkerCore>,
    reconnector: Reconnector,
}

/// State shared by the tasks of a worker; tasks do not keep the worker alive.
struct WorkerCore {
    subjects: Arc<Subjects>,
    role: RelayName,
    name: RelayName,
    clock: WallClock,
    instance: Instance,
    /// Time of the clock at the start of this instance.
    began: u64,
    inbox: WorkerInbox,
    /// Address of the broker, for people.
    broker_address: String,
    link_state: watch::Receiver<LinkState>,
    /// The connection, once all its subscriptions exist.
    ready_connection: watch::Sender<Option<BrokerConnection>>,
    calls: RelayedCalls,
    outbox: Outbox,
    hosts: Mutex<KnownHosts>,
    /// Notified at each heartbeat of a host that accepts calls.
    host_heard: Notify,
    manifest: watch::Sender<Option<Arc<Manifest>>>,
    manifest_refresh: ManifestRefresh,
    sessions: RelaySessions,
    /// Next JSON-RPC request id.
    request_ids: AtomicU64,
    rng: Mutex<fastrand::Rng>,
    closed: watch::Sender<bool>,
}

impl Worker {
    /// Starts the worker; it connects in the background.
    pub fn start(broker: Arc<dyn Broker>, options: WorkerOptions) -> Self {
        let WorkerOptions { tenant, role, name, clock, seed, status_sink } = options;
        let mut rng = seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let (instance, broker_address) = (Instance(rng.u64(..)), broker.address());
        let reconnector = Reconnector::start(broker, rng.fork(), status_sink);
        let subjects = Arc::new(Subjects::new(tenant));
        let (outbox, sending) = Outbox::new(Arc::clone(&subjects), name.clone(), instance);
        let core = Arc::new(WorkerCore {
            inbox: WorkerInbox::new(&name, instance),
            subjects,
            role,
            name,
            clock,
            instance,
            began: clock.now(),
            broker_address,
            link_state: reconnector.watch_state(),
            ready_connection: watch::Sender::new(None),
            calls: RelayedCalls::new(outbox.clone()),
            outbox,
            hosts: Mutex::default(),
            host_heard: Notify::new(),
            manifest: watch::Sender::new(None),
            manifest_refresh: ManifestRefresh::default(),
            sessions: RelaySessions::default(),
            request_ids: AtomicU64::new(ostler_wire::FIRST_REQUEST_ID),
            rng: Mutex::new(rng),
            closed: watch::Sender::new(false),
        });
        let sender = sending.run(core.ready_connection.subscribe());
        core.spawn(|_| sender);
        core.spawn(subscriptions::run);
        core.spawn(manifest::run);
        core.spawn(|core| async move { core.calls.run_timer().await });
        core.spawn(send_alive);
        Self(Arc::new(WorkerOwner { core, reconnector }))
    }

    /// Returns a connector for a server of the hosts. Its sessions open at once and end only when
    /// closed.
    pub fn connector(&self, server: ServerName) -> Arc<dyn Connector> {
        Arc::new(RelayConnector::new(self.clone(), server))
    }

    /// Subscribes to the manifest; `None` until a host has sent one.
    pub fn manifest(&self) -> watch::Receiver<Option<Arc<Manifest>>> {
        self.core().manifest.subscribe()
    }

    /// Registers the servers of the manifest at `host` and keeps them in step until the mirror is
    /// dropped. `host` should have no response cache: the remote host has one.
    pub fn mirror(&self, host: Host) -> ServerMirror {
        ServerMirror::start(self.clone(), host)
    }

    /// Describes the current problem in one sentence; `None` if there is none.
    pub fn problem(&self) -> Option<String> {
        self.core().problem()
    }

    /// Cancels the calls in flight, tells the hosts if the broker takes the messages at once, and
    /// closes the connection.
    pub async fn shutdown(&self) {
        let core = self.core();
        core.calls.close();
        if core.ready_connection.borrow().is_some() {
            core.outbox.flush(SHUTDOWN_FLUSH_TIMEOUT).await;
        }
        core.closed.send_replace(true);
        core.ready_connection.send_replace(None);
        self.0.reconnector.close();
    }

    fn core(&self) -> &Arc<WorkerCore> {
        &self.0.core
    }
}

impl Drop for WorkerOwner {
    fn drop(&mut self) {
        self.core.calls.close();
        self.core.closed.send_replace(true);
        self.core.ready_connection.send_replace(None);
    }
}

impl WorkerCore {
    /// Runs a task until the worker ends.
    fn spawn<F>(self: &Arc<Self>, task: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (task, mut closed) = (task(Arc::clone(self)), self.closed.subscribe());
        tokio::spawn(async move {
            tokio::select! {
                () = task => {}
                _ = closed.wait_for(|closed| *closed) => {}
            }
        });
    }

    fn hosts(&self) -> MutexGuard<'_, KnownHosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the offset of the hosts' clocks to the local one, in milliseconds.
    fn clock_offset(&self) -> i64 {
        let known = self.hosts().clock_offset(Instant::now());
        known.unwrap_or_else(|| self.manifest_refresh.clock_offset.load(Ordering::Relaxed))
    }

    /// Converts a moment to the hosts' clock.
    fn host_time(&self, moment: Instant, clock_offset: i64) -> u64 {
        self.clock.at(moment).saturating_add_signed(clock_offset)
    }

    fn next_request_id(&self) -> u64 {
        self.request_ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the id of a call: derived from its idempotency key, or random.
    fn call_id(&self, key: Option<&str>) -> CallId {
        if let Some(key) = key {
            return CallId::from_key(self.instance, self.began, key);
        }
        let mut bytes = [0; 10];
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).fill(&mut bytes);
        CallId::new(self.clock.now(), &bytes)
    }

    /// Returns a random delay between half of `longest` and `longest`.
    fn jitter(&self, longest: Duration) -> Duration {
        let share = self.rng.lock().unwrap_or_else(PoisonError::into_inner).f64();
        longest.mul_f64(0.5 + share / 2.0)
    }
}

/// Waits until the connection of `epoch` is gone or replaced; `None` if the worker has ended.
async fn wait_for_other_connection(
    ready: &mut watch::Receiver<Option<BrokerConnection>>,
    epoch: u64,
) -> Option<()> {
    ready
        .wait_for(|current| current.as_ref().is_none_or(|current| current.epoch != epoch))
        .await
        .ok()
        .map(drop)
}

/// Sends a sign of life each second while a call may be at a host.
async fn send_alive(core: Arc<WorkerCore>) {
    let mut ticks = interval(ALIVE_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if core.ready_connection.borrow().is_some() && core.calls.has_outstanding() {
            core.outbox.alive();
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("name", &self.core().name)
            .field("reconnector", &self.0.reconnector)
            .finish_non_exhaustive()
    }
}
