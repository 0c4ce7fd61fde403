//! Both records, with what belongs together found quickly.

use std::collections::HashMap;

use crate::history::{End, Event, Invoke, Micros, Nonce, Way};
use crate::ledger::Execution;

/// A call, from its caller's side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) invoke: &'a Invoke,
    /// The first end, if there is one.
    pub(super) end: Option<(Micros, &'a End)>,
}

/// Both records of a run.
#[derive(Debug)]
pub(super) struct Records<'a> {
    pub(super) history: &'a [Event],
    pub(super) executions: &'a [Execution],
    /// In the order in which they began.
    calls: Vec<Call<'a>>,
    by_number: HashMap<Nonce, usize>,
    by_call: HashMap<Nonce, Vec<&'a Execution>>,
    by_stamp: HashMap<&'a str, &'a Execution>,
    /// When the run began; people are told times from here.
    zero: Micros,
}

impl<'a> Records<'a> {
    pub(super) fn new(history: &'a [Event], executions: &'a [Execution]) -> Self {
        let mut calls: Vec<Call<'a>> = Vec::new();
        let mut by_number: HashMap<Nonce, usize> = HashMap::new();
        for event in history {
            match event {
                Event::Invoke(invoke) => {
                    by_number.entry(invoke.call).or_insert(calls.len());
                    calls.push(Call { invoke, end: None });
                }
                Event::End { call, at, end } => {
                    let call = by_number.get(call).and_then(|place| calls.get_mut(*place));
                    if let Some(call) = call {
                        call.end.get_or_insert((*at, end));
                    }
                }
                _ => {}
            }
        }
        let mut by_call: HashMap<Nonce, Vec<&'a Execution>> = HashMap::new();
        for execution in executions {
            if let Some(call) = execution.call {
                by_call.entry(call).or_default().push(execution);
            }
        }
        let by_stamp = executions.iter().map(|execution| (&*execution.stamp, execution)).collect();
        let zero = history.iter().filter_map(time_of).min().unwrap_or_default();
        Self { history, executions, calls, by_number, by_call, by_stamp, zero }
    }

    pub(super) fn calls(&self) -> &[Call<'a>] {
        &self.calls
    }

    pub(super) fn call(&self, number: Nonce) -> Option<&Call<'a>> {
        self.by_number.get(&number).and_then(|place| self.calls.get(*place))
    }

    /// What was executed for a call.
    pub(super) fn executions_of(&self, call: Nonce) -> &[&'a Execution] {
        self.by_call.get(&call).map_or(&[], Vec::as_slice)
    }

    pub(super) fn stamped(&self, stamp: &str) -> Option<&'a Execution> {
        self.by_stamp.get(stamp).copied()
    }

    /// A time as people read it.
    pub(super) fn at(&self, time: Micros) -> String {
        let (sign, apart) = if time < self.zero { ("-", self.zero - time) } else { ("+", time - self.zero) };
        format!("{sign}{}.{:06} s", apart / 1_000_000, apart % 1_000_000)
    }

    /// A call as people read it: its number, whose, on which way, of what, when.
    pub(super) fn tell(&self, call: &Call<'_>) -> String {
        let Invoke { call: number, at, way, principal, role, server, tool, .. } = call.invoke;
        format!(
            "{number} ({principal}, role {role}, by {}, {server}/{tool}, {})",
            way_name(*way),
            self.at(*at)
        )
    }

    /// An execution as people read it.
    pub(super) fn tell_execution(&self, execution: &Execution) -> String {
        let Execution { server, tool, pid, stamp, began, ended, has_failed, .. } = execution;
        let end = match ended {
            None => "did not end".to_owned(),
            Some(at) => format!("{} {}", if *has_failed { "failed" } else { "ended" }, self.at(*at)),
        };
        format!("{server}/{tool} in process {pid}, began {}, {end}, stamp {stamp}", self.at(*began))
    }

    /// An end as people read it.
    pub(super) fn tell_end(&self, call: &Call<'_>) -> String {
        let Some((at, end)) = call.end else { return "it never ended".into() };
        let what = match end {
            End::Ok { stamp, .. } => format!("a result with stamp {}", stamp.as_deref().unwrap_or("none")),
            End::Fail { kind, code, .. } => format!("{kind} ({code})"),
            End::Unknown { why } => format!("unknown: {why}"),
        };
        format!("{what}, {}", self.at(at))
    }
}

fn time_of(event: &Event) -> Option<Micros> {
    match event {
        Event::Invoke(invoke) => Some(invoke.at),
        Event::End { at, .. }
        | Event::Listed { at, .. }
        | Event::Nemesis { at, .. }
        | Event::Calm { at }
        | Event::Census { at, .. } => Some(*at),
        Event::Breaker { .. } | Event::Shared { .. } | Event::Forbidden { .. } => None,
    }
}

/// The name that the records and the command line use.
pub(super) fn way_name(way: Way) -> &'static str {
    match way {
        Way::HttpLegacy => "http-legacy",
        Way::HttpModern => "http-modern",
        Way::HttpFace => "http-face",
        Way::Stdio => "stdio",
        Way::Relay => "relay",
    }
}
