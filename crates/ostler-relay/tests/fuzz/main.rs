//! Fuzz targets as tests: the kept corpus and damaged copies of it, run through whole parts of the product.
//!
//! `scripts/fuzz` searches for new inputs with the same targets; this test builds them without instrumentation.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "what tests share fails like a test")]
#![allow(dead_code, unreachable_pub, unused_imports, reason = "the targets are those of a library")]

use std::path::PathBuf;

#[path = "../../../../fuzz/src/whole/mod.rs"]
mod whole;

/// Damaged copies of each kept input.
const DAMAGES: u64 = 12;

/// Fragments inserted into inputs.
const WORDS: [&[u8]; 10] = [b"{", b"]", b"\"", b"\\", b"\n", b"\0", b"\xff", b"null", b"1e999", b"\n---\n"];

fn try_all(target: &str, run: fn(&[u8])) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut tried = 0;
    for entry in std::fs::read_dir(&folder).expect("there is a corpus") {
        let file = entry.expect("the folder can be read").path();
        let kept = std::fs::read(&file).expect("the file can be read");
        // Printed on failure only: identifies the input.
        for seed in 0..=DAMAGES {
            println!("{} with the damages of seed {seed}", file.display());
            run(&damaged(&kept, seed));
            tried += 1;
        }
    }
    assert!(tried > DAMAGES, "{} is empty", folder.display());
}

/// Returns the input with some damages; none for seed 0.
fn damaged(input: &[u8], seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut out = input.to_vec();
    for _ in 0..seed.min(4) {
        let at = rng.usize(..=out.len());
        match rng.u8(..4) {
            0 => out.truncate(at),
            1 => drop(out.splice(at..at, rng.choice(WORDS).unwrap_or_default().iter().copied())),
            2 => drop(out.drain(at..(at + rng.usize(1..9)).min(out.len()))),
            _ => out.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << rng.u8(..8)),
        }
    }
    out
}

#[test]
fn requests_do_what_their_caller_may_and_nothing_else() {
    try_all("request", whole::request::answer);
}

#[test]
fn clients_over_pipes_are_answered_what_they_asked() {
    try_all("pipe", whole::pipe::serve);
}

#[test]
fn whatever_a_server_answers_reaches_its_clients_once() {
    try_all("answers", whole::answers::relay);
}

#[test]
fn whatever_workers_say_no_call_runs_twice() {
    try_all("relay_host", whole::relay_host::serve);
}

#[test]
fn whatever_hosts_say_a_call_is_sent_once_and_ends() {
    try_all("relay_worker", whole::relay_worker::call);
}
