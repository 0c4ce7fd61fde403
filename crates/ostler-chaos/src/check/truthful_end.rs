//! `TruthfulEnd`: a result means that the tool ran, a refusal that it did not.

use super::records::{CallRecord, Records};
use super::{CLOCK_TOLERANCE, Promise, Violation};
use crate::history::{CallEnd, CallNumber, Purpose, Ran};
use crate::ledger::Execution;

pub(super) fn check(records: &Records<'_>) -> Vec<Violation> {
    let lies = records.calls().iter().filter_map(|call| {
        let why = contradiction(records, call)?;
        let what = format!("{} got {}: {why}", records.describe_call(call), records.describe_end(call));
        Some(violation(call.invoke.call, what))
    });
    lies.chain(unknown_executions(records)).collect()
}

fn violation(call: CallNumber, what: String) -> Violation {
    Violation::new(Promise::TruthfulEnd, [call], what)
}

/// Returns the contradiction between a call's end and its executions.
fn contradiction(records: &Records<'_>, call: &CallRecord<'_>) -> Option<String> {
    let runs = records.executions_of(call.invoke.call);
    let runs_text = || runs.iter().map(|run| records.describe_execution(run)).collect::<Vec<_>>().join("; ");
    match call.end? {
        (at, CallEnd::Ok { stamp, .. }) => {
            let stamp = stamp.as_deref()?;
            result_contradiction(records, call, records.execution_by_stamp(stamp)?, at)
        }
        (_, CallEnd::Fail { ran: Ran::No, .. }) if !runs.is_empty() => {
            Some(format!("but it ran, {}", runs_text()))
        }
        (_, CallEnd::Fail { ran: Ran::Yes, .. })
            if runs.is_empty() && matches!(call.invoke.purpose, Purpose::Once | Purpose::Sick) =>
        {
            Some("but no server has executed it".into())
        }
        // Unknown is always true, and other ends have been checked.
        _ => None,
    }
}

/// Returns what contradicts a result: it must come from an execution that ended well after the call
/// began, unless it was cached before.
fn result_contradiction(
    records: &Records<'_>,
    call: &CallRecord<'_>,
    run: &Execution,
    end: u64,
) -> Option<String> {
    let run_text = || records.describe_execution(run);
    let Some(ended) = run.ended else { return Some(format!("but it has not ended, {}", run_text())) };
    if run.has_failed {
        return Some(format!("but it has failed, {}", run_text()));
    }
    let is_fresh = run.call.is_some();
    if ended > end + CLOCK_TOLERANCE || (is_fresh && run.began + CLOCK_TOLERANCE < call.invoke.at) {
        return Some(format!("but that was at another time, {}", run_text()));
    }
    None
}

/// Finds executions of calls that were never made. An execution that begins long after its caller
/// got an unknown outcome is not one of them: bytes in the pipe of a frozen server can't be taken
/// back.
fn unknown_executions(records: &Records<'_>) -> impl Iterator<Item = Violation> {
    records.executions.iter().filter_map(|run| {
        let number = run.call?;
        if records.call(number).is_some() {
            return None;
        }
        let what = format!("nobody made the call {number}, and it ran: {}", records.describe_execution(run));
        Some(violation(number, what))
    })
}

#[cfg(test)]
mod tests {
    use super::super::history_builder::{HistoryBuilder, MS, call, execution, failed, ok, refused, unknown};
    use super::*;

    #[test]
    fn ends_that_say_what_happened_are_fine() {
        let sick = || Execution { has_failed: true, ..execution(3, MS, 2 * MS) };
        let cut_short = || Execution { ended: None, ..execution(4, MS, 0) };
        let builder = HistoryBuilder::default()
            .successful(call(1, 0))
            .invoke(call(2, 0))
            .end(2, MS, refused())
            .invoke(call(3, 0))
            .executed(sick())
            .end(3, 3 * MS, failed())
            .invoke(call(4, 0))
            .executed(cut_short())
            .end(4, 3 * MS, unknown())
            .invoke(call(5, 0))
            .end(5, 3 * MS, unknown());
        builder.assert_kept(Promise::TruthfulEnd);
    }

    #[test]
    fn a_frozen_server_may_run_a_call_after_its_caller_heard_that_nobody_knows() {
        let builder = HistoryBuilder::default()
            .invoke(call(1, 0))
            .executed(execution(1, 6_000 * MS, 6_001 * MS))
            .end(1, 5_000 * MS, unknown());
        builder.assert_kept(Promise::TruthfulEnd);
    }

    #[test]
    fn a_refusal_of_what_ran_is_a_lie() {
        let builder = HistoryBuilder::default().invoke(call(1, 0)).executed(execution(1, MS, 2 * MS)).end(
            1,
            3 * MS,
            refused(),
        );
        builder.assert_broken(
            Promise::TruthfulEnd,
            &[1],
            &["#1", "overloaded (-31005)", "but it ran", "+0.001000 s"],
        );
    }

    #[test]
    fn a_failure_of_the_server_needs_a_server_that_failed() {
        let builder = HistoryBuilder::default().invoke(call(1, 0)).end(1, 3 * MS, failed());
        builder.assert_broken(Promise::TruthfulEnd, &[1], &["no server has executed it"]);
    }

    #[test]
    fn a_result_of_what_did_not_end_well_is_a_lie() {
        let with = |run| HistoryBuilder::default().invoke(call(1, 0)).executed(run).end(1, 3 * MS, ok(1));
        let run = || execution(1, MS, 2 * MS);
        with(Execution { ended: None, ..run() }).assert_broken(
            Promise::TruthfulEnd,
            &[1],
            &["has not ended"],
        );
        with(Execution { has_failed: true, ..run() }).assert_broken(
            Promise::TruthfulEnd,
            &[1],
            &["has failed"],
        );
    }

    #[test]
    fn a_result_from_another_time_is_a_lie() {
        let early = HistoryBuilder::default()
            .invoke(call(1, 900 * MS))
            .executed(execution(1, 100 * MS, 200 * MS))
            .end(1, 950 * MS, ok(1));
        early.assert_broken(Promise::TruthfulEnd, &[1], &["another time", "-0.800000 s"]);
        let late = HistoryBuilder::default().invoke(call(1, 0)).executed(execution(1, MS, 900 * MS)).end(
            1,
            10 * MS,
            ok(1),
        );
        late.assert_broken(Promise::TruthfulEnd, &[1], &["another time"]);
    }

    #[test]
    fn what_nobody_asked_for_must_not_run() {
        HistoryBuilder::default().successful(call(1, 0)).executed(execution(9, MS, 2 * MS)).assert_broken(
            Promise::TruthfulEnd,
            &[9],
            &["nobody made", "#9"],
        );
    }
}
