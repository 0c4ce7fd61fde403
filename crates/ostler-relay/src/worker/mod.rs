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

mod asking;
mod assemble;
mod connector;
mod exchange;
mod hosts;
mod link;
mod manifest;
mod mirror;
mod outbox;
mod pending;
mod session;
mod table;
mod trouble;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ostler_core::name::ServerName;
use ostler_host::Host;
use ostler_host::upstream::Connector;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, interval};

use self::connector::RelayConnector;
use self::hosts::Hosts;
use self::manifest::Asking;
use self::outbox::Outbox;
use self::session::Sessions;
use self::table::Table;
use crate::broker::Broker;
use crate::call_id::{CallId, Instance};
use crate::clock::WallClock;
use crate::manifest::Manifest;
use crate::name::Name;
use crate::subject::{Inbox, Subjects};
use crate::tether::{Report, Say, Situation, Tether, Up};

pub use self::mirror::{Mirror, Ready};

/// How often a worker with calls at a host says that it lives.
const ALIVE: Duration = Duration::from_secs(1);

/// How long the last words of a worker may take.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How a worker is set up.
#[derive(Clone)]
pub struct WorkerOptions {
    /// The tenant whose hosts it uses.
    pub tenant: Name,
    /// Its role, which its credentials must allow.
    pub role: Name,
    /// Its name, which its credentials must allow.
    pub name: Name,
    /// The clock in which deadlines are told.
    pub clock: WallClock,
    /// Where all chance comes from. Only a simulation sets it.
    pub seed: Option<u64>,
    /// Hears about the connection, for people.
    pub say: Say,
}

impl WorkerOptions {
    /// A worker of this name, with the system's clock, that says what there is
    /// to say to the log.
    pub fn new(tenant: Name, role: Name, name: Name) -> Self {
        let say: Say = Arc::new(|report: &Report| tracing::info!("{report}"));
        Self { tenant, role, name, clock: WallClock::new(), seed: None, say }
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
pub struct Worker(Arc<Life>);

struct Life {
    core: Arc<Core>,
    tether: Tether,
}

/// What the tasks of a worker share. None of them keeps it alive for itself.
struct Core {
    subjects: Arc<Subjects>,
    role: Name,
    name: Name,
    clock: WallClock,
    instance: Instance,
    /// What the clock showed when this life began.
    began: u64,
    inbox: Inbox,
    /// Where the broker is, for people.
    place: String,
    situation: watch::Receiver<Situation>,
    /// The connection, once everything is listened to on it.
    ready: watch::Sender<Option<Up>>,
    table: Table,
    outbox: Outbox,
    hosts: Mutex<Hosts>,
    /// Tells who waits for a host that one was heard.
    beat: Notify,
    manifest: watch::Sender<Option<Arc<Manifest>>>,
    asking: Asking,
    sessions: Sessions,
    /// Numbers for requests.
    numbers: AtomicU64,
    chance: Mutex<fastrand::Rng>,
    over: watch::Sender<bool>,
}

impl Worker {
    /// Begins to connect.
    pub fn start(broker: Arc<dyn Broker>, options: WorkerOptions) -> Self {
        let WorkerOptions { tenant, role, name, clock, seed, say } = options;
        let mut chance = seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let (instance, place) = (Instance(chance.u64(..)), broker.place());
        let tether = Tether::start(broker, chance.fork(), say);
        let subjects = Arc::new(Subjects::new(tenant));
        let (outbox, sending) = Outbox::new(Arc::clone(&subjects), name.clone(), instance);
        let core = Arc::new(Core {
            inbox: Inbox::new(&name, instance),
            subjects,
            role,
            name,
            clock,
            instance,
            began: clock.now(),
            place,
            situation: tether.situation(),
            ready: watch::Sender::new(None),
            table: Table::new(outbox.clone()),
            outbox,
            hosts: Mutex::default(),
            beat: Notify::new(),
            manifest: watch::Sender::new(None),
            asking: Asking::default(),
            sessions: Sessions::default(),
            numbers: AtomicU64::new(ostler_wire::FIRST_SESSION_ID),
            chance: Mutex::new(chance),
            over: watch::Sender::new(false),
        });
        let sender = sending.run(core.ready.subscribe());
        core.spawn(|_| sender);
        core.spawn(link::run);
        core.spawn(manifest::run);
        core.spawn(|core| async move { core.table.keep_time().await });
        core.spawn(say_alive);
        Self(Arc::new(Life { core, tether }))
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
    pub fn mirror(&self, host: Host) -> Mirror {
        Mirror::start(self.clone(), host)
    }

    /// Why nothing works now, in one sentence for people; `None` if it does.
    pub fn trouble(&self) -> Option<String> {
        self.core().trouble()
    }

    /// Cancels what is under way, says so to the hosts if that is possible
    /// within moments, and ends the connection.
    pub async fn shutdown(&self) {
        let core = self.core();
        core.table.close();
        if core.ready.borrow().is_some() {
            core.outbox.emptied(LAST_WORDS).await;
        }
        core.over.send_replace(true);
        core.ready.send_replace(None);
        self.0.tether.close();
    }

    fn core(&self) -> &Arc<Core> {
        &self.0.core
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.core.table.close();
        self.core.over.send_replace(true);
        self.core.ready.send_replace(None);
    }
}

impl Core {
    /// Runs something until the worker is over.
    fn spawn<F>(self: &Arc<Self>, task: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (task, mut over) = (task(Arc::clone(self)), self.over.subscribe());
        tokio::spawn(async move {
            tokio::select! {
                () = task => {}
                _ = over.wait_for(|is_over| *is_over) => {}
            }
        });
    }

    fn hosts(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far the hosts' clocks are ahead of ours, in milliseconds.
    fn ahead(&self) -> i64 {
        let heard = self.hosts().ahead(Instant::now());
        heard.unwrap_or_else(|| self.asking.ahead.load(Ordering::Relaxed))
    }

    /// A moment as the hosts' clocks show it.
    fn host_time(&self, moment: Instant, ahead: i64) -> u64 {
        self.clock.at(moment).saturating_add_signed(ahead)
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The id of what has a key, or one of its own.
    fn call_id(&self, key: Option<&str>) -> CallId {
        if let Some(key) = key {
            return CallId::of_key(self.instance, self.began, key);
        }
        let mut bytes = [0; 10];
        self.chance.lock().unwrap_or_else(PoisonError::into_inner).fill(&mut bytes);
        CallId::new(self.clock.now(), &bytes)
    }

    /// A wait between `longest` and half of it.
    fn draw(&self, longest: Duration) -> Duration {
        let share = self.chance.lock().unwrap_or_else(PoisonError::into_inner).f64();
        longest.mul_f64(0.5 + share / 2.0)
    }
}

/// Says every second that the worker lives, as long as a host could ask itself.
async fn say_alive(core: Arc<Core>) {
    let mut ticks = interval(ALIVE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if core.ready.borrow().is_some() && core.table.is_any_out() {
            core.outbox.alive();
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("name", &self.core().name)
            .field("tether", &self.0.tether)
            .finish_non_exhaustive()
    }
}
