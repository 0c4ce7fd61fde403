//! Evidence for each promise: how much of the records it was checked against. A promise without
//! evidence is not tried, rather than kept.

use std::collections::HashSet;

use serde::Serialize;

use super::records::Records;
use super::{Promise, no_cross_harm, one_probe, private_cache, quiet_when_idle, recovers};
use crate::history::{CallEnd, HistoryEvent, Occasion, Purpose};
use crate::ledger::Execution;

/// The evidence for one promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Evidence {
    pub promise: Promise,
    pub count: usize,
    /// The noun of what is counted.
    pub of: &'static str,
}

/// Returns the evidence for each promise, in their order.
#[must_use]
pub fn evidence(history: &[HistoryEvent], executions: &[Execution]) -> Vec<Evidence> {
    let records = Records::new(history, executions);
    let counted = |promise| {
        let (count, of) = count(&records, promise);
        Evidence { promise, count, of }
    };
    Promise::ALL.into_iter().map(counted).collect()
}

/// Returns whether the history reaches the end of the run: the calm, a last census of the running
/// daemon, and one after its end.
#[must_use]
pub fn is_whole(history: &[HistoryEvent]) -> bool {
    let is_running =
        |event: &HistoryEvent| matches!(event, HistoryEvent::Census { occasion: Occasion::Running, .. });
    let last = history.iter().rposition(is_running).unwrap_or(0);
    let has_calm = history[..last].iter().any(|event| matches!(event, HistoryEvent::Calm { .. }));
    has_calm
        && history[last..]
            .iter()
            .any(|event| matches!(event, HistoryEvent::Census { occasion: Occasion::Over, .. }))
}

fn count(records: &Records<'_>, promise: Promise) -> (usize, &'static str) {
    let calls = || records.calls().iter();
    match promise {
        Promise::EveryCallEnds => (calls().count(), "calls"),
        Promise::OwnAnswer => {
            let answered = calls().filter(|call| matches!(call.end, Some((_, CallEnd::Ok { .. }))));
            (answered.filter(|call| call.invoke.purpose != Purpose::Forbidden).count(), "answers")
        }
        Promise::AtMostOnce => (
            calls().filter(|call| !records.executions_of(call.invoke.call).is_empty()).count(),
            "calls that ran",
        ),
        Promise::TruthfulEnd => {
            let answered = calls()
                .filter(|call| matches!(call.end, Some((_, CallEnd::Ok { .. } | CallEnd::Fail { .. }))));
            (answered.count(), "results and refusals")
        }
        Promise::PolicyEverywhere => {
            (count_forbidden(records), "forbidden calls, and lists for those who may not see all")
        }
        Promise::PrivateCache => (private_cache::count(records), "answers that may be remembered"),
        Promise::OneProbe => (one_probe::count(records), "failures at servers with a known breaker"),
        Promise::NoneLeftBehind => {
            let censuses =
                records.history.iter().filter(|event| matches!(event, HistoryEvent::Census { .. }));
            (censuses.count(), "censuses")
        }
        Promise::Recovers => (recovers::count(records), "calls in the calm"),
        Promise::NoCrossHarm => (no_cross_harm::count(records), "good calls beside an abusive caller"),
        Promise::QuietWhenIdle => (quiet_when_idle::count(records), "censuses while nobody calls"),
    }
}

fn count_forbidden(records: &Records<'_>) -> usize {
    let calls = records.calls().iter().filter(|call| call.invoke.purpose == Purpose::Forbidden);
    let roles: HashSet<&str> = records.history.iter().filter_map(role_with_limits).collect();
    let is_held =
        |event: &&HistoryEvent| matches!(event, HistoryEvent::Listed { role, .. } if roles.contains(&**role));
    calls.count() + records.history.iter().filter(is_held).count()
}

fn role_with_limits(event: &HistoryEvent) -> Option<&str> {
    match event {
        HistoryEvent::Forbidden { role, tools } if !tools.is_empty() => Some(role),
        HistoryEvent::Invoke(invoke) if invoke.purpose == Purpose::Forbidden => Some(&invoke.role),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::history_builder::{HistoryBuilder, MS, call, execution, refused, timed_out};
    use super::*;
    use crate::history::{CallRoute, Invoke};

    fn counts(builder: &HistoryBuilder) -> Vec<usize> {
        evidence(&builder.history, &builder.executions).iter().map(|evidence| evidence.count).collect()
    }

    #[test]
    fn without_records_nothing_is_tried() {
        assert_eq!(counts(&HistoryBuilder::default()), [0; 11]);
    }

    #[test]
    fn plain_calls_say_nothing_of_policy_cache_breaker_processes_or_recovery() {
        let builder =
            HistoryBuilder::default().successful(call(1, 0)).invoke(call(2, MS)).end(2, 2 * MS, refused());
        assert_eq!(counts(&builder), [2, 1, 1, 2, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn each_kind_of_record_counts_for_its_promise() {
        let remembered = Execution { ttl_ms: Some(50), ..execution(2, MS, 2 * MS) };
        let list = |role: &str| HistoryEvent::Listed {
            at: MS,
            way: CallRoute::Stdio,
            principal: "bob".into(),
            role: role.into(),
            tools: Vec::new(),
        };
        let builder = HistoryBuilder::default()
            .event(HistoryEvent::Breaker { server: "a".into(), failures: 3, wait: MS })
            .event(HistoryEvent::Forbidden { role: "some".into(), tools: vec!["a__deed".into()] })
            .event(list("some"))
            .event(list("all"))
            .invoke(Invoke { purpose: Purpose::Forbidden, role: "none".into(), ..call(1, 0) })
            .end(1, MS, refused())
            .invoke(Invoke { purpose: Purpose::Private, ..call(2, 0) })
            .executed(remembered)
            .end(2, 3 * MS, super::super::history_builder::ok(2))
            .invoke(Invoke { purpose: Purpose::Sick, ..call(3, 0) })
            .executed(Execution { has_failed: true, ..execution(3, MS, 2 * MS) })
            .end(3, 3 * MS, timed_out())
            .census(4 * MS, Occasion::Running, &[])
            .event(HistoryEvent::Calm { at: 5 * MS })
            .successful(call(4, 6 * MS))
            .census(7 * MS, Occasion::Idle, &[])
            .census(8 * MS, Occasion::Idle, &[]);
        assert_eq!(counts(&builder)[4..], [2, 1, 1, 3, 1, 0, 1]);
    }

    #[test]
    fn a_history_is_whole_if_it_ends_with_a_census_of_what_the_last_daemon_has_left() {
        let begun = || HistoryBuilder::default().successful(call(1, 0)).census(MS, Occasion::Over, &[]);
        let calm = || begun().event(HistoryEvent::Calm { at: 5 * MS }).census(6 * MS, Occasion::Running, &[]);
        assert!(!is_whole(&[]));
        assert!(!is_whole(&begun().history));
        assert!(!is_whole(&calm().history));
        assert!(is_whole(&calm().census(7 * MS, Occasion::Over, &[]).history));
        let without_calm = begun().census(2 * MS, Occasion::Running, &[]).census(3 * MS, Occasion::Over, &[]);
        assert!(!is_whole(&without_calm.history));
    }
}
