//! Simulation of both sides of the relay: a seed chooses workers, hosts, servers, callers and message faults, and
//! every guarantee must hold.
//!
//! ```text
//! OSTLER_SIM_SEEDS=5000 cargo nextest run -p ostler-relay --test sim    # more seeds
//! OSTLER_SIM_SEED=123   cargo nextest run -p ostler-relay --test sim    # one seed again
//! ```
//!
//! Time is paused and everything runs on one thread, so a seed determines nearly everything. It does not determine
//! the order of tasks that are woken at the same moment, so a single seed is run several times.

#![expect(clippy::unwrap_used, reason = "what tests share fails like a test")]

mod actors;
mod faulty_broker;
mod invariants;
mod journal;
mod network;
mod sim_host;
mod sim_worker;
mod world;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;

use crate::journal::JournalMode;
use crate::world::RelaySimReport;

/// Seeds run by default.
const SEEDS: u64 = 500;

/// Runs of a single seed.
const AGAIN: usize = 20;

fn from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text:?}")))
}

/// Runs a seed on a thread of its own, in paused time.
fn run_seed(seed: u64, mode: JournalMode) -> RelaySimReport {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(world::run_seed(seed, mode))
}

/// Runs a seed and panics with its violations and the replay command.
fn check(seed: u64) -> RelaySimReport {
    let report = std::panic::catch_unwind(AssertUnwindSafe(|| run_seed(seed, JournalMode::Durable)));
    let Ok(report) = report else { panic!("seed {seed} panicked, see above\n{}", replay(seed)) };
    let violations = report.violations.join("\n  ");
    let trace = report.trace.join("\n  ");
    assert!(
        violations.is_empty(),
        "what happened:\n  {trace}\nseed {seed} breaks a promise:\n  {violations}\n{}",
        replay(seed)
    );
    report
}

fn replay(seed: u64) -> String {
    format!("replay: OSTLER_SIM_SEED={seed} cargo nextest run -p ostler-relay --test sim")
}

/// Runs one fifth of all seeds; the tests of the other fifths run in parallel.
fn check_fifth(fifth: u64) {
    if let Some(seed) = from_env("OSTLER_SIM_SEED") {
        if fifth == 0 {
            (0..AGAIN).for_each(|_| drop(check(seed)));
        }
        return;
    }
    let seeds = from_env("OSTLER_SIM_SEEDS").unwrap_or(SEEDS);
    (fifth..seeds).step_by(5).for_each(|seed| drop(check(seed)));
}

#[test]
fn whatever_happens_the_promises_hold() {
    check_fifth(0);
}

#[test]
fn whatever_happens_in_a_second_world_they_hold() {
    check_fifth(1);
}

#[test]
fn whatever_happens_in_a_third_world_they_hold() {
    check_fifth(2);
}

#[test]
fn whatever_happens_in_a_fourth_world_they_hold() {
    check_fifth(3);
}

#[test]
fn whatever_happens_in_a_fifth_world_they_hold() {
    check_fifth(4);
}

#[test]
fn lives_see_every_kind_of_end() {
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        seen.extend(run_seed(seed, JournalMode::Durable).ends);
    }
    let expected = [
        "ok",
        "left",
        "outcome-unknown",
        "timed-out",
        "unknown-tool",
        "from the host: outcome-unknown",
        "from the server",
    ];
    let missing: Vec<_> = expected.iter().filter(|end| !seen.contains(**end)).collect();
    assert!(missing.is_empty(), "no life has seen {missing:?}, but {seen:?}");
}

/// Proves the checker: the invariants notice a journal that breaks the main guarantee.
#[test]
fn a_journal_that_forgets_is_caught() {
    let is_caught = |seed| {
        let report = run_seed(seed, JournalMode::Forgetful);
        report.violations.iter().any(|violation| violation.contains("was executed 2 times"))
    };
    assert!((0..40).any(is_caught), "calls run twice in no life, though nothing keeps them from it");
}
