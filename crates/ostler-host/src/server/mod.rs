//! One registered server: its spec, its slots and its lists.

mod binding;
pub(crate) mod call_queue;
mod cleanup_guard;
pub(crate) mod exclusive;
pub(crate) mod lease;
pub(crate) mod list_cache;
mod liveness_probe;
pub(crate) mod pin_verdicts;
pub(crate) mod server_list;
mod session_setup;
pub(crate) mod slot;
pub(crate) mod slot_lists;
pub(crate) mod start_progress;
pub(crate) mod start_record;
pub(crate) mod startup;
pub(crate) mod subscriptions;
mod task;
mod transitions;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::spec::{Isolation, ServerSpec, ServerTransport};
use ostler_core::supervisor::Phase;

use crate::card::CardCache;
use crate::lists::Kind;
use crate::log_level::RequestedLogLevel;
use crate::upstream::Connector;
pub use binding::Binding;
pub use cleanup_guard::CleanupGuard;
use server_list::ServerItem;
use slot::{NO_WORKSPACE, Slot, SlotDeps, SlotKey};
pub use startup::Startup;

/// Slots of one isolated server. A slot costs a few kilobytes; its process is bounded by the pool.
const MAX_SLOTS: usize = 1_024;

/// Delay after which a caller that was refused a slot may retry.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// One registered server. A value [with another spec](Self::with_spec) shares all its sessions.
#[derive(Clone)]
pub(crate) struct Server {
    /// The operator's settings that are in force.
    pub(crate) spec: Arc<ServerSpec>,
    pub(crate) registration: u64,
    /// The registration of the first server of this name, if it was replaced since. It orders servers that claim
    /// the same URI.
    pub(crate) rank: u64,
    pub(crate) connector: Arc<dyn Connector>,
    /// The log level requested from the server.
    pub(crate) level: Arc<RequestedLogLevel>,
    /// The server card, once it was fetched.
    pub(crate) card: Arc<CardCache>,
    /// Makes the parts of a slot; holds the host's cache and process pool.
    make_slot_deps: Arc<dyn Fn() -> SlotDeps + Send + Sync>,
    /// One slot under the empty partition for a shared server, else one per caller.
    slots: Arc<Mutex<HashMap<Arc<str>, Arc<Slot>>>>,
    /// The one slot of a shared server, so that calls take no lock to find it.
    shared: Option<Arc<Slot>>,
    /// New slots of a stopped server begin stopped.
    is_stopped: Arc<AtomicBool>,
    /// New slots of a removed server begin removed: a caller may have found the server just before.
    is_removed: Arc<AtomicBool>,
}

/// Dependencies of a server.
pub(crate) struct ServerDeps {
    /// The rank of the server that it replaces.
    pub(crate) rank: Option<u64>,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) level: Arc<RequestedLogLevel>,
    /// Makes the parts of a slot.
    pub(crate) make_slot_deps: Arc<dyn Fn() -> SlotDeps + Send + Sync>,
}

impl Server {
    pub(crate) fn new(spec: Arc<ServerSpec>, registration: u64, fittings: ServerDeps) -> Self {
        let ServerDeps { rank, connector, level, make_slot_deps: furnish } = fittings;
        let mut server = Self {
            spec,
            registration,
            rank: rank.unwrap_or(registration),
            connector,
            level,
            card: Arc::default(),
            make_slot_deps: furnish,
            slots: Arc::default(),
            shared: None,
            is_stopped: Arc::default(),
            is_removed: Arc::default(),
        };
        if server.spec.isolation == Isolation::Shared {
            let slot = server.open_slot("".into(), "");
            server.slots.lock().unwrap_or_else(PoisonError::into_inner).insert("".into(), Arc::clone(&slot));
            server.shared = Some(slot);
        }
        server
    }

    /// Returns the server under another spec that [needs the same process](ServerSpec::has_same_process).
    pub(crate) fn with_spec(&self, spec: ServerSpec) -> Self {
        let card = if spec.card == self.spec.card { Arc::clone(&self.card) } else { Arc::default() };
        Self { spec: Arc::new(spec), card, ..self.clone() }
    }

    /// Returns the caller's slot, opening it if needed.
    pub(crate) fn slot(&self, caller: &Caller) -> Result<Arc<Slot>, CallError> {
        if let Some(slot) = &self.shared {
            return Ok(Arc::clone(slot));
        }
        let partition = self.partition(caller);
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let is_workspace = self.spec.isolation == Isolation::Workspace;
        if let Some(slot) = slots.get(&*partition) {
            if is_workspace && slot.is_idle() {
                slot.set_opener(caller.principal());
            }
            return Ok(Arc::clone(slot));
        }
        // Checked under the lock: a session or credential that ends later finds the slot that is opened here.
        if caller.is_session_ended() && self.spec.isolation == Isolation::Session {
            return Err(overloaded("the session of the client has ended".into()));
        }
        if caller.is_credential_ended() {
            return Err(overloaded("the credential of the caller has ended".into()));
        }
        let name = &self.spec.name;
        if slots.len() >= MAX_SLOTS {
            slots.retain(|_, slot| !slot.remove_if_idle());
        }
        if slots.len() >= MAX_SLOTS {
            return Err(overloaded(format!(
                "server `{name}` is in use by {MAX_SLOTS} callers, each with a process"
            )));
        }
        let is_own = |slot: &Arc<Slot>| slot.opener().as_deref() == Some(caller.principal());
        let mut own = slots.values().filter(|slot| is_own(slot)).count();
        if own >= MAX_SLOTS / 2 {
            slots.retain(|_, slot| !(is_own(slot) && slot.remove_if_idle()));
            own = slots.values().filter(|slot| is_own(slot)).count();
        }
        if own >= MAX_SLOTS / 2 {
            let opened = if is_workspace { "workspaces" } else { "sessions" };
            let what =
                format!("server `{name}` is in use by {own} {opened} of this caller, each with a process");
            return Err(overloaded(what));
        }
        let slot = self.open_slot(partition.as_ref().into(), caller.principal());
        slots.insert(partition.as_ref().into(), Arc::clone(&slot));
        Ok(slot)
    }

    /// Removes the slot of a client session that has ended.
    pub(crate) fn end_session(&self, caller: &Caller) {
        let slot = self.slots.lock().unwrap_or_else(PoisonError::into_inner).remove(&*self.partition(caller));
        if let Some(slot) = slot {
            slot.remove();
        }
    }

    /// Removes the slots of a caller whose credential has ended.
    pub(crate) fn end_caller(&self, owner: PartitionOwner<'_>) {
        if self.spec.isolation.is_shared_by_callers() {
            return;
        }
        let mut ended = Vec::new();
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).retain(|partition, slot| {
            let is_kept = !owner.owns(partition);
            if !is_kept {
                ended.push(Arc::clone(slot));
            }
            is_kept
        });
        ended.iter().for_each(|slot| slot.remove());
    }

    /// Returns the partition that the server gives a caller.
    pub(crate) fn partition<'c>(&self, caller: &'c Caller) -> Cow<'c, str> {
        partition(&self.spec, caller)
    }

    /// Returns whether callers share what the server keeps for them: they use one
    /// process, or one credential at an endpoint.
    pub(crate) fn is_shared(&self) -> bool {
        self.spec.isolation.is_shared_by_callers() || matches!(self.spec.transport, ServerTransport::Http(_))
    }

    /// Returns the caller's slot, if it is open already.
    pub(crate) fn existing_slot(&self, caller: &Caller) -> Option<Arc<Slot>> {
        if let Some(slot) = &self.shared {
            return Some(Arc::clone(slot));
        }
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).get(&*self.partition(caller)).cloned()
    }

    /// Returns whether a caller's session is up.
    pub(crate) fn is_up(&self, caller: &Caller) -> bool {
        self.existing_slot(caller).is_some_and(|slot| slot.live().is_some())
    }

    /// Merges a list over all slots and callers, each name once.
    pub(crate) fn cached_items(&self, kind: Kind) -> Vec<ServerItem> {
        self.cached_list(kind).unwrap_or_default()
    }

    /// Merges a list over all slots and callers; `None` if no such list is known.
    pub(crate) fn cached_list(&self, kind: Kind) -> Option<Vec<ServerItem>> {
        let mut names = HashSet::new();
        let mut items: Option<Vec<ServerItem>> = None;
        for known in self.slots().iter().flat_map(|slot| slot.list_cache(kind).all()) {
            let named = known.items.iter().filter(|item| names.insert(Arc::clone(&item.name)));
            items.get_or_insert_default().extend(named.cloned());
        }
        items
    }

    /// Returns all open slots.
    pub(crate) fn slots(&self) -> Vec<Arc<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Refuses calls until [`resume`](Self::resume).
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        for slot in self.slots() {
            slot.update(|desk| desk.supervisor.on_stop());
        }
    }

    /// Accepts calls again and starts sessions.
    pub(crate) fn resume(&self) {
        self.is_stopped.store(false, Ordering::Release);
        for slot in self.slots() {
            slot.update(|desk| desk.supervisor.on_resume());
        }
    }

    /// Replaces all sessions and clears the failure record.
    pub(crate) fn reload(&self) {
        self.is_stopped.store(false, Ordering::Release);
        for slot in self.slots() {
            slot.update(|desk| desk.supervisor.on_reload());
        }
    }

    /// Ends all slots for good; their tasks finish by themselves.
    pub(crate) fn remove(&self) {
        self.is_removed.store(true, Ordering::Release);
        for slot in self.slots() {
            slot.remove();
        }
    }

    fn open_slot(&self, partition: Arc<str>, opener: &str) -> Arc<Slot> {
        let key = SlotKey { server: self.spec.name.clone(), partition, registration: self.registration };
        let parts = (self.make_slot_deps)();
        let slot = Slot::new(key, parts);
        slot.set_opener(opener);
        if self.is_removed.load(Ordering::Acquire) {
            slot.remove();
        } else if self.is_stopped.load(Ordering::Acquire) {
            slot.state().supervisor.on_stop();
        }
        tokio::spawn(task::run(Arc::clone(&slot)));
        slot
    }
}

/// Returns the partition that a server gives a caller. Sessions are named by clients, so two callers may have
/// sessions of the same name.
///
/// The operator shares the partition of callers on this machine: a process that only an operator could use would
/// serve no caller.
pub(crate) fn partition<'c>(spec: &ServerSpec, caller: &'c Caller) -> Cow<'c, str> {
    if caller.is_operator() && !spec.isolation.is_shared_by_callers() {
        return Caller::local().principal().to_owned().into();
    }
    match (spec.isolation, caller.session()) {
        (Isolation::Shared, _) => "".into(),
        (Isolation::Workspace, _) => match (caller.workspace(), &spec.workspace) {
            (Some(folder), _) => folder.into(),
            (None, Some(folder)) => folder.to_string_lossy().into_owned().into(),
            (None, None) => NO_WORKSPACE.into(),
        },
        (Isolation::Session, Some(session)) => format!("{}\0{session}", caller.principal()).into(),
        (Isolation::Caller | Isolation::Session, _) => caller.principal().into(),
    }
}

/// The principal whose partitions and private answers are matched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartitionOwner<'c>(pub(crate) &'c str);

impl PartitionOwner<'_> {
    /// Returns whether a [partition](partition), or the owner of a private answer, is this principal, a session of it
    /// or a workspace that it works in.
    pub(crate) fn owns(self, partition: &str) -> bool {
        partition.split('\0').any(|part| part == self.0)
    }
}

/// Makes the error for a caller that gets no slot.
fn overloaded(what: String) -> CallError {
    CallError::Overloaded { what, retry_after: RETRY_AFTER }
}

impl Slot {
    /// Ends the slot for good; its task finishes by itself.
    pub(crate) fn remove(&self) {
        self.flush_misses();
        self.update(|desk| {
            desk.is_removed = true;
            desk.supervisor.on_stop();
        });
    }

    /// Ends the slot for good and gives calls in flight at most this long to finish.
    pub(crate) fn remove_within(&self, drain: Duration) {
        self.update(|desk| desk.drain = desk.drain.min(drain));
        self.remove();
    }

    /// Returns whether the slot has no session and no caller waits for one.
    fn is_idle(&self) -> bool {
        let desk = self.state();
        let supervisor = &desk.supervisor;
        *supervisor.phase() == Phase::Idle && supervisor.leases() == 0 && !supervisor.has_demand()
    }

    /// Removes an idle slot.
    fn remove_if_idle(&self) -> bool {
        let is_asleep = self.is_idle();
        if is_asleep {
            self.remove();
        }
        is_asleep
    }
}
