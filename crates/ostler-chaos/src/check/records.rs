//! Records of a run, indexed by call, number and stamp.

use std::collections::HashMap;

use crate::history::{CallEnd, CallNumber, CallRoute, HistoryEvent, Invoke, Micros};
use crate::ledger::Execution;

/// A call, from its caller's side.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallRecord<'a> {
    pub(super) invoke: &'a Invoke,
    /// The first end, if there is one.
    pub(super) end: Option<(Micros, &'a CallEnd)>,
}

/// Both records of a run.
#[derive(Debug)]
pub(super) struct Records<'a> {
    pub(super) history: &'a [HistoryEvent],
    pub(super) executions: &'a [Execution],
    /// In the order in which they began.
    calls: Vec<CallRecord<'a>>,
    by_number: HashMap<CallNumber, usize>,
    by_call: HashMap<CallNumber, Vec<&'a Execution>>,
    by_stamp: HashMap<&'a str, &'a Execution>,
    /// The begin of the run; reported times are relative to it.
    start: Micros,
}

impl<'a> Records<'a> {
    pub(super) fn new(history: &'a [HistoryEvent], executions: &'a [Execution]) -> Self {
        let mut calls: Vec<CallRecord<'a>> = Vec::new();
        let mut by_number: HashMap<CallNumber, usize> = HashMap::new();
        for event in history {
            match event {
                HistoryEvent::Invoke(invoke) => {
                    by_number.entry(invoke.call).or_insert(calls.len());
                    calls.push(CallRecord { invoke, end: None });
                }
                HistoryEvent::End { call, at, end } => {
                    let call = by_number.get(call).and_then(|position| calls.get_mut(*position));
                    if let Some(call) = call {
                        call.end.get_or_insert((*at, end));
                    }
                }
                _ => {}
            }
        }
        let mut by_call: HashMap<CallNumber, Vec<&'a Execution>> = HashMap::new();
        for execution in executions {
            if let Some(call) = execution.call {
                by_call.entry(call).or_default().push(execution);
            }
        }
        let by_stamp = executions.iter().map(|execution| (&*execution.stamp, execution)).collect();
        let start = history.iter().filter_map(time_of).min().unwrap_or_default();
        Self { history, executions, calls, by_number, by_call, by_stamp, start }
    }

    pub(super) fn calls(&self) -> &[CallRecord<'a>] {
        &self.calls
    }

    pub(super) fn call(&self, number: CallNumber) -> Option<&CallRecord<'a>> {
        self.by_number.get(&number).and_then(|position| self.calls.get(*position))
    }

    /// Returns the executions of a call.
    pub(super) fn executions_of(&self, call: CallNumber) -> &[&'a Execution] {
        self.by_call.get(&call).map_or(&[], Vec::as_slice)
    }

    pub(super) fn execution_by_stamp(&self, stamp: &str) -> Option<&'a Execution> {
        self.by_stamp.get(stamp).copied()
    }

    /// Formats a time relative to the begin of the run.
    pub(super) fn format_time(&self, time: Micros) -> String {
        let (sign, apart) =
            if time < self.start { ("-", self.start - time) } else { ("+", time - self.start) };
        format!("{sign}{}.{:06} s", apart / 1_000_000, apart % 1_000_000)
    }

    /// Describes a call: its number, user, role, route, tool and time.
    pub(super) fn describe_call(&self, call: &CallRecord<'_>) -> String {
        let Invoke { call: number, at, way, principal, role, server, tool, .. } = call.invoke;
        format!(
            "{number} ({principal}, role {role}, by {}, {server}/{tool}, {})",
            route_name(*way),
            self.format_time(*at)
        )
    }

    /// Describes an execution.
    pub(super) fn describe_execution(&self, execution: &Execution) -> String {
        let Execution { server, tool, pid, stamp, began, ended, has_failed, .. } = execution;
        let end = match ended {
            None => "did not end".to_owned(),
            Some(at) => format!("{} {}", if *has_failed { "failed" } else { "ended" }, self.format_time(*at)),
        };
        format!("{server}/{tool} in process {pid}, began {}, {end}, stamp {stamp}", self.format_time(*began))
    }

    /// Describes the end of a call.
    pub(super) fn describe_end(&self, call: &CallRecord<'_>) -> String {
        let Some((at, end)) = call.end else { return "it never ended".into() };
        let what = match end {
            CallEnd::Ok { stamp, .. } => {
                format!("a result with stamp {}", stamp.as_deref().unwrap_or("none"))
            }
            CallEnd::Fail { kind, code, .. } => format!("{kind} ({code})"),
            CallEnd::Unknown { why } => format!("unknown: {why}"),
        };
        format!("{what}, {}", self.format_time(at))
    }
}

fn time_of(event: &HistoryEvent) -> Option<Micros> {
    match event {
        HistoryEvent::Invoke(invoke) => Some(invoke.at),
        HistoryEvent::End { at, .. }
        | HistoryEvent::Listed { at, .. }
        | HistoryEvent::Nemesis { at, .. }
        | HistoryEvent::Calm { at }
        | HistoryEvent::Census { at, .. } => Some(*at),
        HistoryEvent::Breaker { .. } | HistoryEvent::Shared { .. } | HistoryEvent::Forbidden { .. } => None,
    }
}

/// Returns the route's name in the records and on the command line.
pub(super) fn route_name(way: CallRoute) -> &'static str {
    match way {
        CallRoute::HttpLegacy => "http-legacy",
        CallRoute::HttpModern => "http-modern",
        CallRoute::HttpFace => "http-face",
        CallRoute::Stdio => "stdio",
        CallRoute::Relay => "relay",
    }
}
