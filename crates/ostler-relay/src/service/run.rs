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

use super::intake::{Complaints, Intake};
use super::{Shared, beat, manifest, send};
use crate::tether::{Situation, Up};

/// How much longer than it may a drain takes for its last answers to leave,
/// over a broker that is slow to take them.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// How long the journal may take to keep what was noted.
const CLOSE: Duration = Duration::from_secs(5);

/// What a service is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Taking calls.
    Serving,
    /// Finishing those under way.
    Draining {
        /// When that ends, finished or not.
        by: Instant,
    },
}

/// Runs until the service is drained. Dropping it ends everything at once.
pub(super) async fn run(service: Arc<Shared>, over: watch::Sender<bool>) {
    let mut chores = JoinSet::new();
    chores.spawn(beat::run(Arc::clone(&service)));
    chores.spawn(manifest::push(Arc::clone(&service)));
    let mut running = Running {
        stage: service.stage.subscribe(),
        situation: service.tether.situation(),
        service: Arc::clone(&service),
        tasks: JoinSet::new(),
        complaints: Complaints::default(),
    };
    let overdue = overdue(service.stage.subscribe());
    tokio::select! {
        biased;
        () = running.serve() => {}
        () = overdue => {}
    }
    drop((running.tasks, chores));
    let _ = timeout(CLOSE, service.journal.close()).await;
    service.tether.close();
    over.send_replace(true);
}

struct Running {
    service: Arc<Shared>,
    stage: watch::Receiver<Stage>,
    situation: watch::Receiver<Situation>,
    tasks: JoinSet<()>,
    complaints: Complaints,
}

impl Running {
    /// Serves one connection after the other.
    async fn serve(&mut self) {
        loop {
            let up = tokio::select! {
                biased;
                up = next_up(&mut self.situation) => up,
                () = drained(&mut self.stage, &mut self.tasks) => return,
            };
            let Some(up) = up else { return };
            self.service.set_trouble(None);
            if let Ok(intake) = Intake::open(&self.service, &up).await {
                self.service.desk.set_connected(true);
                self.tasks.spawn(send::announce_doubtful(Arc::clone(&self.service)));
                let is_drained = self.serve_connection(intake).await;
                self.service.desk.set_connected(false);
                if is_drained {
                    return;
                }
            }
            // Whatever is left of it is of no use.
            up.link.close();
            lost(&mut self.situation, up.epoch).await;
        }
    }

    /// Takes what comes over one connection. True if there is nothing more to do.
    async fn serve_connection(&mut self, mut intake: Intake) -> bool {
        let mut is_open = true;
        loop {
            if is_open && matches!(*self.stage.borrow_and_update(), Stage::Draining { .. }) {
                is_open = false;
                intake.close(&mut self.tasks, &mut self.complaints).await;
            }
            if !is_open && self.tasks.is_empty() {
                intake.flush().await;
                return true;
            }
            let by = deadline(&self.stage);
            tokio::select! {
                biased;
                Some(_) = self.tasks.join_next(), if !self.tasks.is_empty() => {}
                arrival = intake.receive() => {
                    if !intake.on(arrival, &mut self.tasks, &mut self.complaints) {
                        return false;
                    }
                }
                _ = self.stage.changed() => {}
                () = at(by) => {
                    intake.flush().await;
                    return true;
                }
            }
        }
    }
}

/// The next connection; `None` if there will be none any more.
async fn next_up(situation: &mut watch::Receiver<Situation>) -> Option<Up> {
    let is_settled = |situation: &Situation| !matches!(situation, Situation::Waiting { .. });
    match situation.wait_for(is_settled).await.as_deref() {
        Ok(Situation::Up(up)) => Some(up.clone()),
        _ => None,
    }
}

/// Waits until the tether has seen that the connection is over.
async fn lost(situation: &mut watch::Receiver<Situation>, epoch: u64) {
    let is_other = |situation: &Situation| !matches!(situation, Situation::Up(up) if up.epoch == epoch);
    let _ = situation.wait_for(is_other).await;
}

/// Without a connection: waits until a drain has nothing left to wait for.
async fn drained(stage: &mut watch::Receiver<Stage>, tasks: &mut JoinSet<()>) {
    loop {
        let by = deadline(stage);
        if by.is_some() && tasks.is_empty() {
            return;
        }
        tokio::select! {
            biased;
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            _ = stage.changed() => {}
            () = at(by) => return,
        }
    }
}

/// Waits until a drain has had all its time: whatever is waited for, it is over.
async fn overdue(mut stage: watch::Receiver<Stage>) {
    let is_draining = |stage: &Stage| matches!(stage, Stage::Draining { .. });
    let by = match stage.wait_for(is_draining).await.as_deref() {
        Ok(Stage::Draining { by }) => Some(*by + LAST_ANSWERS),
        _ => None,
    };
    at(by).await;
}

fn deadline(stage: &watch::Receiver<Stage>) -> Option<Instant> {
    match *stage.borrow() {
        Stage::Serving => None,
        Stage::Draining { by } => Some(by),
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
