//! `EveryCallEnds`: every call ends, once, by its deadline.

use std::collections::{HashMap, HashSet};

use super::records::Records;
use super::{Promise, Violation};
use crate::history::{CallNumber, HistoryEvent};

pub(super) fn check(records: &Records<'_>) -> Vec<Violation> {
    let mut found = misplaced_ends(records);
    for call in records.calls() {
        let (number, deadline) = (call.invoke.call, call.invoke.deadline);
        let what = match call.end {
            None => format!("{} never ended", records.describe_call(call)),
            Some((at, _)) if at > deadline => format!(
                "{} ended after its deadline {}: {}",
                records.describe_call(call),
                records.format_time(deadline),
                records.describe_end(call)
            ),
            Some(_) => continue,
        };
        found.push(Violation::new(Promise::EveryCallEnds, [number], what));
    }
    found
}

/// Finds ends that come twice or belong to no call, and numbers that were used twice.
fn misplaced_ends(records: &Records<'_>) -> Vec<Violation> {
    let mut begun: HashSet<CallNumber> = HashSet::new();
    let mut ended: HashMap<CallNumber, u64> = HashMap::new();
    let mut found = Vec::new();
    let mut report = |call, what| found.push(Violation::new(Promise::EveryCallEnds, [call], what));
    for event in records.history {
        match event {
            HistoryEvent::Invoke(invoke) if !begun.insert(invoke.call) => {
                report(invoke.call, format!("the number {} was given to two calls", invoke.call));
            }
            HistoryEvent::End { call, at, .. } if !begun.contains(call) => {
                report(*call, format!("{call} ended {} and had not begun", records.format_time(*at)));
            }
            HistoryEvent::End { call, at, .. } => {
                if let Some(first) = ended.insert(*call, *at) {
                    let (first, second) = (records.format_time(first), records.format_time(*at));
                    let call_told =
                        records.call(*call).map(|call| records.describe_call(call)).unwrap_or_default();
                    report(*call, format!("{call_told} ended twice: {first} and {second}"));
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::history_builder::{HistoryBuilder, MS, call, ok, refused, unknown};
    use super::*;

    #[test]
    fn calls_that_end_in_time_in_whatever_way_are_fine() {
        let builder = HistoryBuilder::default()
            .successful(call(1, 0))
            .invoke(call(2, MS))
            .invoke(call(3, MS))
            .end(3, 2 * MS, refused())
            .end(2, 20_001 * MS, unknown());
        builder.assert_kept(Promise::EveryCallEnds);
    }

    #[test]
    fn a_call_without_an_end_is_named_with_its_way_and_time() {
        let builder = HistoryBuilder::default().successful(call(1, 0)).invoke(call(2, 1_500 * MS));
        builder.assert_broken(
            Promise::EveryCallEnds,
            &[2],
            &["#2", "ada", "http-modern", "a/deed", "+1.500000 s", "never"],
        );
    }

    #[test]
    fn an_end_after_the_deadline_is_too_late() {
        let builder = HistoryBuilder::default().invoke(call(1, 0)).end(1, 20_000 * MS + 1, unknown());
        builder.assert_broken(
            Promise::EveryCallEnds,
            &[1],
            &["+20.000000 s", "+20.000001 s", "outcome-unknown"],
        );
    }

    #[test]
    fn two_answers_to_one_call_are_one_too_many() {
        let builder = HistoryBuilder::default().successful(call(1, 0)).end(1, 12 * MS, ok(1));
        builder.assert_broken(Promise::EveryCallEnds, &[1], &["+0.010000 s", "+0.012000 s"]);
    }

    #[test]
    fn an_end_of_nothing_and_a_number_used_twice_are_found() {
        HistoryBuilder::default().end(4, MS, ok(4)).assert_broken(
            Promise::EveryCallEnds,
            &[4],
            &["had not begun"],
        );
        let twice = HistoryBuilder::default().successful(call(1, 0)).invoke(call(1, 50 * MS));
        assert!(twice.violations_of(Promise::EveryCallEnds)[0].what.contains("given to two calls"));
    }
}
