//! Slot: one supervised session, with a state that callers and the slot's task share.
//!
//! The state is a short lock around the supervisor and the live session. It is never held across an await. Callers
//! lock it to take and to end a lease; the slot's task locks it to learn what to do and to report what it did. A call
//! to a ready server does not wake the task.

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

/// The partition of callers without a workspace; never a valid path.
pub(crate) const NO_WORKSPACE: &str = "no workspace";

/// Key of a slot. The partition is empty when all callers share one slot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SlotKey {
    pub(crate) server: ServerName,
    pub(crate) partition: Arc<str>,
    /// Distinguishes a replaced server from its successor of the same name.
    pub(crate) registration: u64,
}

/// One supervised session and the callers that wait for it.
pub(crate) struct Slot {
    pub(crate) key: SlotKey,
    /// Settings of the transport, isolation and supervision. The settings that each call uses are in
    /// [`RegistrySnapshot::spec_of`](crate::registry::RegistrySnapshot::spec_of).
    pub(crate) spec: Arc<ServerSpec>,
    pub(crate) connector: Arc<dyn Connector>,
    /// The host's response cache, purged when the server announces a change.
    pub(crate) cache: Arc<Mutex<Cache>>,
    pub(crate) process_pool: Arc<ProcessPool>,
    state: Mutex<SlotState>,
    pub(crate) created: Instant,
    /// Wakes the task.
    pub(crate) wake_task: Notify,
    /// Notifies all waiters that the phase may have changed.
    pub(crate) phase_changed: Notify,
    /// Permits for calls to the server, and the queue of calls that wait for one.
    pub(crate) call_queue: Arc<CallQueue>,
    /// Held by one interactive call, or by any number of others.
    pub(crate) exclusive_lock: super::exclusive::ExclusiveLock,
    /// The start in progress.
    pub(crate) startup: ArcSwapOption<Startup>,
    /// The last output on stderr, over all starts.
    pub(crate) stderr_log: Arc<StderrLog>,
    /// The last good start of the server.
    pub(crate) last_good_start: Arc<LastGoodStart>,
    pub(crate) start_retry: StartRetry,
    /// True if an MCP client started this process, so that its environment is the client's.
    pub(crate) is_started_by_client: bool,
    /// One cache per kind of list.
    pub(crate) list_caches: [ListCache; Kind::ALL.len()],
    /// Set once the lists kept by an earlier run were looked for.
    pub(crate) lists_restored: OnceCell<()>,
    /// Held while the lists are written, so that the newest lists are written last.
    pub(crate) persist_lock: Mutex<()>,
    /// The tools that differ from their approved definitions and were reported.
    pub(crate) reported_drift: Mutex<ReportedDrift>,
    /// Server info of the last session's handshake.
    pub(crate) last_server_info: ArcSwapOption<ServerInfo>,
    /// Receives lifecycle events and list changes.
    pub(crate) bus: Arc<NotificationBus>,
    /// The resources with at least one subscriber.
    pub(crate) subscriptions: ResourceSubscriptions,
    /// The log level requested from the server.
    pub(crate) level: Arc<RequestedLogLevel>,
    /// The host. It outlives the slot, or the slot no longer needs it.
    pub(crate) host: WeakHost,
    /// The principal of the last caller that opened or woke the slot, where callers open slots freely.
    opener: Mutex<Option<Arc<str>>>,
    /// The principal of the first caller.
    first_user: OnceLock<Box<str>>,
    pub(crate) has_several_users: Arc<AtomicBool>,
    /// Incremented before every invalidation of cached responses.
    pub(crate) cache_epoch: AtomicU64,
    /// True once a response was cached; lookups skip the cache until then.
    pub(crate) has_cached_answers: AtomicBool,
    /// Cacheable requests that skipped the cache and that it has not counted yet.
    pub(crate) uncounted_misses: AtomicU64,
    /// Sessions with anything left to clean up, live ones included.
    pub(crate) open_cleanups: AtomicUsize,
    /// True once the task has ended: the slot was removed and nothing of it is left.
    pub(crate) is_gone: AtomicBool,
}

/// State of a slot, behind its lock.
pub(crate) struct SlotState {
    pub(crate) supervisor: Supervisor,
    pub(crate) liveness: Liveness,
    /// The session of the supervisor's current generation, when it is ready.
    pub(crate) live: Option<Arc<LiveSession>>,
    pub(crate) rng: fastrand::Rng,
    /// Time that calls get to finish when the session is ended.
    pub(crate) drain: Duration,
    /// True while the task sleeps without a timer, so that the end of the last lease must wake it.
    pub(crate) needs_wake: bool,
    /// True while anything of a session is left: one that starts, is in use or is being ended. The task updates it
    /// whenever it has done what was due.
    pub(crate) has_remains: bool,
    /// True once the slot was removed; the task ends when nothing is left.
    pub(crate) is_removed: bool,
}

/// Duration of a start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartDuration {
    /// Time in the queue for a turn.
    pub(crate) waited: Duration,
    /// Time from the process to the end of the handshake.
    pub(crate) took: Duration,
}

/// A session in use, with its generation and its lease count.
pub(crate) struct LiveSession {
    pub(crate) generation: u64,
    pub(crate) session: Arc<dyn ServerSession>,
    pub(crate) since: Instant,
    /// Duration of its start.
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
        // A slot of one caller has no other callers to share with.
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

    /// Returns the working directory of the slot's callers, where they have one.
    pub(crate) fn workspace(&self) -> Option<Arc<str>> {
        let is_known = self.spec.isolation == Isolation::Workspace && *self.key.partition != *NO_WORKSPACE;
        is_known.then(|| Arc::clone(&self.key.partition))
    }

    /// Returns the principal that owns the session, where each session has one.
    pub(crate) fn session_owner(&self) -> Option<&str> {
        let owner = self.key.partition.split('\0').next();
        owner.filter(|_| self.spec.isolation == Isolation::Session)
    }

    /// Returns the principal that the process is counted for, where callers open slots freely.
    pub(crate) fn opener(&self) -> Option<Arc<str>> {
        self.opener.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records the principal that opens or wakes the slot; its process is counted for this principal from then on.
    pub(crate) fn set_opener(&self, principal: &str) {
        let opener = match self.spec.isolation {
            Isolation::Session => self.session_owner(),
            Isolation::Workspace => Some(principal),
            Isolation::Shared | Isolation::Caller => None,
        };
        *self.opener.lock().unwrap_or_else(PoisonError::into_inner) = opener.map(Arc::from);
    }

    /// Returns whether callers with different principals use the slot.
    pub(crate) fn has_several_callers(&self) -> bool {
        self.spec.isolation.is_shared_by_callers()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the principal of a request that is sent.
    pub(crate) fn note_user(&self, principal: &str) {
        if **self.first_user.get_or_init(|| principal.into()) != *principal {
            self.has_several_users.store(true, Ordering::Release);
        }
    }

    /// Returns the remedy for a failure.
    pub(crate) fn remedy_of(&self, failure: &ServerFailure) -> Option<String> {
        let server = self.key.server.as_str();
        match self.is_started_by_client {
            true => remedy::for_operator_of_daemon(server, failure, std::process::id()),
            false => remedy::for_operator(server, failure),
        }
    }

    /// Changes the state and notifies the task and all waiters.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut SlotState) -> T) -> T {
        let result = change(&mut self.state());
        self.wake_task.notify_one();
        self.phase_changed.notify_waiters();
        result
    }
}

/// Makes the supervisor of a slot. The spec itself stays unchanged: its fingerprint names what is kept between runs.
fn supervisor(spec: &ServerSpec, start_patience: StartRetry) -> Supervisor {
    let now = Instant::now().into_std();
    let ends_when_unused = matches!(spec.isolation, Isolation::Session | Isolation::Workspace);
    if start_patience != StartRetry::Once && !ends_when_unused {
        return Supervisor::new(spec, now);
    }
    let mut spec = spec.clone();
    // Sessions and workspaces come and go, and some never announce their end.
    spec.lazy |= ends_when_unused;
    if start_patience != StartRetry::Once {
        return Supervisor::new(&spec, now);
    }
    spec.restart.max = spec.restart.max.min(1);
    spec.restart.max_delay = spec.restart.max_delay.min(ONE_SHOT_DELAY);
    Supervisor::new(&spec, now).for_single_command()
}

/// Dependencies of a slot.
pub(crate) struct SlotDeps {
    pub(crate) spec: Arc<ServerSpec>,
    pub(crate) connector: Arc<dyn Connector>,
    /// The host's response cache, purged when the server announces a change.
    pub(crate) cache: Arc<Mutex<Cache>>,
    pub(crate) process_pool: Arc<ProcessPool>,
    /// The registry that the slot enters itself in.
    pub(crate) slot_registry: Arc<SlotRegistry>,
    /// Receives lifecycle events and list changes.
    pub(crate) bus: Arc<NotificationBus>,
    /// The log level requested from the server.
    pub(crate) level: Arc<RequestedLogLevel>,
    pub(crate) host: WeakHost,
    /// The last good start of the server.
    pub(crate) last_good_start: Arc<LastGoodStart>,
    pub(crate) start_retry: StartRetry,
    /// True if an MCP client started this process, so that its environment is the client's.
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

    /// Counts a lease. Called under the state lock, so that a drained session stays drained.
    pub(crate) fn begin_lease(&self) {
        self.leases.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn end_lease(&self) {
        if self.leases.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.unused.notify_waiters();
        }
    }

    /// Waits until no lease on the session is left.
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
