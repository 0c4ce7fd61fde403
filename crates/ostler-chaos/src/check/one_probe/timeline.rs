//! Timeline of one server: the events that tell the state of its breaker, sorted by time.

use super::super::records::Records;
use crate::history::{CallEnd, CallNumber, CallRoute, HistoryEvent, Micros};
use crate::ledger::Execution;

/// The time after its caller's end in which a success may still reach the breaker, where the caller
/// has not waited for it.
const LATE: Micros = 1_000_000;

/// A call that was executed later than this after it was made may have timed out before its server
/// had a fair share of the time, which the breaker does not count. Less than half of the call
/// timeout of such servers.
const PROMPT: Micros = 300_000;

/// Acts at a server that leave its breaker as it is; all others may reset it.
const HARMLESS: [&str; 4] = ["kill-server", "freeze-server", "kill-guard", "sicken"];

/// The nemesis's name of the daemon.
const DAEMON: &str = "daemon";

/// An execution with its call.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExecutionRun<'a> {
    pub(super) execution: &'a Execution,
    pub(super) call: CallNumber,
    /// The time at which the call was made.
    pub(super) called_at: Micros,
    /// The time at which its caller got the answer.
    pub(super) answered: Micros,
    /// The end of the execution; its caller's end if it did not end.
    pub(super) ended: Micros,
    /// True if its caller got the outcome of the execution: the call held its permit to the end.
    pub(super) is_certain: bool,
}

/// An event that may change the breaker, or that the breaker controls.
#[derive(Debug, Clone, Copy)]
pub(super) enum TimelineEvent<'a> {
    /// Its supervision starts anew at some time between begin and end.
    Reset {
        begins: bool,
    },
    /// A success, which reaches the breaker by that time.
    Succeeded {
        until: Micros,
    },
    /// A failure that its caller was told of.
    Failed(ExecutionRun<'a>),
    Started(ExecutionRun<'a>),
}

/// Returns all events of a server for one caller, sorted by time.
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
        // A timeout of the daemon itself, which was waiting for this execution.
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

/// Returns begin and end of every act that may reset the breaker.
fn resets<'a>(records: &Records<'a>, server: &str) -> impl Iterator<Item = (Micros, TimelineEvent<'a>)> {
    records.history.iter().filter_map(move |event| {
        let HistoryEvent::Nemesis { at, act, target, begins } = event else { return None };
        let may_clear = target == DAEMON || (target == server && !HARMLESS.contains(&act.as_str()));
        may_clear.then_some((*at, TimelineEvent::Reset { begins: *begins }))
    })
}
