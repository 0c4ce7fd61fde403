//! Taking turns by name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ostler_core::server_name::ServerName;
use tokio::sync::OwnedMutexGuard;

/// One at a time for each server, so that one that is slow to start holds up
/// nobody but those who want the same name.
#[derive(Debug, Default)]
pub(crate) struct ServerLocks(Mutex<HashMap<ServerName, Weak<tokio::sync::Mutex<()>>>>);

/// A turn; dropping it lets the next one in.
pub(crate) type ServerLockGuard = OwnedMutexGuard<()>;

impl ServerLocks {
    /// Waits for a turn.
    pub(crate) fn lock(&self, name: &ServerName) -> impl Future<Output = ServerLockGuard> + use<> {
        self.lock_of(name).lock_owned()
    }

    /// The lock of a name; one that nobody holds or waits for is forgotten.
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
