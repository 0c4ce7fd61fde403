//! Tests of the delays before restarts.

use super::tests::{SupervisorScenario, retire, start};
use super::*;
use crate::test_clock::at;

/// A good answer to a call, and to a list.
const GOOD: [(HealthSignal, SessionEffect); 2] =
    [(HealthSignal::Success, SessionEffect::None), (HealthSignal::Neutral, SessionEffect::MarkProven)];

/// Returns the longest delay, over many draws, after the last session of a story has crashed.
fn longest(build: impl Fn() -> SupervisorScenario) -> u64 {
    let delay = |seed| {
        let mut scenario = build();
        scenario.rng = fastrand::Rng::with_seed(seed);
        assert!(scenario.crash(scenario.supervisor.generation()));
        let Phase::Backoff { until, .. } = *scenario.supervisor.phase() else { panic!("no backoff") };
        u64::try_from((until - at(scenario.now)).as_millis()).unwrap()
    };
    (0..200).map(delay).max().unwrap()
}

#[test]
fn a_server_that_has_worked_is_started_again_at_once() {
    for (signal, effect) in GOOD {
        let mut scenario = SupervisorScenario::ready();
        scenario.answer(1, signal, effect);
        scenario.supervisor.on_wait();
        assert!(scenario.crash(1));
        assert_eq!(scenario.poll(), [retire(1, RetireMode::Now), start(2)], "no time passes");
        assert_eq!(scenario.supervisor.restarts(at(0)), (1, 5), "it is a restart like any other");
    }
}

#[test]
fn the_second_failure_waits_however_well_the_session_worked() {
    for (signal, effect) in GOOD {
        let longest = longest(|| {
            let mut scenario = SupervisorScenario::eager();
            scenario.poll();
            for generation in 1..=2 {
                scenario.supervisor.on_started(generation, at(0));
                scenario.answer(generation, signal, effect);
                if generation == 1 {
                    scenario.crash(generation);
                    scenario.poll();
                }
            }
            scenario
        });
        assert!((50..=100).contains(&longest), "{longest} ms");
    }
}

#[test]
fn a_session_that_has_not_worked_is_followed_by_a_wait() {
    for (signal, effect) in
        [(HealthSignal::Neutral, SessionEffect::None), (HealthSignal::Failure, SessionEffect::Probe)]
    {
        let longest = longest(|| {
            let mut scenario = SupervisorScenario::ready();
            scenario.answer(1, signal, effect);
            scenario
        });
        assert!((50..=100).contains(&longest), "{longest} ms");
    }
}

#[test]
fn a_failed_start_is_a_failure_too() {
    let longest = longest(|| {
        let mut scenario = SupervisorScenario::eager();
        scenario.poll();
        scenario.fail_start(1);
        let generation = scenario.recover();
        scenario.answer(generation, HealthSignal::Success, SessionEffect::None);
        scenario
    });
    assert!((500..=1_000).contains(&longest), "the delays go on from where they were: {longest} ms");
}

/// Returns the times at which a server that fails every start is started until it is ejected.
fn failed_starts(mut scenario: SupervisorScenario) -> Vec<u64> {
    let mut starts = Vec::new();
    loop {
        for action in scenario.poll() {
            if let Action::Start { generation } = action {
                starts.push(scenario.now);
                scenario.fail_start(generation);
            }
        }
        match *scenario.supervisor.phase() {
            Phase::Backoff { until, .. } => {
                scenario.now = u64::try_from((until - at(0)).as_nanos().div_ceil(1_000_000)).unwrap();
            }
            _ => return starts,
        }
    }
}

#[test]
fn the_starts_of_a_server_that_never_came_up_are_spread_over_many_seconds() {
    let all: Vec<Vec<u64>> = (0..200)
        .map(|seed| {
            let mut scenario = SupervisorScenario::eager();
            scenario.rng = fastrand::Rng::with_seed(seed);
            failed_starts(scenario)
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
        let mut scenario = SupervisorScenario::eager();
        if has_record {
            scenario.supervisor.on_started_before();
        }
        let mut is_waited_for = Vec::new();
        for generation in 1..=2 {
            assert_eq!(scenario.poll(), [start(generation)]);
            scenario.fail_start(generation);
            let Phase::Backoff { until, .. } = *scenario.supervisor.phase() else { panic!("no backoff") };
            is_waited_for.push(scenario.supervisor.availability(at(scenario.now)) == Availability::Wait);
            assert_eq!(
                scenario.supervisor.availability(until),
                Availability::Wait,
                "the next try is waited for"
            );
            scenario.now = u64::try_from((until - at(0)).as_nanos().div_ceil(1_000_000)).unwrap();
        }
        assert_eq!(is_waited_for, [true, has_record]);
    }
}

#[test]
fn the_budget_of_a_server_that_worked_lasts_for_seconds_too() {
    for seed in 0..200 {
        let mut scenario = SupervisorScenario::ready();
        scenario.rng = fastrand::Rng::with_seed(seed);
        scenario.answer(1, HealthSignal::Success, SessionEffect::None);
        scenario.supervisor.on_bind();
        scenario.crash(1);
        let starts = failed_starts(scenario);
        assert_eq!((starts.len(), starts[0]), (5, 0), "the first restart comes at once");
        assert!(starts[4] >= 5_000, "{starts:?}");
    }
}

#[test]
fn ten_healthy_seconds_with_a_good_answer_start_the_delays_over() {
    let table = [(10_000, true, 0), (10_000, false, 400), (9_999, true, 400)];
    for (uptime, is_proven, ceiling) in table {
        let longest = longest(|| {
            let mut scenario = SupervisorScenario::eager();
            scenario.poll();
            scenario.supervisor.on_started(1, at(0));
            let mut generation = 1;
            for _ in 0..2 {
                scenario.crash(generation);
                scenario.poll();
                generation = scenario.recover();
            }
            if is_proven {
                scenario.answer(generation, HealthSignal::Success, SessionEffect::None);
            }
            scenario.advance(uptime);
            scenario
        });
        assert!((ceiling / 2..=ceiling).contains(&longest), "{uptime} ms, proven {is_proven}: {longest} ms");
    }
}

#[test]
fn a_reload_gives_the_restart_without_a_wait_back() {
    let mut scenario = SupervisorScenario::eager();
    scenario.poll();
    scenario.fail_start(1);
    scenario.supervisor.on_reload();
    assert_eq!(scenario.poll(), [start(2)]);
    scenario.supervisor.on_started(2, at(0));
    scenario.answer(2, HealthSignal::Success, SessionEffect::None);
    assert!(scenario.crash(2));
    assert_eq!(scenario.poll(), [retire(2, RetireMode::Now), start(3)]);
}
