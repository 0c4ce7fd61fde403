//! One round: all ways in turn.

use super::ends::{self, Ends};
use super::options::Options;
use super::stage::Stage;
use super::ways::{Measured, Way};
use crate::drive::Load;

/// Callers and payload, with the ways that are driven so.
const CELLS: [(usize, usize, &[Way]); 6] = [
    (1, 60, &[Way::Bare, Way::Direct, Way::Relayed, Way::Piped, Way::Shared]),
    (64, 60, &[Way::Bare, Way::Direct, Way::Relayed, Way::Piped, Way::Shared]),
    (256, 60, &[Way::Bare, Way::Direct, Way::Relayed]),
    (1, 10_240, &[Way::Bare, Way::Direct, Way::Relayed]),
    (64, 10_240, &[Way::Bare, Way::Direct, Way::Relayed]),
    (256, 10_240, &[Way::Bare, Way::Direct, Way::Relayed]),
];

/// What one round has shown.
pub(crate) struct Round {
    pub(crate) cells: Vec<Cell>,
    pub(crate) ends: Ends,
}

/// One measurement of a round.
pub(crate) struct Cell {
    pub(crate) callers: usize,
    pub(crate) payload: usize,
    pub(crate) way: Way,
    pub(crate) measured: Measured,
}

impl Round {
    /// What was measured by one way.
    pub(crate) fn find(&self, callers: usize, payload: usize, way: Way) -> Option<Measured> {
        let is_it = |cell: &&Cell| (cell.callers, cell.payload, cell.way) == (callers, payload, way);
        self.cells.iter().find(is_it).map(|cell| cell.measured)
    }
}

/// Every cell, in the order of the table.
pub(crate) fn cells() -> impl Iterator<Item = (usize, usize, Way)> {
    CELLS.iter().flat_map(|(callers, payload, ways)| ways.iter().map(|way| (*callers, *payload, *way)))
}

pub(crate) async fn run(stage: &mut Stage, options: &Options) -> Round {
    let mut done = Vec::new();
    for (callers, payload, way) in cells() {
        let load = Load { callers, payload, time: options.time };
        if let Some(measured) = way.measure(stage, load).await {
            done.push(Cell { callers, payload, way, measured });
        }
    }
    Round { cells: done, ends: ends::measure(stage).await }
}

/// One way alone, for a profiler.
pub(crate) async fn profile(way: &str, options: &Options) {
    let stage = Stage::open(options.nats[0]).await;
    let load = Load { callers: options.callers, payload: options.payload, time: options.time };
    eprintln!("here, broker, host: {:?}", stage.local.pids());
    for _ in 0..options.rounds {
        let measured = Way::of_text(way).measure(&stage, load).await.expect("this server has that way");
        let figures = measured.figures;
        println!(
            "{way}: p50 {:?}, p99 {:?}, {:.0} calls/s, CPU {:.0?} µs",
            figures.p50, figures.p99, figures.per_second, measured.cpu
        );
    }
}
