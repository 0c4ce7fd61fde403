//! One supervised session place: the desk where callers and the task meet.
//!
//! The desk is a short lock around the supervisor and the live session. It is
//! never held across an await. Callers lock it to enter and to leave; the
//! slot's task locks it to learn what to do and to report what it did. A call
//! to a ready server passes without waking the task at all.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use ostler_core::cache::Cache;
use ostler_core::liveness::Liveness;
use ostler_core::remedy;
use ostler_core::server_name::ServerName;
use ostler_core::spec::{Isolation, ServerSpec};
use ostler_core::supervisor::{ServerFailure, Supervisor};
use ostler_wire::ServerInfo;
use tokio::sync::{Notify, OnceCell};
use tokio::time::Instant;

use super::call_queue::CallQueue;
use super::list_cache::ListCache;
use super::start_record::LastGoodStart;
use super::startup::Startup;
use super::subscriptions::{MAX_RESOURCES, ResourceSubscriptions};
use crate::host::WeakHost;
use crate::lists::Kind;
use crate::log_level::RequestedLogLevel;
use crate::notifications::NotificationBus;
use crate::options::StartRetry;
use crate::pins::ReportedDrift;
use crate::process_pool::ProcessPool;
use crate::slot_registry::SlotRegistry;
use crate::upstream::stdio::StderrLog;
use crate::upstream::{Connector, ServerSession};

/// Longest delay before the second start in a host that serves one command: a person waits for it.
const ONE_SHOT_DELAY: Duration = Duration::from_millis(500);

/// The partition of callers without a workspace, which is no path.
pub(crate) const NO_WORKSPACE: &str = "no workspace";

/// Which session place of a server: the partition is empty when everybody
/// shares one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SlotKey {
    pub(crate) server: ServerName,
    pub(crate) partition: Arc<str>,
    /// Tells a replaced server from its successor of the same name.
    pub(crate) registration: u64,
}

/// One supervised session place.
pub(crate) struct Slot {
    pub(crate) key: SlotKey,
    /// How its sessions are reached, shared and supervised. What the host decides with each call is in
    /// [`RegistrySnapshot::spec_of`](crate::registry::RegistrySnapshot::spec_of).
    pub(crate) spec: Arc<ServerSpec>,
    pub(crate) connector: Arc<dyn Connector>,
    /// The host's remembered answers, to be purged when the server says so.
    pub(crate) cache: Arc<Mutex<Cache>>,
    pub(crate) process_pool: Arc<ProcessPool>,
    state: Mutex<SlotState>,
    pub(crate) created: Instant,
    /// Wakes the task.
    pub(crate) wake_task: Notify,
    /// Tells everyone who waits that the phase may have changed.
    pub(crate) phase_changed: Notify,
    /// Places for calls at the server, and the line before them.
    pub(crate) call_queue: Arc<CallQueue>,
    /// Where calls take turns: held by one interactive call, or by any number of others.
    pub(crate) exclusive_lock: super::exclusive::ExclusiveLock,
    /// The start that is under way.
    pub(crate) startup: ArcSwapOption<Startup>,
    /// The last output on stderr, over all starts.
    pub(crate) stderr_log: Arc<StderrLog>,
    /// The last good start of the server.
    pub(crate) last_good_start: Arc<LastGoodStart>,
    pub(crate) start_retry: StartRetry,
    /// Whether the environment of this process is that of an MCP client.
    pub(crate) is_started_by_client: bool,
    /// One for each kind of list.
    pub(crate) list_caches: [ListCache; Kind::ALL.len()],
    /// Set when what an earlier run has kept of the lists was looked for.
    pub(crate) lists_restored: OnceCell<()>,
    /// Held while the lists are written down, so that the last one to write
    /// writes what is known last.
    pub(crate) persist_lock: Mutex<()>,
    /// The tools that are not as they were approved and have been told of.
    pub(crate) reported_drift: Mutex<ReportedDrift>,
    /// What the last session said of itself.
    pub(crate) last_server_info: ArcSwapOption<ServerInfo>,
    /// Where its events and changes go.
    pub(crate) bus: Arc<NotificationBus>,
    /// The resources that somebody wants to hear of.
    pub(crate) subscriptions: ResourceSubscriptions,
    /// How much of its log is wanted.
    pub(crate) level: Arc<RequestedLogLevel>,
    /// The host, which outlives the slot or does not need it any more.
    pub(crate) host: WeakHost,
    /// The principal of who opened or woke it last, where callers open places as they like.
    opener: Mutex<Option<Arc<str>>>,
    /// The principal of the first caller, and whether another one came.
    first_user: OnceLock<Box<str>>,
    pub(crate) has_several_users: Arc<AtomicBool>,
    /// Raised before every invalidation of remembered answers.
    pub(crate) cache_epoch: AtomicU64,
    /// Some answer has been remembered; until then nobody looks for one.
    pub(crate) has_cached_answers: AtomicBool,
    /// Requests meanwhile whose answer could have been remembered, as far as the cache has not counted them.
    pub(crate) uncounted_misses: AtomicU64,
    /// Sessions of which something is left, live ones included.
    pub(crate) open_cleanups: AtomicUsize,
    /// The task has ended: the slot was removed and nothing of it is left.
    pub(crate) is_gone: AtomicBool,
}

/// What the lock protects.
pub(crate) struct SlotState {
    pub(crate) supervisor: Supervisor,
    pub(crate) liveness: Liveness,
    /// The session of the supervisor's current generation, when it is ready.
    pub(crate) live: Option<Arc<LiveSession>>,
    pub(crate) rng: fastrand::Rng,
    /// How long calls may finish when the session is ended.
    pub(crate) drain: Duration,
    /// The task sleeps without an alarm, so the end of the last lease must wake it.
    pub(crate) needs_wake: bool,
    /// Something of a session is left: one on its way, in use, or being ended.
    /// The task says so whenever it has done what there was to do.
    pub(crate) has_remains: bool,
    /// Nobody will use this slot again; the task ends when nothing is left.
    pub(crate) is_removed: bool,
}

/// How long a start took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartDuration {
    /// Before its turn came.
    pub(crate) waited: Duration,
    /// From the process to the end of the handshake.
    pub(crate) took: Duration,
}

/// A session in use, with its number and who uses it.
pub(crate) struct LiveSession {
    pub(crate) generation: u64,
    pub(crate) session: Arc<dyn ServerSession>,
    pub(crate) since: Instant,
    /// How long its start took.
    pub(crate) start: StartDuration,
    leases: AtomicUsize,
    unused: Notify,
}

impl Slot {
    pub(crate) fn new(key: SlotKey, parts: SlotDeps) -> Arc<Self> {
        let SlotDeps {
            spec,
            connector,
            cache,
            process_pool: room,
            slot_registry: ledger,
            bus,
            level,
            host,
            last_good_start: last_start,
            start_retry: start_patience,
            is_started_by_client,
            rng,
        } = parts;
        let desk = SlotState {
            supervisor: supervisor(&spec, start_patience),
            liveness: Liveness::default(),
            live: None,
            rng,
            drain: spec.drain,
            needs_wake: false,
            has_remains: false,
            is_removed: false,
        };
        // Where a place is one caller's own there is nobody to share with.
        let part = if spec.isolation.is_shared_by_callers() { 2 } else { 1 };
        let share = spec.max_in_flight / part;
        let places = CallQueue::new(spec.max_in_flight, share, spec.max_queued);
        let slot = Arc::new(Self {
            key,
            connector,
            cache,
            process_pool: room,
            state: Mutex::new(desk),
            created: Instant::now(),
            wake_task: Notify::new(),
            phase_changed: Notify::new(),
            call_queue: places,
            exclusive_lock: super::exclusive::ExclusiveLock::default(),
            startup: ArcSwapOption::empty(),
            stderr_log: Arc::default(),
            last_good_start: last_start,
            start_retry: start_patience,
            is_started_by_client,
            list_caches: Default::default(),
            lists_restored: OnceCell::new(),
            persist_lock: Mutex::default(),
            reported_drift: Mutex::default(),
            last_server_info: ArcSwapOption::empty(),
            bus,
            subscriptions: ResourceSubscriptions::new(MAX_RESOURCES / part),
            level,
            host,
            opener: Mutex::default(),
            first_user: OnceLock::new(),
            has_several_users: Arc::default(),
            cache_epoch: AtomicU64::new(0),
            has_cached_answers: AtomicBool::new(false),
            uncounted_misses: AtomicU64::new(0),
            open_cleanups: AtomicUsize::new(0),
            is_gone: AtomicBool::new(false),
            spec,
        });
        ledger.add(&slot);
        slot
    }

    /// Returns the directory that its callers work in, where they have one.
    pub(crate) fn workspace(&self) -> Option<Arc<str>> {
        let is_known = self.spec.isolation == Isolation::Workspace && *self.key.partition != *NO_WORKSPACE;
        is_known.then(|| Arc::clone(&self.key.partition))
    }

    /// Returns the principal whose session has it for itself, where each session has one.
    pub(crate) fn session_owner(&self) -> Option<&str> {
        let owner = self.key.partition.split('\0').next();
        owner.filter(|_| self.spec.isolation == Isolation::Session)
    }

    /// Returns the principal that its process counts for, where callers open places as they like.
    pub(crate) fn opener(&self) -> Option<Arc<str>> {
        self.opener.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes who opens it, or wakes it: from then on its process counts for this principal.
    pub(crate) fn set_opener(&self, principal: &str) {
        let opener = match self.spec.isolation {
            Isolation::Session => self.session_owner(),
            Isolation::Workspace => Some(principal),
            Isolation::Shared | Isolation::Caller => None,
        };
        *self.opener.lock().unwrap_or_else(PoisonError::into_inner) = opener.map(Arc::from);
    }

    /// Returns whether callers with different principals use it.
    pub(crate) fn has_several_callers(&self) -> bool {
        self.spec.isolation.is_shared_by_callers()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whose request is sent.
    pub(crate) fn note_user(&self, principal: &str) {
        if **self.first_user.get_or_init(|| principal.into()) != *principal {
            self.has_several_users.store(true, Ordering::Release);
        }
    }

    /// Says what a person can do about a failure.
    pub(crate) fn remedy_of(&self, failure: &ServerFailure) -> Option<String> {
        let server = self.key.server.as_str();
        match self.is_started_by_client {
            true => remedy::for_operator_of_daemon(server, failure, std::process::id()),
            false => remedy::for_operator(server, failure),
        }
    }

    /// Changes something and tells everybody who may care.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut SlotState) -> T) -> T {
        let result = change(&mut self.state());
        self.wake_task.notify_one();
        self.phase_changed.notify_waiters();
        result
    }
}

/// Makes the supervisor of a slot. The spec itself stays as it is: its fingerprint names what is kept between runs.
fn supervisor(spec: &ServerSpec, start_patience: StartRetry) -> Supervisor {
    let now = Instant::now().into_std();
    let ends_when_unused = matches!(spec.isolation, Isolation::Session | Isolation::Workspace);
    if start_patience != StartRetry::Once && !ends_when_unused {
        return Supervisor::new(spec, now);
    }
    let mut spec = spec.clone();
    // Sessions and workspaces come and go, and not all of them say when they are over.
    spec.lazy |= ends_when_unused;
    if start_patience != StartRetry::Once {
        return Supervisor::new(&spec, now);
    }
    spec.restart.max = spec.restart.max.min(1);
    spec.restart.max_delay = spec.restart.max_delay.min(ONE_SHOT_DELAY);
    Supervisor::new(&spec, now).for_single_command()
}

/// What a slot is made of.
pub(crate) struct SlotDeps {
    pub(crate) spec: Arc<ServerSpec>,
    pub(crate) connector: Arc<dyn Connector>,
    /// The host's remembered answers, to be purged when the server says so.
    pub(crate) cache: Arc<Mutex<Cache>>,
    pub(crate) process_pool: Arc<ProcessPool>,
    /// Where the slot is entered.
    pub(crate) slot_registry: Arc<SlotRegistry>,
    /// Where its events go.
    pub(crate) bus: Arc<NotificationBus>,
    /// How much of its log is wanted.
    pub(crate) level: Arc<RequestedLogLevel>,
    pub(crate) host: WeakHost,
    /// The last good start of the server.
    pub(crate) last_good_start: Arc<LastGoodStart>,
    pub(crate) start_retry: StartRetry,
    /// Whether the environment of this process is that of an MCP client.
    pub(crate) is_started_by_client: bool,
    /// Spreads the delays before restarts.
    pub(crate) rng: fastrand::Rng,
}

impl LiveSession {
    pub(crate) fn new(generation: u64, session: Arc<dyn ServerSession>, start: StartDuration) -> Arc<Self> {
        Arc::new(Self {
            generation,
            session,
            since: Instant::now(),
            start,
            leases: AtomicUsize::new(0),
            unused: Notify::new(),
        })
    }

    /// Called under the desk's lock, so that a drained session stays drained.
    pub(crate) fn begin_lease(&self) {
        self.leases.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn end_lease(&self) {
        if self.leases.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.unused.notify_waiters();
        }
    }

    /// Waits until nobody uses the session any more.
    pub(crate) async fn drained(&self) {
        loop {
            let unused = self.unused.notified();
            tokio::pin!(unused);
            unused.as_mut().enable();
            if self.leases.load(Ordering::Acquire) == 0 {
                return;
            }
            unused.await;
        }
    }
}
