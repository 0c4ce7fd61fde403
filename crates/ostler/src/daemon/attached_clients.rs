//! Attached clients: how many there are, and how many leave when they are told to. Each is activity of the daemon.

use std::sync::Arc;

use ostler_gateway::{Activity, ActivityGuard};
use tokio::sync::watch;

/// Counts clients that are attached.
#[derive(Debug)]
pub(super) struct AttachedClients {
    activity: Arc<Activity>,
    count: watch::Sender<usize>,
    /// Those of them that leave when they are told to.
    farewell_clients: watch::Sender<usize>,
}

/// A client that is attached; dropping it says that it is not any more.
#[derive(Debug)]
pub(super) struct AttachedClient {
    clients: Arc<AttachedClients>,
    understands_farewell: bool,
    _active: ActivityGuard,
}

impl AttachedClients {
    /// Makes a count of none.
    pub(super) fn new(activity: Arc<Activity>) -> Arc<Self> {
        Arc::new(Self {
            activity,
            count: watch::Sender::default(),
            farewell_clients: watch::Sender::default(),
        })
    }

    /// A client attaches.
    pub(super) fn attach(self: &Arc<Self>, leaves_when_told: bool) -> AttachedClient {
        self.count.send_modify(|count| *count += 1);
        self.farewell_clients.send_modify(|told| *told += usize::from(leaves_when_told));
        AttachedClient {
            clients: Arc::clone(self),
            understands_farewell: leaves_when_told,
            _active: self.activity.begin(),
        }
    }

    /// Waits until no client is attached that leaves when it is told to.
    pub(super) async fn until_farewell_clients_left(&self) {
        // The sender is `self`, which stays.
        let _ = self.farewell_clients.subscribe().wait_for(|told| *told == 0).await;
    }

    /// Returns how many clients are attached.
    pub(super) fn count(&self) -> usize {
        *self.count.borrow()
    }
}

impl Drop for AttachedClient {
    fn drop(&mut self) {
        self.clients.count.send_modify(|count| *count -= 1);
        self.clients.farewell_clients.send_modify(|told| *told -= usize::from(self.understands_farewell));
    }
}
