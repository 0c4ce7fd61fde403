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

/// A host for MCP servers: runs them and takes calls for them.
///
/// A program may have several hosts; they share no state. Clones are handles to the same host. Dropping the last one
/// ends every server; [`shutdown`](Self::shutdown) does the same and waits.
#[derive(Clone)]
pub struct Host(Arc<HostInner>);

/// Weak handle to the host, for the values that it owns.
#[derive(Clone)]
pub(crate) struct WeakHost(Weak<HostInner>);

impl WeakHost {
    pub(crate) fn upgrade(&self) -> Option<Host> {
        self.0.upgrade().map(Host)
    }
}

pub(crate) struct HostInner {
    options: HostOptions,
    /// Servers in force, and what policy lets callers do with them.
    pub(crate) registry: Registry,
    /// Budgets and requests in flight.
    pub(crate) admission: AdmissionControl,
    /// Cached answers, and reads that several callers share.
    pub(crate) responses: ResponseCache,
    /// Recorder, observers, listeners and redactor.
    pub(crate) telemetry: Telemetry,
    /// Means of starting processes.
    pub(crate) launcher: Launcher,
    /// Tables of exposed names and URIs.
    catalog: Catalog,
    /// Turns for filtering long lists.
    pub(crate) list_turns: ListTurns,
    schemas: Arc<SchemaCache>,
    sealed_tokens: SealedTokens,
    idempotency_keys: IdempotencyKeys,
    /// Source of randomness of its servers.
    rng: Mutex<fastrand::Rng>,
}

/// Dependencies of starting a server's process.
pub(crate) struct Launcher {
    pub(crate) login_path: Arc<LoginPath>,
    pub(crate) spawner: Option<Arc<SpawnerClient>>,
}

impl Host {
    /// Creates a host without servers. Reads the budget file, if the options name one.
    ///
    /// # Panics
    ///
    /// Panics if the options name no key and the system's random source fails; [`try_new`](Self::try_new) returns that
    /// as an error.
    pub fn new(options: HostOptions) -> Self {
        Self::try_new(options).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates a host without servers. Fails if the options name no key and the system's random source fails.
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

    /// Returns the size of the response cache, over all servers.
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

    /// Returns the detector of request loops between hosts.
    pub fn loop_detector(&self) -> &Arc<LoopDetector> {
        &self.0.options.loop_detector
    }

    pub(crate) fn options(&self) -> &HostOptions {
        &self.0.options
    }

    /// Returns the snapshot in force.
    pub(crate) fn current(&self) -> Guard<Arc<RegistrySnapshot>> {
        self.0.registry.current()
    }

    /// Returns the snapshot that a request was authorized by, or the one in force if it has none.
    pub(crate) fn snapshot_for(&self, request: &Request<'_>) -> Arc<RegistrySnapshot> {
        request.snapshot.clone().unwrap_or_else(|| Arc::clone(&self.current()))
    }

    /// Returns the snapshot that applies to a request on a slot: the one in force, or, for a replaced slot, the one
    /// that the request was authorized by.
    pub(crate) fn snapshot_of(&self, slot: &Slot, request: &Request<'_>) -> Arc<RegistrySnapshot> {
        let now = self.current();
        let server = now.server(slot.key.server.as_str());
        match server.is_some_and(|server| server.registration == slot.key.registration) {
            true => Arc::clone(&now),
            false => self.snapshot_for(request),
        }
    }

    /// Reads the spec of a request's server from the snapshot that applies to the request.
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

    /// Forks a source of randomness for one server.
    pub(crate) fn fork_rng(&self) -> fastrand::Rng {
        self.0.rng.lock().unwrap_or_else(PoisonError::into_inner).fork()
    }

    /// Returns a new idempotency key: the same for every attempt of one call, unique among calls.
    pub(crate) fn idempotency_key(&self) -> IdempotencyKey {
        self.0.idempotency_keys.next()
    }

    /// Returns the server. Fails if it does not exist, is hidden from the caller or can't be used.
    pub(crate) fn visible_server(&self, caller: &Caller, name: &str) -> Result<Arc<Server>, CallError> {
        self.current().find(Some(caller), name).cloned()
    }

    /// Returns all servers that the caller may see, sorted by name.
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
