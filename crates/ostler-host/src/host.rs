//! The host: a value that runs servers and takes calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::Guard;
use ostler_core::cache::{Cache, CacheLimits, CacheStats};
use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;
use ostler_core::spec::ServerSpec;

use crate::admission::AdmissionControl;
use crate::catalog::Catalog;
use crate::idempotency_key::{IdempotencyKey, IdempotencyKeys};
use crate::lists::list_turns::ListTurns;
use crate::loop_detection::LoopDetector;
use crate::notifications::NotificationBus;
use crate::options::{HostOptions, RandomSourceError, random_key};
use crate::pins::unless_off;
use crate::policy::Policy;
use crate::process::client::SpawnerClient;
use crate::process_pool::ProcessPool;
use crate::registry::{Registry, RegistrySnapshot};
use crate::request::Request;
use crate::response_cache::ResponseCache;
use crate::sealed_tokens::SealedTokens;
use crate::server::Server;
use crate::server::slot::Slot;
use crate::telemetry::Telemetry;
use crate::upstream::stdio::LoginPath;
use crate::validate::SchemaCache;

/// Runs MCP servers and takes calls for them.
///
/// A host is a value: a program may have several, and they share nothing.
/// Clones are handles to the same host. When the last one is dropped every
/// server is ended; [`shutdown`](Self::shutdown) does the same and waits.
#[derive(Clone)]
pub struct Host(Arc<HostInner>);

/// The host, seen from what it owns.
#[derive(Clone)]
pub(crate) struct WeakHost(Weak<HostInner>);

impl WeakHost {
    pub(crate) fn upgrade(&self) -> Option<Host> {
        self.0.upgrade().map(Host)
    }
}

pub(crate) struct HostInner {
    options: HostOptions,
    /// Which servers there are, and what callers may do with them.
    pub(crate) registry: Registry,
    /// How much callers may use.
    pub(crate) admission: AdmissionControl,
    /// Remembered answers, and reads that callers share.
    pub(crate) responses: ResponseCache,
    /// Everybody who is told what happens.
    pub(crate) telemetry: Telemetry,
    /// How processes are started.
    pub(crate) launcher: Launcher,
    /// Exposed names and URIs.
    catalog: Catalog,
    /// Turns of long lists.
    pub(crate) list_turns: ListTurns,
    schemas: Arc<SchemaCache>,
    sealed_tokens: SealedTokens,
    idempotency_keys: IdempotencyKeys,
    /// Source of randomness of its servers.
    rng: Mutex<fastrand::Rng>,
}

/// How processes of servers are started.
pub(crate) struct Launcher {
    pub(crate) login_path: Arc<LoginPath>,
    pub(crate) spawner: Option<Arc<SpawnerClient>>,
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
        let bounds = CacheLimits {
            per_subject: options.cache_entries_per_tool,
            max_bytes: options.cache_bytes,
            max_ttl: options.cache_max_ttl,
        };
        let mut rng = options.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let instance = rng.u64(..);
        let current = RegistrySnapshot {
            policy: Arc::new(Policy::new(options.rules.clone())),
            limits: Arc::new(options.limits.clone()),
            pins: unless_off(options.pins.clone()),
            ..RegistrySnapshot::default()
        };
        Ok(Self(Arc::new(HostInner {
            registry: Registry::new(current, ProcessPool::new(options.max_processes)),
            admission: AdmissionControl::new(&options),
            responses: ResponseCache::new(bounds),
            telemetry: Telemetry::default(),
            launcher: Launcher {
                login_path: Arc::new(LoginPath::new(options.use_login_path)),
                spawner: options.guard.clone().map(|command| Arc::new(SpawnerClient::new(command))),
            },
            catalog: Catalog::default(),
            list_turns: ListTurns::new(),
            schemas: Arc::default(),
            sealed_tokens: SealedTokens::new(&seal_key, instance),
            idempotency_keys: IdempotencyKeys::new(instance),
            rng: Mutex::new(rng),
            options,
        })))
    }

    /// Returns the size of what is remembered, over all servers.
    pub fn cache_stats(&self) -> CacheStats {
        let current = self.current();
        current.servers.values().flat_map(|server| server.slots()).for_each(|slot| slot.flush_misses());
        self.cache().stats()
    }

    /// Returns the number of live processes.
    pub fn process_count(&self) -> usize {
        self.0.registry.process_pool.process_count()
    }

    pub(crate) fn downgrade(&self) -> WeakHost {
        WeakHost(Arc::downgrade(&self.0))
    }

    pub(crate) fn inner(&self) -> &HostInner {
        &self.0
    }

    /// Tells chains of hosts that come back.
    pub fn loop_detector(&self) -> &Arc<LoopDetector> {
        &self.0.options.loop_detector
    }

    pub(crate) fn options(&self) -> &HostOptions {
        &self.0.options
    }

    /// Returns what is in force.
    pub(crate) fn current(&self) -> Guard<Arc<RegistrySnapshot>> {
        self.0.registry.current()
    }

    /// Returns what is in force for a request: what it was judged by, or what is now.
    pub(crate) fn snapshot_for(&self, request: &Request<'_>) -> Arc<RegistrySnapshot> {
        request.snapshot.clone().unwrap_or_else(|| Arc::clone(&self.current()))
    }

    /// Returns what is in force for a request on a slot now; for one that was replaced, what the request was judged by.
    pub(crate) fn snapshot_of(&self, slot: &Slot, request: &Request<'_>) -> Arc<RegistrySnapshot> {
        let now = self.current();
        let server = now.server(slot.key.server.as_str());
        match server.is_some_and(|server| server.registration == slot.key.registration) {
            true => Arc::clone(&now),
            false => self.snapshot_for(request),
        }
    }

    /// Reads what the operator says about the server of a request, as of when the request was judged.
    pub(crate) fn with_spec<T>(
        &self,
        slot: &Slot,
        request: &Request<'_>,
        read: impl FnOnce(&ServerSpec) -> T,
    ) -> T {
        match &request.snapshot {
            Some(judged_by) => read(judged_by.spec_of(slot)),
            None => read(self.current().spec_of(slot)),
        }
    }

    pub(crate) fn bus(&self) -> &Arc<NotificationBus> {
        &self.0.telemetry.bus
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.0.catalog
    }

    pub(crate) fn sealed_tokens(&self) -> &SealedTokens {
        &self.0.sealed_tokens
    }

    pub(crate) fn schemas(&self) -> &Arc<SchemaCache> {
        &self.0.schemas
    }

    pub(crate) fn cache(&self) -> MutexGuard<'_, Cache> {
        self.0.responses.lock()
    }

    /// Returns a source of randomness for one server.
    pub(crate) fn fork_rng(&self) -> fastrand::Rng {
        self.0.rng.lock().unwrap_or_else(PoisonError::into_inner).fork()
    }

    /// Returns a key that is the same for every attempt of one call, and never the same for two.
    pub(crate) fn idempotency_key(&self) -> IdempotencyKey {
        self.0.idempotency_keys.next()
    }

    /// Returns the server, unless it does not exist, the caller may not see it or it can't be used.
    pub(crate) fn visible_server(&self, caller: &Caller, name: &str) -> Result<Arc<Server>, CallError> {
        self.current().find(Some(caller), name).cloned()
    }

    /// Returns all servers that the caller may see, by name.
    pub(crate) fn visible_servers(&self, caller: &Caller) -> Vec<Arc<Server>> {
        let current = self.current();
        let visible = current.servers.values().filter(|server| current.may_see(caller, &server.spec.name));
        visible.cloned().collect()
    }

    pub(crate) fn unknown_server(&self, caller: Option<&Caller>, name: &str) -> CallError {
        self.current().unknown_server(caller, name)
    }
}

impl RegistrySnapshot {
    /// Returns the error for a server that a caller can't see, with the nearest name among those that it can.
    pub(crate) fn unknown_server(&self, caller: Option<&Caller>, name: &str) -> CallError {
        let names = self.servers.keys().chain(self.unusable.keys());
        let visible = names.filter(|name| caller.is_none_or(|caller| self.may_see(caller, name)));
        CallError::unknown_server(name, visible.map(ServerName::as_str))
    }
}

impl Drop for HostInner {
    fn drop(&mut self) {
        for server in self.registry.current().servers.values() {
            server.remove();
        }
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("servers", &self.current().servers.keys().collect::<Vec<_>>()).finish()
    }
}
