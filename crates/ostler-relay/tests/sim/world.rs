//! One life: the world that a seed makes, and its end.

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

/// How long it takes until every call succeeds when the weather is fair again.
const RECOVERY: Duration = Duration::from_secs(15);

/// What the watch has seen of a life.
pub(crate) struct RelaySimReport {
    pub(crate) violations: Vec<String>,
    pub(crate) trace: Vec<String>,
    pub(crate) ends: BTreeSet<String>,
}

/// What the actors of a life share.
pub(crate) struct RelaySimWorld {
    shared: Arc<RelaySimShared>,
    pub(crate) invariants: Arc<RelayInvariants>,
    pub(crate) hosts: Vec<RelaySimHost>,
    pub(crate) workers: Vec<RelaySimWorker>,
}

impl RelaySimWorld {
    fn new(honesty: JournalMode, rng: &mut Rng) -> Self {
        let invariants = Arc::new(RelayInvariants::new(rng));
        let (broker, sky) = (MemoryBroker::new(), RelaySimNetwork::new(rng));
        sky.install(&broker, &invariants);
        let journal = Arc::new(UnreliableJournal::new(honesty, rng.fork()));
        let shared = Arc::new(RelaySimShared {
            broker,
            network: sky.clone(),
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

/// Lives the life of a seed to its end.
pub(crate) async fn run_seed(seed: u64, honesty: JournalMode) -> RelaySimReport {
    let mut rng = Rng::with_seed(seed);
    let world = Arc::new(RelaySimWorld::new(honesty, &mut rng));
    for site in &world.hosts {
        site.start().await;
    }
    world.workers.iter().for_each(RelaySimWorker::start);
    let mut actors = JoinSet::new();
    for post in 0..world.workers.len() {
        for _ in 0..rng.usize(2..=4) {
            actors.spawn(actors::call(Arc::clone(&world), post, rng.fork()));
        }
    }
    actors.spawn(actors::inject_faults(Arc::clone(&world), rng.fork()));
    let ended = timeout(Duration::from_secs(3_600), actors.join_all()).await;
    world.invariants.expect(ended.is_ok(), || "somebody waits for ever".into());
    recover(&world).await;
    let watch = Arc::clone(&world.invariants);
    shut_down(world, &watch).await;
    let mut notes = watch.observations();
    RelaySimReport {
        violations: std::mem::take(&mut notes.violations),
        trace: std::mem::take(&mut notes.trace),
        ends: std::mem::take(&mut notes.ends),
    }
}

/// The weather clears up, and everything works again by itself.
async fn recover(world: &Arc<RelaySimWorld>) {
    world.invariants.trace("the weather clears up");
    world.invariants.stop_faults();
    world.shared.network.stop_faults();
    let mut proofs = JoinSet::new();
    for post in 0..world.workers.len() {
        let world = Arc::clone(world);
        proofs.spawn(async move { world.workers[post].assert_recovers(RECOVERY).await });
    }
    proofs.join_all().await;
}

/// After everybody has left nothing is in use; after the shutdown nothing is left.
async fn shut_down(world: Arc<RelaySimWorld>, watch: &RelayInvariants) {
    // Later than whatever was on its way, and than the end of those who left.
    tokio::time::sleep(Duration::from_millis(LATEST) + Duration::from_secs(65)).await;
    for post in &world.workers {
        post.shutdown().await;
    }
    for site in &world.hosts {
        site.drain(Duration::from_secs(5)).await;
    }
    watch.check_calls();
    let links = world.broker().link_count();
    watch.expect(links == 0, || format!("{links} connections are left"));
    // The watch is held by the weather, too.
    world.broker().set_fault_injector(None);
    drop(world);
    run_until_stalled().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    watch.expect(tasks == 0, || format!("{tasks} tasks are left"));
}
