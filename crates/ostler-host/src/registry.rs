//! Registry: the servers, rules, limits and pins in force. They are one immutable value, replaced as a whole, so that
//! no reader sees the rules of one config beside the pins or servers of another.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use ostler_core::caller::Caller;
use ostler_core::config::DisabledServer;
use ostler_core::error::{CallError, Unavailable, UnavailableState};
use ostler_core::pins::PinPolicy;
use ostler_core::policy::Hook;
use ostler_core::server_name::ServerName;
use ostler_core::spec::ServerSpec;
use ostler_core::status::ServerStatus;
use tokio::sync::watch;

use crate::limits::Limits;
use crate::name_locks::ServerLocks;
use crate::policy::Policy;
use crate::process_pool::ProcessPool;
use crate::server::Server;
use crate::server::slot::Slot;
use crate::slot_registry::SlotRegistry;

/// Registered servers by name.
pub(crate) type ServerMap = BTreeMap<ServerName, Arc<Server>>;

/// A server that has a name and can't be used.
#[derive(Debug, Clone)]
pub(crate) enum UnusableServer {
    /// The config disables it.
    Disabled(DisabledServer),
    /// Its spec could not be registered.
    Refused(ServerSpec, CallError),
}

impl UnusableServer {
    pub(crate) fn spec(&self) -> &ServerSpec {
        match self {
            Self::Disabled(disabled) => &disabled.spec,
            Self::Refused(spec, _) => spec,
        }
    }

    /// Returns the reason, with all details.
    pub(crate) fn error(&self) -> CallError {
        match self {
            Self::Disabled(disabled) => disabled.error(),
            Self::Refused(_, error) => error.clone(),
        }
    }

    pub(crate) fn status(&self) -> ServerStatus {
        match self {
            Self::Disabled(disabled) => ServerStatus::disabled(disabled),
            Self::Refused(spec, _) => ServerStatus::registered(spec),
        }
    }

    /// Returns whether it is reported among all servers: a disabled server is no failure.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, Self::Refused(..))
    }
}

/// Snapshot of everything in force.
#[derive(Clone, Default)]
pub(crate) struct RegistrySnapshot {
    pub(crate) servers: Arc<ServerMap>,
    /// Servers that can't be used. None of them has the name of a registered one.
    pub(crate) unusable: Arc<BTreeMap<ServerName, UnusableServer>>,
    /// Rules of roles, with their cached verdicts.
    pub(crate) policy: Arc<Policy>,
    /// The embedding program's policy hook.
    pub(crate) hook: Option<Arc<Hook>>,
    pub(crate) limits: Arc<Limits>,
    /// Approved definitions; absent where nothing is compared with them.
    pub(crate) pins: Option<Arc<PinPolicy>>,
}

impl RegistrySnapshot {
    pub(crate) fn server(&self, name: &str) -> Option<&Arc<Server>> {
        self.servers.get(name)
    }

    /// Returns a server, or the reason why it can't be used: a server that the caller may not see does not exist for
    /// it. Without a caller, everything is visible.
    pub(crate) fn find(&self, caller: Option<&Caller>, name: &str) -> Result<&Arc<Server>, CallError> {
        let may_see = |name: &ServerName| caller.is_none_or(|caller| self.may_see(caller, name));
        if let Some(server) = self.server(name).filter(|server| may_see(&server.spec.name)) {
            return Ok(server);
        }
        match self.unusable.get(name).filter(|it| may_see(&it.spec().name)) {
            Some(unusable) => Err(self.unusable_error(caller, unusable)),
            None => Err(self.unknown_server(caller, name)),
        }
    }

    /// Returns the reason why a server can't be used, as far as a caller may read it.
    pub(crate) fn unusable_error(&self, caller: Option<&Caller>, unusable: &UnusableServer) -> CallError {
        let name = &unusable.spec().name;
        let is_restricted = caller.is_some_and(|caller| self.is_restricted_at(caller, name.as_str()));
        match (caller, unusable) {
            (Some(_), UnusableServer::Refused(..)) if is_restricted => {
                let state = UnavailableState::CannotStart;
                CallError::Unavailable(Unavailable::new(name.clone(), state, String::new(), None))
            }
            (Some(caller), _) => self.without_details(caller, unusable.error()),
            (None, _) => unusable.error(),
        }
    }

    /// Returns the servers that can't be used and that a caller may see, by name.
    pub(crate) fn unusable_visible_to<'a>(
        &'a self,
        caller: &'a Caller,
    ) -> impl Iterator<Item = &'a UnusableServer> {
        self.unusable.values().filter(|it| self.may_see(caller, &it.spec().name))
    }

    /// Returns the spec in force for the server of a slot. A slot that is not registered any more has its own spec.
    pub(crate) fn spec_of<'a>(&'a self, slot: &'a Slot) -> &'a ServerSpec {
        let server = self.server(slot.key.server.as_str());
        let own = server.filter(|server| server.registration == slot.key.registration);
        own.map_or(&slot.spec, |server| &server.spec)
    }

    /// Returns whether this very server is registered, and not only one of its name.
    pub(crate) fn is_registered(&self, server: &Arc<Server>) -> bool {
        self.server(server.spec.name.as_str()).is_some_and(|held| Arc::ptr_eq(held, server))
    }

    /// Returns whether all callers get the same lists as in the other snapshot.
    pub(crate) fn has_same_lists(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.servers, &other.servers) && self.has_same_policy(other) && self.pins == other.pins
    }

    /// Returns whether policy decides as in the other snapshot.
    pub(crate) fn has_same_policy(&self, other: &Self) -> bool {
        let is_same_hook = match (&self.hook, &other.hook) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        is_same_hook && Arc::ptr_eq(&self.policy, &other.policy)
    }
}

/// Holder of the snapshot in force, with the locks that changing it needs.
pub(crate) struct Registry {
    current: ArcSwap<RegistrySnapshot>,
    /// Held while the next snapshot is made from the current one, so that writers don't undo each other.
    write_lock: Mutex<()>,
    /// Held while a server of that name is changed; never on the path of a call.
    pub(crate) server_locks: ServerLocks,
    /// Counts applied snapshots, so that one which waits for servers yields to a newer one. Incremented under
    /// `write_lock`.
    snapshots: watch::Sender<u64>,
    /// Held while a snapshot is applied.
    pub(crate) apply_lock: tokio::sync::Mutex<()>,
    /// Every slot with anything left of it, registered or not.
    pub(crate) slots: Arc<SlotRegistry>,
    /// Pool of processes.
    pub(crate) process_pool: Arc<ProcessPool>,
    registrations: AtomicU64,
}

impl Registry {
    pub(crate) fn new(current: RegistrySnapshot, process_pool: Arc<ProcessPool>) -> Self {
        Self {
            current: ArcSwap::from_pointee(current),
            write_lock: Mutex::default(),
            server_locks: ServerLocks::default(),
            snapshots: watch::Sender::new(0),
            apply_lock: tokio::sync::Mutex::default(),
            slots: Arc::default(),
            process_pool,
            registrations: AtomicU64::new(0),
        }
    }

    /// Returns the snapshot in force, without a lock.
    pub(crate) fn current(&self) -> Guard<Arc<RegistrySnapshot>> {
        self.current.load()
    }

    /// Replaces the snapshot in force with the one that `change` makes of it. Returns the snapshots before and after.
    pub(crate) fn change(
        &self,
        change: impl FnOnce(&mut RegistrySnapshot),
    ) -> (Arc<RegistrySnapshot>, Arc<RegistrySnapshot>) {
        let _writing = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.current.load_full();
        let mut after = RegistrySnapshot::clone(&before);
        change(&mut after);
        let after = Arc::new(after);
        self.current.store(Arc::clone(&after));
        (before, after)
    }

    /// Returns the next snapshot's number, and a receiver that reports newer ones. A change by an older snapshot is
    /// either in force by now, or finds that it is not [the newest](Self::is_newest).
    pub(crate) fn next_snapshot(&self) -> (u64, watch::Receiver<u64>) {
        let _writing = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = 0;
        self.snapshots.send_modify(|number| {
            *number += 1;
            next = *number;
        });
        (next, self.snapshots.subscribe())
    }

    /// Returns whether no newer snapshot is being applied; within [`change`](Self::change) that holds until its end.
    pub(crate) fn is_newest(&self, snapshot: u64) -> bool {
        *self.snapshots.borrow() == snapshot
    }

    /// Returns the number of the next registration.
    pub(crate) fn next_registration(&self) -> u64 {
        self.registrations.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use ostler_core::policy::Verdict;

    use super::*;

    fn registry() -> Registry {
        Registry::new(RegistrySnapshot::default(), ProcessPool::new(1))
    }

    #[test]
    fn a_snapshot_is_the_newest_until_another_one_begins() {
        let registry = registry();
        let (first, newer) = registry.next_snapshot();
        assert!(registry.is_newest(first) && !newer.has_changed().unwrap());
        let (second, _) = registry.next_snapshot();
        assert!(!registry.is_newest(first) && registry.is_newest(second));
        assert!(newer.has_changed().unwrap());
    }

    #[test]
    fn writers_do_not_undo_each_other() {
        let registry = registry();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let registry = &registry;
                scope.spawn(move || {
                    for number in 0..100 {
                        registry.change(|current| {
                            let role = format!("{thread}-{number}");
                            Arc::make_mut(&mut current.limits).roles.insert(role, Default::default());
                        });
                    }
                });
            }
        });
        assert_eq!(registry.current().limits.roles.len(), 400);
    }

    #[test]
    fn what_a_reader_holds_does_not_change() {
        let registry = registry();
        let held = Arc::clone(&registry.current());
        let (before, after) =
            registry.change(|current| current.hook = Some(Arc::new(|_, _, _| Verdict::Allow)));
        assert!(Arc::ptr_eq(&held, &before) && Arc::ptr_eq(&registry.current(), &after));
        assert!(held.hook.is_none() && !after.has_same_policy(&held));
    }
}
