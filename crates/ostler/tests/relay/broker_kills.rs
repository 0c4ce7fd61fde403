//! Repeated kills of the broker while callers call.

use crate::caller_load::CallerLoad;
use crate::home::Home;
use crate::outcome_check;
use crate::site::{Setup, worker};

/// Reconnects back off by seconds after short connections, so several brokers are killed in parallel.
const BROKERS: usize = 3;

/// Kills of each broker: more than fifty altogether.
const KILLS: usize = 17;

#[test]
fn brokers_that_are_killed_fifty_times_under_64_callers_run_nothing_twice() {
    std::thread::scope(|scope| {
        (0..BROKERS).for_each(|_| drop(scope.spawn(kill_again_and_again)));
    });
}

fn kill_again_and_again() {
    let (mut broker, sites) = Setup::default().build();
    let far = Home::new();
    let daemon = sites[0].start();
    let crowd = CallerLoad::start(worker(&far, &broker, "w1"), 0, 64);
    for _ in 0..KILLS {
        crowd.until_ok(100);
        broker.kill();
        broker.restart();
    }
    // All programs reconnect without a restart.
    crowd.until_ok(200);
    let calls = crowd.end();
    assert!(daemon.end().0.success(), "{}", sites[0].said());
    let tally = outcome_check::check(&calls, &sites);
    tally.print("broker", KILLS);
    assert!(tally.ok >= KILLS * 100);
}
