use proptest::prelude::*;

use super::*;
use crate::test_clock::{at, ms};

const SETTINGS: BreakerSettings = BreakerSettings { failures: 3, reset: ms(30_000) };

/// Returns a call of a caller to the one tool of most tests.
fn by(caller: &str) -> Option<CallOrigin<'_>> {
    Some(CallOrigin { caller, tool: "work" })
}

/// Sends one call and records its signal; `None` if it was refused.
fn send(breaker: &mut Breaker, caller: &str, signal: HealthSignal, now: u64) -> Option<()> {
    let permit = breaker.admit(by(caller), at(now)).ok()?;
    breaker.record_signal(permit, by(caller), signal, at(now));
    Some(())
}

/// Lets two callers fail at a half-open breaker.
fn fail_probes(breaker: &mut Breaker, now: u64) {
    for caller in ["ada", "bob"] {
        send(breaker, caller, HealthSignal::Failure, now).unwrap();
    }
}

/// Returns a breaker that opened for every caller at 0 and admits a probe from 30 s on.
fn tripped() -> Breaker {
    let mut breaker = Breaker::new(SETTINGS);
    for caller in ["ada", "bob", "ada"] {
        send(&mut breaker, caller, HealthSignal::Failure, 0).unwrap();
    }
    breaker
}

#[test]
fn it_opens_after_the_set_number_of_failures_in_a_row() {
    let mut breaker = Breaker::new(SETTINGS);
    let story = [
        ("ada", HealthSignal::Failure),
        ("bob", HealthSignal::Failure),
        ("cyd", HealthSignal::Success),
        ("ada", HealthSignal::Failure),
        ("bob", HealthSignal::Neutral),
        ("bob", HealthSignal::Failure),
    ];
    for (caller, signal) in story {
        send(&mut breaker, caller, signal, 0).unwrap();
    }
    assert_eq!(breaker.circuit(at(0)), BreakerState::Closed { consecutive: 2 });
    send(&mut breaker, "cyd", HealthSignal::Failure, 0).unwrap();
    assert_eq!(breaker.circuit(at(1_000)), BreakerState::Open { retry_after: ms(29_000) });
    let refused = breaker.admit(by("dan"), at(1_000)).unwrap_err();
    assert_eq!(refused, BreakerRejection { retry_after: ms(29_000), caller_failures: None });
}

#[test]
fn one_caller_alone_is_held_back_alone_and_only_at_the_tool_that_fails() {
    let mut breaker = Breaker::new(SETTINGS);
    for _ in 0..3 {
        send(&mut breaker, "ada", HealthSignal::Failure, 0).unwrap();
    }
    let refused = breaker.admit(by("ada"), at(1_000)).unwrap_err();
    assert_eq!(refused, BreakerRejection { retry_after: ms(29_000), caller_failures: Some(3) });
    assert_eq!(breaker.circuit(at(0)), BreakerState::Closed { consecutive: 3 });
    assert_eq!((breaker.held_back(), breaker.transitions()), (1, 0));
    let elsewhere = Some(CallOrigin { caller: "ada", tool: "rest" });
    assert!(breaker.admit(elsewhere, at(0)).is_ok());
    assert!(breaker.admit(by("bob"), at(0)).is_ok());
    // Its own probe decides about itself.
    send(&mut breaker, "ada", HealthSignal::Failure, 30_000).unwrap();
    assert_eq!(breaker.admit(by("ada"), at(30_000)).unwrap_err().retry_after, ms(60_000));
    send(&mut breaker, "ada", HealthSignal::Success, 90_000).unwrap();
    assert_eq!(breaker.held_back(), 0);
}

#[test]
fn one_callers_failures_and_a_crash_hold_every_caller_back() {
    let mut breaker = Breaker::new(SETTINGS);
    for _ in 0..2 {
        send(&mut breaker, "ada", HealthSignal::Failure, 0).unwrap();
    }
    breaker.record_server_failure(at(0));
    assert!(breaker.admit(by("bob"), at(0)).is_err());
}

#[test]
fn the_caller_whose_probe_failed_leaves_the_next_probe_to_another() {
    let mut breaker = tripped();
    send(&mut breaker, "cyd", HealthSignal::Failure, 30_000).unwrap();
    let refused = breaker.admit(by("cyd"), at(30_001)).unwrap_err();
    assert_eq!(refused, BreakerRejection { retry_after: ms(59_999), caller_failures: None });
    send(&mut breaker, "dan", HealthSignal::Success, 30_001).unwrap();
    assert_eq!(breaker.circuit(at(30_001)), BreakerState::Closed { consecutive: 0 });
    send(&mut breaker, "cyd", HealthSignal::Success, 30_002).unwrap();
}

#[test]
fn a_caller_that_is_alone_waits_twice_as_long_after_each_failed_probe() {
    let mut breaker = tripped();
    let mut now = 30_000;
    for seconds in [60, 120, 240, 300, 300] {
        send(&mut breaker, "cyd", HealthSignal::Failure, now).unwrap();
        let left = Duration::from_secs(seconds);
        let elsewhere = Some(CallOrigin { caller: "cyd", tool: "rest" });
        assert_eq!(breaker.admit(elsewhere, at(now)).unwrap_err().retry_after, left);
        now += seconds * 1_000;
    }
}

#[test]
fn a_list_passes_and_says_nothing() {
    let mut breaker = tripped();
    let list = breaker.admit(None, at(0)).unwrap();
    assert!(breaker.is_current(&list, None) && !list.is_probe());
    breaker.record_signal(list, None, HealthSignal::Success, at(0));
    assert_eq!(breaker.circuit(at(0)), BreakerState::Open { retry_after: ms(30_000) });
}

#[test]
fn records_of_failing_callers_are_bounded() {
    let mut breaker = Breaker::new(SETTINGS);
    for number in 0..10 * MAX_CALLER_SCOPES {
        let tool = number.to_string();
        let origin = Some(CallOrigin { caller: "ada", tool: &tool });
        let permit = breaker.admit(origin, at(0)).unwrap();
        breaker.record_signal(permit, origin, HealthSignal::Failure, at(0));
    }
    assert_eq!(breaker.caller_scopes.len(), MAX_CALLER_SCOPES);
}

#[test]
fn of_a_thousand_callers_at_half_open_one_passes() {
    let mut breaker = tripped();
    assert_eq!(breaker.circuit(at(30_000)), BreakerState::HalfOpen { is_probing: false });
    let answers: Vec<_> = (0..1_000).map(|n| breaker.admit(by(&n.to_string()), at(30_000))).collect();
    assert!(answers[0].as_ref().unwrap().is_probe());
    assert!(answers[1..].iter().all(|answer| answer.as_ref().unwrap_err().retry_after == PROBE_RETRY));
    assert_eq!(breaker.circuit(at(30_000)), BreakerState::HalfOpen { is_probing: true });
}

#[test]
fn a_good_probe_closes_and_the_next_trip_waits_the_first_time_again() {
    let mut breaker = tripped();
    fail_probes(&mut breaker, 30_000);
    send(&mut breaker, "cyd", HealthSignal::Success, 90_000).unwrap();
    assert_eq!(breaker.circuit(at(90_000)), BreakerState::Closed { consecutive: 0 });
    for caller in ["cyd", "dan", "eve"] {
        send(&mut breaker, caller, HealthSignal::Failure, 90_000).unwrap();
    }
    assert_eq!(breaker.circuit(at(90_000)), BreakerState::Open { retry_after: ms(30_000) });
}

#[test]
fn a_failed_probe_trips_again_and_waits_twice_as_long_up_to_the_cap() {
    let mut breaker = tripped();
    let mut now = 30_000;
    for seconds in [60, 120, 240, 300, 300] {
        breaker.record_server_failure(at(now));
        assert_eq!(
            breaker.circuit(at(now)),
            BreakerState::Open { retry_after: Duration::from_secs(seconds) }
        );
        now += seconds * 1_000;
    }
    assert_eq!(breaker.consecutive_failures(), 8);
}

#[test]
fn a_neutral_probe_gives_its_place_back_at_once() {
    let mut breaker = tripped();
    send(&mut breaker, "cyd", HealthSignal::Neutral, 30_000).unwrap();
    assert_eq!(breaker.circuit(at(30_000)), BreakerState::HalfOpen { is_probing: false });
    assert!(breaker.admit(by("cyd"), at(30_000)).unwrap().is_probe());
}

#[test]
fn a_dropped_probe_gives_its_place_back_at_once() {
    let mut breaker = tripped();
    let probe = breaker.admit(by("cyd"), at(30_000)).unwrap();
    breaker.admit(by("cyd"), at(30_000)).unwrap_err();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _probe = probe;
        std::panic::resume_unwind(Box::new("the task died"));
    }));
    assert!(panicked.is_err());
    assert!(breaker.admit(by("cyd"), at(30_000)).unwrap().is_probe());
}

#[test]
fn late_answers_from_before_the_trip_change_nothing() {
    let mut breaker = Breaker::new(SETTINGS);
    let [early, other] = [breaker.admit(by("cyd"), at(0)).unwrap(), breaker.admit(by("cyd"), at(0)).unwrap()];
    for caller in ["ada", "bob", "ada"] {
        send(&mut breaker, caller, HealthSignal::Failure, 0).unwrap();
    }
    breaker.record_signal(early, by("cyd"), HealthSignal::Success, at(10));
    assert_eq!(breaker.circuit(at(10)), BreakerState::Open { retry_after: ms(29_990) });
    let _probe = breaker.admit(by("cyd"), at(30_000)).unwrap();
    breaker.record_signal(other, by("cyd"), HealthSignal::Failure, at(30_000));
    assert_eq!(breaker.circuit(at(30_000)), BreakerState::HalfOpen { is_probing: true });
}

#[test]
fn a_late_probe_changes_nothing_after_the_breaker_was_cleared() {
    let mut breaker = tripped();
    let probe = breaker.admit(by("cyd"), at(30_000)).unwrap();
    breaker.clear();
    assert_eq!(breaker.circuit(at(30_000)), BreakerState::Closed { consecutive: 0 });
    breaker.record_signal(probe, by("cyd"), HealthSignal::Failure, at(30_000));
    assert_eq!(breaker.circuit(at(30_000)), BreakerState::Closed { consecutive: 0 });
}

#[test]
fn a_crash_under_the_probe_trips_again_and_the_probe_adds_nothing() {
    let mut breaker = tripped();
    let probe = breaker.admit(by("cyd"), at(30_000)).unwrap();
    breaker.record_server_failure(at(30_500));
    breaker.record_signal(probe, by("cyd"), HealthSignal::Neutral, at(30_500));
    assert_eq!(breaker.circuit(at(30_500)), BreakerState::Open { retry_after: ms(60_000) });
    assert_eq!(breaker.consecutive_failures(), 4);
}

#[test]
fn crashes_while_open_do_not_prolong_the_wait() {
    let mut breaker = tripped();
    breaker.record_server_failure(at(10_000));
    assert_eq!(breaker.circuit(at(10_000)), BreakerState::Open { retry_after: ms(20_000) });
    assert_eq!(breaker.consecutive_failures(), 4);
}

#[test]
fn failed_starts_without_any_call_open_it_too() {
    let mut breaker = Breaker::new(SETTINGS);
    for now in 0..3 {
        breaker.record_server_failure(at(now));
    }
    assert_eq!(breaker.circuit(at(2)), BreakerState::Open { retry_after: SETTINGS.reset });
}

#[test]
fn zero_failures_switch_it_off() {
    let mut breaker = Breaker::new(BreakerSettings { failures: 0, ..SETTINGS });
    for _ in 0..100 {
        send(&mut breaker, "cyd", HealthSignal::Failure, 0).unwrap();
    }
    assert_eq!(breaker.circuit(at(0)), BreakerState::Closed { consecutive: 100 });
}

#[test]
fn a_first_wait_beyond_the_cap_is_the_operators_word() {
    let hour = ms(3_600_000);
    let mut breaker = Breaker::new(BreakerSettings { failures: 1, reset: hour });
    breaker.record_server_failure(at(0));
    breaker.record_server_failure(at(3_600_000));
    assert_eq!(breaker.circuit(at(3_600_000)), BreakerState::Open { retry_after: hour });
}

#[test]
fn a_permit_is_current_until_the_breaker_turns() {
    let mut breaker = Breaker::new(SETTINGS);
    let permit = breaker.admit(by("cyd"), at(0)).unwrap();
    assert!(breaker.is_current(&permit, by("cyd")));
    for _ in 0..2 {
        breaker.record_server_failure(at(0));
    }
    assert!(breaker.is_current(&permit, by("cyd")), "it has not tripped yet");
    breaker.record_server_failure(at(0));
    assert!(!breaker.is_current(&permit, by("cyd")));
}

#[test]
fn every_trip_closing_and_clearing_is_a_turn() {
    let mut breaker = tripped();
    assert_eq!(breaker.transitions(), 1);
    fail_probes(&mut breaker, 30_000);
    assert_eq!(breaker.transitions(), 2);
    for _ in 0..2 {
        send(&mut breaker, "cyd", HealthSignal::Success, 90_000).unwrap();
    }
    assert_eq!(breaker.transitions(), 3);
    breaker.clear();
    assert_eq!(breaker.transitions(), 4);
}

#[test]
fn a_pause_the_server_asks_for_yields_only_to_a_longer_wait() {
    let mut breaker = Breaker::new(BreakerSettings { failures: 0, ..SETTINGS });
    breaker.hold_open(at(0), ms(20_000));
    assert_eq!(breaker.circuit(at(0)), BreakerState::Open { retry_after: ms(20_000) });
    breaker.hold_open(at(10_000), ms(5_000));
    assert_eq!(breaker.circuit(at(10_000)), BreakerState::Open { retry_after: ms(10_000) });
    assert_eq!(breaker.transitions(), 1, "nothing has changed for anybody");
    breaker.hold_open(at(10_000), ms(10_000));
    assert_eq!(breaker.transitions(), 1, "it ends when the wait under way does");
    breaker.hold_open(at(10_000), ms(15_000));
    assert_eq!(breaker.circuit(at(10_000)), BreakerState::Open { retry_after: ms(15_000) });
    assert!(breaker.admit(by("cyd"), at(25_000)).unwrap().is_probe());
}

/// Reference model of one caller at one tool: numbers only, and permits known by the epoch they were given
/// in.
#[derive(Default)]
struct CallerScopeModel {
    failures: u32,
    consecutive: u32,
    epoch: u32,
    /// The first epoch whose permits count.
    valid_from: u32,
    /// Start and length of the wait in milliseconds, unless closed.
    opened: Option<(u64, u64)>,
    is_probing: bool,
}

const RESET: u64 = 30_000;

impl CallerScopeModel {
    fn may_pass(&mut self, now: u64) -> bool {
        match self.opened {
            None => true,
            Some((until, _)) if now < until || self.is_probing => false,
            Some(_) => {
                self.is_probing = true;
                true
            }
        }
    }

    fn record_signal(&mut self, epoch: u32, signal: HealthSignal, now: u64) {
        if epoch < self.valid_from {
            return;
        }
        self.is_probing = false;
        match signal {
            HealthSignal::Neutral => {}
            HealthSignal::Success => (self.consecutive, self.opened, self.valid_from) = (0, None, 0),
            HealthSignal::Failure => {
                self.consecutive += 1;
                let is_tripped = match self.opened {
                    None => self.failures > 0 && self.consecutive >= self.failures,
                    Some((until, _)) => now >= until,
                };
                if is_tripped {
                    let wait = self.opened.map_or(RESET, |(_, wait)| (wait * 2).min(300_000));
                    self.opened = Some((now + wait, wait));
                    self.epoch += 1;
                    self.valid_from = self.epoch;
                }
            }
        }
    }
}

#[derive(Debug, Clone)]
enum BreakerModelEvent {
    /// One of the callers asks to send a call.
    Admit(usize),
    /// Returns the n-th of the outstanding permits.
    Record(prop::sample::Index, HealthSignal),
    Drop(prop::sample::Index),
    Crash,
}

fn events(callers: usize, crashes: u32) -> impl Strategy<Value = Vec<(u64, BreakerModelEvent)>> {
    let signal = prop_oneof![3 => Just(HealthSignal::Failure), 1 => Just(HealthSignal::Success), 1 => Just(HealthSignal::Neutral)];
    let event = prop_oneof![
        8 => (0..callers).prop_map(BreakerModelEvent::Admit),
        8 => (any::<prop::sample::Index>(), signal).prop_map(|(which, signal)| BreakerModelEvent::Record(which, signal)),
        1 => any::<prop::sample::Index>().prop_map(BreakerModelEvent::Drop),
        crashes => Just(BreakerModelEvent::Crash),
    ];
    let step = prop_oneof![4 => 0u64..10, 1 => 10_000u64..90_000];
    prop::collection::vec((step, event), 0..160)
}

const CALLERS: [&str; 4] = ["abuser", "ada", "bob", "cyd"];

proptest! {
    #[test]
    fn a_lone_caller_meets_the_machine_of_its_model(failures in 0u32..5, events in events(1, 0)) {
        let mut breaker = Breaker::new(BreakerSettings { failures, reset: ms(RESET) });
        let mut model = CallerScopeModel { failures, ..CallerScopeModel::default() };
        let mut out: Vec<(BreakerPermit, u32)> = Vec::new();
        let mut now = 0;
        for (step, event) in events {
            now += step;
            match event {
                BreakerModelEvent::Admit(_) => {
                    let permit = breaker.admit(by("ada"), at(now));
                    prop_assert_eq!(permit.is_ok(), model.may_pass(now));
                    match permit {
                        Ok(permit) => out.push((permit, model.epoch)),
                        Err(refused) => prop_assert!(!refused.retry_after.is_zero()),
                    }
                }
                BreakerModelEvent::Record(which, signal) if !out.is_empty() => {
                    let (permit, epoch) = out.swap_remove(which.index(out.len()));
                    breaker.record_signal(permit, by("ada"), signal, at(now));
                    model.record_signal(epoch, signal, now);
                }
                BreakerModelEvent::Drop(which) if !out.is_empty() => {
                    let (_, epoch) = out.swap_remove(which.index(out.len()));
                    model.record_signal(epoch, HealthSignal::Neutral, now);
                }
                BreakerModelEvent::Crash | BreakerModelEvent::Record(..) | BreakerModelEvent::Drop(_) => {}
            }
            prop_assert_eq!(breaker.held_back(), usize::from(model.opened.is_some()));
            let is_closed = matches!(breaker.circuit(at(now)), BreakerState::Closed { .. });
            prop_assert!(is_closed, "one caller alone opens it for nobody else");
        }
    }

    /// Calls of the abuser end in any way, those of the others well. In any order the others pass as long as
    /// the server itself does not fail; after a crash they pass once the wait is over and no probe is in
    /// flight.
    #[test]
    fn a_caller_whose_calls_succeed_is_not_held_back_by_another(
        failures in 1u32..5,
        crashes in prop_oneof![Just(0u32), Just(2u32)],
        events in (0u32..3).prop_flat_map(|crashes| events(CALLERS.len(), crashes)),
    ) {
        let mut breaker = Breaker::new(BreakerSettings { failures, reset: ms(RESET) });
        let mut out: Vec<(BreakerPermit, usize)> = Vec::new();
        let (mut now, mut has_crashed) = (0, false);
        for (step, event) in events {
            now += step;
            match event {
                BreakerModelEvent::Admit(caller) => {
                    let before = breaker.circuit(at(now));
                    let permit = breaker.admit(by(CALLERS[caller]), at(now));
                    let is_excused = has_crashed && match before {
                        BreakerState::Closed { .. } => false,
                        BreakerState::Open { .. } => true,
                        BreakerState::HalfOpen { is_probing } => is_probing,
                    };
                    prop_assert!(permit.is_ok() || caller == 0 || is_excused, "{:?}", before);
                    out.extend(permit.ok().map(|permit| (permit, caller)));
                }
                BreakerModelEvent::Record(which, signal) if !out.is_empty() => {
                    let (permit, caller) = out.swap_remove(which.index(out.len()));
                    let signal = if caller == 0 { signal } else { HealthSignal::Success };
                    breaker.record_signal(permit, by(CALLERS[caller]), signal, at(now));
                }
                BreakerModelEvent::Drop(which) if !out.is_empty() => {
                    drop(out.swap_remove(which.index(out.len())));
                }
                BreakerModelEvent::Crash if crashes > 0 => {
                    breaker.record_server_failure(at(now));
                    has_crashed = true;
                }
                BreakerModelEvent::Crash | BreakerModelEvent::Record(..) | BreakerModelEvent::Drop(_) => {}
            }
            let current = |(permit, _): &&(BreakerPermit, usize)| {
                permit.is_probe() && permit.epoch.is_some_and(|epoch| breaker.server.is_current(epoch))
            };
            prop_assert!(out.iter().filter(current).count() <= 1);
        }
    }

    /// A server that answers no call is detected, whichever callers it has.
    #[test]
    fn a_dead_server_is_held_back(failures in 1u32..5, callers in 1usize..5, tools in 1usize..4) {
        let mut breaker = Breaker::new(BreakerSettings { failures, reset: ms(RESET) });
        let tools: Vec<String> = (0..tools).map(|tool| tool.to_string()).collect();
        let mut sent = 0;
        for _ in 0..100 {
            for caller in &CALLERS[..callers.min(CALLERS.len())] {
                for tool in &tools {
                    let origin = Some(CallOrigin { caller, tool });
                    let Ok(permit) = breaker.admit(origin, at(0)) else { continue };
                    breaker.record_signal(permit, origin, HealthSignal::Failure, at(0));
                    sent += 1;
                }
            }
        }
        let bound = if callers == 1 { tools.len() * failures as usize } else { failures as usize + tools.len() };
        prop_assert!(sent <= bound, "{sent} calls");
    }
}
