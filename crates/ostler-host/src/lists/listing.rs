//! Listings: the items that a caller may use of one server or of all of them. [`Host::list`] is the only list.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::catalog::ServerClaims;
use ostler_core::error::CallError;
use ostler_core::pins::LockedServer;
use ostler_core::sabotage;
use ostler_core::server_name::ServerName;
use ostler_core::spec::CacheScopeRule;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Kind;
use super::fetch::CoalescedFetch;
use super::list_turns::ListTurn;
use crate::blocking::run_blocking_if_large;
use crate::catalog::{Scope, Tables};
use crate::host::Host;
use crate::in_flight::RequestClass;
use crate::lifecycle_event::{LifecycleEvent, LifecycleEventKind};
use crate::record::{DeniedRequest, UnresolvedRequest};
use crate::registry::RegistrySnapshot;
use crate::server::Server;
use crate::server::lease::Demand;
use crate::server::server_list::{ServerItem, ServerList};
use crate::server::slot::Slot;

/// Bounds the wait for a newer list where an older one can be given.
const STALE_LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// Time that one server has to list, its start not counted, where all servers are waited for.
const SERVER_LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Bounds the servers that one listing asks at once.
const MAX_CONCURRENT_FETCHES: usize = 16;

/// Time for a server that came up during the listing to list its items.
const REFETCH_TIMEOUT: Duration = Duration::from_secs(1);

/// Patience of a listing with slow servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListWait {
    /// Waits this long, then answers with the last known lists; does not wait for a starting server whose list is
    /// known.
    AtMost(Duration),
    /// Waits until each server has listed, its start included, or has failed. Of several servers, sleeping ones whose
    /// lists are known are not woken.
    UntilListed,
    /// Like `UntilListed`, but also over failed starts: a call of an item of one server follows, and waits as long for
    /// it.
    ForCall,
}

impl From<Duration> for ListWait {
    fn from(time: Duration) -> Self {
        Self::AtMost(time)
    }
}

/// Items of one kind that a caller may use of one server.
#[derive(Debug, Clone)]
pub struct ServerListing {
    /// The server.
    pub server: ServerName,
    /// Items in the server's order.
    pub items: Vec<ListedItem>,
    /// Resources and templates that are left out because another server owns them.
    pub shadowed: Vec<ShadowedItem>,
    /// Reason why the items are the last known ones, or missing.
    pub error: Option<CallError>,
    /// Set if any list of the server is known, even an empty one.
    pub is_known: bool,
    /// Remaining time for which the server calls them fresh.
    pub ttl: Duration,
    /// Set if all callers may see the list: its server and its operator say so, and no rule tells callers apart.
    pub is_public: bool,
}

/// An item and the name under which its scope shows it.
#[derive(Debug, Clone)]
pub struct ListedItem {
    /// `server__name` for tools and prompts of all servers; else the server's own name or URI.
    pub exposed_name: Arc<str>,
    /// The item as its server defines it.
    pub item: ServerItem,
}

/// A resource or template that another server owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShadowedItem {
    /// Its URI or template.
    pub uri: Arc<str>,
    /// Server that owns it.
    pub owner: ServerName,
}

impl ServerListing {
    /// Fails where no list is known.
    pub fn require_known(self) -> Result<Self, CallError> {
        match self.error {
            Some(error) if !self.is_known => Err(error),
            _ => Ok(self),
        }
    }
}

impl Host {
    /// Lists tools, prompts, resources or templates that a caller may use, sorted by server. A failing server is
    /// reported in its place and does not affect the others. A scope of one server asks that server; a server that the
    /// caller may not see is recorded, and reported as missing.
    pub async fn list(
        &self,
        caller: &Caller,
        scope: &Scope,
        kind: Kind,
        patience: impl Into<ListWait>,
    ) -> Vec<ServerListing> {
        self.list_with(caller, scope, (kind, patience), |listings, _| listings).await
    }

    /// Lists as [`Host::list`] does and converts the listings with `make`, for example to a page. Filters and converts
    /// long lists off the threads that calls share, a few at once; callers take turns, and `make` gets the turn. A list
    /// that gets no turn reports every server as overloaded.
    pub async fn list_with<T, M>(
        &self,
        caller: &Caller,
        scope: &Scope,
        (kind, patience): (Kind, impl Into<ListWait>),
        make: M,
    ) -> T
    where
        T: Send + 'static,
        M: FnOnce(Vec<ServerListing>, ListTurn) -> T + Send + 'static,
    {
        let fetched = match self.fetch(caller, scope, kind, patience.into()).await {
            Ok(fetched) => fetched,
            Err(refused) => return make(vec![refused], ListTurn::default()),
        };
        let size = fetched.iter().filter_map(|fetched| Some(fetched.known.as_ref()?.size)).sum();
        let (fetched, size, turn) = match self.inner().list_turns.acquire(caller.principal(), size).await {
            Ok(turn) => (fetched, size, turn),
            Err(error) => {
                let shed = |fetched| FetchedList { known: None, error: Some(error.clone()), ..fetched };
                (fetched.into_iter().map(shed).collect(), 0, ListTurn::default())
            }
        };
        let tables = match scope {
            Scope::All => Some(self.catalog().tables(self).await),
            Scope::Server(_) => None,
        };
        // A snapshot applied meanwhile may have removed a server or hidden it.
        if let Scope::Server(name) = scope
            && let Err(error) = self.visible_server(caller, name.as_str())
        {
            return make(vec![empty_listing(name, Some(error))], turn);
        }
        let (current, caller) = (Arc::clone(&self.current()), caller.clone());
        let filter_and_make = move || make(current.filter_all(&caller, kind, (fetched, tables)), turn);
        run_blocking_if_large(size, filter_and_make).await
    }

    /// Asks the servers of a scope for their lists. Fails with the listing of a server that the caller may not see.
    async fn fetch(
        &self,
        caller: &Caller,
        scope: &Scope,
        kind: Kind,
        patience: ListWait,
    ) -> Result<Vec<FetchedList>, ServerListing> {
        let name = match scope {
            Scope::All => return Ok(self.fetch_all(caller, kind, patience).await),
            Scope::Server(name) => name,
        };
        match self.visible_server(caller, name.as_str()) {
            Ok(server) => {
                Ok(vec![self.fetch_listing(caller, server, kind, (patience, ListBreadth::One)).await])
            }
            Err(error) => {
                let (server, method) = (name.as_str(), kind.method());
                if !self.record_if_denied(caller, DeniedRequest { server, method, item: None }) {
                    let unknown = UnresolvedRequest { server, method, subject: "", outcome: error.code() };
                    self.record_unresolved(caller, unknown);
                }
                Err(empty_listing(name, Some(error)))
            }
        }
    }

    /// Asks one server for its list. Returns the reason why none is known, with all details; callers get it
    /// [without](RegistrySnapshot::without_details) those that they may not read.
    pub(crate) async fn refresh_list(
        &self,
        caller: &Caller,
        server: &str,
        kind: Kind,
        patience: Duration,
    ) -> Result<(), CallError> {
        let slot = self.visible_server(caller, server)?.slot(caller)?;
        match self.list_with_timeout(&slot, caller, kind, patience).await {
            (None, Some(error)) => Err(error),
            _ => Ok(()),
        }
    }

    async fn fetch_all(&self, caller: &Caller, kind: Kind, patience: ListWait) -> Vec<FetchedList> {
        let mut fetched = self.fetch_each(caller, self.visible_servers(caller), kind, patience).await;
        if let ListWait::AtMost(time) = patience {
            self.refetch_started(caller, kind, time, &mut fetched).await;
        }
        fetched
    }

    /// Asks servers again that came up during the listing: they have newer lists.
    async fn refetch_started(
        &self,
        caller: &Caller,
        kind: Kind,
        patience: Duration,
        fetched: &mut Vec<FetchedList>,
    ) {
        let is_late = |fetched: &&FetchedList| fetched.error.as_ref().is_some_and(CallError::is_starting);
        let late = fetched.iter().filter(is_late).map(|fetched| Arc::clone(&fetched.server));
        let up = late.filter(|server| server.is_up(caller)).collect();
        let again = self.fetch_each(caller, up, kind, ListWait::AtMost(patience.min(REFETCH_TIMEOUT))).await;
        for newer in again.into_iter().filter(|newer| newer.error.is_none()) {
            fetched.retain(|older| !Arc::ptr_eq(&older.server, &newer.server));
            fetched.push(newer);
        }
    }

    /// Asks several servers, at most [`MAX_CONCURRENT_FETCHES`] at once. The timeout of each begins with its turn. A
    /// server that still has to start takes no turn: starts have turns of their own, and take long.
    async fn fetch_each(
        &self,
        caller: &Caller,
        servers: Vec<Arc<Server>>,
        kind: Kind,
        patience: ListWait,
    ) -> Vec<FetchedList> {
        let turns = Arc::new(Semaphore::new(MAX_CONCURRENT_FETCHES));
        let mut asking = JoinSet::new();
        for server in servers {
            let (host, caller, turns) = (self.clone(), caller.clone(), Arc::clone(&turns));
            asking.spawn(async move {
                let _turn = if server.is_up(&caller) { turns.acquire().await.ok() } else { None };
                host.fetch_listing(&caller, server, kind, (patience, ListBreadth::All)).await
            });
        }
        let mut fetched = Vec::new();
        while let Some(joined) = asking.join_next().await {
            fetched.extend(joined);
        }
        fetched
    }

    async fn fetch_listing(
        &self,
        caller: &Caller,
        server: Arc<Server>,
        kind: Kind,
        (patience, reach): (ListWait, ListBreadth),
    ) -> FetchedList {
        let slot = match server.slot(caller) {
            Ok(slot) => slot,
            Err(error) => return FetchedList { server, known: None, error: Some(error) },
        };
        if reach == ListBreadth::All
            && let Some(known) = self.idle_server_list(&slot, caller, kind).await
        {
            return FetchedList { server, known: Some(known), error: None };
        }
        let (known, error) = match patience {
            ListWait::AtMost(time) => self.list_with_timeout(&slot, caller, kind, time).await,
            ListWait::UntilListed => match self.fetch_until_listed(&slot, caller, kind, reach).await {
                Ok(known) => (Some(known), None),
                Err(error) => (None, Some(error)),
            },
            ListWait::ForCall => match self.fetch_for_call(&slot, caller, kind).await {
                Ok(known) => (Some(known), None),
                Err(error) => (None, Some(error)),
            },
        };
        FetchedList { server, known, error }
    }

    /// Waits for a server's list, and for its start.
    async fn fetch_until_listed(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
        kind: Kind,
        reach: ListBreadth,
    ) -> Result<Arc<ServerList>, CallError> {
        let _in_flight = self.acquire_in_flight(caller, RequestClass::Listing)?;
        if let Some(known) = slot.fresh_list(caller, kind) {
            return Ok(known);
        }
        if reach == ListBreadth::One {
            return self.fetch_list_of_one(slot, caller, kind).await;
        }
        let listing = self.fetch_list_unless_start_fails(slot, caller, kind);
        tokio::pin!(listing);
        loop {
            match timeout(SERVER_LIST_TIMEOUT, &mut listing).await {
                Ok(listed) => return listed,
                // A start has a limit of its own.
                Err(_) if slot.is_starting() => {}
                Err(_) => return Err(slot.list_timed_out_error(SERVER_LIST_TIMEOUT)),
            }
        }
    }

    /// Waits for a server's list like a call of it does.
    async fn fetch_for_call(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
        kind: Kind,
    ) -> Result<Arc<ServerList>, CallError> {
        let _in_flight = self.acquire_in_flight(caller, RequestClass::Listing)?;
        match slot.fresh_list(caller, kind) {
            Some(known) => Ok(known),
            None => self.fetch_list(slot, caller, kind).await,
        }
    }

    /// Returns the known list of a lazy server that sleeps; the server is not woken for it.
    pub(crate) async fn idle_server_list(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
        kind: Kind,
    ) -> Option<Arc<ServerList>> {
        if !slot.spec.lazy || slot.is_active() {
            return None;
        }
        if let Some(pinned) = self.pinned_fallback(slot, kind) {
            return Some(pinned);
        }
        self.load_persisted_lists(slot).await;
        slot.cached_list_for(caller, kind)
    }

    /// Returns the list, or the last known one with the reason. The fetch goes on after the timeout.
    pub(crate) async fn list_with_timeout(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
        kind: Kind,
        patience: Duration,
    ) -> (Option<Arc<ServerList>>, Option<CallError>) {
        if let Some(known) = slot.fresh_list(caller, kind) {
            return (Some(known), None);
        }
        self.load_persisted_lists(slot).await;
        // A server that missed a timeout before gets a shorter one, and one whose last start failed gets none: its next
        // start may take as long and fail as well.
        let has_missed = slot.list_cache(kind).was_omitted.load(Ordering::Acquire);
        let is_brief = has_missed || self.last_known_list(slot, caller, kind).is_some();
        let has_failed = slot.has_failed_start();
        let patience = match is_brief {
            _ if has_failed => Duration::ZERO,
            true if slot.is_starting() => Duration::ZERO,
            true => patience.min(STALE_LIST_TIMEOUT),
            false => patience,
        };
        let missed = |error| {
            slot.list_cache(kind).was_omitted.store(true, Ordering::Release);
            (self.last_known_list(slot, caller, kind), Some(error))
        };
        let round = async {
            tokio::select! {
                biased;
                outcome = self.coalesce_fetch(slot, caller, kind) => Ok(outcome),
                // The fetch goes on, and its result is announced.
                error = slot.until_start_failed() => Err(error),
            }
        };
        match timeout(patience, round).await {
            Ok(Ok(Ok(known))) => (Some(known), None),
            Ok(Ok(Err(error))) if slot.live().is_some() => {
                (self.last_known_list(slot, caller, kind), Some(error))
            }
            Ok(Ok(Err(error))) => missed(error),
            Ok(Err(error)) => missed(error),
            Err(_) if has_failed => missed(slot.failed_error(&slot.state())),
            Err(_) => missed(slot.list_timed_out_error(patience)),
        }
    }

    /// Waits for the fetch in progress, or starts one in a task of its own. Only that task outlives the caller, so
    /// there is never more than one of them for a list.
    async fn coalesce_fetch(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
        kind: Kind,
    ) -> Result<Arc<ServerList>, CallError> {
        let listing = match slot.join_fetch(caller, kind).await? {
            CoalescedFetch::Shared(outcome) => return outcome,
            CoalescedFetch::Leader(listing) => listing,
        };
        let in_flight = self.acquire_in_flight(caller, RequestClass::Listing)?;
        let (host, asked, caller) = (self.clone(), Arc::clone(slot), caller.clone());
        let round = tokio::spawn(async move {
            let _in_flight = in_flight;
            host.lead_fetch(&asked, (&caller, kind, Demand::Lasting), listing).await
        });
        round.await.unwrap_or_else(|_| Err(slot.shutting_down_error()))
    }

    /// Returns a version that rises whenever a known list of any server changes, or a server comes or goes.
    pub fn lists_version(&self) -> u64 {
        self.bus().lists_version()
    }

    /// Returns the bytes of all definitions that are known now, pinned ones included.
    pub(crate) fn known_definition_bytes(&self) -> usize {
        let pins = self.pins();
        let locked = pins.iter().flat_map(|pins| pins.lock.servers.values()).flat_map(LockedServer::pins);
        let pinned: usize = locked.map(|(_, _, pin)| pin.definition.len()).sum();
        let slots = self.current().servers.values().flat_map(|server| server.slots()).collect::<Vec<_>>();
        let lists = slots.iter().flat_map(|slot| Kind::ALL.map(|kind| slot.list_cache(kind).all())).flatten();
        lists.map(|known| known.size).sum::<usize>() + pinned
    }

    /// Returns the known items of every server, sorted by server and not filtered: a caller that may not use an item
    /// learns that from the call. Includes pinned tools. Asks no server.
    pub(crate) fn known_items(&self, kind: Kind) -> Vec<(ServerName, Vec<ServerItem>)> {
        let current = self.current();
        let known = |server: &Arc<Server>| {
            let mut items = server.cached_items(kind);
            self.add_pinned(server, kind, &mut items);
            (server.spec.name.clone(), items)
        };
        current.servers.values().map(known).collect()
    }
}

impl Host {
    /// Returns the names of all servers in the order of their registration; one that was replaced keeps its place.
    pub fn servers_in_registration_order(&self) -> Vec<ServerName> {
        let current = self.current();
        let mut servers: Vec<&Arc<Server>> = current.servers.values().collect();
        servers.sort_by_key(|server| server.rank);
        servers.into_iter().map(|server| server.spec.name.clone()).collect()
    }

    /// Returns the known resources or templates of every server, in the order of their registration. Asks no server.
    pub(crate) fn claimed_resources(&self, kind: Kind) -> Vec<ServerClaims> {
        let current = self.current();
        let claimed = |server: ServerName| {
            let items = current.servers.get(&server)?.cached_list(kind);
            let items = items.map(|items| {
                let claim =
                    |item: ServerItem| (Arc::clone(&item.name), self.is_pinned(&server, kind, &item.name));
                items.into_iter().map(claim).collect()
            });
            Some(ServerClaims { server, items })
        };
        self.servers_in_registration_order().into_iter().filter_map(claimed).collect()
    }

    /// Reports that a server lists a resource or template that another server owns.
    pub(crate) fn report_shadowed(&self, server: &ServerName, uri: &str, owner: &ServerName) {
        tracing::warn!(%server, %uri, %owner, "a server lists a resource that another one answers for");
        let what = LifecycleEventKind::ResourceShadowed { uri, owner: owner.as_str() };
        self.notify_observers(&LifecycleEvent::for_server(server.as_str(), what));
    }
}

impl RegistrySnapshot {
    /// Returns whether callers may see different things.
    fn is_caller_dependent(&self) -> bool {
        self.hook.is_some() || self.policy.rules().are_restrictive()
    }

    /// Filters lists, and gives the items of several servers their exposed names.
    fn filter_all(
        &self,
        caller: &Caller,
        kind: Kind,
        (mut fetched, tables): (Vec<FetchedList>, Option<Arc<Tables>>),
    ) -> Vec<ServerListing> {
        if tables.is_some() {
            fetched.retain(|FetchedList { server, .. }| {
                let name = &server.spec.name;
                self.server(name.as_str()).is_some() && self.may_see(caller, name)
            });
        }
        let mut listings: Vec<ServerListing> =
            fetched.iter().map(|fetched| self.filter(caller, kind, fetched)).collect();
        if let Some(tables) = tables {
            let unusable = self.unusable_visible_to(caller).filter(|unusable| unusable.is_failure());
            let refused = |unusable| Some(self.unusable_error(Some(caller), unusable));
            listings.extend(unusable.map(|unusable| empty_listing(&unusable.spec().name, refused(unusable))));
            listings.sort_by(|a, b| a.server.cmp(&b.server));
            apply_exposed_names(&tables, kind, &mut listings);
        }
        listings
    }

    /// Filters a list by the rules and pins of calls.
    fn filter(&self, caller: &Caller, kind: Kind, fetched: &FetchedList) -> ServerListing {
        let FetchedList { server, known, error } = fetched;
        // Its spec may have been replaced by now.
        let server = self.server(server.spec.name.as_str()).unwrap_or(server);
        let error = error.clone().map(|error| self.without_details(caller, error));
        let Some(known) = known else { return empty_listing(&server.spec.name, error) };
        let usable = self.approved_items(server, kind, known).filter(|item| {
            sabotage!(UnfilteredList, return true);
            self.may_use_item(caller, server, kind, &item.name)
        });
        let listed =
            |item: &ServerItem| ListedItem { exposed_name: Arc::clone(&item.name), item: item.clone() };
        let listing = ServerListing {
            server: server.spec.name.clone(),
            items: usable.map(listed).collect(),
            shadowed: Vec::new(),
            error: None,
            is_known: true,
            ttl: known.remaining(),
            is_public: known.is_public
                && server.spec.cache_scope == CacheScopeRule::Server
                && !self.is_caller_dependent(),
        };
        listing.with_error(error)
    }
}

/// The list of a server, not yet filtered, or the reason why none is known.
struct FetchedList {
    server: Arc<Server>,
    known: Option<Arc<ServerList>>,
    error: Option<CallError>,
}

impl ServerListing {
    /// Sets the reason why the items are not newer; such items have no TTL left.
    fn with_error(mut self, error: Option<CallError>) -> Self {
        if error.is_some() {
            (self.error, self.ttl) = (error, Duration::ZERO);
        }
        self
    }
}

/// Breadth of a listing: one server, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListBreadth {
    One,
    All,
}

fn empty_listing(server: &ServerName, error: Option<CallError>) -> ServerListing {
    ServerListing {
        server: server.clone(),
        items: Vec::new(),
        shadowed: Vec::new(),
        error,
        is_known: false,
        ttl: Duration::ZERO,
        is_public: false,
    }
}

/// Gives items the names under which they can be called among those of all servers, and leaves out URIs that another
/// server owns.
fn apply_exposed_names(tables: &Tables, kind: Kind, listings: &mut [ServerListing]) {
    match tables.name_table(kind) {
        Some(table) => {
            for listing in listings {
                let server = &listing.server;
                // An item removed since the list was made has no name, and could not be called.
                listing.items.retain_mut(|listed| match table.exposed_name(server, &listed.item.name) {
                    Some(exposed) => {
                        listed.exposed_name = Arc::clone(exposed);
                        true
                    }
                    None => false,
                });
            }
        }
        None => remove_shadowed(tables, kind, listings),
    }
}

/// Keeps each URI and template only at its owner among the servers that list it, and only its first entry there.
fn remove_shadowed(tables: &Tables, kind: Kind, listings: &mut [ServerListing]) {
    let mut listing_it: HashMap<Arc<str>, Vec<ServerName>> = HashMap::new();
    for listing in &*listings {
        for listed in &listing.items {
            listing_it.entry(Arc::clone(&listed.item.name)).or_default().push(listing.server.clone());
        }
    }
    let contested = listing_it.into_iter().filter(|(_, servers)| servers.len() > 1);
    let owners: HashMap<Arc<str>, ServerName> = contested
        .filter_map(|(uri, servers)| {
            let may = |server: &ServerName| servers.contains(server);
            let owner = match kind {
                Kind::Templates => tables.resources.owner_of_template(&uri, may),
                _ => tables.resources.owner_of_listed(&uri, may),
            };
            let owner = owner?.clone();
            Some((uri, owner))
        })
        .collect();
    let mut seen = HashSet::new();
    for ServerListing { server, items, shadowed, .. } in listings {
        items.retain(|listed| {
            let uri = &listed.item.name;
            match owners.get(uri).filter(|owner| *owner != server) {
                Some(owner) => {
                    shadowed.push(ShadowedItem { uri: Arc::clone(uri), owner: owner.clone() });
                    false
                }
                None => seen.insert(Arc::clone(uri)),
            }
        });
    }
}
