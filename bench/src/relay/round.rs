//! Round of measurements: all paths in turn.

use super::RelayBenchOptions;
use super::call_paths::{CallPath, RelayMeasurement};
use super::disruptions::{self, Disruptions};
use super::relay_setup::RelaySetup;
use crate::closed_loop::LoadCell;

/// Callers and payload, with the paths that are measured with them.
const CELLS: [(usize, usize, &[CallPath]); 6] = [
    (1, 60, &[CallPath::Bare, CallPath::Direct, CallPath::Relayed, CallPath::Piped, CallPath::Shared]),
    (64, 60, &[CallPath::Bare, CallPath::Direct, CallPath::Relayed, CallPath::Piped, CallPath::Shared]),
    (256, 60, &[CallPath::Bare, CallPath::Direct, CallPath::Relayed]),
    (1, 10_240, &[CallPath::Bare, CallPath::Direct, CallPath::Relayed]),
    (64, 10_240, &[CallPath::Bare, CallPath::Direct, CallPath::Relayed]),
    (256, 10_240, &[CallPath::Bare, CallPath::Direct, CallPath::Relayed]),
];

/// The results of one round.
pub(crate) struct RelayRound {
    pub(crate) cells: Vec<RelayCell>,
    pub(crate) disruptions: Disruptions,
}

/// A measurement of a round.
pub(crate) struct RelayCell {
    pub(crate) callers: usize,
    pub(crate) payload: usize,
    pub(crate) path: CallPath,
    pub(crate) measured: RelayMeasurement,
}

impl RelayRound {
    /// Returns the measurement of one path.
    pub(crate) fn find(&self, callers: usize, payload: usize, path: CallPath) -> Option<RelayMeasurement> {
        let is_it = |cell: &&RelayCell| (cell.callers, cell.payload, cell.path) == (callers, payload, path);
        self.cells.iter().find(is_it).map(|cell| cell.measured)
    }
}

/// Returns every cell, in the order of the table.
pub(crate) fn cells() -> impl Iterator<Item = (usize, usize, CallPath)> {
    CELLS.iter().flat_map(|(callers, payload, paths)| paths.iter().map(|path| (*callers, *payload, *path)))
}

pub(crate) async fn run(setup: &mut RelaySetup, options: &RelayBenchOptions) -> RelayRound {
    let mut done = Vec::new();
    for (callers, payload, path) in cells() {
        let load = LoadCell { callers, payload, time: options.time };
        if let Some(measured) = path.measure(setup, load).await {
            done.push(RelayCell { callers, payload, path, measured });
        }
    }
    RelayRound { cells: done, disruptions: disruptions::measure(setup).await }
}

/// Drives one path alone, for a profiler.
pub(crate) async fn profile(path: &str, options: &RelayBenchOptions) {
    let setup = RelaySetup::start(options.nats[0]).await;
    let load = LoadCell { callers: options.callers, payload: options.payload, time: options.time };
    eprintln!("here, broker, host: {:?}", setup.local.pids());
    for _ in 0..options.rounds {
        let measured = CallPath::parse(path).measure(&setup, load).await.expect("this server has that way");
        let figures = measured.figures;
        println!(
            "{path}: p50 {:?}, p99 {:?}, {:.0} calls/s, CPU {:.0?} µs",
            figures.p50, figures.p99, figures.per_second, measured.cpu
        );
    }
}
