//! The lines of both records that show what is wrong.

use std::collections::HashSet;

use ostler_chaos::check::Violation;
use ostler_chaos::history::{CallNumber, HistoryEvent};
use ostler_chaos::ledger::Execution;
use serde::Serialize;

/// So many lines of each record are enough to see it.
const LINES: usize = 12;

pub(super) fn excerpt(violation: &Violation, history: &[HistoryEvent], executions: &[Execution]) -> String {
    let calls: HashSet<CallNumber> = violation.calls.iter().copied().collect();
    let told = history.iter().filter(|event| call_of(event).is_some_and(|call| calls.contains(&call)));
    let done = executions.iter().filter(|execution| execution.call.is_some_and(|call| calls.contains(&call)));
    let told = told.take(LINES).map(|event| format!("  history: {}\n", line(event)));
    let done = done.take(LINES).map(|execution| format!("  ledger:  {}\n", line(execution)));
    told.chain(done).collect()
}

fn call_of(event: &HistoryEvent) -> Option<CallNumber> {
    match event {
        HistoryEvent::Invoke(invoke) => Some(invoke.call),
        HistoryEvent::End { call, .. } => Some(*call),
        _ => None,
    }
}

fn line(record: &impl Serialize) -> String {
    serde_json::to_string(record).unwrap_or_default()
}
