//! `AtMostOnce`: a tool runs at most once for a call.

use super::records::Records;
use super::{Promise, Violation};

pub(super) fn check(records: &Records<'_>) -> Vec<Violation> {
    let repeated = records.calls().iter().filter_map(|call| {
        let executions = records.executions_of(call.invoke.call);
        if executions.len() < 2 {
            return None;
        }
        let runs: Vec<String> = executions.iter().map(|it| records.describe_execution(it)).collect();
        let what = format!(
            "{} ran {} times: {}; its caller got {}",
            records.describe_call(call),
            executions.len(),
            runs.join("; "),
            records.describe_end(call)
        );
        Some(Violation::new(Promise::AtMostOnce, [call.invoke.call], what))
    });
    repeated.collect()
}

#[cfg(test)]
mod tests {
    use super::super::history_builder::{HistoryBuilder, MS, call, execution, ok, refused, unknown};
    use super::*;
    use crate::ledger::Execution;

    #[test]
    fn none_or_one_execution_is_fine_however_the_call_ended() {
        let builder = HistoryBuilder::default()
            .successful(call(1, 0))
            .invoke(call(2, 0))
            .end(2, MS, refused())
            .invoke(call(3, 0))
            .end(3, MS, unknown())
            .invoke(call(4, 0))
            .executed(Execution { ended: None, ..execution(4, MS, 0) })
            .end(4, 9 * MS, unknown());
        builder.assert_kept(Promise::AtMostOnce);
    }

    #[test]
    fn a_call_that_was_sent_again_after_a_crash_is_named_with_both_executions() {
        let builder = HistoryBuilder::default()
            .invoke(call(1, 0))
            .executed(Execution { ended: None, stamp: "first".into(), ..execution(1, MS, 0) })
            .executed(Execution { pid: 8, ..execution(1, 40 * MS, 50 * MS) })
            .end(1, 60 * MS, ok(1));
        builder.assert_broken(
            Promise::AtMostOnce,
            &[1],
            &["#1", "http-modern", "ran 2 times", "process 7", "did not end", "process 8", "+0.040000 s"],
        );
    }

    #[test]
    fn it_counts_even_if_the_caller_never_learned_of_it() {
        let builder = HistoryBuilder::default()
            .invoke(call(1, 0))
            .executed(Execution { stamp: "first".into(), ..execution(1, MS, 2 * MS) })
            .executed(execution(1, 40 * MS, 50 * MS))
            .end(1, 60 * MS, unknown());
        builder.assert_broken(Promise::AtMostOnce, &[1], &["outcome-unknown"]);
    }
}
