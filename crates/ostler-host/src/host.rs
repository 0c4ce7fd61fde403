//! The host: a value that runs servers and takes calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::Guard;
use ostler_core::cache::{Bounds, Cache, Stats};
use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;

use crate::admission::Admission;
use crate::bus::Bus;
use crate::catalog::Catalog;
use crate::guard::client::Warden;
use crate::key::{IdempotencyKey, IdempotencyKeys};
use crate::options::{HostOptions, RandomSourceError, random_key};
use crate::pins::effective;
use crate::policy::Policy;
use crate::registry::{Current, Registry};
use crate::request::Request;
use crate::response_cache::ResponseCache;
use crate::room::Room;
use crate::sealed::Seals;
use crate::server::Server;
use crate::telemetry::Telemetry;
use crate::upstream::stdio::LoginPath;
use crate::validate::Schemas;
use crate::via::Via;

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
    /// Which servers there are, and what callers may do with them.
    pub(crate) registry: Registry,
    /// How much callers may use.
    pub(crate) admission: Admission,
    /// Remembered answers, and reads that callers share.
    pub(crate) responses: ResponseCache,
    /// Everybody who is told what happens.
    pub(crate) telemetry: Telemetry,
    /// How processes are started.
    pub(crate) launcher: Launcher,
    /// Exposed names and URIs.
    catalog: Catalog,
    schemas: Schemas,
    seals: Seals,
    keys: IdempotencyKeys,
    /// Source of randomness of its servers.
    rng: Mutex<fastrand::Rng>,
}

/// How processes of servers are started.
pub(crate) struct Launcher {
    pub(crate) login_path: Arc<LoginPath>,
    pub(crate) warden: Option<Arc<Warden>>,
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
        let mut rng = options.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let instance = rng.u64(..);
        let current = Current {
            policy: Arc::new(Policy::new(options.rules.clone())),
            limits: Arc::new(options.limits.clone()),
            pins: effective(options.pins.clone()),
            ..Current::default()
        };
        Ok(Self(Arc::new(Shared {
            registry: Registry::new(current, Room::new(options.max_processes)),
            admission: Admission::new(&options),
            responses: ResponseCache::new(bounds),
            telemetry: Telemetry::default(),
            launcher: Launcher {
                login_path: Arc::new(LoginPath::new(options.login_path)),
                warden: options.guard.clone().map(|command| Arc::new(Warden::new(command))),
            },
            catalog: Catalog::default(),
            schemas: Schemas::default(),
            seals: Seals::new(&seal_key, instance),
            keys: IdempotencyKeys::new(instance),
            rng: Mutex::new(rng),
            options,
        })))
    }

    /// Returns the size of what is remembered, over all servers.
    pub fn cache_stats(&self) -> Stats {
        let current = self.current();
        current.servers.values().flat_map(|server| server.slots()).for_each(|slot| slot.settle_misses());
        self.cache().stats()
    }

    /// Returns the number of live processes.
    pub fn processes(&self) -> usize {
        self.0.registry.room.processes()
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

    /// Returns what is in force.
    pub(crate) fn current(&self) -> Guard<Arc<Current>> {
        self.0.registry.current()
    }

    /// Returns what is in force for a request: what it was judged by, or what is now.
    pub(crate) fn current_of(&self, request: &Request<'_>) -> Arc<Current> {
        request.judged_by.clone().unwrap_or_else(|| Arc::clone(&self.current()))
    }

    pub(crate) fn bus(&self) -> &Arc<Bus> {
        &self.0.telemetry.bus
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.0.catalog
    }

    pub(crate) fn seals(&self) -> &Seals {
        &self.0.seals
    }

    pub(crate) fn schemas(&self) -> &Schemas {
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
        self.0.keys.next()
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

impl Current {
    /// Returns the error for a server that a caller can't see, with the nearest name among those that it can.
    pub(crate) fn unknown_server(&self, caller: Option<&Caller>, name: &str) -> CallError {
        let names = self.servers.keys().chain(self.unusable.keys());
        let visible = names.filter(|name| caller.is_none_or(|caller| self.may_see(caller, name)));
        CallError::unknown_server(name, visible.map(ServerName::as_str))
    }
}

impl Drop for Shared {
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
