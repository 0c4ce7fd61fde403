//! Simulation of the host: a seed decides over callers, servers, faults and operators, and every invariant must hold.
//!
//! ```text
//! OSTLER_SIM_SEEDS=5000 cargo nextest run -p ostler-host --test sim    # more lives
//! OSTLER_SIM_SEED=123   cargo nextest run -p ostler-host --test sim    # one, again
//! ```
//!
//! Time is paused and all runs on one thread, so a seed replays exactly.

#![expect(clippy::unwrap_used, reason = "what tests share fails like a test")]

mod actors;
mod invariants;
mod watched_server;
mod world;

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::world::HostSimRun;

/// Seeds per run, unless the environment says otherwise.
const SEEDS: u64 = 500;

fn from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text:?}")))
}

/// Runs one simulation on a thread of its own, in paused time.
fn run_seed(seed: u64) -> HostSimRun {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(world::run_seed(seed))
}

/// Runs a simulation and reports violations, with the command that replays it.
fn check(seed: u64) -> HostSimRun {
    let life = std::panic::catch_unwind(AssertUnwindSafe(|| run_seed(seed)));
    let Ok(life) = life else { panic!("seed {seed} panicked, see above\n{}", replay_command(seed)) };
    let broken = life.violations.join("\n  ");
    assert!(broken.is_empty(), "seed {seed} breaks a promise:\n  {broken}\n{}", replay_command(seed));
    life
}

fn replay_command(seed: u64) -> String {
    let trace = match from_env("OSTLER_SIM_SEED") {
        Some(_) => format!("what happened:\n  {}\n", run_seed(seed).trace.join("\n  ")),
        None => String::new(),
    };
    format!("{trace}replay: OSTLER_SIM_SEED={seed} cargo nextest run -p ostler-host --test sim")
}

#[test]
fn whatever_happens_the_promises_hold() {
    if let Some(seed) = from_env("OSTLER_SIM_SEED") {
        check(seed);
        return;
    }
    let seeds = from_env("OSTLER_SIM_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let work = || {
        while let seed @ 0.. = next.fetch_add(1, Ordering::Relaxed)
            && seed < seeds
        {
            check(seed);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });
}

#[test]
fn a_seed_replays_the_same_life() {
    for seed in [1, 2, 3] {
        let (one, other) = (run_seed(seed), run_seed(seed));
        assert!(one.trace.len() > 50, "something happens in a life");
        assert_eq!(one.trace, other.trace, "seed {seed}");
    }
}

#[test]
fn lives_see_every_kind_of_outcome() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..30 {
        seen.extend(run_seed(seed).outcomes);
    }
    let expected = [
        "ok",
        "cached",
        "cancelled",
        "outcome-unknown",
        "overloaded",
        "server-unavailable",
        "timed-out",
        "unknown-server",
        "unknown-tool",
        "upstream-error",
        "upstream-protocol",
    ];
    let missing: Vec<_> = expected.iter().filter(|outcome| !seen.contains(**outcome)).collect();
    assert!(missing.is_empty(), "no life has seen {missing:?}");
}
