//! What happened at one server, in the order of time, as far as it says something about its breaker.

use super::super::records::Records;
use crate::history::{CallEnd, CallNumber, CallRoute, HistoryEvent, Micros};
use crate::ledger::Execution;

/// How long after its caller's end a success may still reach the breaker, where the caller has not waited for it.
const LATE: Micros = 1_000_000;

/// A call that was executed later than this after it was made may have been out of time before its server had its
/// share of it, which says nothing to the breaker. Less than half of the time that calls of such servers have.
const PROMPT: Micros = 300_000;

/// Acts at a server that leave its breaker as it is; all others may clear it.
const HARMLESS: [&str; 4] = ["kill-server", "freeze-server", "kill-guard", "sicken"];

/// What the nemesis calls the daemon.
const DAEMON: &str = "daemon";

/// One execution, with its call.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExecutionRun<'a> {
    pub(super) execution: &'a Execution,
    pub(super) call: CallNumber,
    /// When the call was made.
    pub(super) called_at: Micros,
    /// When its caller was answered.
    pub(super) answered: Micros,
    /// When the execution ended; its caller's end where it did not.
    pub(super) ended: Micros,
    /// Whether its caller was given what the execution came to: it held its
    /// permit to the end.
    pub(super) is_certain: bool,
}

/// What may change the breaker, or is changed by it.
#[derive(Debug, Clone, Copy)]
pub(super) enum TimelineEvent<'a> {
    /// Its supervision begins anew at some time between begin and end.
    Reset {
        begins: bool,
    },
    /// Something succeeded, which reaches the breaker by that time.
    Succeeded {
        until: Micros,
    },
    /// A caller was told that it failed.
    Failed(ExecutionRun<'a>),
    Started(ExecutionRun<'a>),
}

/// All steps of a server for one caller, sorted by time.
pub(super) fn breaker_events<'a>(
    records: &Records<'a>,
    server: &str,
    caller: &str,
) -> Vec<(Micros, TimelineEvent<'a>)> {
    let mut steps: Vec<(Micros, TimelineEvent<'a>)> = Vec::new();
    for execution in records.executions.iter().filter(|execution| execution.server == server) {
        let Some(run) = run_of(records, execution, caller) else { continue };
        steps.push((execution.began, TimelineEvent::Started(run)));
        match execution.ended {
            Some(ended) if !execution.has_failed => {
                let until = run.answered.max(ended) + if run.is_certain { 0 } else { LATE };
                steps.push((ended, TimelineEvent::Succeeded { until }));
            }
            Some(_) if run.is_certain => steps.push((run.answered, TimelineEvent::Failed(run))),
            _ => {}
        }
    }
    steps.extend(resets(records, server));
    steps.sort_by_key(|(at, _)| *at);
    steps
}

fn run_of<'a>(records: &Records<'a>, execution: &'a Execution, caller: &str) -> Option<ExecutionRun<'a>> {
    let call = records.call(execution.call?).filter(|call| call.invoke.principal == caller)?;
    let (answered, end) = call.end?;
    let is_certain = match end {
        CallEnd::Ok { stamp, .. } => stamp.as_deref() == Some(&execution.stamp),
        CallEnd::Fail { .. } => false,
        // Out of time at the daemon itself, which was waiting for this execution.
        CallEnd::Unknown { why } => {
            let is_prompt = execution.began < call.invoke.at + PROMPT;
            why == "timed-out" && execution.has_failed && is_prompt && call.invoke.way != CallRoute::Relay
        }
    };
    Some(ExecutionRun {
        execution,
        call: call.invoke.call,
        called_at: call.invoke.at,
        answered,
        ended: execution.ended.unwrap_or(answered),
        is_certain,
    })
}

/// Begin and end of whatever may clear the breaker.
fn resets<'a>(records: &Records<'a>, server: &str) -> impl Iterator<Item = (Micros, TimelineEvent<'a>)> {
    records.history.iter().filter_map(move |event| {
        let HistoryEvent::Nemesis { at, act, target, begins } = event else { return None };
        let may_clear = target == DAEMON || (target == server && !HARMLESS.contains(&act.as_str()));
        may_clear.then_some((*at, TimelineEvent::Reset { begins: *begins }))
    })
}
