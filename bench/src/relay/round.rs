//! One round: all ways in turn.

use super::call_paths::{CallPath, RelayMeasurement};
use super::disruptions::{self, Disruptions};
use super::options::RelayBenchOptions;
use super::relay_setup::RelaySetup;
use crate::closed_loop::LoadCell;

/// Callers and payload, with the ways that are driven so.
const CELLS: [(usize, usize, &[CallPath]); 6] = [
    (1, 60, &[CallPath::Bare, CallPath::Direct, CallPath::Relayed, CallPath::Piped, CallPath::Shared]),
    (64, 60, &[CallPath::Bare, CallPath::Direct, CallPath::Relayed, CallPath::Piped, CallPath::Shared]),
    (256, 60, &[CallPath::Bare, CallPath::Direct, CallPath::Relayed]),
    (1, 10_240, &[CallPath::Bare, CallPath::Direct, CallPath::Relayed]),
    (64, 10_240, &[CallPath::Bare, CallPath::Direct, CallPath::Relayed]),
    (256, 10_240, &[CallPath::Bare, CallPath::Direct, CallPath::Relayed]),
];

/// What one round has shown.
pub(crate) struct RelayRound {
    pub(crate) cells: Vec<RelayCell>,
    pub(crate) disruptions: Disruptions,
}

/// One measurement of a round.
pub(crate) struct RelayCell {
    pub(crate) callers: usize,
    pub(crate) payload: usize,
    pub(crate) way: CallPath,
    pub(crate) measured: RelayMeasurement,
}

impl RelayRound {
    /// What was measured by one way.
    pub(crate) fn find(&self, callers: usize, payload: usize, way: CallPath) -> Option<RelayMeasurement> {
        let is_it = |cell: &&RelayCell| (cell.callers, cell.payload, cell.way) == (callers, payload, way);
        self.cells.iter().find(is_it).map(|cell| cell.measured)
    }
}

/// Every cell, in the order of the table.
pub(crate) fn cells() -> impl Iterator<Item = (usize, usize, CallPath)> {
    CELLS.iter().flat_map(|(callers, payload, ways)| ways.iter().map(|way| (*callers, *payload, *way)))
}

pub(crate) async fn run(stage: &mut RelaySetup, options: &RelayBenchOptions) -> RelayRound {
    let mut done = Vec::new();
    for (callers, payload, way) in cells() {
        let load = LoadCell { callers, payload, time: options.time };
        if let Some(measured) = way.measure(stage, load).await {
            done.push(RelayCell { callers, payload, way, measured });
        }
    }
    RelayRound { cells: done, disruptions: disruptions::measure(stage).await }
}

/// One way alone, for a profiler.
pub(crate) async fn profile(way: &str, options: &RelayBenchOptions) {
    let stage = RelaySetup::start(options.nats[0]).await;
    let load = LoadCell { callers: options.callers, payload: options.payload, time: options.time };
    eprintln!("here, broker, host: {:?}", stage.local.pids());
    for _ in 0..options.rounds {
        let measured = CallPath::parse(way).measure(&stage, load).await.expect("this server has that way");
        let figures = measured.figures;
        println!(
            "{way}: p50 {:?}, p99 {:?}, {:.0} calls/s, CPU {:.0?} µs",
            figures.p50, figures.p99, figures.per_second, measured.cpu
        );
    }
}
