//! Who acts in a life: callers, and whatever breaks things.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::sleep;

use crate::post::Wish;
use crate::site::SERVERS;
use crate::world::World;

/// Calls that one caller makes.
const CALLS: usize = 8;
/// What happens in the time of a life.
const ACTS: usize = 14;

/// What is called, some of it more often.
const TOOLS: [&str; 16] = [
    "work", "work", "work", "work", "work", "work", "work", "work", "work", "work", "work", "big", "extra",
    "extra", "secret", "secret",
];

fn pick<T: Copy>(items: &[T], rng: &mut Rng) -> T {
    items[rng.usize(..items.len())]
}

async fn pause(rng: &mut Rng, millis: u64) {
    sleep(Duration::from_millis(rng.u64(..millis))).await;
}

/// Calls tools, with more and less time.
pub(crate) async fn call(world: Arc<World>, post: usize, mut rng: Rng) {
    let post = &world.posts[post];
    for _ in 0..CALLS {
        pause(&mut rng, 2_500).await;
        if rng.u8(..8) == 0 {
            post.list(pick(&SERVERS, &mut rng)).await;
        }
        let most = pick(&[50, 1_000, 5_000, 10_000, 30_000], &mut rng);
        let wish = Wish {
            server: pick(&SERVERS, &mut rng),
            tool: pick(&TOOLS, &mut rng),
            limit: Duration::from_millis(rng.u64(50..=most)),
            leaves: (rng.u8(..8) == 0).then(|| Duration::from_millis(rng.u64(..4_000))),
        };
        post.call(&wish).await;
    }
}

/// Breaks things and mends some of them.
pub(crate) async fn break_things(world: Arc<World>, mut rng: Rng) {
    for _ in 0..ACTS {
        pause(&mut rng, 3_000).await;
        for site in &world.sites {
            site.check_limits();
        }
        let act = pick(
            &[
                "cut worker",
                "cut host",
                "broker",
                "deafen worker",
                "deafen host",
                "kill",
                "drain",
                "vanish",
                "rules",
                "crash",
            ],
            &mut rng,
        );
        world.watch.trace(act);
        perform(&world, act, &mut rng).await;
    }
}

async fn perform(world: &World, act: &str, rng: &mut Rng) {
    let site = &world.sites[rng.usize(..world.sites.len())];
    let post = &world.posts[rng.usize(..world.posts.len())];
    let door_of_host = site.door().unwrap_or_default();
    match act {
        "cut worker" => world.broker().cut(post.door()),
        "cut host" => world.broker().cut(&door_of_host),
        "broker" => {
            world.broker().go_down();
            pause(rng, 8_000).await;
            world.broker().come_up();
        }
        "deafen worker" => deafen(world, post.door(), rng).await,
        "deafen host" => deafen(world, &door_of_host, rng).await,
        "kill" => {
            site.kill();
            pause(rng, 5_000).await;
            site.start().await;
        }
        "drain" => {
            site.end(Duration::from_secs(8)).await;
            pause(rng, 3_000).await;
            site.start().await;
        }
        "vanish" => {
            post.vanish();
            pause(rng, 5_000).await;
            post.start();
        }
        "rules" => {
            let has_extra = rng.bool();
            for site in &world.sites {
                site.set_rules(has_extra).await;
            }
        }
        _ if !world.watch.is_prompt => site.crash_server(rng.usize(..SERVERS.len())),
        _ => {}
    }
}

async fn deafen(world: &World, door: &str, rng: &mut Rng) {
    world.sky().deafen(door, true);
    pause(rng, 8_000).await;
    world.sky().deafen(door, false);
}
