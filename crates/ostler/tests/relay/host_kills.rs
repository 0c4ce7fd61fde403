//! Repeated kills of hosts while callers call.

use nix::sys::signal::Signal;

use crate::caller_load::CallerLoad;
use crate::home::Home;
use crate::outcome_check;
use crate::site::{Setup, worker};

const KILLS: usize = 50;

#[test]
fn a_host_that_is_killed_fifty_times_under_64_callers_runs_nothing_twice() {
    let (broker, sites) = Setup::default().build();
    let far = Home::new();
    let mut daemon = sites[0].start();
    let crowd = CallerLoad::start(worker(&far, &broker, "w1"), 0, 64);
    for _ in 0..KILLS {
        crowd.until_ok(100);
        daemon.signal(Signal::SIGKILL);
        drop(daemon);
        daemon = sites[0].start();
    }
    crowd.until_ok(200);
    let calls = crowd.end();
    assert!(daemon.end().0.success(), "{}", sites[0].said());
    let tally = outcome_check::check(&calls, &sites);
    tally.print("host", KILLS);
    assert!(tally.ok >= KILLS * 100);
}
