//! The worker's side: servers elsewhere as if they were here.
//!
//! ```text
//! host ── Connector, Session ─▶ session.rs ── exchange.rs ──▶ table.rs ◀── link.rs ◀── broker
//!                                   │ lists                   pending.rs     │ heartbeats, manifest
//!                               manifest.rs ◀─────────────────────────────────┘
//! mirror.rs   keeps the servers of a host as the manifest says
//! ```
//!
//! A session is not the connection: it lives for ever, and a broker that goes
//! away ends none of them. Calls wait for it to come back as long as they have
//! time and have not been sent, and are asked about if they have.

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

/// How often a worker with calls at a host says that it lives.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// How long the last words of a worker may take.
const SHUTDOWN_FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// How a worker is set up.
#[derive(Clone)]
pub struct WorkerOptions {
    /// The tenant whose hosts it uses.
    pub tenant: RelayName,
    /// Its role, which its credentials must allow.
    pub role: RelayName,
    /// Its name, which its credentials must allow.
    pub name: RelayName,
    /// The clock in which deadlines are told.
    pub clock: WallClock,
    /// Where all chance comes from. Only a simulation sets it.
    pub seed: Option<u64>,
    /// Hears about the connection, for people.
    pub status_sink: StatusSink,
}

impl WorkerOptions {
    /// A worker of this name, with the system's clock, that says what there is
    /// to say to the log.
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

/// One life of a worker. Clones are handles to the same one, and so are its
/// connectors and their sessions; it ends with the last of them.
#[derive(Clone)]
pub struct Worker(Arc<WorkerOwner>);

struct WorkerOwner {
    core: Arc<WorkerCore>,
    reconnector: Reconnector,
}

/// What the tasks of a worker share. None of them keeps it alive for itself.
struct WorkerCore {
    subjects: Arc<Subjects>,
    role: RelayName,
    name: RelayName,
    clock: WallClock,
    instance: Instance,
    /// What the clock showed when this life began.
    began: u64,
    inbox: WorkerInbox,
    /// Where the broker is, for people.
    broker_address: String,
    link_state: watch::Receiver<LinkState>,
    /// The connection, once everything is listened to on it.
    ready_connection: watch::Sender<Option<BrokerConnection>>,
    calls: RelayedCalls,
    outbox: Outbox,
    hosts: Mutex<KnownHosts>,
    /// Tells who waits for a host that one was heard.
    host_heard: Notify,
    manifest: watch::Sender<Option<Arc<Manifest>>>,
    manifest_refresh: ManifestRefresh,
    sessions: RelaySessions,
    /// Numbers for requests.
    request_ids: AtomicU64,
    rng: Mutex<fastrand::Rng>,
    closed: watch::Sender<bool>,
}

impl Worker {
    /// Begins to connect.
    pub fn start(broker: Arc<dyn Broker>, options: WorkerOptions) -> Self {
        let WorkerOptions { tenant, role, name, clock, seed, status_sink: say } = options;
        let mut chance = seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let (instance, place) = (Instance(chance.u64(..)), broker.address());
        let tether = Reconnector::start(broker, chance.fork(), say);
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
            broker_address: place,
            link_state: tether.watch_state(),
            ready_connection: watch::Sender::new(None),
            calls: RelayedCalls::new(outbox.clone()),
            outbox,
            hosts: Mutex::default(),
            host_heard: Notify::new(),
            manifest: watch::Sender::new(None),
            manifest_refresh: ManifestRefresh::default(),
            sessions: RelaySessions::default(),
            request_ids: AtomicU64::new(ostler_wire::FIRST_REQUEST_ID),
            rng: Mutex::new(chance),
            closed: watch::Sender::new(false),
        });
        let sender = sending.run(core.ready_connection.subscribe());
        core.spawn(|_| sender);
        core.spawn(subscriptions::run);
        core.spawn(manifest::run);
        core.spawn(|core| async move { core.calls.run_timer().await });
        core.spawn(send_alive);
        Self(Arc::new(WorkerOwner { core, reconnector: tether }))
    }

    /// Makes sessions with a server of the hosts. They never end by
    /// themselves, and making one waits for nothing.
    pub fn connector(&self, server: ServerName) -> Arc<dyn Connector> {
        Arc::new(RelayConnector::new(self.clone(), server))
    }

    /// What the worker may use, as soon as that is known, and every change of it.
    pub fn manifest(&self) -> watch::Receiver<Option<Arc<Manifest>>> {
        self.core().manifest.subscribe()
    }

    /// Keeps the servers of a host as the manifest says, until the mirror is
    /// dropped. The host should have no cache: the other one has.
    pub fn mirror(&self, host: Host) -> ServerMirror {
        ServerMirror::start(self.clone(), host)
    }

    /// Why nothing works now, in one sentence for people; `None` if it does.
    pub fn problem(&self) -> Option<String> {
        self.core().problem()
    }

    /// Cancels what is under way, says so to the hosts if that is possible
    /// within moments, and ends the connection.
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
    /// Runs something until the worker is over.
    fn spawn<F>(self: &Arc<Self>, task: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (task, mut over) = (task(Arc::clone(self)), self.closed.subscribe());
        tokio::spawn(async move {
            tokio::select! {
                () = task => {}
                _ = over.wait_for(|is_over| *is_over) => {}
            }
        });
    }

    fn hosts(&self) -> MutexGuard<'_, KnownHosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far the hosts' clocks are ahead of ours, in milliseconds.
    fn clock_offset(&self) -> i64 {
        let heard = self.hosts().clock_offset(Instant::now());
        heard.unwrap_or_else(|| self.manifest_refresh.clock_offset.load(Ordering::Relaxed))
    }

    /// A moment as the hosts' clocks show it.
    fn host_time(&self, moment: Instant, ahead: i64) -> u64 {
        self.clock.at(moment).saturating_add_signed(ahead)
    }

    fn next_request_id(&self) -> u64 {
        self.request_ids.fetch_add(1, Ordering::Relaxed)
    }

    /// The id of what has a key, or one of its own.
    fn call_id(&self, key: Option<&str>) -> CallId {
        if let Some(key) = key {
            return CallId::from_key(self.instance, self.began, key);
        }
        let mut bytes = [0; 10];
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).fill(&mut bytes);
        CallId::new(self.clock.now(), &bytes)
    }

    /// A wait between `longest` and half of it.
    fn jitter(&self, longest: Duration) -> Duration {
        let share = self.rng.lock().unwrap_or_else(PoisonError::into_inner).f64();
        longest.mul_f64(0.5 + share / 2.0)
    }
}

/// Says every second that the worker lives, as long as a host could ask itself.
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
            .field("tether", &self.0.reconnector)
            .finish_non_exhaustive()
    }
}
