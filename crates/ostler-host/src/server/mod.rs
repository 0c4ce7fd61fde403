//! One registered server: its spec, its session places, and what it offers.

mod binding;
mod greet;
pub(crate) mod interest;
pub(crate) mod judgement;
pub(crate) mod known;
pub(crate) mod lease;
mod news;
pub(crate) mod places;
mod pulse;
pub(crate) mod shelf;
pub(crate) mod slot;
pub(crate) mod start_news;
pub(crate) mod start_record;
pub(crate) mod startup;
pub(crate) mod state;
mod stay;
mod task;
pub(crate) mod turn;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::spec::{Isolation, ServerSpec, Transport};
use ostler_core::supervisor::Phase;

use crate::level::Level;
use crate::lists::Kind;
use crate::upstream::Connector;
pub use binding::Binding;
use known::Item;
use slot::{Parts, Slot, SlotKey};
pub use startup::Startup;
pub use stay::Stay;

/// Session places of one isolated server. A place costs a few kilobytes; its
/// process is bounded by the pool.
const MAX_SLOTS: usize = 1_024;

/// How soon a caller that found no place may come back.
const COME_BACK: Duration = Duration::from_secs(1);

/// One registered server.
pub(crate) struct Server {
    pub(crate) spec: Arc<ServerSpec>,
    pub(crate) registration: u64,
    /// The registration of the first server of this name, if it was replaced since. It orders servers that claim
    /// the same URI.
    pub(crate) rank: u64,
    pub(crate) connector: Arc<dyn Connector>,
    /// How much of its log is wanted.
    pub(crate) level: Arc<Level>,
    /// Makes the parts of a slot; knows the host's cache and room.
    furnish: Box<dyn Fn() -> Parts + Send + Sync>,
    /// One place under the empty partition for a shared server, else one per caller.
    slots: Mutex<HashMap<Arc<str>, Arc<Slot>>>,
    /// The one place of a shared server, so that calls take no lock to find it.
    shared: Option<Arc<Slot>>,
    /// New places of a stopped server begin stopped.
    is_stopped: AtomicBool,
    /// New places of a removed server, for callers that found it just before, begin removed.
    is_removed: AtomicBool,
}

/// What a server comes with.
pub(crate) struct Fittings {
    /// The rank of the server that it replaces.
    pub(crate) rank: Option<u64>,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) level: Arc<Level>,
    /// Makes the parts of a slot.
    pub(crate) furnish: Box<dyn Fn() -> Parts + Send + Sync>,
}

impl Server {
    pub(crate) fn new(spec: Arc<ServerSpec>, registration: u64, fittings: Fittings) -> Self {
        let Fittings { rank, connector, level, furnish } = fittings;
        let mut server = Self {
            spec,
            registration,
            rank: rank.unwrap_or(registration),
            connector,
            level,
            furnish,
            slots: Mutex::default(),
            shared: None,
            is_stopped: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
        };
        if server.spec.isolation == Isolation::Shared {
            let slot = server.open_slot("".into());
            server.slots.lock().unwrap_or_else(PoisonError::into_inner).insert("".into(), Arc::clone(&slot));
            server.shared = Some(slot);
        }
        server
    }

    /// The session place that a caller uses.
    pub(crate) fn slot(&self, caller: &Caller) -> Result<Arc<Slot>, CallError> {
        if let Some(slot) = &self.shared {
            return Ok(Arc::clone(slot));
        }
        let partition = self.partition(caller);
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(&*partition) {
            return Ok(Arc::clone(slot));
        }
        if slots.len() >= MAX_SLOTS {
            slots.retain(|_, slot| !slot.retire_if_asleep());
        }
        if slots.len() >= MAX_SLOTS {
            let what =
                format!("server `{}` is in use by {MAX_SLOTS} callers, each with a process", self.spec.name);
            return Err(CallError::Overloaded { what, retry_after: COME_BACK });
        }
        let slot = self.open_slot(partition.as_ref().into());
        slots.insert(partition.as_ref().into(), Arc::clone(&slot));
        Ok(slot)
    }

    /// Whose place an isolated server gives a caller. Sessions are named by
    /// clients, so two callers may have sessions of the same name.
    ///
    /// Whoever runs the host shares the place of callers on its machine: a
    /// process that only an operator could use would serve nobody.
    pub(crate) fn partition<'c>(&self, caller: &'c Caller) -> Cow<'c, str> {
        if caller.is_operator() && self.spec.isolation != Isolation::Shared {
            return Caller::local().principal().to_owned().into();
        }
        match (self.spec.isolation, caller.session()) {
            (Isolation::Shared, _) => "".into(),
            (Isolation::Session, Some(session)) => format!("{}\0{session}", caller.principal()).into(),
            (Isolation::Caller | Isolation::Session, _) => caller.principal().into(),
        }
    }

    /// Returns whether callers share what the server keeps for them: they use one
    /// process, or one credential at an endpoint.
    pub(crate) fn is_shared(&self) -> bool {
        self.spec.isolation == Isolation::Shared || matches!(self.spec.transport, Transport::Http(_))
    }

    /// The session place that a caller uses, if it has one already.
    pub(crate) fn existing_slot(&self, caller: &Caller) -> Option<Arc<Slot>> {
        if let Some(slot) = &self.shared {
            return Some(Arc::clone(slot));
        }
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).get(&*self.partition(caller)).cloned()
    }

    /// What is known of a list over all session places and callers, each name once.
    pub(crate) fn known_items(&self, kind: Kind) -> Vec<Item> {
        self.known_list(kind).unwrap_or_default()
    }

    /// The same; `None` if no such list is known.
    pub(crate) fn known_list(&self, kind: Kind) -> Option<Vec<Item>> {
        let mut names = HashSet::new();
        let mut items: Option<Vec<Item>> = None;
        for known in self.slots().iter().flat_map(|slot| slot.shelf(kind).all()) {
            let named = known.items.iter().filter(|item| names.insert(Arc::clone(&item.name)));
            items.get_or_insert_default().extend(named.cloned());
        }
        items
    }

    /// All session places there are.
    pub(crate) fn slots(&self) -> Vec<Arc<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// No calls from now on, until [`resume`](Self::resume).
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        for slot in self.slots() {
            slot.change(|desk| desk.supervisor.on_stop());
        }
    }

    /// Calls are taken again, and sessions are brought up.
    pub(crate) fn resume(&self) {
        self.is_stopped.store(false, Ordering::Release);
        for slot in self.slots() {
            slot.change(|desk| desk.supervisor.on_resume());
        }
    }

    /// Fresh sessions and a clean record.
    pub(crate) fn reload(&self) {
        self.is_stopped.store(false, Ordering::Release);
        for slot in self.slots() {
            slot.change(|desk| desk.supervisor.on_reload());
        }
    }

    /// Ends everything for good; the slots' tasks finish by themselves.
    pub(crate) fn remove(&self) {
        self.is_removed.store(true, Ordering::Release);
        for slot in self.slots() {
            slot.remove();
        }
    }

    fn open_slot(&self, partition: Arc<str>) -> Arc<Slot> {
        let key = SlotKey { server: self.spec.name.clone(), partition, registration: self.registration };
        let parts = (self.furnish)();
        let slot = Slot::new(key, parts);
        if self.is_removed.load(Ordering::Acquire) {
            slot.remove();
        } else if self.is_stopped.load(Ordering::Acquire) {
            slot.desk().supervisor.on_stop();
        }
        tokio::spawn(task::run(Arc::clone(&slot)));
        slot
    }
}

impl Slot {
    /// Ends it for good; its task finishes by itself.
    pub(crate) fn remove(&self) {
        self.settle_misses();
        self.change(|desk| {
            desk.is_removed = true;
            desk.supervisor.on_stop();
        });
    }

    /// The same, and calls in flight get at most this long to finish.
    pub(crate) fn remove_within(&self, drain: Duration) {
        self.change(|desk| desk.drain = desk.drain.min(drain));
        self.remove();
    }

    /// Removes a place that has no session and that nobody waits for.
    fn retire_if_asleep(&self) -> bool {
        let is_asleep = {
            let desk = self.desk();
            let supervisor = &desk.supervisor;
            *supervisor.phase() == Phase::Idle && supervisor.leases() == 0 && !supervisor.has_demand()
        };
        if is_asleep {
            self.remove();
        }
        is_asleep
    }
}
