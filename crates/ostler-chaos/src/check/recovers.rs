//! After the nemesis is done, calls succeed again.

use std::collections::BTreeMap;

use super::records::{Call, Records, way_name};
use super::{Promise, Violation};
use crate::history::{End, Event, Purpose};

/// What was tried in the calm on one way, or of one server.
#[derive(Default)]
struct Tries<'r, 'a> {
    count: usize,
    has_succeeded: bool,
    last: Option<&'r Call<'a>>,
}

pub(super) fn check(records: &Records<'_>) -> Vec<Violation> {
    let calm = records.history.iter().find_map(|event| match event {
        Event::Calm { at } => Some(*at),
        _ => None,
    });
    let Some(calm) = calm else { return Vec::new() };
    let mut tries: BTreeMap<String, Tries<'_, '_>> = BTreeMap::new();
    let allowed = records.calls().iter().filter(|call| call.invoke.purpose == Purpose::Once);
    for call in allowed {
        let places =
            [format!("the way {}", way_name(call.invoke.way)), format!("the server {}", call.invoke.server)];
        for place in places {
            let tries = tries.entry(place).or_default();
            if call.invoke.at >= calm {
                tries.count += 1;
                tries.has_succeeded |= matches!(call.end, Some((_, End::Ok { .. })));
                tries.last = Some(call);
            }
        }
    }
    let broken = tries.into_iter().filter(|(_, tries)| !tries.has_succeeded);
    broken.filter_map(|(place, tries)| violation(records, calm, &place, &tries)).collect()
}

/// What was not tried may work.
fn violation(records: &Records<'_>, calm: u64, place: &str, tries: &Tries<'_, '_>) -> Option<Violation> {
    let (calm, last) = (records.at(calm), tries.last?);
    let what = format!(
        "since the calm, {calm}, none of {} calls has succeeded on {place}: the last was {}, {}",
        tries.count,
        records.tell(last),
        records.tell_end(last)
    );
    Some(Violation::new(Promise::Recovers, [last.invoke.call], what))
}

#[cfg(test)]
mod tests {
    use super::super::story::{MS, Story, call, refused, unknown};
    use super::*;
    use crate::history::{Invoke, Way};

    const CALM: u64 = 1_000 * MS;

    fn relayed(number: u64, at: u64) -> Invoke {
        Invoke { way: Way::Relay, server: "b".into(), ..call(number, at) }
    }

    fn story() -> Story {
        Story::default().good(call(1, 0)).good(relayed(2, 0)).event(Event::Calm { at: CALM })
    }

    #[test]
    fn a_first_failure_in_the_calm_is_fine_if_a_success_follows() {
        let story = story()
            .good(call(3, CALM))
            .invoke(relayed(4, CALM))
            .end(4, CALM + MS, refused())
            .good(relayed(5, CALM + 9 * MS));
        story.keeps(Promise::Recovers);
    }

    #[test]
    fn without_a_calm_nothing_is_asked() {
        Story::default().invoke(call(1, 0)).end(1, MS, unknown()).keeps(Promise::Recovers);
    }

    #[test]
    fn a_way_and_a_server_that_stay_broken_are_named() {
        let story = story().good(call(3, CALM)).invoke(relayed(4, CALM)).end(4, CALM + MS, refused());
        let broken = story.broken(Promise::Recovers);
        let told: Vec<&str> = broken.iter().map(|violation| &*violation.what).collect();
        assert_eq!(told.len(), 2, "{told:#?}");
        assert!(told[0].contains("none of 1 calls has succeeded on the server b"), "{}", told[0]);
        assert!(told[1].contains("the way relay") && told[1].contains("overloaded"), "{}", told[1]);
        assert_eq!(broken[0].calls, [crate::history::Nonce(4)]);
    }

    #[test]
    fn what_is_not_tried_again_may_work() {
        let story = Story::default().good(call(1, 0)).event(Event::Calm { at: CALM }).good(relayed(3, CALM));
        story.keeps(Promise::Recovers);
    }
}
