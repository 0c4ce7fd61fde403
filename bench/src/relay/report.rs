//! Report of the relay benchmark, as a section of RESULTS.md.

use bench::process::machine_load;

use super::RelayBenchOptions;
use super::call_paths::CallPath;
use super::round::{RelayRound, cells};
use crate::closed_loop::micros;
use crate::describe_machine;
use crate::spread::Spread;

pub(crate) fn head(options: &RelayBenchOptions) {
    println!("## The relay beside bare NATS\n");
    println!("{}, `{}`; the machine's load was {} before", describe_machine(), options.line, machine_load());
    println!(
        "and the figure at the end of this section after. {} rounds, in each of which every way is driven for {:?}: \
         medians over the rounds, least and largest in brackets. `of bare` and `added` are taken within a round.\n",
        options.rounds, options.time,
    );
}

pub(crate) fn part(version: &str, rounds: &[RelayRound]) {
    println!("### {version}\n");
    println!(
        "| callers | payload | way | p50 µs | added over direct µs | p99 µs | calls/s | of bare | CPU per call here, broker, host µs |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for cell in cells() {
        row(cell, rounds);
    }
    println!();
    ends(rounds);
    println!();
    aims(rounds);
    println!();
}

pub(crate) fn foot() {
    println!("The machine's load after all this: {}.", machine_load());
}

fn row((callers, payload, path): (usize, usize, CallPath), rounds: &[RelayRound]) {
    let own = || rounds.iter().filter_map(|round| round.find(callers, payload, path));
    let figures = || own().map(|measured| measured.figures);
    let Some(p50) = Spread::from_values(figures().map(|figures| micros(figures.p50))) else { return };
    let p99 = Spread::from_values(figures().map(|figures| micros(figures.p99)));
    let rate = Spread::from_values(figures().map(|figures| figures.per_second));
    let added = match path {
        CallPath::Bare | CallPath::Direct => None,
        _ => added(rounds, (callers, payload, path)),
    };
    let of_bare = Spread::from_values(rounds.iter().filter_map(|round| {
        let bare = round.find(callers, payload, CallPath::Bare)?.figures;
        Some(round.find(callers, payload, path)?.figures.per_second / bare.per_second)
    }));
    let cpu: Vec<[f64; 3]> = own().filter_map(|measured| measured.cpu).collect();
    let cpu: Vec<String> = (0..3)
        .filter_map(|at| Spread::from_values(cpu.iter().map(|cpu| cpu[at])))
        .map(|cpu| format!("{:.0}", cpu.median))
        .collect();
    println!(
        "| {callers} | {payload} B | {} | {} | {} | {} | {} | {} | {} |",
        path.label(),
        p50.with_digits(0),
        format_spread(added, 0),
        format_spread(p99, 0),
        format_spread(rate, 0),
        format_spread(of_bare, 2),
        cpu.join(", "),
    );
}

/// Returns the time that a path adds to the same call without a relay, in microseconds.
fn added(rounds: &[RelayRound], (callers, payload, path): (usize, usize, CallPath)) -> Option<Spread> {
    Spread::from_values(rounds.iter().filter_map(|round| {
        let direct = round.find(callers, payload, CallPath::Direct)?.figures;
        Some(micros(round.find(callers, payload, path)?.figures.p50) - micros(direct.p50))
    }))
}

fn ends(rounds: &[RelayRound]) {
    let all = |of: fn(&RelayRound) -> &[f64]| {
        Spread::from_values(rounds.iter().flat_map(|round| of(round).iter().copied()))
    };
    println!("| what | median (least-largest) |");
    println!("|---|---|");
    println!(
        "| from dropping a call to its server reading the cancellation | {} ms |",
        format_spread(all(|round| &round.disruptions.cancel_ms), 1)
    );
    println!(
        "| from SIGKILL of the host to the caller's `outcome-unknown` | {} s |",
        format_spread(host_kill(rounds), 2)
    );
    println!(
        "| an answer of 20 MB, relayed | {} MB/s |",
        format_spread(all(|round| &round.disruptions.large_mb_per_s), 0)
    );
    println!(
        "| an answer of 20 MB, direct | {} MB/s |",
        format_spread(all(|round| &round.disruptions.large_direct_mb_per_s), 0)
    );
}

fn host_kill(rounds: &[RelayRound]) -> Option<Spread> {
    Spread::from_values(rounds.iter().map(|round| round.disruptions.host_kill_secs))
}

/// Prints the aims, judged by the median; the worst values are in the tables.
fn aims(rounds: &[RelayRound]) {
    let rate = Spread::from_values(
        rounds.iter().filter_map(|round| Some(round.find(64, 60, CallPath::Relayed)?.figures.per_second)),
    );
    let cancel =
        Spread::from_values(rounds.iter().flat_map(|round| round.disruptions.cancel_ms.iter().copied()));
    let aims = [
        (
            "a relayed call adds at most 500 µs at p50 to a direct one, one caller, 60 B",
            added(rounds, (1, 60, CallPath::Relayed)),
            500.0,
            true,
            0,
        ),
        ("at least 10000 relayed calls/s at 64 callers, 60 B", rate, 10_000.0, false, 0),
        ("a cancellation is read by the server within 50 ms", cancel, 50.0, true, 1),
        ("a dead host is noticed within 3.5 s", host_kill(rounds), 3.5, true, 2),
    ];
    println!("| aim | found |");
    println!("|---|---|");
    for (aim, found, limit, is_most, digits) in aims {
        let Some(found) = found else { continue };
        let is_met = if is_most { found.median <= limit } else { found.median >= limit };
        println!("| {aim} | {}{} |", found.with_digits(digits), if is_met { "" } else { ": missed" });
    }
}

fn format_spread(spread: Option<Spread>, digits: usize) -> String {
    spread.map(|spread| spread.with_digits(digits)).unwrap_or_default()
}
