//! Builder of records for tests.

use super::{Promise, Violation, check};
use crate::history::{
    CallEnd, CallNumber, CallRoute, HistoryEvent, Invoke, Micros, Occasion, Purpose, Ran, SeenProcess,
};
use crate::ledger::Execution;

/// A millisecond.
pub(super) const MS: Micros = 1_000;

/// Both records, as they grow.
#[derive(Debug, Default)]
pub(super) struct HistoryBuilder {
    pub(super) history: Vec<HistoryEvent>,
    pub(super) executions: Vec<Execution>,
}

/// Returns an allowed call of Ada's at a time.
pub(super) fn call(number: u64, at: Micros) -> Invoke {
    Invoke {
        call: CallNumber(number),
        at,
        way: CallRoute::HttpModern,
        principal: "ada".into(),
        role: "all".into(),
        server: "a".into(),
        tool: "deed".into(),
        purpose: Purpose::Once,
        deadline: at + 20_000 * MS,
    }
}

/// Returns an execution of a call; its stamp is `s` and its number.
pub(super) fn execution(number: u64, began: Micros, ended: Micros) -> Execution {
    Execution {
        server: "a".into(),
        pid: 7,
        tool: "deed".into(),
        call: Some(CallNumber(number)),
        began,
        ended: Some(ended),
        has_failed: false,
        stamp: format!("s{number}"),
        ttl_ms: None,
    }
}

pub(super) fn ok(number: u64) -> CallEnd {
    CallEnd::Ok { echoed: Some(CallNumber(number)), stamp: Some(format!("s{number}")) }
}

pub(super) fn refused() -> CallEnd {
    CallEnd::Fail { kind: "overloaded".into(), code: -31005, ran: Ran::No }
}

pub(super) fn failed() -> CallEnd {
    CallEnd::Fail { kind: "upstream-error".into(), code: -32603, ran: Ran::Yes }
}

pub(super) fn timed_out() -> CallEnd {
    CallEnd::Unknown { why: "timed-out".into() }
}

pub(super) fn unknown() -> CallEnd {
    CallEnd::Unknown { why: "outcome-unknown".into() }
}

impl HistoryBuilder {
    pub(super) fn event(mut self, event: HistoryEvent) -> Self {
        self.history.push(event);
        self
    }

    pub(super) fn invoke(self, invoke: Invoke) -> Self {
        self.event(HistoryEvent::Invoke(invoke))
    }

    pub(super) fn end(self, number: u64, at: Micros, end: CallEnd) -> Self {
        self.event(HistoryEvent::End { call: CallNumber(number), at, end })
    }

    pub(super) fn executed(mut self, execution: Execution) -> Self {
        self.executions.push(execution);
        self
    }

    pub(super) fn nemesis(self, at: Micros, act: &str, target: &str, begins: bool) -> Self {
        self.event(HistoryEvent::Nemesis { at, act: act.into(), target: target.into(), begins })
    }

    pub(super) fn census(self, at: Micros, occasion: Occasion, seen: &[(u32, bool)]) -> Self {
        let processes = seen
            .iter()
            .map(|&(pid, is_zombie)| SeenProcess { pid, name: "fake-mcp".into(), is_zombie })
            .collect();
        self.event(HistoryEvent::Census { at, occasion, processes })
    }

    /// Adds a call that ran once and was answered within ten milliseconds.
    pub(super) fn successful(self, invoke: Invoke) -> Self {
        let (number, at) = (invoke.call.0, invoke.at);
        let done = Execution {
            server: invoke.server.clone(),
            tool: invoke.tool.clone(),
            ..execution(number, at + MS, at + 5 * MS)
        };
        self.invoke(invoke).executed(done).end(number, at + 10 * MS, ok(number))
    }

    /// Returns the violations of one promise.
    pub(super) fn violations_of(&self, promise: Promise) -> Vec<Violation> {
        check(&self.history, &self.executions)
            .into_iter()
            .filter(|violation| violation.promise == promise)
            .collect()
    }

    /// Asserts that one promise is broken once, by those calls, and that its description has these
    /// words.
    #[track_caller]
    pub(super) fn assert_broken(&self, promise: Promise, calls: &[u64], words: &[&str]) {
        let broken = self.violations_of(promise);
        assert_eq!(broken.len(), 1, "{broken:#?}");
        assert_eq!(broken[0].calls, calls.iter().copied().map(CallNumber).collect::<Vec<_>>());
        for word in words {
            assert!(broken[0].what.contains(word), "`{word}` is not in: {}", broken[0].what);
        }
    }

    #[track_caller]
    pub(super) fn assert_kept(&self, promise: Promise) {
        assert_eq!(self.violations_of(promise), []);
    }
}
