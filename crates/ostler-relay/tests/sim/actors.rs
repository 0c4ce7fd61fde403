//! Who acts in a life: callers, and whatever breaks things.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::sleep;

use crate::sim_host::SERVERS;
use crate::sim_worker::RelaySimCall;
use crate::world::RelaySimWorld;

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
pub(crate) async fn call(world: Arc<RelaySimWorld>, post: usize, mut rng: Rng) {
    let post = &world.workers[post];
    for _ in 0..CALLS {
        pause(&mut rng, 2_500).await;
        if rng.u8(..8) == 0 {
            post.list(pick(&SERVERS, &mut rng)).await;
        }
        let most = pick(&[50, 1_000, 5_000, 10_000, 30_000], &mut rng);
        let wish = RelaySimCall {
            server: pick(&SERVERS, &mut rng),
            tool: pick(&TOOLS, &mut rng),
            limit: Duration::from_millis(rng.u64(50..=most)),
            leaves: (rng.u8(..8) == 0).then(|| Duration::from_millis(rng.u64(..4_000))),
        };
        post.call(&wish).await;
    }
}

/// Breaks things and mends some of them.
pub(crate) async fn inject_faults(world: Arc<RelaySimWorld>, mut rng: Rng) {
    for _ in 0..ACTS {
        pause(&mut rng, 3_000).await;
        for site in &world.hosts {
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
        world.invariants.trace(act);
        apply_fault(&world, act, &mut rng).await;
    }
}

async fn apply_fault(world: &RelaySimWorld, act: &str, rng: &mut Rng) {
    let site = &world.hosts[rng.usize(..world.hosts.len())];
    let post = &world.workers[rng.usize(..world.workers.len())];
    let door_of_host = site.broker_user().unwrap_or_default();
    match act {
        "cut worker" => world.broker().disconnect(post.broker_user()),
        "cut host" => world.broker().disconnect(&door_of_host),
        "broker" => {
            world.broker().go_down();
            pause(rng, 8_000).await;
            world.broker().come_up();
        }
        "deafen worker" => mute_for_a_while(world, post.broker_user(), rng).await,
        "deafen host" => mute_for_a_while(world, &door_of_host, rng).await,
        "kill" => {
            site.kill();
            pause(rng, 5_000).await;
            site.start().await;
        }
        "drain" => {
            site.drain(Duration::from_secs(8)).await;
            pause(rng, 3_000).await;
            site.start().await;
        }
        "vanish" => {
            post.kill();
            pause(rng, 5_000).await;
            post.start();
        }
        "rules" => {
            let has_extra = rng.bool();
            for site in &world.hosts {
                site.set_rules(has_extra).await;
            }
        }
        _ if !world.invariants.is_prompt => site.crash_server(rng.usize(..SERVERS.len())),
        _ => {}
    }
}

async fn mute_for_a_while(world: &RelaySimWorld, door: &str, rng: &mut Rng) {
    world.network().mute(door, true);
    pause(rng, 8_000).await;
    world.network().mute(door, false);
}
