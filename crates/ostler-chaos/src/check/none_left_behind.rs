//! `NoneLeftBehind`: no process is left behind, dead or alive.

use std::collections::HashMap;

use super::records::Records;
use super::{Promise, Violation};
use crate::history::{HistoryEvent, Micros, Occasion, SeenProcess};

/// A child is reaped within moments. A busy machine may take longer, but not this long.
const UNREAPED: Micros = 3_000_000;

pub(super) fn check(records: &Records<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    // The time since which a process has been a zombie in every census.
    let mut dead: HashMap<u32, (Micros, bool)> = HashMap::new();
    for event in records.history {
        let HistoryEvent::Census { at, occasion, processes } = event else { continue };
        match occasion {
            Occasion::Over if !processes.is_empty() => {
                let what = format!(
                    "{}: the daemon is gone, and there are {}",
                    records.format_time(*at),
                    describe(processes)
                );
                found.push(Violation::new(Promise::NoneLeftBehind, [], what));
            }
            Occasion::Over | Occasion::Idle => {}
            Occasion::Running => found.extend(unreaped(records, *at, processes, &mut dead)),
        }
    }
    found
}

/// Reports each process once that has been a zombie for too long.
fn unreaped(
    records: &Records<'_>,
    at: Micros,
    processes: &[SeenProcess],
    dead: &mut HashMap<u32, (Micros, bool)>,
) -> Option<Violation> {
    let zombies = || processes.iter().filter(|seen| seen.is_zombie);
    let before = std::mem::take(dead);
    dead.extend(zombies().map(|seen| (seen.pid, before.get(&seen.pid).copied().unwrap_or((at, false)))));
    let mut late: Vec<SeenProcess> = Vec::new();
    let mut since = at;
    for seen in zombies() {
        let Some((first, is_told)) = dead.get_mut(&seen.pid) else { continue };
        if !*is_told && at.saturating_sub(*first) >= UNREAPED {
            *is_told = true;
            since = since.min(*first);
            late.push(seen.clone());
        }
    }
    if late.is_empty() {
        return None;
    }
    let (at, since) = (records.format_time(at), records.format_time(since));
    let what = format!("{at}: dead since {since} and not waited for are {}", describe(&late));
    Some(Violation::new(Promise::NoneLeftBehind, [], what))
}

fn describe(processes: &[SeenProcess]) -> String {
    let describe = |seen: &SeenProcess| {
        let state = if seen.is_zombie { ", dead" } else { "" };
        format!("{} ({}{state})", seen.pid, seen.name)
    };
    processes.iter().map(describe).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::history_builder::{HistoryBuilder, MS, call};
    use super::*;

    fn builder() -> HistoryBuilder {
        HistoryBuilder::default().successful(call(1, 0))
    }

    #[test]
    fn processes_of_a_running_daemon_and_the_lately_dead_are_fine() {
        let builder = builder()
            .census(1_000 * MS, Occasion::Running, &[(7, false), (8, true)])
            .census(3_000 * MS, Occasion::Running, &[(7, false), (8, true)])
            .census(5_000 * MS, Occasion::Running, &[(9, true)])
            .census(9_000 * MS, Occasion::Running, &[(8, true)])
            .census(20_000 * MS, Occasion::Over, &[]);
        builder.assert_kept(Promise::NoneLeftBehind);
    }

    #[test]
    fn whatever_outlives_the_daemon_is_named() {
        builder().census(7_000 * MS, Occasion::Over, &[(41, false), (42, true)]).assert_broken(
            Promise::NoneLeftBehind,
            &[],
            &["+7.000000 s", "41 (fake-mcp)", "42 (fake-mcp, dead)"],
        );
    }

    #[test]
    fn a_child_that_stays_dead_is_told_once() {
        let builder = builder()
            .census(1_000 * MS, Occasion::Running, &[(8, true)])
            .census(3_000 * MS, Occasion::Running, &[(8, true)])
            .census(4_000 * MS, Occasion::Running, &[(8, true)])
            .census(5_000 * MS, Occasion::Running, &[(8, true)]);
        builder.assert_broken(
            Promise::NoneLeftBehind,
            &[],
            &["+4.000000 s", "dead since +1.000000 s", "8 (fake-mcp"],
        );
    }
}
