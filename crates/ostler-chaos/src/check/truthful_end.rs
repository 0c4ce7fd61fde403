//! A result means that it ran, a refusal that it did not.

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

/// What a call's end says that its executions do not.
fn contradiction(records: &Records<'_>, call: &CallRecord<'_>) -> Option<String> {
    let runs = records.executions_of(call.invoke.call);
    let told = || runs.iter().map(|run| records.describe_execution(run)).collect::<Vec<_>>().join("; ");
    match call.end? {
        (at, CallEnd::Ok { stamp, .. }) => {
            let stamp = stamp.as_deref()?;
            result_contradiction(records, call, records.execution_by_stamp(stamp)?, at)
        }
        (_, CallEnd::Fail { ran: Ran::No, .. }) if !runs.is_empty() => {
            Some(format!("but it ran, {}", told()))
        }
        (_, CallEnd::Fail { ran: Ran::Yes, .. })
            if runs.is_empty() && matches!(call.invoke.purpose, Purpose::Once | Purpose::Sick) =>
        {
            Some("but no server has executed it".into())
        }
        // Unknown is always true, and other ends have been looked at.
        _ => None,
    }
}

/// A result comes from an execution that has ended well, after the call had
/// begun, unless it was remembered from before.
fn result_contradiction(
    records: &Records<'_>,
    call: &CallRecord<'_>,
    run: &Execution,
    end: u64,
) -> Option<String> {
    let told = || records.describe_execution(run);
    let Some(ended) = run.ended else { return Some(format!("but it has not ended, {}", told())) };
    if run.has_failed {
        return Some(format!("but it has failed, {}", told()));
    }
    let is_fresh = run.call.is_some();
    if ended > end + CLOCK_TOLERANCE || (is_fresh && run.began + CLOCK_TOLERANCE < call.invoke.at) {
        return Some(format!("but that was at another time, {}", told()));
    }
    None
}

/// Executions of calls that nobody made. One that begins long after its caller
/// was told that nobody knows is none of them: what is in the pipe of a server
/// that stands still can't be taken back.
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
        let story = HistoryBuilder::default()
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
        story.assert_kept(Promise::TruthfulEnd);
    }

    #[test]
    fn a_frozen_server_may_run_a_call_after_its_caller_heard_that_nobody_knows() {
        let story = HistoryBuilder::default()
            .invoke(call(1, 0))
            .executed(execution(1, 6_000 * MS, 6_001 * MS))
            .end(1, 5_000 * MS, unknown());
        story.assert_kept(Promise::TruthfulEnd);
    }

    #[test]
    fn a_refusal_of_what_ran_is_a_lie() {
        let story = HistoryBuilder::default().invoke(call(1, 0)).executed(execution(1, MS, 2 * MS)).end(
            1,
            3 * MS,
            refused(),
        );
        story.assert_broken(
            Promise::TruthfulEnd,
            &[1],
            &["#1", "overloaded (-31005)", "but it ran", "+0.001000 s"],
        );
    }

    #[test]
    fn a_failure_of_the_server_needs_a_server_that_failed() {
        let story = HistoryBuilder::default().invoke(call(1, 0)).end(1, 3 * MS, failed());
        story.assert_broken(Promise::TruthfulEnd, &[1], &["no server has executed it"]);
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
