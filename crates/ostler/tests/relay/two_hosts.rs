//! Two hosts with the same server, which share the calls and the journal.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::caller_load::CallerLoad;
use crate::home::{Home, until};
use crate::outcome_check;
use crate::site::{Setup, worker};

/// Longest time without a success for a caller when one of two hosts dies.
const CARRIES_ON: Duration = Duration::from_secs(5);

const KILLS: usize = 5;

const ENDS: usize = 3;

#[test]
fn one_of_two_hosts_dies_under_load_the_other_carries_on_and_it_comes_back() {
    let setup = Setup { hosts: &["mill", "barn"], is_shared: true, ..Setup::default() };
    let (broker, sites) = setup.build();
    let (here, there) = (Home::new(), Home::new());
    let mut mill = sites[0].start();
    let barn = sites[1].start();
    let crowds = [
        CallerLoad::start(worker(&here, &broker, "w1"), 0, 32),
        CallerLoad::start(worker(&there, &broker, "w2"), 1, 32),
    ];
    let both_grow = || {
        let before = [0, 1].map(|site: usize| sites[site].ledger().len());
        until("both hosts carry out calls", || {
            (0..2).all(|site| sites[site].ledger().len() > before[site] + 50)
        });
    };
    let mut longest = Duration::ZERO;
    for _ in 0..KILLS {
        both_grow();
        mill.signal(Signal::SIGKILL);
        drop(mill);
        let died = Instant::now();
        // More than all that were in flight, so that these calls are new ones.
        crowds.iter().for_each(|crowd| crowd.until_ok(64));
        longest = longest.max(died.elapsed());
        mill = sites[0].start();
    }
    both_grow();
    println!("two hosts: 128 calls succeeded within {longest:.1?} of the death of one");
    assert!(longest < CARRIES_ON, "{longest:?}");
    let calls: Vec<_> = crowds.into_iter().flat_map(CallerLoad::end).collect();
    for (daemon, site) in [mill, barn].into_iter().zip(&sites) {
        assert!(daemon.end().0.success(), "{}", site.said());
    }
    outcome_check::check(&calls, &sites).print("two hosts", KILLS);
}

/// Limit of the calls for which the broker may choose a host just as it leaves: the NATS library forgets a subscription
/// before the broker has confirmed its end.
const IN_AN_INSTANT: usize = 8;

/// A host that ends finishes the calls it has accepted, and gets no new ones.
#[test]
fn one_of_two_hosts_is_ended_under_load_and_the_other_takes_its_calls() {
    let setup = Setup { hosts: &["mill", "barn"], is_shared: true, ..Setup::default() };
    let (broker, sites) = setup.build();
    let here = Home::new();
    let mut mill = sites[0].start();
    let barn = sites[1].start();
    let crowd = CallerLoad::start(worker(&here, &broker, "w1"), 0, 32);
    for _ in 0..ENDS {
        let before = sites[0].ledger().len();
        until("it carries out calls", || sites[0].ledger().len() > before + 50);
        assert!(mill.end().0.success(), "{}", sites[0].said());
        crowd.until_ok(64);
        mill = sites[0].start();
    }
    let calls = crowd.end();
    for daemon in [mill, barn] {
        assert!(daemon.end().0.success());
    }
    let tally = outcome_check::check(&calls, &sites);
    tally.print("ended hosts", ENDS);
    assert_eq!(tally.unrun, 0);
    assert!(tally.unknown <= ENDS * IN_AN_INSTANT, "{} are unknown", tally.unknown);
}
