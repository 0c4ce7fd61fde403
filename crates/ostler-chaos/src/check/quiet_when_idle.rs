//! `QuietWhenIdle`: no process starts while no caller makes a request.

use std::collections::BTreeMap;

use super::records::Records;
use super::{Promise, Violation};
use crate::history::{HistoryEvent, Micros, Occasion, SeenProcess};

pub(super) fn check(records: &Records<'_>) -> Vec<Violation> {
    let mut censuses = censuses(records);
    let Some((_, first)) = censuses.next() else { return Vec::new() };
    // By pid: the first census that shows it.
    let mut started: BTreeMap<u32, (Micros, &str)> = BTreeMap::new();
    for (at, processes) in censuses {
        for seen in processes.iter().filter(|seen| !first.iter().any(|known| known.pid == seen.pid)) {
            started.entry(seen.pid).or_insert((at, &seen.name));
        }
    }
    let Some((pid, (at, name))) = started.iter().min_by_key(|(_, (at, _))| *at) else { return Vec::new() };
    let what = format!(
        "nobody calls, and {} processes were started, first {pid} ({name}), seen at {}",
        started.len(),
        records.format_time(*at)
    );
    vec![Violation::new(Promise::QuietWhenIdle, [], what)]
}

/// Counts the censuses that the promise is checked against.
pub(super) fn count(records: &Records<'_>) -> usize {
    censuses(records).count().saturating_sub(1)
}

fn censuses<'a>(records: &Records<'a>) -> impl Iterator<Item = (Micros, &'a [SeenProcess])> {
    records.history.iter().filter_map(|event| match event {
        HistoryEvent::Census { at, occasion: Occasion::Idle, processes } => Some((*at, &processes[..])),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::history_builder::{HistoryBuilder, MS, call};
    use super::*;

    fn busy() -> HistoryBuilder {
        HistoryBuilder::default().successful(call(1, 0)).census(MS, Occasion::Running, &[(6, false)])
    }

    #[test]
    fn processes_may_stay_and_end_while_nobody_calls() {
        busy()
            .census(10 * MS, Occasion::Idle, &[(7, false), (8, false), (9, true)])
            .census(20 * MS, Occasion::Idle, &[(7, false)])
            .census(90 * MS, Occasion::Over, &[])
            .assert_kept(Promise::QuietWhenIdle);
    }

    #[test]
    fn a_process_that_starts_while_nobody_calls_is_named_and_counted_once() {
        let builder = busy()
            .census(10 * MS, Occasion::Idle, &[(7, false)])
            .census(20 * MS, Occasion::Idle, &[(7, false), (9, false)])
            .census(30 * MS, Occasion::Idle, &[(8, true), (9, false)]);
        builder.assert_broken(
            Promise::QuietWhenIdle,
            &[],
            &["2 processes", "first 9 (fake-mcp)", "+0.020000 s"],
        );
    }
}
