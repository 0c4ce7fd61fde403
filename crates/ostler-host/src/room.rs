//! Room for processes: at most so many at once, the least recently used goes first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ostler_core::pool::{Admission, Pool};
use ostler_core::status::Stage;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::server::slot::{Slot, SlotKey};
use crate::server::startup::Startup;
use crate::start_gate::StartGate;

/// One process: a slot may have two for a while, one leaving and one coming.
type Tenant = (SlotKey, u64);

/// Room for the processes of one host.
pub(crate) struct Room {
    book: Mutex<Book>,
    /// A process has ended, or one has become idle.
    freed: Notify,
    /// Starts that wait for room.
    waiting: AtomicUsize,
    /// The turns of starts.
    pub(crate) gate: StartGate,
}

struct Book {
    pool: Pool<Tenant>,
    tenants: HashMap<Tenant, Weak<Slot>>,
}

/// A place for one process, held until nothing of the process is left.
pub(crate) struct Place {
    room: Arc<Room>,
    tenant: Tenant,
}

impl Drop for Place {
    fn drop(&mut self) {
        {
            let mut book = self.room.book();
            book.pool.release(&self.tenant);
            book.tenants.remove(&self.tenant);
        }
        self.room.freed.notify_waiters();
    }
}

/// Counts a start that waits for room.
struct Waiting<'a>(&'a Room);

impl<'a> Waiting<'a> {
    fn new(room: &'a Room, startup: &Startup) -> Self {
        room.waiting.fetch_add(1, Ordering::AcqRel);
        startup.enter(Stage::WaitingForRoom);
        Self(room)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Room {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        let book = Book { pool: Pool::new(max), tenants: HashMap::new() };
        Arc::new(Self {
            book: Mutex::new(book),
            freed: Notify::new(),
            waiting: AtomicUsize::new(0),
            gate: StartGate::new(),
        })
    }

    /// Never locked while a desk is; desks are locked while this is.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes counted now.
    pub(crate) fn processes(&self) -> usize {
        self.book().pool.len()
    }

    /// Waits for room for one process, making some where an idle one can go.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        generation: u64,
        startup: &Startup,
    ) -> Place {
        let tenant = (slot.key.clone(), generation);
        let mut waiting = None;
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.try_enter(&tenant, slot) {
                return Place { room: Arc::clone(self), tenant };
            }
            waiting.get_or_insert_with(|| Waiting::new(self, startup));
            freed.await;
        }
    }

    fn try_enter(&self, tenant: &Tenant, slot: &Arc<Slot>) -> bool {
        let mut book = self.book();
        book.look_around();
        loop {
            match book.admit(tenant, slot) {
                Admission::Granted => {
                    book.tenants.insert(tenant.clone(), Arc::downgrade(slot));
                    return true;
                }
                Admission::Full => return false,
                Admission::Evict(unused) => {
                    let slot = book.tenants.get(&unused).and_then(Weak::upgrade);
                    if slot.is_some_and(|slot| slot.change(|desk| desk.supervisor.on_evict())) {
                        // It is counted until it is really gone.
                        return false;
                    }
                    book.pool.set_busy(&unused, Instant::now().into_std());
                }
            }
        }
    }

    /// A slot has become idle; whoever waits may have its room.
    pub(crate) fn note_idle(&self) {
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.freed.notify_waiters();
        }
    }
}

impl Book {
    /// Asks for a place. Whoever has half of all with its sessions and workspaces gives one of its own: clients open those
    /// as they like, and must not take the processes of others with them.
    fn admit(&mut self, tenant: &Tenant, slot: &Slot) -> Admission<Tenant> {
        let opener = slot.opener();
        let is_own = |other: &Weak<Slot>| other.upgrade().is_some_and(|other| other.opener() == opener);
        let has_share = || {
            let own = self.tenants.values().filter(|other| is_own(other)).count();
            own >= self.pool.max().div_ceil(2)
        };
        if opener.is_some() && !self.tenants.contains_key(tenant) && has_share() {
            let tenants = &self.tenants;
            return self.pool.evict_one(|tenant| tenants.get(tenant).is_some_and(is_own));
        }
        self.pool.admit(tenant.clone(), Instant::now().into_std())
    }

    /// Brings the pool's idea of who is idle up to date. Done only when room
    /// is wanted, so that calls don't pay for it.
    fn look_around(&mut self) {
        for (tenant, slot) in &self.tenants {
            let idle_since = slot.upgrade().and_then(|slot| {
                let desk = slot.desk();
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
