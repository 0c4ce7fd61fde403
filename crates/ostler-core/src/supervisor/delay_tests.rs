//! How long a server waits before it is started again.

use super::tests::{SupervisorScenario, retire, start};
use super::*;
use crate::test_clock::at;

/// A good answer to a call, and to a list.
const GOOD: [(HealthSignal, SessionEffect); 2] =
    [(HealthSignal::Success, SessionEffect::None), (HealthSignal::Neutral, SessionEffect::MarkProven)];

/// The longest delay, over many draws, after the last session of a story has crashed.
fn longest(tell: impl Fn() -> SupervisorScenario) -> u64 {
    let delay = |seed| {
        let mut story = tell();
        story.rng = fastrand::Rng::with_seed(seed);
        assert!(story.crash(story.supervisor.generation()));
        let Phase::Backoff { until, .. } = *story.supervisor.phase() else { panic!("no backoff") };
        u64::try_from((until - at(story.now)).as_millis()).unwrap()
    };
    (0..200).map(delay).max().unwrap()
}

#[test]
fn a_server_that_has_worked_is_started_again_at_once() {
    for (mark, effect) in GOOD {
        let mut story = SupervisorScenario::ready();
        story.answer(1, mark, effect);
        story.supervisor.on_wait();
        assert!(story.crash(1));
        assert_eq!(story.poll(), [retire(1, RetireMode::Now), start(2)], "no time passes");
        assert_eq!(story.supervisor.restarts(at(0)), (1, 5), "it is a restart like any other");
    }
}

#[test]
fn the_second_failure_waits_however_well_the_session_worked() {
    for (mark, effect) in GOOD {
        let longest = longest(|| {
            let mut story = SupervisorScenario::eager();
            story.poll();
            for generation in 1..=2 {
                story.supervisor.on_started(generation, at(0));
                story.answer(generation, mark, effect);
                if generation == 1 {
                    story.crash(generation);
                    story.poll();
                }
            }
            story
        });
        assert!((50..=100).contains(&longest), "{longest} ms");
    }
}

#[test]
fn a_session_that_has_not_worked_is_followed_by_a_wait() {
    for (mark, effect) in
        [(HealthSignal::Neutral, SessionEffect::None), (HealthSignal::Failure, SessionEffect::Probe)]
    {
        let longest = longest(|| {
            let mut story = SupervisorScenario::ready();
            story.answer(1, mark, effect);
            story
        });
        assert!((50..=100).contains(&longest), "{longest} ms");
    }
}

#[test]
fn a_failed_start_is_a_failure_too() {
    let longest = longest(|| {
        let mut story = SupervisorScenario::eager();
        story.poll();
        story.fail_start(1);
        let generation = story.recover();
        story.answer(generation, HealthSignal::Success, SessionEffect::None);
        story
    });
    assert!((500..=1_000).contains(&longest), "the delays go on from where they were: {longest} ms");
}

/// The times at which a server that fails every start is started until it is ejected.
fn failed_starts(mut story: SupervisorScenario) -> Vec<u64> {
    let mut starts = Vec::new();
    loop {
        for action in story.poll() {
            if let Action::Start { generation } = action {
                starts.push(story.now);
                story.fail_start(generation);
            }
        }
        match *story.supervisor.phase() {
            Phase::Backoff { until, .. } => {
                story.now = u64::try_from((until - at(0)).as_nanos().div_ceil(1_000_000)).unwrap();
            }
            _ => return starts,
        }
    }
}

#[test]
fn the_starts_of_a_server_that_never_came_up_are_spread_over_many_seconds() {
    let all: Vec<Vec<u64>> = (0..200)
        .map(|seed| {
            let mut story = SupervisorScenario::eager();
            story.rng = fastrand::Rng::with_seed(seed);
            failed_starts(story)
        })
        .collect();
    assert!(all.iter().all(|starts| starts.len() == 6));
    for starts in &all {
        let gaps: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        for (gap, ceiling) in gaps.iter().zip([500, 1_000, 2_000, 4_000, 5_000]) {
            assert!((ceiling / 2..=ceiling + 1).contains(gap), "{gaps:?}");
        }
        assert!(starts[5] >= 8_750, "{starts:?}");
    }
}

#[test]
fn a_process_that_failed_to_start_twice_and_never_came_up_is_not_waited_for() {
    for has_record in [false, true] {
        let mut story = SupervisorScenario::eager();
        if has_record {
            story.supervisor.on_started_before();
        }
        let mut is_waited_for = Vec::new();
        for generation in 1..=2 {
            assert_eq!(story.poll(), [start(generation)]);
            story.fail_start(generation);
            let Phase::Backoff { until, .. } = *story.supervisor.phase() else { panic!("no backoff") };
            is_waited_for.push(story.supervisor.availability(at(story.now)) == Availability::Wait);
            assert_eq!(
                story.supervisor.availability(until),
                Availability::Wait,
                "the next try is waited for"
            );
            story.now = u64::try_from((until - at(0)).as_nanos().div_ceil(1_000_000)).unwrap();
        }
        assert_eq!(is_waited_for, [true, has_record]);
    }
}

#[test]
fn the_budget_of_a_server_that_worked_lasts_for_seconds_too() {
    for seed in 0..200 {
        let mut story = SupervisorScenario::ready();
        story.rng = fastrand::Rng::with_seed(seed);
        story.answer(1, HealthSignal::Success, SessionEffect::None);
        story.supervisor.on_bind();
        story.crash(1);
        let starts = failed_starts(story);
        assert_eq!((starts.len(), starts[0]), (5, 0), "the first restart comes at once");
        assert!(starts[4] >= 5_000, "{starts:?}");
    }
}

#[test]
fn ten_healthy_seconds_with_a_good_answer_start_the_delays_over() {
    let table = [(10_000, true, 0), (10_000, false, 400), (9_999, true, 400)];
    for (uptime, is_proven, ceiling) in table {
        let longest = longest(|| {
            let mut story = SupervisorScenario::eager();
            story.poll();
            story.supervisor.on_started(1, at(0));
            let mut generation = 1;
            for _ in 0..2 {
                story.crash(generation);
                story.poll();
                generation = story.recover();
            }
            if is_proven {
                story.answer(generation, HealthSignal::Success, SessionEffect::None);
            }
            story.advance(uptime);
            story
        });
        assert!((ceiling / 2..=ceiling).contains(&longest), "{uptime} ms, proven {is_proven}: {longest} ms");
    }
}

#[test]
fn a_reload_gives_the_restart_without_a_wait_back() {
    let mut story = SupervisorScenario::eager();
    story.poll();
    story.fail_start(1);
    story.supervisor.on_reload();
    assert_eq!(story.poll(), [start(2)]);
    story.supervisor.on_started(2, at(0));
    story.answer(2, HealthSignal::Success, SessionEffect::None);
    assert!(story.crash(2));
    assert_eq!(story.poll(), [retire(2, RetireMode::Now), start(3)]);
}
