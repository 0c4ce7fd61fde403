//! One life: the world that a seed makes, and its end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ostler_relay::broker::memory::MemoryBroker;
use ostler_testkit::settle;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::actors;
use crate::journal::{Honesty, Shelf};
use crate::post::Post;
use crate::site::{Ground, Site};
use crate::sky::{LATEST, Sky};
use crate::watch::Watch;

/// How long it takes until every call succeeds when the weather is fair again.
const RECOVERY: Duration = Duration::from_secs(15);

/// What the watch has seen of a life.
pub(crate) struct Life {
    pub(crate) violations: Vec<String>,
    pub(crate) trace: Vec<String>,
    pub(crate) ends: BTreeSet<String>,
}

/// What the actors of a life share.
pub(crate) struct World {
    ground: Arc<Ground>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) sites: Vec<Site>,
    pub(crate) posts: Vec<Post>,
}

impl World {
    fn new(honesty: Honesty, rng: &mut Rng) -> Self {
        let watch = Arc::new(Watch::new(rng));
        let (broker, sky) = (MemoryBroker::new(), Sky::new(rng));
        sky.cover(&broker, &watch);
        let journal = Arc::new(Shelf::new(honesty, rng.fork()));
        let ground = Arc::new(Ground { broker, sky: sky.clone(), journal, watch: Arc::clone(&watch) });
        let sites = (0..rng.usize(1..=2)).map(|number| Site::new(number, Arc::clone(&ground), rng)).collect();
        let posts = (0..rng.usize(1..=3)).map(|number| Post::new(number, Arc::clone(&ground), rng)).collect();
        Self { ground, watch, sites, posts }
    }

    pub(crate) fn sky(&self) -> &Sky {
        &self.ground.sky
    }

    pub(crate) fn broker(&self) -> &MemoryBroker {
        &self.ground.broker
    }
}

/// Lives the life of a seed to its end.
pub(crate) async fn live(seed: u64, honesty: Honesty) -> Life {
    let mut rng = Rng::with_seed(seed);
    let world = Arc::new(World::new(honesty, &mut rng));
    for site in &world.sites {
        site.start().await;
    }
    world.posts.iter().for_each(Post::start);
    let mut actors = JoinSet::new();
    for post in 0..world.posts.len() {
        for _ in 0..rng.usize(2..=4) {
            actors.spawn(actors::call(Arc::clone(&world), post, rng.fork()));
        }
    }
    actors.spawn(actors::break_things(Arc::clone(&world), rng.fork()));
    let ended = timeout(Duration::from_secs(3_600), actors.join_all()).await;
    world.watch.expect(ended.is_ok(), || "somebody waits for ever".into());
    recover(&world).await;
    let watch = Arc::clone(&world.watch);
    end(world, &watch).await;
    let mut notes = watch.notes();
    Life {
        violations: std::mem::take(&mut notes.violations),
        trace: std::mem::take(&mut notes.trace),
        ends: std::mem::take(&mut notes.ends),
    }
}

/// The weather clears up, and everything works again by itself.
async fn recover(world: &Arc<World>) {
    world.watch.trace("the weather clears up");
    world.watch.clear_up();
    world.ground.sky.clear_up();
    let mut proofs = JoinSet::new();
    for post in 0..world.posts.len() {
        let world = Arc::clone(world);
        proofs.spawn(async move { world.posts[post].prove(RECOVERY).await });
    }
    proofs.join_all().await;
}

/// After everybody has left nothing is in use; after the shutdown nothing is left.
async fn end(world: Arc<World>, watch: &Watch) {
    // Later than whatever was on its way, and than the end of those who left.
    tokio::time::sleep(Duration::from_millis(LATEST) + Duration::from_secs(65)).await;
    for post in &world.posts {
        post.end().await;
    }
    for site in &world.sites {
        site.end(Duration::from_secs(5)).await;
    }
    watch.check_calls();
    let links = world.broker().links();
    watch.expect(links == 0, || format!("{links} connections are left"));
    // The watch is held by the weather, too.
    world.broker().set_weather(None);
    drop(world);
    settle().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    watch.expect(tasks == 0, || format!("{tasks} tasks are left"));
}
