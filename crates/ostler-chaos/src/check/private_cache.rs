//! `PrivateCache`: a private answer reaches one caller only, and expires in time.

use std::collections::BTreeMap;

use super::records::{CallRecord, Records};
use super::{CLOCK_TOLERANCE, Promise, Violation};
use crate::history::{CallEnd, Micros};
use crate::ledger::Execution;

pub(super) fn check(records: &Records<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (stamp, seen) in seen_by_stamp(records) {
        let Some(execution) = records.execution_by_stamp(stamp) else { continue };
        found.extend(shared_between_callers(records, execution, &seen));
        found.extend(stale(records, execution, &seen));
    }
    found
}

/// Counts the answers that the promise is checked against.
pub(super) fn count(records: &Records<'_>) -> usize {
    seen_by_stamp(records).values().map(Vec::len).sum()
}

type Sightings<'r, 'a> = Vec<(Micros, &'r CallRecord<'a>)>;

/// Returns the calls that got each cacheable answer, by stamp, with their times.
fn seen_by_stamp<'r, 'a>(records: &'r Records<'a>) -> BTreeMap<&'r str, Sightings<'r, 'a>> {
    let mut seen: BTreeMap<&str, Sightings<'r, 'a>> = BTreeMap::new();
    for call in records.calls() {
        let Some((at, CallEnd::Ok { stamp: Some(stamp), .. })) = call.end else { continue };
        if records.execution_by_stamp(stamp).is_some_and(|execution| execution.ttl_ms.is_some()) {
            seen.entry(stamp).or_default().push((at, call));
        }
    }
    seen
}

fn shared_between_callers(
    records: &Records<'_>,
    execution: &Execution,
    seen: &Sightings<'_, '_>,
) -> Option<Violation> {
    let (_, first) = seen.first()?;
    let (_, other) = seen.iter().find(|(_, call)| call.invoke.principal != first.invoke.principal)?;
    let what = format!(
        "one private answer reached {} and {}: it was made by {}",
        records.describe_call(first),
        records.describe_call(other),
        records.describe_execution(execution)
    );
    Some(Violation::new(Promise::PrivateCache, [first.invoke.call, other.invoke.call], what))
}

/// Finds a stale answer. The daemon had it before its first reader, so a call that starts more than
/// its TTL later must get another one.
fn stale(records: &Records<'_>, execution: &Execution, seen: &Sightings<'_, '_>) -> Option<Violation> {
    let (first_at, first) = seen.iter().min_by_key(|(at, _)| *at)?;
    let ttl = u64::try_from(execution.ttl_ms?).unwrap_or_default();
    let end = first_at + ttl * 1_000 + CLOCK_TOLERANCE;
    let (_, late) = seen.iter().find(|(_, call)| call.invoke.at > end)?;
    let what = format!(
        "an answer that is good for {ttl} ms was seen {} by {}, and given again to {}: it was made by {}",
        records.format_time(*first_at),
        records.describe_call(first),
        records.describe_call(late),
        records.describe_execution(execution)
    );
    Some(Violation::new(Promise::PrivateCache, [first.invoke.call, late.invoke.call], what))
}

#[cfg(test)]
mod tests {
    use super::super::history_builder::{HistoryBuilder, MS, call, execution};
    use super::*;
    use crate::history::{CallRoute, Invoke, Purpose};

    /// One execution whose answer is good for half a second, and the callers that got it, each at a
    /// time.
    fn remembered(readers: &[(&str, u64)]) -> HistoryBuilder {
        let (call_number, tool, stamp) = (None, "secret".into(), "s".into());
        let run = execution(0, MS, 2 * MS);
        let mut builder = HistoryBuilder::default().executed(Execution {
            call: call_number,
            tool,
            stamp,
            ttl_ms: Some(500),
            ..run
        });
        for (number, (principal, at)) in (1..).zip(readers) {
            let (tool, purpose, way) = ("secret".into(), Purpose::Private, CallRoute::Stdio);
            let principal = (*principal).to_owned();
            let end = CallEnd::Ok { echoed: None, stamp: Some("s".into()) };
            builder = builder.invoke(Invoke { principal, tool, purpose, way, ..call(number, *at) }).end(
                number,
                at + 3 * MS,
                end,
            );
        }
        builder
    }

    #[test]
    fn a_caller_may_be_given_its_own_answer_again_for_as_long_as_it_is_good() {
        remembered(&[("ada", 0), ("ada", 100 * MS), ("ada", 500 * MS)]).assert_kept(Promise::PrivateCache);
    }

    #[test]
    fn an_answer_that_two_were_given_names_both() {
        remembered(&[("ada", 0), ("ada", 9 * MS), ("bob", 10 * MS)]).assert_broken(
            Promise::PrivateCache,
            &[1, 3],
            &["#1", "ada", "#3", "bob", "stdio", "+0.010000 s", "stamp s"],
        );
    }

    #[test]
    fn an_answer_that_is_too_old_is_found() {
        remembered(&[("ada", 0), ("ada", 100 * MS), ("ada", 600 * MS)]).assert_broken(
            Promise::PrivateCache,
            &[1, 3],
            &["good for 500 ms", "+0.003000 s", "+0.600000 s"],
        );
    }

    #[test]
    fn a_daemon_that_was_slow_to_read_it_may_remember_it_from_then() {
        let mut builder = remembered(&[("ada", 0), ("ada", 3_400 * MS)]);
        if let Some(crate::history::HistoryEvent::End { at, .. }) = builder.history.get_mut(1) {
            *at = 3_000 * MS;
        }
        builder.assert_kept(Promise::PrivateCache);
    }
}
