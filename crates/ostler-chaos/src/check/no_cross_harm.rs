//! `NoCrossHarm`: an abusive caller or server takes no server from good callers.
//!
//! A good caller's call to the shared server is a violation if it is told that the server is held
//! back, out or full, while neither the nemesis nor an earlier failed good call can be the reason.

use std::collections::HashSet;

use super::records::{CallRecord, Records};
use super::{Promise, Violation};
use crate::history::{CallEnd, HistoryEvent, Micros, Purpose, Ran};

/// The time for which an act of the nemesis or another failure may cause refusals: longer than the
/// breaker of the shared server stays open at first.
const EXCUSE_PERIOD: Micros = 10_000_000;

/// The kinds of refusal that mean: the server is held back, out or full.
const REFUSAL_KINDS: [&str; 3] = ["breaker_open", "ejected", "overloaded"];

pub(super) fn check(records: &Records<'_>) -> Vec<Violation> {
    let excuses = excuses(records);
    let refused = good_calls(records).filter_map(|call| {
        let (at, kind) = refusal(call)?;
        let is_excused = excuses.iter().any(|excuse| *excuse <= at && at <= excuse + EXCUSE_PERIOD);
        (!is_excused).then_some((call, kind))
    });
    let violation = |(call, kind): (&CallRecord<'_>, &str)| {
        let what = format!(
            "{} was refused as {kind}, and only an abusive caller or server can be the reason: {}",
            records.describe_call(call),
            records.describe_end(call)
        );
        Violation::new(Promise::NoCrossHarm, [call.invoke.call], what)
    };
    refused.map(violation).collect()
}

/// Counts the calls that the promise is checked against.
pub(super) fn count(records: &Records<'_>) -> usize {
    good_calls(records).count()
}

fn good_calls<'r, 'a>(records: &'r Records<'a>) -> impl Iterator<Item = &'r CallRecord<'a>> {
    let shared = records.history.iter().filter_map(|event| match event {
        HistoryEvent::Shared { server } => Some(server.as_str()),
        _ => None,
    });
    let shared: HashSet<&str> = shared.collect();
    let good = records.calls().iter().filter(|call| call.invoke.purpose == Purpose::Once);
    good.filter(move |call| shared.contains(call.invoke.server.as_str()))
}

/// Returns time and kind of a refusal that takes the server from its caller.
fn refusal<'a>(call: &CallRecord<'a>) -> Option<(Micros, &'a str)> {
    match call.end? {
        (at, CallEnd::Fail { kind, ran: Ran::No, .. }) if REFUSAL_KINDS.contains(&kind.as_str()) => {
            Some((at, kind))
        }
        _ => None,
    }
}

/// Returns the times from which on a refusal has another reason: acts at targets other than called
/// servers, such as the daemon, and good calls of a shared server that neither succeeded nor were
/// refused.
fn excuses(records: &Records<'_>) -> Vec<Micros> {
    let called: HashSet<&str> = records.calls().iter().map(|call| call.invoke.server.as_str()).collect();
    let acts = records.history.iter().filter_map(|event| match event {
        HistoryEvent::Nemesis { at, target, .. } if !called.contains(target.as_str()) => Some(*at),
        _ => None,
    });
    let failures = good_calls(records).filter(|call| refusal(call).is_none());
    let failures = failures.filter_map(|call| match call.end? {
        (_, CallEnd::Ok { .. }) => None,
        (at, CallEnd::Fail { .. } | CallEnd::Unknown { .. }) => Some(at),
    });
    acts.chain(failures).collect()
}

#[cfg(test)]
mod tests {
    use super::super::history_builder::{HistoryBuilder, MS, call, unknown};
    use super::*;

    const LATER: Micros = EXCUSE_PERIOD + 1_000 * MS;

    fn builder() -> HistoryBuilder {
        HistoryBuilder::default().event(HistoryEvent::Shared { server: "a".into() }).successful(call(1, 0))
    }

    fn refused(builder: HistoryBuilder, number: u64, at: Micros, kind: &str) -> HistoryBuilder {
        let end = CallEnd::Fail { kind: kind.into(), code: -31002, ran: Ran::No };
        builder.invoke(call(number, at)).end(number, at + MS, end)
    }

    #[test]
    fn a_good_caller_that_is_refused_for_no_reason_of_its_own_is_named() {
        for kind in REFUSAL_KINDS {
            let words = ["#2", "ada", kind, "only an abusive caller"];
            refused(builder(), 2, LATER, kind).assert_broken(Promise::NoCrossHarm, &[2], &words);
        }
    }

    #[test]
    fn what_the_nemesis_did_to_the_daemon_is_nobody_elses_harm() {
        let hurt = builder().nemesis(LATER, "kill-daemon", "daemon", true);
        refused(hurt, 2, LATER + MS, "breaker_open").assert_kept(Promise::NoCrossHarm);
        let elsewhere = builder()
            .successful(crate::history::Invoke { server: "b".into(), ..call(3, 0) })
            .nemesis(LATER, "kill-server", "b", true);
        refused(elsewhere, 2, LATER + MS, "overloaded").assert_broken(
            Promise::NoCrossHarm,
            &[2],
            &["overloaded"],
        );
    }

    #[test]
    fn a_server_that_fails_good_callers_may_be_held_back() {
        let failing = builder().invoke(call(2, LATER)).end(2, LATER + MS, unknown());
        refused(failing, 3, LATER + 2 * MS, "breaker_open").assert_kept(Promise::NoCrossHarm);
    }

    #[test]
    fn other_servers_and_other_ends_are_not_looked_at() {
        let mut builder = refused(builder(), 2, LATER, "breaker_open");
        builder.history.remove(0);
        builder.assert_kept(Promise::NoCrossHarm);
        refused(self::builder(), 2, LATER, "no-connection").assert_kept(Promise::NoCrossHarm);
    }
}
