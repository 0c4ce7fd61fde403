//! One run: the world that a seed creates, from start to shutdown.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ostler_relay::broker::memory::MemoryBroker;
use ostler_testkit::run_until_stalled;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::actors;
use crate::invariants::RelayInvariants;
use crate::journal::{JournalMode, UnreliableJournal};
use crate::network::{LATEST, RelaySimNetwork};
use crate::sim_host::{RelaySimHost, RelaySimShared};
use crate::sim_worker::RelaySimWorker;

/// Time after the last fault within which every call must succeed.
const RECOVERY: Duration = Duration::from_secs(15);

/// Observations of a run.
pub(crate) struct RelaySimReport {
    pub(crate) violations: Vec<String>,
    pub(crate) trace: Vec<String>,
    pub(crate) ends: BTreeSet<String>,
}

/// State shared by the actors of a run.
pub(crate) struct RelaySimWorld {
    shared: Arc<RelaySimShared>,
    pub(crate) invariants: Arc<RelayInvariants>,
    pub(crate) hosts: Vec<RelaySimHost>,
    pub(crate) workers: Vec<RelaySimWorker>,
}

impl RelaySimWorld {
    fn new(journal_mode: JournalMode, rng: &mut Rng) -> Self {
        let invariants = Arc::new(RelayInvariants::new(rng));
        let (broker, network) = (MemoryBroker::new(), RelaySimNetwork::new(rng));
        network.install(&broker, &invariants);
        let journal = Arc::new(UnreliableJournal::new(journal_mode, rng.fork()));
        let shared = Arc::new(RelaySimShared {
            broker,
            network: network.clone(),
            journal,
            invariants: Arc::clone(&invariants),
        });
        let hosts =
            (0..rng.usize(1..=2)).map(|number| RelaySimHost::new(number, Arc::clone(&shared), rng)).collect();
        let workers = (0..rng.usize(1..=3))
            .map(|number| RelaySimWorker::new(number, Arc::clone(&shared), rng))
            .collect();
        Self { shared, invariants, hosts, workers }
    }

    pub(crate) fn network(&self) -> &RelaySimNetwork {
        &self.shared.network
    }

    pub(crate) fn broker(&self) -> &MemoryBroker {
        &self.shared.broker
    }
}

/// Runs a seed to its end.
pub(crate) async fn run_seed(seed: u64, journal_mode: JournalMode) -> RelaySimReport {
    let mut rng = Rng::with_seed(seed);
    let world = Arc::new(RelaySimWorld::new(journal_mode, &mut rng));
    for host in &world.hosts {
        host.start().await;
    }
    world.workers.iter().for_each(RelaySimWorker::start);
    let mut actors = JoinSet::new();
    for worker in 0..world.workers.len() {
        for _ in 0..rng.usize(2..=4) {
            actors.spawn(actors::call(Arc::clone(&world), worker, rng.fork()));
        }
    }
    actors.spawn(actors::inject_faults(Arc::clone(&world), rng.fork()));
    let ended = timeout(Duration::from_secs(3_600), actors.join_all()).await;
    world.invariants.expect(ended.is_ok(), || "somebody waits for ever".into());
    recover(&world).await;
    let invariants = Arc::clone(&world.invariants);
    shut_down(world, &invariants).await;
    let mut observations = invariants.observations();
    RelaySimReport {
        violations: std::mem::take(&mut observations.violations),
        trace: std::mem::take(&mut observations.trace),
        ends: std::mem::take(&mut observations.ends),
    }
}

/// Ends all faults and checks that everything recovers by itself.
async fn recover(world: &Arc<RelaySimWorld>) {
    world.invariants.trace("the weather clears up");
    world.invariants.stop_faults();
    world.shared.network.stop_faults();
    let mut recoveries = JoinSet::new();
    for worker in 0..world.workers.len() {
        let world = Arc::clone(world);
        recoveries.spawn(async move { world.workers[worker].assert_recovers(RECOVERY).await });
    }
    recoveries.join_all().await;
}

/// Checks that nothing is left after all processes have shut down.
async fn shut_down(world: Arc<RelaySimWorld>, invariants: &RelayInvariants) {
    // Later than any delayed message, and than the end of abandoned calls.
    tokio::time::sleep(Duration::from_millis(LATEST) + Duration::from_secs(65)).await;
    for worker in &world.workers {
        worker.shutdown().await;
    }
    for host in &world.hosts {
        host.drain(Duration::from_secs(5)).await;
    }
    invariants.check_calls();
    let links = world.broker().link_count();
    invariants.expect(links == 0, || format!("{links} connections are left"));
    // The fault injector holds the invariants too.
    world.broker().set_fault_injector(None);
    drop(world);
    run_until_stalled().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    invariants.expect(tasks == 0, || format!("{tasks} tasks are left"));
}
