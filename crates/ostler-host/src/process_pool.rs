//! Process pool: bounds the live processes, and ends the least recently used idle one to make room.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ostler_core::pool::{EvictionPool, PoolAdmission};
use ostler_core::status::StartStage;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::server::slot::{Slot, SlotKey};
use crate::server::startup::Startup;
use crate::start_limiter::StartLimiter;

/// One process: a slot may have two for a while, an old one and its successor.
type ProcessKey = (SlotKey, u64);

/// Process pool of one host.
pub(crate) struct ProcessPool {
    state: Mutex<PoolState>,
    /// Notified when a process has ended or become idle.
    freed: Notify,
    /// Number of starts that wait for room.
    waiting: AtomicUsize,
    /// Limits concurrent starts.
    pub(crate) start_limiter: StartLimiter,
}

struct PoolState {
    pool: EvictionPool<ProcessKey>,
    slots: HashMap<ProcessKey, Weak<Slot>>,
}

/// Permit for one process, held until nothing of the process is left.
pub(crate) struct ProcessPermit {
    pool: Arc<ProcessPool>,
    key: ProcessKey,
}

impl Drop for ProcessPermit {
    fn drop(&mut self) {
        {
            let mut book = self.pool.state();
            book.pool.release(&self.key);
            book.slots.remove(&self.key);
        }
        self.pool.freed.notify_waiters();
    }
}

/// Counts a start that waits for room.
struct PoolWaiter<'a>(&'a ProcessPool);

impl<'a> PoolWaiter<'a> {
    fn new(room: &'a ProcessPool, startup: &Startup) -> Self {
        room.waiting.fetch_add(1, Ordering::AcqRel);
        startup.enter_stage(StartStage::WaitingForRoom);
        Self(room)
    }
}

impl Drop for PoolWaiter<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ProcessPool {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        let book = PoolState { pool: EvictionPool::new(max), slots: HashMap::new() };
        Arc::new(Self {
            state: Mutex::new(book),
            freed: Notify::new(),
            waiting: AtomicUsize::new(0),
            start_limiter: StartLimiter::new(),
        })
    }

    /// Locks the pool's state. Lock order: slot states are locked while this is, never the other way round.
    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of processes counted now.
    pub(crate) fn process_count(&self) -> usize {
        self.state().pool.len()
    }

    /// Waits for room for one process, ending an idle one if possible.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        generation: u64,
        startup: &Startup,
    ) -> ProcessPermit {
        let tenant = (slot.key.clone(), generation);
        let mut waiting = None;
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.try_acquire(&tenant, slot) {
                return ProcessPermit { pool: Arc::clone(self), key: tenant };
            }
            waiting.get_or_insert_with(|| PoolWaiter::new(self, startup));
            freed.await;
        }
    }

    fn try_acquire(&self, tenant: &ProcessKey, slot: &Arc<Slot>) -> bool {
        let mut book = self.state();
        book.refresh_idle();
        loop {
            match book.admit(tenant, slot) {
                PoolAdmission::Granted => {
                    book.slots.insert(tenant.clone(), Arc::downgrade(slot));
                    return true;
                }
                PoolAdmission::Full => return false,
                PoolAdmission::Evict(unused) => {
                    let slot = book.slots.get(&unused).and_then(Weak::upgrade);
                    if slot.is_some_and(|slot| slot.update(|desk| desk.supervisor.on_evict())) {
                        // The process is counted until it is really gone.
                        return false;
                    }
                    book.pool.set_busy(&unused, Instant::now().into_std());
                }
            }
        }
    }

    /// Marks that a slot has become idle, so that a waiting start may take its place.
    pub(crate) fn note_idle(&self) {
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.freed.notify_waiters();
        }
    }
}

impl PoolState {
    /// Requests a place. A caller whose sessions and workspaces hold half of all places gives up one of its own:
    /// clients open those at will, and must not take the processes of other callers.
    fn admit(&mut self, tenant: &ProcessKey, slot: &Slot) -> PoolAdmission<ProcessKey> {
        let opener = slot.opener();
        let is_own = |other: &Weak<Slot>| other.upgrade().is_some_and(|other| other.opener() == opener);
        let has_share = || {
            let own = self.slots.values().filter(|other| is_own(other)).count();
            own >= self.pool.max().div_ceil(2)
        };
        if opener.is_some() && !self.slots.contains_key(tenant) && has_share() {
            let tenants = &self.slots;
            return self.pool.evict_one(|tenant| tenants.get(tenant).is_some_and(is_own));
        }
        self.pool.admit(tenant.clone(), Instant::now().into_std())
    }

    /// Updates the pool's view of idle slots. Done only when room is needed, so that calls don't pay for it.
    fn refresh_idle(&mut self) {
        for (tenant, slot) in &self.slots {
            let idle_since = slot.upgrade().and_then(|slot| {
                let desk = slot.state();
                let is_current = desk.supervisor.generation() == tenant.1;
                desk.supervisor.idle_since().filter(|_| is_current)
            });
            match idle_since {
                Some(since) => self.pool.set_idle(tenant, since),
                None => self.pool.set_busy(tenant, Instant::now().into_std()),
            }
        }
    }
}
