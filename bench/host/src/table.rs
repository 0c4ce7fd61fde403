//! The table, in Markdown.

use crate::{Cell, Figures};

/// Raw, client, host.
type Round = [Figures; 3];

pub(crate) fn head() {
    println!(
        "| in flight | payload | way | p50 | added p50 | p99 | calls/s | of raw | of client | our CPU per call |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
}

pub(crate) fn row(cell: Cell, rounds: &[Round]) {
    for (way, name) in ["raw", "client", "host"].into_iter().enumerate() {
        let of = |figure: fn(&Figures) -> f64| median(rounds.iter().map(|round| figure(&round[way])));
        let rate =
            |base: usize| median(rounds.iter().map(|round| round[way].per_second / round[base].per_second));
        let added = median(rounds.iter().map(|round| micros(round[way].p50) - micros(round[0].p50)));
        println!(
            "| {} | {} B | {name} | {:.1} µs | {added:.1} µs | {:.1} µs | {:.0} | {:.2} | {:.2} | {:.2} µs |",
            cell.in_flight,
            cell.payload,
            of(|f| micros(f.p50)),
            of(|f| micros(f.p99)),
            of(|f| f.per_second),
            rate(0),
            rate(1),
            of(|f| micros(f.cpu_per_call)),
        );
    }
}

fn micros(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
