//! Actors of a simulation: callers, and the task that injects faults.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::sleep;

use crate::sim_host::SERVERS;
use crate::sim_worker::RelaySimCall;
use crate::world::RelaySimWorld;

/// Calls that one caller makes.
const CALLS: usize = 8;
/// Faults injected per run.
const FAULTS: usize = 14;

/// Tools to call, the frequent ones repeated.
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

/// Calls tools with short and long timeouts.
pub(crate) async fn call(world: Arc<RelaySimWorld>, worker: usize, mut rng: Rng) {
    let worker = &world.workers[worker];
    for _ in 0..CALLS {
        pause(&mut rng, 2_500).await;
        if rng.u8(..8) == 0 {
            worker.list(pick(&SERVERS, &mut rng)).await;
        }
        let most = pick(&[50, 1_000, 5_000, 10_000, 30_000], &mut rng);
        let call = RelaySimCall {
            server: pick(&SERVERS, &mut rng),
            tool: pick(&TOOLS, &mut rng),
            limit: Duration::from_millis(rng.u64(50..=most)),
            leaves: (rng.u8(..8) == 0).then(|| Duration::from_millis(rng.u64(..4_000))),
        };
        worker.call(&call).await;
    }
}

/// Injects faults and repairs some of them.
pub(crate) async fn inject_faults(world: Arc<RelaySimWorld>, mut rng: Rng) {
    for _ in 0..FAULTS {
        pause(&mut rng, 3_000).await;
        for host in &world.hosts {
            host.check_limits();
        }
        let fault = pick(
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
        world.invariants.trace(fault);
        apply_fault(&world, fault, &mut rng).await;
    }
}

async fn apply_fault(world: &RelaySimWorld, fault: &str, rng: &mut Rng) {
    let host = &world.hosts[rng.usize(..world.hosts.len())];
    let worker = &world.workers[rng.usize(..world.workers.len())];
    let host_user = host.broker_user().unwrap_or_default();
    match fault {
        "cut worker" => world.broker().disconnect(worker.broker_user()),
        "cut host" => world.broker().disconnect(&host_user),
        "broker" => {
            world.broker().go_down();
            pause(rng, 8_000).await;
            world.broker().come_up();
        }
        "deafen worker" => mute_for_a_while(world, worker.broker_user(), rng).await,
        "deafen host" => mute_for_a_while(world, &host_user, rng).await,
        "kill" => {
            host.kill();
            pause(rng, 5_000).await;
            host.start().await;
        }
        "drain" => {
            host.drain(Duration::from_secs(8)).await;
            pause(rng, 3_000).await;
            host.start().await;
        }
        "vanish" => {
            worker.kill();
            pause(rng, 5_000).await;
            worker.start();
        }
        "rules" => {
            let has_extra = rng.bool();
            for host in &world.hosts {
                host.set_rules(has_extra).await;
            }
        }
        _ if !world.invariants.is_prompt => host.crash_server(rng.usize(..SERVERS.len())),
        _ => {}
    }
}

async fn mute_for_a_while(world: &RelaySimWorld, user: &str, rng: &mut Rng) {
    world.network().mute(user, true);
    pause(rng, 8_000).await;
    world.network().mute(user, false);
}
