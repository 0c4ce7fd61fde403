//! Service lifecycle: the task that owns all other tasks of a service.
//!
//! ```text
//!  serving ──drain──▶ draining ──no task left, or deadline──▶ closed
//! ```
//!
//! Either stage runs with or without a connection. Calls belong to this task and not to a connection, so calls in
//! flight survive a lost connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::subscriptions::{HostSubscriptions, RejectedMessageLog};
use super::{ServiceCore, answer, heartbeat, manifest};
use crate::reconnect::{BrokerConnection, LinkState};

/// Grace beyond the drain deadline for the last answers to leave over a slow broker.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// Timeout for the journal to write its pending entries.
const CLOSE: Duration = Duration::from_secs(5);

/// Stage of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceStage {
    /// Accepts calls.
    Serving,
    /// Finishes the calls in flight and accepts no others.
    Draining {
        /// Deadline of the drain.
        deadline: Instant,
    },
}

/// Runs the service until it is drained. Dropping the future ends everything at once.
pub(super) async fn run(service: Arc<ServiceCore>, closed: watch::Sender<bool>) {
    let mut background = JoinSet::new();
    background.spawn(heartbeat::run(Arc::clone(&service)));
    background.spawn(manifest::watch_changes(Arc::clone(&service)));
    let mut running = ServiceLoop {
        stage: service.stage.subscribe(),
        link_state: service.reconnector.watch_state(),
        service: Arc::clone(&service),
        tasks: JoinSet::new(),
        rejected_messages: RejectedMessageLog::default(),
    };
    let overdue = wait_until_overdue(service.stage.subscribe());
    tokio::select! {
        biased;
        () = running.serve() => {}
        () = overdue => {}
    }
    drop((running.tasks, background));
    let _ = timeout(CLOSE, service.journal.flush()).await;
    service.reconnector.close();
    closed.send_replace(true);
}

struct ServiceLoop {
    service: Arc<ServiceCore>,
    stage: watch::Receiver<ServiceStage>,
    link_state: watch::Receiver<LinkState>,
    tasks: JoinSet<()>,
    rejected_messages: RejectedMessageLog,
}

impl ServiceLoop {
    /// Serves one connection after the other.
    async fn serve(&mut self) {
        loop {
            let connection = tokio::select! {
                biased;
                connection = next_connection(&mut self.link_state) => connection,
                () = wait_until_drained(&mut self.stage, &mut self.tasks) => return,
            };
            let Some(connection) = connection else { return };
            self.service.set_denial(None);
            if let Ok(subscriptions) = HostSubscriptions::open(&self.service, &connection).await {
                self.service.registry.set_connected(true);
                self.tasks.spawn(answer::announce_unconfirmed(Arc::clone(&self.service)));
                let is_drained = self.serve_connection(subscriptions).await;
                self.service.registry.set_connected(false);
                if is_drained {
                    return;
                }
            }
            // A connection without subscriptions is useless.
            connection.link.close();
            wait_until_lost(&mut self.link_state, connection.epoch).await;
        }
    }

    /// Handles the messages of one connection. Returns whether the drain is complete.
    async fn serve_connection(&mut self, mut subscriptions: HostSubscriptions) -> bool {
        let mut is_open = true;
        loop {
            if is_open && matches!(*self.stage.borrow_and_update(), ServiceStage::Draining { .. }) {
                is_open = false;
                subscriptions.close(&mut self.tasks, &mut self.rejected_messages).await;
            }
            if !is_open && self.tasks.is_empty() {
                subscriptions.flush().await;
                return true;
            }
            let deadline = drain_deadline(&self.stage);
            tokio::select! {
                biased;
                Some(_) = self.tasks.join_next(), if !self.tasks.is_empty() => {}
                event = subscriptions.receive() => {
                    if !subscriptions.handle(event, &mut self.tasks, &mut self.rejected_messages) {
                        return false;
                    }
                }
                _ = self.stage.changed() => {}
                () = sleep_until_or_forever(deadline) => {
                    subscriptions.flush().await;
                    return true;
                }
            }
        }
    }
}

/// Waits for the next connection; `None` if the reconnector is closed.
async fn next_connection(link_state: &mut watch::Receiver<LinkState>) -> Option<BrokerConnection> {
    let is_settled = |link_state: &LinkState| !matches!(link_state, LinkState::Disconnected { .. });
    match link_state.wait_for(is_settled).await.as_deref() {
        Ok(LinkState::Connected(connection)) => Some(connection.clone()),
        _ => None,
    }
}

/// Waits until the reconnector has noticed that the connection ended.
async fn wait_until_lost(link_state: &mut watch::Receiver<LinkState>, epoch: u64) {
    let _ = link_state.wait_for(|state| !state.is_connected(epoch)).await;
}

/// Without a connection: waits until the drain is complete or its deadline has passed.
async fn wait_until_drained(stage: &mut watch::Receiver<ServiceStage>, tasks: &mut JoinSet<()>) {
    loop {
        let deadline = drain_deadline(stage);
        if deadline.is_some() && tasks.is_empty() {
            return;
        }
        tokio::select! {
            biased;
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            _ = stage.changed() => {}
            () = sleep_until_or_forever(deadline) => return,
        }
    }
}

/// Waits until the drain deadline and its grace have passed.
async fn wait_until_overdue(mut stage: watch::Receiver<ServiceStage>) {
    let is_draining = |stage: &ServiceStage| matches!(stage, ServiceStage::Draining { .. });
    let deadline = match stage.wait_for(is_draining).await.as_deref() {
        Ok(ServiceStage::Draining { deadline }) => Some(*deadline + LAST_ANSWERS),
        _ => None,
    };
    sleep_until_or_forever(deadline).await;
}

fn drain_deadline(stage: &watch::Receiver<ServiceStage>) -> Option<Instant> {
    match *stage.borrow() {
        ServiceStage::Serving => None,
        ServiceStage::Draining { deadline } => Some(deadline),
    }
}

async fn sleep_until_or_forever(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
