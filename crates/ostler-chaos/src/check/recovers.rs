//! `Recovers`: after the nemesis is done, calls succeed again.

use std::collections::BTreeMap;
use std::fmt;

use super::records::{CallRecord, Records, route_name};
use super::{Promise, Violation};
use crate::history::{CallEnd, CallRoute, HistoryEvent, Micros, Purpose};

/// Failed calls after which a path counts as broken although its route and its server work
/// otherwise: one or two may be calls that their callers abandoned.
const ENOUGH: usize = 5;

/// The target that calls are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RecoveryTarget<'a> {
    Server(&'a str),
    Way(CallRoute),
    Path(CallRoute, &'a str),
}

/// The attempts at one target during the calm.
#[derive(Debug, Default)]
struct CalmAttempts<'r, 'a> {
    count: usize,
    has_succeeded: bool,
    last: Option<&'r CallRecord<'a>>,
}

type AttemptsByTarget<'r, 'a> = BTreeMap<RecoveryTarget<'a>, CalmAttempts<'r, 'a>>;

pub(super) fn check(records: &Records<'_>) -> Vec<Violation> {
    let Some(calm) = calm_start(records) else { return Vec::new() };
    let by_target = attempts_since(records, calm);
    let broken = by_target.iter().filter(|(target, attempts)| is_broken(&by_target, **target, attempts));
    broken.filter_map(|(target, attempts)| violation(records, calm, *target, attempts)).collect()
}

/// Counts the calls that the promise is checked against.
pub(super) fn count(records: &Records<'_>) -> usize {
    let Some(calm) = calm_start(records) else { return 0 };
    let servers = attempts_since(records, calm)
        .into_iter()
        .filter(|(target, _)| matches!(target, RecoveryTarget::Server(_)));
    servers.map(|(_, attempts)| attempts.count).sum()
}

fn calm_start(records: &Records<'_>) -> Option<Micros> {
    records.history.iter().find_map(|event| match event {
        HistoryEvent::Calm { at } => Some(*at),
        _ => None,
    })
}

/// Returns the attempts since the calm began. A target without attempts may work, and is not in the
/// map.
fn attempts_since<'r, 'a>(records: &'r Records<'a>, calm: Micros) -> AttemptsByTarget<'r, 'a> {
    let mut by_target = AttemptsByTarget::new();
    let allowed = records.calls().iter().filter(|call| call.invoke.purpose == Purpose::Once);
    for call in allowed.filter(|call| call.invoke.at >= calm) {
        let (way, server) = (call.invoke.way, &*call.invoke.server);
        for target in
            [RecoveryTarget::Server(server), RecoveryTarget::Way(way), RecoveryTarget::Path(way, server)]
        {
            let attempts = by_target.entry(target).or_default();
            attempts.count += 1;
            attempts.has_succeeded |= matches!(call.end, Some((_, CallEnd::Ok { .. })));
            attempts.last = Some(call);
        }
    }
    by_target
}

/// Returns whether a target is broken. A path is reported only if its route and its server work.
fn is_broken(
    by_target: &AttemptsByTarget<'_, '_>,
    target: RecoveryTarget<'_>,
    attempts: &CalmAttempts<'_, '_>,
) -> bool {
    let works = |target| by_target.get(&target).is_some_and(|attempts| attempts.has_succeeded);
    let is_reported = match target {
        RecoveryTarget::Server(_) | RecoveryTarget::Way(_) => true,
        RecoveryTarget::Path(way, server) => {
            attempts.count >= ENOUGH
                && works(RecoveryTarget::Way(way))
                && works(RecoveryTarget::Server(server))
        }
    };
    is_reported && !attempts.has_succeeded
}

fn violation(
    records: &Records<'_>,
    calm: Micros,
    target: RecoveryTarget<'_>,
    attempts: &CalmAttempts<'_, '_>,
) -> Option<Violation> {
    let (calm, last) = (records.format_time(calm), attempts.last?);
    let what = format!(
        "since the calm, {calm}, none of {} calls has succeeded on {target}: the last was {}, {}",
        attempts.count,
        records.describe_call(last),
        records.describe_end(last)
    );
    Some(Violation::new(Promise::Recovers, [last.invoke.call], what))
}

impl fmt::Display for RecoveryTarget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => write!(f, "the server {server}"),
            Self::Way(way) => write!(f, "the way {}", route_name(*way)),
            Self::Path(way, server) => write!(f, "the way {} to the server {server}", route_name(*way)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history_builder::{HistoryBuilder, MS, call, refused, unknown};
    use super::*;
    use crate::history::Invoke;

    const CALM: u64 = 1_000 * MS;

    fn relayed(number: u64, at: u64) -> Invoke {
        Invoke { way: CallRoute::Relay, server: "b".into(), ..call(number, at) }
    }

    fn builder() -> HistoryBuilder {
        HistoryBuilder::default()
            .successful(call(1, 0))
            .successful(relayed(2, 0))
            .event(HistoryEvent::Calm { at: CALM })
    }

    #[test]
    fn a_first_failure_in_the_calm_is_fine_if_a_success_follows() {
        let builder = builder()
            .successful(call(3, CALM))
            .invoke(relayed(4, CALM))
            .end(4, CALM + MS, refused())
            .successful(relayed(5, CALM + 9 * MS));
        builder.assert_kept(Promise::Recovers);
    }

    #[test]
    fn without_a_calm_nothing_is_asked() {
        HistoryBuilder::default().invoke(call(1, 0)).end(1, MS, unknown()).assert_kept(Promise::Recovers);
    }

    #[test]
    fn a_way_and_a_server_that_stay_broken_are_named() {
        let builder =
            builder().successful(call(3, CALM)).invoke(relayed(4, CALM)).end(4, CALM + MS, refused());
        let broken = builder.violations_of(Promise::Recovers);
        let texts: Vec<&str> = broken.iter().map(|violation| &*violation.what).collect();
        assert_eq!(texts.len(), 2, "{texts:#?}");
        assert!(texts[0].contains("none of 1 calls has succeeded on the server b"), "{}", texts[0]);
        assert!(texts[1].contains("the way relay") && texts[1].contains("overloaded"), "{}", texts[1]);
        assert_eq!(broken[0].calls, [crate::history::CallNumber(4)]);
    }

    /// Adds `count` calls in the calm, over the relay to `a`, none of which succeeds.
    fn one_path_down(builder: HistoryBuilder, count: u64) -> HistoryBuilder {
        (0..count).fold(builder, |builder, number| {
            let (number, at) = (10 + number, CALM + number * MS);
            builder.invoke(Invoke { way: CallRoute::Relay, ..call(number, at) }).end(
                number,
                at + MS,
                refused(),
            )
        })
    }

    fn all_else_works() -> HistoryBuilder {
        builder().successful(call(3, CALM)).successful(relayed(4, CALM))
    }

    #[test]
    fn a_way_to_one_server_that_stays_broken_is_named_though_both_work_otherwise() {
        let words = ["none of 5 calls has succeeded on the way relay to the server a", "overloaded"];
        one_path_down(all_else_works(), 5).assert_broken(Promise::Recovers, &[14], &words);
    }

    #[test]
    fn a_few_calls_that_fail_on_the_way_to_one_server_are_fine() {
        one_path_down(all_else_works(), 4).assert_kept(Promise::Recovers);
    }

    #[test]
    fn a_way_that_works_to_no_server_is_told_of_once() {
        let builder = one_path_down(builder().successful(call(3, CALM)), 9);
        builder.assert_broken(
            Promise::Recovers,
            &[18],
            &["none of 9 calls has succeeded on the way relay: "],
        );
    }

    #[test]
    fn what_is_not_tried_again_may_work() {
        let builder = HistoryBuilder::default()
            .successful(call(1, 0))
            .event(HistoryEvent::Calm { at: CALM })
            .successful(relayed(3, CALM));
        builder.assert_kept(Promise::Recovers);
    }
}
