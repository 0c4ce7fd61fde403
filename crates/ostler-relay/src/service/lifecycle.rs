//! The task that owns all others of a service.
//!
//! ```text
//!  serving ──drain──▶ draining ──nothing under way, or the time is up──▶ over
//! ```
//!
//! In either stage there may be a connection or none. Calls live in this task
//! and not in a connection: what is under way when one is lost goes on.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::subscriptions::{HostSubscriptions, RejectedMessageLog};
use super::{ServiceCore, answer, heartbeat, manifest};
use crate::reconnect::{BrokerConnection, LinkState};

/// How much longer than it may a drain takes for its last answers to leave,
/// over a broker that is slow to take them.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// How long the journal may take to keep what was noted.
const CLOSE: Duration = Duration::from_secs(5);

/// What a service is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceStage {
    /// Taking calls.
    Serving,
    /// Finishing those under way.
    Draining {
        /// When that ends, finished or not.
        by: Instant,
    },
}

/// Runs until the service is drained. Dropping it ends everything at once.
pub(super) async fn run(service: Arc<ServiceCore>, over: watch::Sender<bool>) {
    let mut chores = JoinSet::new();
    chores.spawn(heartbeat::run(Arc::clone(&service)));
    chores.spawn(manifest::watch_changes(Arc::clone(&service)));
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
    drop((running.tasks, chores));
    let _ = timeout(CLOSE, service.journal.flush()).await;
    service.reconnector.close();
    over.send_replace(true);
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
            let up = tokio::select! {
                biased;
                up = next_connection(&mut self.link_state) => up,
                () = wait_until_drained(&mut self.stage, &mut self.tasks) => return,
            };
            let Some(up) = up else { return };
            self.service.set_denial(None);
            if let Ok(intake) = HostSubscriptions::open(&self.service, &up).await {
                self.service.registry.set_connected(true);
                self.tasks.spawn(answer::announce_unconfirmed(Arc::clone(&self.service)));
                let is_drained = self.serve_connection(intake).await;
                self.service.registry.set_connected(false);
                if is_drained {
                    return;
                }
            }
            // Whatever is left of it is of no use.
            up.link.close();
            wait_until_lost(&mut self.link_state, up.epoch).await;
        }
    }

    /// Takes what comes over one connection. True if there is nothing more to do.
    async fn serve_connection(&mut self, mut intake: HostSubscriptions) -> bool {
        let mut is_open = true;
        loop {
            if is_open && matches!(*self.stage.borrow_and_update(), ServiceStage::Draining { .. }) {
                is_open = false;
                intake.close(&mut self.tasks, &mut self.rejected_messages).await;
            }
            if !is_open && self.tasks.is_empty() {
                intake.flush().await;
                return true;
            }
            let by = drain_deadline(&self.stage);
            tokio::select! {
                biased;
                Some(_) = self.tasks.join_next(), if !self.tasks.is_empty() => {}
                arrival = intake.receive() => {
                    if !intake.handle(arrival, &mut self.tasks, &mut self.rejected_messages) {
                        return false;
                    }
                }
                _ = self.stage.changed() => {}
                () = sleep_until_or_forever(by) => {
                    intake.flush().await;
                    return true;
                }
            }
        }
    }
}

/// The next connection; `None` if there will be none any more.
async fn next_connection(situation: &mut watch::Receiver<LinkState>) -> Option<BrokerConnection> {
    let is_settled = |situation: &LinkState| !matches!(situation, LinkState::Disconnected { .. });
    match situation.wait_for(is_settled).await.as_deref() {
        Ok(LinkState::Connected(up)) => Some(up.clone()),
        _ => None,
    }
}

/// Waits until the tether has seen that the connection is over.
async fn wait_until_lost(situation: &mut watch::Receiver<LinkState>, epoch: u64) {
    let is_other =
        |situation: &LinkState| !matches!(situation, LinkState::Connected(up) if up.epoch == epoch);
    let _ = situation.wait_for(is_other).await;
}

/// Without a connection: waits until a drain has nothing left to wait for.
async fn wait_until_drained(stage: &mut watch::Receiver<ServiceStage>, tasks: &mut JoinSet<()>) {
    loop {
        let by = drain_deadline(stage);
        if by.is_some() && tasks.is_empty() {
            return;
        }
        tokio::select! {
            biased;
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            _ = stage.changed() => {}
            () = sleep_until_or_forever(by) => return,
        }
    }
}

/// Waits until a drain has had all its time: whatever is waited for, it is over.
async fn wait_until_overdue(mut stage: watch::Receiver<ServiceStage>) {
    let is_draining = |stage: &ServiceStage| matches!(stage, ServiceStage::Draining { .. });
    let by = match stage.wait_for(is_draining).await.as_deref() {
        Ok(ServiceStage::Draining { by }) => Some(*by + LAST_ANSWERS),
        _ => None,
    };
    sleep_until_or_forever(by).await;
}

fn drain_deadline(stage: &watch::Receiver<ServiceStage>) -> Option<Instant> {
    match *stage.borrow() {
        ServiceStage::Serving => None,
        ServiceStage::Draining { by } => Some(by),
    }
}

async fn sleep_until_or_forever(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
