//! Locks by server name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ostler_core::server_name::ServerName;
use tokio::sync::OwnedMutexGuard;

/// Lock per server name, so that a server that is slow to start delays only operations on the same name.
#[derive(Debug, Default)]
pub(crate) struct ServerLocks(Mutex<HashMap<ServerName, Weak<tokio::sync::Mutex<()>>>>);

/// Guard of a server's lock; dropping it releases the lock.
pub(crate) type ServerLockGuard = OwnedMutexGuard<()>;

impl ServerLocks {
    /// Waits for the lock of a name.
    pub(crate) fn lock(&self, name: &ServerName) -> impl Future<Output = ServerLockGuard> + use<> {
        self.lock_of(name).lock_owned()
    }

    /// Returns the lock of a name; a lock without holder or waiter is dropped.
    fn lock_of(&self, name: &ServerName) -> Arc<tokio::sync::Mutex<()>> {
        let mut doors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        doors.retain(|_, door| door.strong_count() > 0);
        if let Some(door) = doors.get(name).and_then(Weak::upgrade) {
            return door;
        }
        let door = Arc::default();
        doors.insert(name.clone(), Arc::downgrade(&door));
        door
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ServerName {
        ServerName::new(text).unwrap()
    }

    #[tokio::test]
    async fn the_same_name_waits_and_another_does_not() {
        let turns = ServerLocks::default();
        let first = turns.lock(&name("a")).await;
        let other = turns.lock(&name("b")).await;
        let again = name("a");
        let second = turns.lock(&again);
        tokio::pin!(second);
        tokio::select! {
            biased;
            _ = &mut second => panic!("two at once"),
            () = std::future::ready(()) => {}
        }
        drop((first, other));
        drop(second.await);
        turns.lock_of(&name("c"));
        assert_eq!(turns.0.lock().unwrap().len(), 1, "names are not collected");
    }
}
