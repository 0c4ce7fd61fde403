//! Table of the host benchmark, in Markdown.

use super::HostMeasurement;
use crate::closed_loop::{LoadCell, micros};
use crate::spread::Spread;

/// Raw, client, host.
type HostRound = [HostMeasurement; 3];

pub(super) fn head() {
    println!(
        "| in flight | payload | way | p50 | added p50 | p99 | calls/s | of raw | of client | our CPU per call |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
}

pub(super) fn row(load: LoadCell, rounds: &[HostRound]) {
    for (way, name) in ["raw", "client", "host"].into_iter().enumerate() {
        let of = |figure: fn(&HostMeasurement) -> f64| median(rounds.iter().map(|round| figure(&round[way])));
        let rate = |base: usize| {
            let of_round = |round: &HostRound| round[way].figures.per_second / round[base].figures.per_second;
            median(rounds.iter().map(of_round))
        };
        let added = |round: &HostRound| micros(round[way].figures.p50) - micros(round[0].figures.p50);
        println!(
            "| {} | {} B | {name} | {:.1} µs | {:.1} µs | {:.1} µs | {:.0} | {:.2} | {:.2} | {:.2} µs |",
            load.callers,
            load.payload,
            of(|measured| micros(measured.figures.p50)),
            median(rounds.iter().map(added)),
            of(|measured| micros(measured.figures.p99)),
            of(|measured| measured.figures.per_second),
            rate(0),
            rate(1),
            of(|measured| measured.cpu_per_call),
        );
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    Spread::from_values(values).map_or(0.0, |spread| spread.median)
}
