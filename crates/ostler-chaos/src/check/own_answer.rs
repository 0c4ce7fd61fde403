//! `OwnAnswer`: an answer is the answer of that call.

use super::records::{CallRecord, Records};
use super::{Promise, Violation};
use crate::history::{CallEnd, CallNumber, Purpose};
use crate::ledger::Execution;

pub(super) fn check(records: &Records<'_>) -> Vec<Violation> {
    let answers = records.calls().iter().filter_map(|call| {
        let Some((_, CallEnd::Ok { echoed, stamp })) = call.end else { return None };
        let (others, why) = wrong_answer(records, call, *echoed, stamp.as_deref())?;
        let what = format!("{} got {}: {why}", records.describe_call(call), records.describe_end(call));
        let calls = std::iter::once(call.invoke.call).chain(others);
        Some(Violation::new(Promise::OwnAnswer, calls, what))
    });
    answers.chain(misrouted(records)).collect()
}

/// Returns the defect of an answer, and the call that it belongs to instead.
fn wrong_answer(
    records: &Records<'_>,
    call: &CallRecord<'_>,
    echoed: Option<CallNumber>,
    stamp: Option<&str>,
) -> Option<(Option<CallNumber>, String)> {
    let invoke = call.invoke;
    let is_numbered = match invoke.purpose {
        Purpose::Once | Purpose::Sick => true,
        // Cacheable answers hold no number: their stamps tell them apart.
        Purpose::Private => false,
        // An answer to a forbidden call is checked by another promise.
        Purpose::Forbidden => return None,
    };
    if is_numbered && echoed != Some(invoke.call) {
        return Some(match echoed {
            Some(other) => {
                let owner = records.call(other).map_or_else(
                    || format!("{other}, which nobody made"),
                    |other| records.describe_call(other),
                );
                (Some(other), format!("it is the answer of {owner}"))
            }
            None => (None, "it holds no number".into()),
        });
    }
    let Some(stamp) = stamp else { return Some((None, "it names no execution".into())) };
    let Some(execution) = records.execution_by_stamp(stamp) else {
        return Some((None, "no server has executed that".into()));
    };
    let is_its_own = match execution.call {
        Some(number) => number == invoke.call,
        None => !is_numbered,
    };
    if is_its_own && is_target_of(execution, call) {
        return None;
    }
    let other = execution.call.filter(|number| *number != invoke.call);
    Some((other, format!("it was made by {}", records.describe_execution(execution))))
}

fn is_target_of(execution: &Execution, call: &CallRecord<'_>) -> bool {
    execution.server == call.invoke.server && execution.tool == call.invoke.tool
}

/// Finds calls that reached another server or tool than they were made for.
fn misrouted(records: &Records<'_>) -> impl Iterator<Item = Violation> {
    records.executions.iter().filter_map(|execution| {
        let call = records.call(execution.call?)?;
        // A call with an answer is reported above.
        let is_answered = matches!(call.end, Some((_, CallEnd::Ok { .. })));
        if is_answered || is_target_of(execution, call) {
            return None;
        }
        let what =
            format!("{} reached {}", records.describe_call(call), records.describe_execution(execution));
        Some(Violation::new(Promise::OwnAnswer, [call.invoke.call], what))
    })
}

#[cfg(test)]
mod tests {
    use super::super::history_builder::{HistoryBuilder, MS, call, execution, ok, unknown};
    use super::*;
    use crate::history::Invoke;

    fn private(number: u64, at: u64) -> Invoke {
        Invoke { purpose: Purpose::Private, tool: "secret".into(), ..call(number, at) }
    }

    fn secret(number: u64, began: u64) -> Execution {
        Execution { call: None, tool: "secret".into(), ..execution(number, began, began + MS) }
    }

    #[test]
    fn each_call_with_its_own_answer_is_fine() {
        let remembered = CallEnd::Ok { echoed: None, stamp: Some("s3".into()) };
        let builder = HistoryBuilder::default()
            .successful(call(1, 0))
            .successful(call(2, 0))
            .invoke(private(3, 0))
            .executed(secret(3, MS))
            .end(3, 5 * MS, remembered.clone())
            .invoke(private(4, 6 * MS))
            .end(4, 7 * MS, remembered);
        builder.assert_kept(Promise::OwnAnswer);
    }

    #[test]
    fn swapped_answers_name_both_calls() {
        let builder = HistoryBuilder::default()
            .invoke(call(1, 0))
            .invoke(call(2, 0))
            .executed(execution(1, MS, 2 * MS))
            .executed(execution(2, MS, 2 * MS))
            .end(1, 3 * MS, ok(2))
            .end(2, 3 * MS, ok(2));
        builder.assert_broken(
            Promise::OwnAnswer,
            &[1, 2],
            &["#1", "#2", "is the answer of", "http-modern", "stamp s2"],
        );
    }

    #[test]
    fn an_answer_without_number_stamp_or_execution_is_nobodys() {
        let with = |echoed, stamp: Option<&str>| {
            let end = CallEnd::Ok { echoed, stamp: stamp.map(str::to_owned) };
            HistoryBuilder::default().invoke(call(1, 0)).executed(execution(1, MS, 2 * MS)).end(
                1,
                3 * MS,
                end,
            )
        };
        with(None, Some("s1")).assert_broken(Promise::OwnAnswer, &[1], &["no number"]);
        with(Some(CallNumber(1)), None).assert_broken(Promise::OwnAnswer, &[1], &["no execution"]);
        with(Some(CallNumber(1)), Some("s9")).assert_broken(
            Promise::OwnAnswer,
            &[1],
            &["no server has executed"],
        );
        with(Some(CallNumber(9)), Some("s1")).assert_broken(Promise::OwnAnswer, &[1, 9], &["nobody made"]);
    }

    #[test]
    fn the_right_number_from_another_execution_is_not_its_own_answer() {
        let end = CallEnd::Ok { echoed: Some(CallNumber(1)), stamp: Some("s2".into()) };
        let builder = HistoryBuilder::default().successful(call(2, 0)).invoke(call(1, 0)).end(1, 9 * MS, end);
        builder.assert_broken(Promise::OwnAnswer, &[1, 2], &["made by", "stamp s2"]);
    }

    #[test]
    fn a_call_that_reached_another_server_is_found_whatever_its_end() {
        let elsewhere = || Execution { server: "b".into(), ..execution(1, MS, 2 * MS) };
        for end in [ok(1), unknown()] {
            let builder =
                HistoryBuilder::default().invoke(call(1, 0)).executed(elsewhere()).end(1, 3 * MS, end);
            builder.assert_broken(Promise::OwnAnswer, &[1], &["a/deed", "b/deed"]);
        }
    }
}
