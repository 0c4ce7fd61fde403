use proptest::prelude::*;

use super::*;
use crate::clock::{at, ms};

const SETTINGS: BreakerSettings = BreakerSettings { failures: 3, reset: ms(30_000) };

/// Sends one call and settles it; `None` when it was refused.
fn send(breaker: &mut Breaker, mark: Mark, now: u64) -> Option<()> {
    let permit = breaker.admit(at(now)).ok()?;
    breaker.settle(permit, mark, at(now));
    Some(())
}

/// A breaker that opened at 0 and may be probed from 30 s on.
fn tripped() -> Breaker {
    let mut breaker = Breaker::new(SETTINGS);
    for _ in 0..3 {
        send(&mut breaker, Mark::Failure, 0).unwrap();
    }
    breaker
}

#[test]
fn it_opens_after_the_set_number_of_failures_in_a_row() {
    let mut breaker = Breaker::new(SETTINGS);
    for mark in [Mark::Failure, Mark::Failure, Mark::Success, Mark::Failure, Mark::Neutral, Mark::Failure] {
        send(&mut breaker, mark, 0).unwrap();
    }
    assert_eq!(breaker.circuit(at(0)), Circuit::Closed { consecutive: 2 });
    send(&mut breaker, Mark::Failure, 0).unwrap();
    assert_eq!(breaker.circuit(at(1_000)), Circuit::Open { retry_after: ms(29_000) });
    assert_eq!(breaker.admit(at(1_000)).unwrap_err().retry_after, ms(29_000));
}

#[test]
fn of_a_thousand_callers_at_half_open_one_passes() {
    let mut breaker = tripped();
    assert_eq!(breaker.circuit(at(30_000)), Circuit::HalfOpen { is_probing: false });
    let answers: Vec<_> = (0..1_000).map(|_| breaker.admit(at(30_000))).collect();
    assert!(answers[0].as_ref().unwrap().is_probe());
    assert!(answers[1..].iter().all(|answer| answer.as_ref().unwrap_err().retry_after == PROBE_RETRY));
    assert_eq!(breaker.circuit(at(30_000)), Circuit::HalfOpen { is_probing: true });
}

#[test]
fn a_good_probe_closes_and_the_next_trip_waits_the_first_time_again() {
    let mut breaker = tripped();
    send(&mut breaker, Mark::Failure, 30_000).unwrap();
    send(&mut breaker, Mark::Success, 90_000).unwrap();
    assert_eq!(breaker.circuit(at(90_000)), Circuit::Closed { consecutive: 0 });
    for _ in 0..3 {
        send(&mut breaker, Mark::Failure, 90_000).unwrap();
    }
    assert_eq!(breaker.circuit(at(90_000)), Circuit::Open { retry_after: ms(30_000) });
}

#[test]
fn a_failed_probe_trips_again_and_waits_twice_as_long_up_to_the_cap() {
    let mut breaker = tripped();
    let mut now = 30_000;
    for seconds in [60, 120, 240, 300, 300] {
        send(&mut breaker, Mark::Failure, now).unwrap();
        assert_eq!(breaker.circuit(at(now)), Circuit::Open { retry_after: Duration::from_secs(seconds) });
        now += seconds * 1_000;
    }
    assert_eq!(breaker.consecutive_failures(), 8);
}

#[test]
fn a_neutral_probe_gives_its_place_back_at_once() {
    let mut breaker = tripped();
    send(&mut breaker, Mark::Neutral, 30_000).unwrap();
    assert_eq!(breaker.circuit(at(30_000)), Circuit::HalfOpen { is_probing: false });
    assert!(breaker.admit(at(30_000)).unwrap().is_probe());
}

#[test]
fn a_dropped_probe_gives_its_place_back_at_once() {
    let mut breaker = tripped();
    let probe = breaker.admit(at(30_000)).unwrap();
    breaker.admit(at(30_000)).unwrap_err();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _probe = probe;
        std::panic::resume_unwind(Box::new("the task died"));
    }));
    assert!(panicked.is_err());
    assert!(breaker.admit(at(30_000)).unwrap().is_probe());
}

#[test]
fn late_answers_from_before_the_trip_change_nothing() {
    let mut breaker = Breaker::new(SETTINGS);
    let [early, other] = [breaker.admit(at(0)).unwrap(), breaker.admit(at(0)).unwrap()];
    for _ in 0..3 {
        send(&mut breaker, Mark::Failure, 0).unwrap();
    }
    breaker.settle(early, Mark::Success, at(10));
    assert_eq!(breaker.circuit(at(10)), Circuit::Open { retry_after: ms(29_990) });
    let _probe = breaker.admit(at(30_000)).unwrap();
    breaker.settle(other, Mark::Failure, at(30_000));
    assert_eq!(breaker.circuit(at(30_000)), Circuit::HalfOpen { is_probing: true });
}

#[test]
fn a_late_probe_changes_nothing_after_the_breaker_was_cleared() {
    let mut breaker = tripped();
    let probe = breaker.admit(at(30_000)).unwrap();
    breaker.clear();
    assert_eq!(breaker.circuit(at(30_000)), Circuit::Closed { consecutive: 0 });
    breaker.settle(probe, Mark::Failure, at(30_000));
    assert_eq!(breaker.circuit(at(30_000)), Circuit::Closed { consecutive: 0 });
}

#[test]
fn a_crash_under_the_probe_trips_again_and_the_probe_adds_nothing() {
    let mut breaker = tripped();
    let probe = breaker.admit(at(30_000)).unwrap();
    breaker.fail(at(30_500));
    breaker.settle(probe, Mark::Neutral, at(30_500));
    assert_eq!(breaker.circuit(at(30_500)), Circuit::Open { retry_after: ms(60_000) });
    assert_eq!(breaker.consecutive_failures(), 4);
}

#[test]
fn crashes_while_open_do_not_prolong_the_wait() {
    let mut breaker = tripped();
    breaker.fail(at(10_000));
    assert_eq!(breaker.circuit(at(10_000)), Circuit::Open { retry_after: ms(20_000) });
    assert_eq!(breaker.consecutive_failures(), 4);
}

#[test]
fn failed_starts_without_any_call_open_it_too() {
    let mut breaker = Breaker::new(SETTINGS);
    for now in 0..3 {
        breaker.fail(at(now));
    }
    assert_eq!(breaker.circuit(at(2)), Circuit::Open { retry_after: SETTINGS.reset });
}

#[test]
fn zero_failures_switch_it_off() {
    let mut breaker = Breaker::new(BreakerSettings { failures: 0, ..SETTINGS });
    for _ in 0..100 {
        send(&mut breaker, Mark::Failure, 0).unwrap();
    }
    assert_eq!(breaker.circuit(at(0)), Circuit::Closed { consecutive: 100 });
}

#[test]
fn a_first_wait_beyond_the_cap_is_the_operators_word() {
    let hour = ms(3_600_000);
    let mut breaker = Breaker::new(BreakerSettings { failures: 1, reset: hour });
    send(&mut breaker, Mark::Failure, 0).unwrap();
    send(&mut breaker, Mark::Failure, 3_600_000).unwrap();
    assert_eq!(breaker.circuit(at(3_600_000)), Circuit::Open { retry_after: hour });
}

#[test]
fn a_permit_is_current_until_the_breaker_turns() {
    let mut breaker = Breaker::new(SETTINGS);
    let permit = breaker.admit(at(0)).unwrap();
    assert!(breaker.is_current(&permit));
    for _ in 0..2 {
        send(&mut breaker, Mark::Failure, 0).unwrap();
    }
    assert!(breaker.is_current(&permit), "it has not tripped yet");
    send(&mut breaker, Mark::Failure, 0).unwrap();
    assert!(!breaker.is_current(&permit));
}

#[test]
fn every_trip_closing_and_clearing_is_a_turn() {
    let mut breaker = tripped();
    assert_eq!(breaker.turns(), 1);
    send(&mut breaker, Mark::Failure, 30_000).unwrap();
    assert_eq!(breaker.turns(), 2);
    send(&mut breaker, Mark::Success, 90_000).unwrap();
    send(&mut breaker, Mark::Success, 90_000).unwrap();
    assert_eq!(breaker.turns(), 3);
    breaker.clear();
    assert_eq!(breaker.turns(), 4);
}

#[test]
fn a_pause_the_server_asks_for_yields_only_to_a_longer_wait() {
    let mut breaker = Breaker::new(BreakerSettings { failures: 0, ..SETTINGS });
    breaker.hold(at(0), ms(20_000));
    assert_eq!(breaker.circuit(at(0)), Circuit::Open { retry_after: ms(20_000) });
    breaker.hold(at(10_000), ms(5_000));
    assert_eq!(breaker.circuit(at(10_000)), Circuit::Open { retry_after: ms(10_000) });
    assert_eq!(breaker.turns(), 1, "nothing has changed for anybody");
    breaker.hold(at(10_000), ms(10_000));
    assert_eq!(breaker.turns(), 1, "it ends when the wait under way does");
    breaker.hold(at(10_000), ms(15_000));
    assert_eq!(breaker.circuit(at(10_000)), Circuit::Open { retry_after: ms(15_000) });
    assert!(breaker.admit(at(25_000)).unwrap().is_probe());
}

/// The reference: numbers only, and permits known by the epoch they were given in.
#[derive(Default)]
struct Model {
    failures: u32,
    consecutive: u32,
    epoch: u32,
    /// Milliseconds at which the wait ends and its length, unless closed.
    opened: Option<(u64, u64)>,
    is_probing: bool,
}

const RESET: u64 = 30_000;

impl Model {
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

    fn settle(&mut self, epoch: u32, mark: Mark, now: u64) {
        if epoch != self.epoch {
            return;
        }
        self.is_probing = false;
        match mark {
            Mark::Neutral => {}
            Mark::Failure => self.fail(now),
            Mark::Success => {
                self.consecutive = 0;
                self.epoch += u32::from(self.opened.take().is_some());
            }
        }
    }

    fn fail(&mut self, now: u64) {
        self.consecutive += 1;
        let is_tripped = match self.opened {
            None => self.consecutive == self.failures,
            Some((until, _)) => now >= until,
        };
        if is_tripped {
            let wait = self.opened.map_or(RESET, |(_, wait)| (wait * 2).min(300_000));
            self.opened = Some((now + wait, wait));
            self.epoch += 1;
            self.is_probing = false;
        }
    }
}

#[derive(Debug, Clone)]
enum Event {
    Admit,
    /// Settles the n-th of the permits that are out.
    Settle(prop::sample::Index, Mark),
    Drop(prop::sample::Index),
    Crash,
    Clear,
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let mark = prop_oneof![3 => Just(Mark::Failure), 1 => Just(Mark::Success), 1 => Just(Mark::Neutral)];
    let event = prop_oneof![
        8 => Just(Event::Admit),
        8 => (any::<prop::sample::Index>(), mark).prop_map(|(which, mark)| Event::Settle(which, mark)),
        1 => any::<prop::sample::Index>().prop_map(Event::Drop),
        1 => Just(Event::Crash),
        1 => Just(Event::Clear),
    ];
    let step = prop_oneof![4 => 0u64..10, 1 => 10_000u64..90_000];
    prop::collection::vec((step, event), 0..120)
}

proptest! {
    #[test]
    fn the_breaker_agrees_with_its_model(failures in 0u32..5, events in events()) {
        let mut breaker = Breaker::new(BreakerSettings { failures, reset: ms(RESET) });
        let mut model = Model { failures, ..Model::default() };
        let mut out: Vec<(Permit, u32)> = Vec::new();
        let mut now = 0;
        for (step, event) in events {
            now += step;
            match event {
                Event::Admit => {
                    let permit = breaker.admit(at(now));
                    prop_assert_eq!(permit.is_ok(), model.may_pass(now));
                    match permit {
                        Ok(permit) => {
                            prop_assert_eq!(permit.is_probe(), model.opened.is_some());
                            out.push((permit, model.epoch));
                        }
                        Err(refused) => prop_assert!(!refused.retry_after.is_zero()),
                    }
                }
                Event::Settle(which, mark) if !out.is_empty() => {
                    let (permit, epoch) = out.swap_remove(which.index(out.len()));
                    breaker.settle(permit, mark, at(now));
                    model.settle(epoch, mark, now);
                }
                Event::Drop(which) if !out.is_empty() => {
                    let (_, epoch) = out.swap_remove(which.index(out.len()));
                    model.settle(epoch, Mark::Neutral, now);
                }
                Event::Crash => {
                    breaker.fail(at(now));
                    model.fail(now);
                }
                Event::Clear => {
                    breaker.clear();
                    model = Model { failures, epoch: model.epoch + 1, ..Model::default() };
                }
                Event::Settle(..) | Event::Drop(_) => {}
            }
            let expected = match model.opened {
                None => Circuit::Closed { consecutive: model.consecutive },
                Some((until, _)) if now < until => Circuit::Open { retry_after: ms(until - now) },
                Some(_) => Circuit::HalfOpen { is_probing: model.is_probing },
            };
            prop_assert_eq!(breaker.circuit(at(now)), expected);
            prop_assert_eq!(breaker.consecutive_failures(), model.consecutive);
            let probes = out.iter().filter(|(permit, _)| permit.is_probe() && permit.epoch == breaker.epoch);
            prop_assert!(probes.count() <= 1);
        }
    }
}
