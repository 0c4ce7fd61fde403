//! Counts of attached clients, and of those that leave on a farewell. Each client is activity of the daemon.

use std::sync::Arc;

use ostler_gateway::{Activity, ActivityGuard};
use tokio::sync::watch;

/// Counts of attached clients.
#[derive(Debug)]
pub(super) struct AttachedClients {
    activity: Arc<Activity>,
    count: watch::Sender<usize>,
    /// Number of clients that leave on a farewell.
    farewell_clients: watch::Sender<usize>,
}

/// Permit of an attached client; dropping it ends the count.
#[derive(Debug)]
pub(super) struct AttachedClient {
    clients: Arc<AttachedClients>,
    understands_farewell: bool,
    _active: ActivityGuard,
}

impl AttachedClients {
    /// Returns a count of zero.
    pub(super) fn new(activity: Arc<Activity>) -> Arc<Self> {
        Arc::new(Self {
            activity,
            count: watch::Sender::default(),
            farewell_clients: watch::Sender::default(),
        })
    }

    /// Counts a client until the permit is dropped.
    pub(super) fn attach(self: &Arc<Self>, leaves_when_told: bool) -> AttachedClient {
        self.count.send_modify(|count| *count += 1);
        self.farewell_clients.send_modify(|told| *told += usize::from(leaves_when_told));
        AttachedClient {
            clients: Arc::clone(self),
            understands_farewell: leaves_when_told,
            _active: self.activity.begin(),
        }
    }

    /// Waits until every client that leaves on a farewell has left.
    pub(super) async fn until_farewell_clients_left(&self) {
        // The sender is `self`, which stays.
        let _ = self.farewell_clients.subscribe().wait_for(|told| *told == 0).await;
    }

    /// Returns the number of attached clients.
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
