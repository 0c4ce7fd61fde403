//! A result means that it ran, a refusal that it did not.

use super::records::{Call, Records};
use super::{CLOCK, Promise, Violation};
use crate::history::{End, Nonce, Purpose, Ran};
use crate::ledger::Execution;

pub(super) fn check(records: &Records<'_>) -> Vec<Violation> {
    let lies = records.calls().iter().filter_map(|call| {
        let why = lie_of(records, call)?;
        let what = format!("{} got {}: {why}", records.tell(call), records.tell_end(call));
        Some(violation(call.invoke.call, what))
    });
    lies.chain(strays(records)).collect()
}

fn violation(call: Nonce, what: String) -> Violation {
    Violation::new(Promise::TruthfulEnd, [call], what)
}

/// What a call's end says that its executions do not.
fn lie_of(records: &Records<'_>, call: &Call<'_>) -> Option<String> {
    let runs = records.executions_of(call.invoke.call);
    let told = || runs.iter().map(|run| records.tell_execution(run)).collect::<Vec<_>>().join("; ");
    match call.end? {
        (at, End::Ok { stamp, .. }) => {
            let stamp = stamp.as_deref()?;
            lie_of_result(records, call, records.stamped(stamp)?, at)
        }
        (_, End::Fail { ran: Ran::No, .. }) if !runs.is_empty() => Some(format!("but it ran, {}", told())),
        (_, End::Fail { ran: Ran::Yes, .. })
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
fn lie_of_result(records: &Records<'_>, call: &Call<'_>, run: &Execution, end: u64) -> Option<String> {
    let told = || records.tell_execution(run);
    let Some(ended) = run.ended else { return Some(format!("but it has not ended, {}", told())) };
    if run.has_failed {
        return Some(format!("but it has failed, {}", told()));
    }
    let is_fresh = run.call.is_some();
    if ended > end + CLOCK || (is_fresh && run.began + CLOCK < call.invoke.at) {
        return Some(format!("but that was at another time, {}", told()));
    }
    None
}

/// Executions of calls that nobody made. One that begins long after its caller
/// was told that nobody knows is none of them: what is in the pipe of a server
/// that stands still can't be taken back.
fn strays(records: &Records<'_>) -> impl Iterator<Item = Violation> {
    records.executions.iter().filter_map(|run| {
        let number = run.call?;
        if records.call(number).is_some() {
            return None;
        }
        let what = format!("nobody made the call {number}, and it ran: {}", records.tell_execution(run));
        Some(violation(number, what))
    })
}

#[cfg(test)]
mod tests {
    use super::super::story::{MS, Story, call, execution, failed, ok, refused, unknown};
    use super::*;

    #[test]
    fn ends_that_say_what_happened_are_fine() {
        let sick = || Execution { has_failed: true, ..execution(3, MS, 2 * MS) };
        let cut_short = || Execution { ended: None, ..execution(4, MS, 0) };
        let story = Story::default()
            .good(call(1, 0))
            .invoke(call(2, 0))
            .end(2, MS, refused())
            .invoke(call(3, 0))
            .ran(sick())
            .end(3, 3 * MS, failed())
            .invoke(call(4, 0))
            .ran(cut_short())
            .end(4, 3 * MS, unknown())
            .invoke(call(5, 0))
            .end(5, 3 * MS, unknown());
        story.keeps(Promise::TruthfulEnd);
    }

    #[test]
    fn a_frozen_server_may_run_a_call_after_its_caller_heard_that_nobody_knows() {
        let story = Story::default().invoke(call(1, 0)).ran(execution(1, 6_000 * MS, 6_001 * MS)).end(
            1,
            5_000 * MS,
            unknown(),
        );
        story.keeps(Promise::TruthfulEnd);
    }

    #[test]
    fn a_refusal_of_what_ran_is_a_lie() {
        let story =
            Story::default().invoke(call(1, 0)).ran(execution(1, MS, 2 * MS)).end(1, 3 * MS, refused());
        story.breaks(Promise::TruthfulEnd, &[1], &["#1", "overloaded (-31005)", "but it ran", "+0.001000 s"]);
    }

    #[test]
    fn a_failure_of_the_server_needs_a_server_that_failed() {
        let story = Story::default().invoke(call(1, 0)).end(1, 3 * MS, failed());
        story.breaks(Promise::TruthfulEnd, &[1], &["no server has executed it"]);
    }

    #[test]
    fn a_result_of_what_did_not_end_well_is_a_lie() {
        let with = |run| Story::default().invoke(call(1, 0)).ran(run).end(1, 3 * MS, ok(1));
        let run = || execution(1, MS, 2 * MS);
        with(Execution { ended: None, ..run() }).breaks(Promise::TruthfulEnd, &[1], &["has not ended"]);
        with(Execution { has_failed: true, ..run() }).breaks(Promise::TruthfulEnd, &[1], &["has failed"]);
    }

    #[test]
    fn a_result_from_another_time_is_a_lie() {
        let early = Story::default().invoke(call(1, 900 * MS)).ran(execution(1, 100 * MS, 200 * MS)).end(
            1,
            950 * MS,
            ok(1),
        );
        early.breaks(Promise::TruthfulEnd, &[1], &["another time", "-0.800000 s"]);
        let late = Story::default().invoke(call(1, 0)).ran(execution(1, MS, 900 * MS)).end(1, 10 * MS, ok(1));
        late.breaks(Promise::TruthfulEnd, &[1], &["another time"]);
    }

    #[test]
    fn what_nobody_asked_for_must_not_run() {
        Story::default().good(call(1, 0)).ran(execution(9, MS, 2 * MS)).breaks(
            Promise::TruthfulEnd,
            &[9],
            &["nobody made", "#9"],
        );
    }
}
