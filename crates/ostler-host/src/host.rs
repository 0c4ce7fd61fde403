//! The host: a value that runs servers and takes calls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use ostler_core::cache::{Bounds, Cache, Stats};
use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::pins::Pins;
use ostler_core::policy::Hook;

use crate::budgets::Budgets;
use crate::bus::Bus;
use crate::catalog::Catalog;
use crate::guard::client::Warden;
use crate::happening::Observer;
use crate::key::IdempotencyKey;
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::options::{HostOptions, RandomSourceError, random_key};
use crate::pins::effective;
use crate::policy::Policy;
use crate::record::{RecordRoom, Recorder};
use crate::room::Room;
use crate::sealed::Seals;
use crate::secrets::Veil;
use crate::server::Server;
use crate::share::Readings;
use crate::tally::Tally;
use crate::turns::Turns;
use crate::upstream::stdio::LoginPath;
use crate::validate::Schemas;
use crate::via::Via;

/// The registered servers at one moment. Calls read it without a lock;
/// registering builds a new one.
pub(crate) type Registry = BTreeMap<ServerName, Arc<Server>>;

/// Runs MCP servers and takes calls for them.
///
/// A host is a value: a program may have several, and they share nothing.
/// Clones are handles to the same host. When the last one is dropped every
/// server is ended; [`shutdown`](Self::shutdown) does the same and waits.
#[derive(Clone)]
pub struct Host(Arc<Shared>);

/// The host, seen from what it owns.
#[derive(Clone)]
pub(crate) struct WeakHost(Weak<Shared>);

impl WeakHost {
    pub(crate) fn upgrade(&self) -> Option<Host> {
        self.0.upgrade().map(Host)
    }
}

pub(crate) struct Shared {
    options: HostOptions,
    pub(crate) registry: ArcSwap<Registry>,
    /// Taken to change a registration; never on the path of a call.
    pub(crate) turns: Turns,
    cache: Arc<Mutex<Cache>>,
    pub(crate) bus: Arc<Bus>,
    /// What roles may use.
    pub(crate) policy: ArcSwap<Policy>,
    pub(crate) hook: ArcSwapOption<Box<Hook>>,
    /// Rises with every change of rules or hook.
    pub(crate) policy_version: AtomicU64,
    /// The approved definitions; absent when nothing is enforced nor warned of.
    pub(crate) pins: ArcSwapOption<Pins>,
    recorder: ArcSwapOption<Recorder>,
    record_room: ArcSwapOption<RecordRoom>,
    pub(crate) observer: ArcSwapOption<Observer>,
    pub(crate) room: Arc<Room>,
    /// What must not be read anywhere.
    pub(crate) veil: Arc<Veil>,
    pub(crate) login_path: Arc<LoginPath>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) warden: Option<Arc<Warden>>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) limits: ArcSwap<Limits>,
    pub(crate) budgets: Budgets,
    readings: Readings,
    schemas: Schemas,
    seals: Seals,
    catalog: Catalog,
    /// Tells this host's calls from those of every other.
    instance: u64,
    /// Where its servers' chance comes from.
    chance: Mutex<fastrand::Rng>,
    calls: AtomicU64,
    pub(crate) registrations: AtomicU64,
}

impl Host {
    /// Makes a host without servers. Reads the file of its budgets, if it has one.
    ///
    /// # Panics
    ///
    /// If the options name no key and the system's random source fails;
    /// [`try_new`](Self::try_new) returns that as an error.
    pub fn new(options: HostOptions) -> Self {
        Self::try_new(options).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Makes a host without servers. Fails if the options name no key and the
    /// system's random source fails.
    pub fn try_new(options: HostOptions) -> Result<Self, RandomSourceError> {
        let seal_key = options.seal_key.map_or_else(|| random_key(getrandom::fill), Ok)?;
        let bounds = Bounds {
            per_subject: options.cache_entries_per_tool,
            max_bytes: options.cache_bytes,
            max_ttl: options.cache_max_ttl,
        };
        let mut chance = options.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let instance = chance.u64(..);
        Ok(Self(Arc::new(Shared {
            registry: ArcSwap::default(),
            turns: Turns::default(),
            cache: Arc::new(Mutex::new(Cache::new(bounds))),
            bus: Arc::default(),
            policy: ArcSwap::from_pointee(Policy::new(options.rules.clone())),
            hook: ArcSwapOption::empty(),
            policy_version: AtomicU64::new(0),
            pins: ArcSwapOption::from(effective(options.pins.clone())),
            recorder: ArcSwapOption::empty(),
            record_room: ArcSwapOption::empty(),
            observer: ArcSwapOption::empty(),
            room: Room::new(options.max_processes),
            veil: Arc::default(),
            login_path: Arc::new(LoginPath::new(options.login_path)),
            ledger: Arc::default(),
            warden: options.guard.clone().map(|command| Arc::new(Warden::new(command))),
            tally: Tally::new(options.max_in_flight, options.max_per_caller),
            limits: ArcSwap::from_pointee(options.limits.clone()),
            budgets: Budgets::new(options.budget_file.clone()),
            readings: Readings::default(),
            schemas: Schemas::default(),
            seals: Seals::new(&seal_key, instance),
            catalog: Catalog::default(),
            instance,
            chance: Mutex::new(chance),
            calls: AtomicU64::new(0),
            registrations: AtomicU64::new(0),
            options,
        })))
    }

    /// Takes one record per request from now on.
    pub fn set_recorder(&self, recorder: Option<Recorder>) {
        self.0.recorder.store(recorder.map(Arc::new));
    }

    /// Makes calls wait for room for their record before they are sent.
    pub fn set_record_room(&self, room: Option<RecordRoom>) {
        self.0.record_room.store(room.map(Arc::new));
    }

    /// What is remembered, over all servers.
    pub fn cache_stats(&self) -> Stats {
        let registry = self.0.registry.load();
        registry.values().flat_map(|server| server.slots()).for_each(|slot| slot.settle_misses());
        self.cache().stats()
    }

    /// Live processes.
    pub fn processes(&self) -> usize {
        self.0.room.processes()
    }

    pub(crate) fn downgrade(&self) -> WeakHost {
        WeakHost(Arc::downgrade(&self.0))
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }

    /// Tells chains of hosts that come back.
    pub fn via(&self) -> &Arc<Via> {
        &self.0.options.via
    }

    pub(crate) fn options(&self) -> &HostOptions {
        &self.0.options
    }

    pub(crate) fn recorder(&self) -> Option<Recorder> {
        self.0.recorder.load().as_deref().cloned()
    }

    /// Waits until the recorder has room, if it is set to make calls wait.
    pub(crate) async fn record_room(&self) {
        let wait = self.0.record_room.load().as_deref().and_then(|room| room());
        if let Some(wait) = wait {
            wait.await;
        }
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.0.catalog
    }

    pub(crate) fn seals(&self) -> &Seals {
        &self.0.seals
    }

    pub(crate) fn readings(&self) -> &Readings {
        &self.0.readings
    }

    pub(crate) fn schemas(&self) -> &Schemas {
        &self.0.schemas
    }

    pub(crate) fn cache(&self) -> MutexGuard<'_, Cache> {
        self.0.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cache_handle(&self) -> Arc<Mutex<Cache>> {
        Arc::clone(&self.0.cache)
    }

    /// A source of chance for one server.
    pub(crate) fn chance(&self) -> fastrand::Rng {
        self.0.chance.lock().unwrap_or_else(PoisonError::into_inner).fork()
    }

    /// The same for every attempt of one call, and never the same for two.
    pub(crate) fn idempotency_key(&self) -> IdempotencyKey {
        IdempotencyKey::new(self.0.instance, self.0.calls.fetch_add(1, Ordering::Relaxed))
    }

    /// The server, unless it does not exist or the caller may not see it.
    pub(crate) fn visible_server(&self, caller: &Caller, name: &str) -> Result<Arc<Server>, CallError> {
        let registry = self.0.registry.load();
        match registry.get(name) {
            Some(server) if self.may_see(caller, &server.spec.name) => Ok(Arc::clone(server)),
            _ => Err(self.unknown_server(Some(caller), name)),
        }
    }

    /// All servers that the caller may see, by name.
    pub(crate) fn visible_servers(&self, caller: &Caller) -> Vec<Arc<Server>> {
        let registry = self.0.registry.load();
        registry.values().filter(|server| self.may_see(caller, &server.spec.name)).cloned().collect()
    }

    pub(crate) fn unknown_server(&self, caller: Option<&Caller>, name: &str) -> CallError {
        let registry = self.0.registry.load();
        let visible = registry
            .values()
            .filter(|server| caller.is_none_or(|caller| self.may_see(caller, &server.spec.name)));
        CallError::unknown_server(name, visible.map(|server| server.spec.name.as_str()))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for server in self.registry.load().values() {
            server.remove();
        }
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("servers", &self.0.registry.load().keys().collect::<Vec<_>>()).finish()
    }
}
