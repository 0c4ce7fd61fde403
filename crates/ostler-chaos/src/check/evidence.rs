//! How much of the records each promise was held against: a promise that
//! nothing was held against has not been kept, it has not been tried.

use std::collections::HashSet;

use serde::Serialize;

use super::records::Records;
use super::{Promise, cross_harm, private, probe, quiet, recovers};
use crate::history::{End, Event, Occasion, Purpose};
use crate::ledger::Execution;

/// What one promise was held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Evidence {
    pub promise: Promise,
    pub count: usize,
    /// What is counted, for people.
    pub of: &'static str,
}

/// One for each promise, in their order.
#[must_use]
pub fn evidence(history: &[Event], executions: &[Execution]) -> Vec<Evidence> {
    let records = Records::new(history, executions);
    let counted = |promise| {
        let (count, of) = count(&records, promise);
        Evidence { promise, count, of }
    };
    Promise::ALL.into_iter().map(counted).collect()
}

/// Whether the history goes on to the end of the run: the calm, a last look at
/// the running daemon, and one at what it has left.
#[must_use]
pub fn is_whole(history: &[Event]) -> bool {
    let is_running = |event: &Event| matches!(event, Event::Census { occasion: Occasion::Running, .. });
    let last = history.iter().rposition(is_running).unwrap_or(0);
    let has_calm = history[..last].iter().any(|event| matches!(event, Event::Calm { .. }));
    has_calm
        && history[last..].iter().any(|event| matches!(event, Event::Census { occasion: Occasion::Over, .. }))
}

fn count(records: &Records<'_>, promise: Promise) -> (usize, &'static str) {
    let calls = || records.calls().iter();
    match promise {
        Promise::EveryCallEnds => (calls().count(), "calls"),
        Promise::OwnAnswer => {
            let answered = calls().filter(|call| matches!(call.end, Some((_, End::Ok { .. }))));
            (answered.filter(|call| call.invoke.purpose != Purpose::Forbidden).count(), "answers")
        }
        Promise::AtMostOnce => (
            calls().filter(|call| !records.executions_of(call.invoke.call).is_empty()).count(),
            "calls that ran",
        ),
        Promise::TruthfulEnd => {
            let told =
                calls().filter(|call| matches!(call.end, Some((_, End::Ok { .. } | End::Fail { .. }))));
            (told.count(), "results and refusals")
        }
        Promise::PolicyEverywhere => {
            (forbidden(records), "forbidden calls, and lists for those who may not see all")
        }
        Promise::PrivateCache => (private::count(records), "answers that may be remembered"),
        Promise::OneProbe => (probe::count(records), "failures at servers with a known breaker"),
        Promise::NoneLeftBehind => {
            let censuses = records.history.iter().filter(|event| matches!(event, Event::Census { .. }));
            (censuses.count(), "censuses")
        }
        Promise::Recovers => (recovers::count(records), "calls in the calm"),
        Promise::NoCrossHarm => (cross_harm::count(records), "good calls beside an abusive caller"),
        Promise::QuietWhenIdle => (quiet::count(records), "censuses while nobody calls"),
    }
}

fn forbidden(records: &Records<'_>) -> usize {
    let calls = records.calls().iter().filter(|call| call.invoke.purpose == Purpose::Forbidden);
    let roles: HashSet<&str> = records.history.iter().filter_map(role_with_limits).collect();
    let is_held = |event: &&Event| matches!(event, Event::Listed { role, .. } if roles.contains(&**role));
    calls.count() + records.history.iter().filter(is_held).count()
}

fn role_with_limits(event: &Event) -> Option<&str> {
    match event {
        Event::Forbidden { role, tools } if !tools.is_empty() => Some(role),
        Event::Invoke(invoke) if invoke.purpose == Purpose::Forbidden => Some(&invoke.role),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{MS, Story, call, execution, refused, timed_out};
    use super::*;
    use crate::history::{Invoke, Way};

    fn counts(story: &Story) -> Vec<usize> {
        evidence(&story.history, &story.executions).iter().map(|evidence| evidence.count).collect()
    }

    #[test]
    fn without_records_nothing_is_tried() {
        assert_eq!(counts(&Story::default()), [0; 11]);
    }

    #[test]
    fn plain_calls_say_nothing_of_policy_cache_breaker_processes_or_recovery() {
        let story = Story::default().good(call(1, 0)).invoke(call(2, MS)).end(2, 2 * MS, refused());
        assert_eq!(counts(&story), [2, 1, 1, 2, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn each_kind_of_record_counts_for_its_promise() {
        let remembered = Execution { ttl_ms: Some(50), ..execution(2, MS, 2 * MS) };
        let list = |role: &str| Event::Listed {
            at: MS,
            way: Way::Stdio,
            principal: "bob".into(),
            role: role.into(),
            tools: Vec::new(),
        };
        let story = Story::default()
            .event(Event::Breaker { server: "a".into(), failures: 3, wait: MS })
            .event(Event::Forbidden { role: "some".into(), tools: vec!["a__deed".into()] })
            .event(list("some"))
            .event(list("all"))
            .invoke(Invoke { purpose: Purpose::Forbidden, role: "none".into(), ..call(1, 0) })
            .end(1, MS, refused())
            .invoke(Invoke { purpose: Purpose::Private, ..call(2, 0) })
            .ran(remembered)
            .end(2, 3 * MS, super::super::story::ok(2))
            .invoke(Invoke { purpose: Purpose::Sick, ..call(3, 0) })
            .ran(Execution { has_failed: true, ..execution(3, MS, 2 * MS) })
            .end(3, 3 * MS, timed_out())
            .census(4 * MS, Occasion::Running, &[])
            .event(Event::Calm { at: 5 * MS })
            .good(call(4, 6 * MS))
            .census(7 * MS, Occasion::Idle, &[])
            .census(8 * MS, Occasion::Idle, &[]);
        assert_eq!(counts(&story)[4..], [2, 1, 1, 3, 1, 0, 1]);
    }

    #[test]
    fn a_history_is_whole_if_it_ends_with_a_census_of_what_the_last_daemon_has_left() {
        let begun = || Story::default().good(call(1, 0)).census(MS, Occasion::Over, &[]);
        let calm = || begun().event(Event::Calm { at: 5 * MS }).census(6 * MS, Occasion::Running, &[]);
        assert!(!is_whole(&[]));
        assert!(!is_whole(&begun().history));
        assert!(!is_whole(&calm().history));
        assert!(is_whole(&calm().census(7 * MS, Occasion::Over, &[]).history));
        let without_calm = begun().census(2 * MS, Occasion::Running, &[]).census(3 * MS, Occasion::Over, &[]);
        assert!(!is_whole(&without_calm.history));
    }
}
