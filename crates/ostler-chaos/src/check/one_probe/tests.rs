use super::super::history_builder::{HistoryBuilder, MS, call, execution, ok, timed_out, unknown};
use super::*;
use crate::history::{Invoke, Purpose};
use crate::ledger::Execution;

/// A breaker that opens after three failures, for a second.
fn builder() -> HistoryBuilder {
    HistoryBuilder::default().event(HistoryEvent::Breaker {
        server: "sick".into(),
        failures: 3,
        wait: 1_000 * MS,
    })
}

fn invoke(number: u64, at: u64) -> Invoke {
    Invoke { server: "sick".into(), tool: "sick".into(), purpose: Purpose::Sick, ..call(number, at) }
}

fn run(number: u64, at: u64, has_failed: bool) -> Execution {
    let (server, tool) = ("sick".into(), "sick".into());
    Execution { server, tool, has_failed, ..execution(number, at + MS, at + 200 * MS) }
}

trait BreakerCalls {
    /// A call at that time, in milliseconds, that runs for 200 ms and fails.
    fn fails(self, number: u64, at: u64) -> Self;
    fn works(self, number: u64, at: u64) -> Self;
    /// A call whose caller leaves after ten milliseconds.
    fn leaves(self, number: u64, at: u64) -> Self;
}

impl BreakerCalls for HistoryBuilder {
    fn fails(self, number: u64, at: u64) -> Self {
        let at = at * MS;
        self.invoke(invoke(number, at)).executed(run(number, at, true)).end(
            number,
            at + 201 * MS,
            timed_out(),
        )
    }

    fn works(self, number: u64, at: u64) -> Self {
        let at = at * MS;
        self.invoke(invoke(number, at)).executed(run(number, at, false)).end(
            number,
            at + 201 * MS,
            ok(number),
        )
    }

    fn leaves(self, number: u64, at: u64) -> Self {
        let at = at * MS;
        let cut_short = Execution { ended: None, ..run(number, at, false) };
        self.invoke(invoke(number, at)).executed(cut_short).end(number, at + 10 * MS, unknown())
    }
}

/// Three failures at once; the breaker is open from 221 ms on, until 1,200 ms at least.
fn tripped() -> HistoryBuilder {
    builder().fails(1, 0).fails(2, 10).fails(3, 20)
}

#[test]
fn probes_that_wait_their_time_one_after_the_other_are_fine() {
    // The waits double: a second, two, four; then it works, and every call is admitted.
    let builder = tripped().fails(4, 1_230).fails(5, 3_500).works(6, 7_800).works(7, 8_010).works(8, 8_011);
    builder.assert_kept(Promise::OneProbe);
}

#[test]
fn failures_of_several_callers_say_nothing_of_one() {
    let mut builder = tripped().fails(4, 700);
    for event in &mut builder.history {
        if let HistoryEvent::Invoke(invoke) = event {
            invoke.principal = if invoke.call.0 == 4 { "bob".into() } else { "ada".into() };
        }
    }
    builder.assert_kept(Promise::OneProbe);
}

#[test]
fn calls_that_were_in_flight_at_the_trip_are_exempt() {
    let slow = |number| Execution { began: 700 * MS, ended: Some(900 * MS), ..run(number, 0, true) };
    let builder = tripped()
        .invoke(invoke(4, 100 * MS))
        .invoke(invoke(5, 200 * MS))
        .executed(slow(4))
        .executed(slow(5))
        .end(4, 901 * MS, timed_out())
        .end(5, 901 * MS, timed_out());
    builder.assert_kept(Promise::OneProbe);
}

#[test]
fn a_call_that_gets_through_during_the_wait_is_named() {
    tripped().fails(4, 700).assert_broken(
        Promise::OneProbe,
        &[4],
        &["#4", "http-modern", "+0.700000 s", "open since +0.221000 s", "before the wait was over"],
    );
}

#[test]
fn two_probes_at_once_name_both() {
    for builder in [tripped().fails(4, 1_230).fails(5, 1_300), tripped().works(4, 1_230).works(5, 1_300)] {
        builder.assert_broken(
            Promise::OneProbe,
            &[4, 5],
            &["#4", "#5", "while that was under way", "+1.301000 s"],
        );
    }
}

#[test]
fn the_wait_after_a_failed_probe_is_twice_as_long() {
    let builder = tripped().fails(4, 1_230).fails(5, 2_800);
    builder.assert_broken(Promise::OneProbe, &[4, 5], &["before the wait after that", "over +3.430000 s"]);
}

#[test]
fn a_probe_whose_caller_leaves_gives_its_place_to_the_next() {
    tripped().leaves(4, 1_230).fails(5, 1_250).assert_kept(Promise::OneProbe);
    tripped().leaves(4, 600).assert_broken(Promise::OneProbe, &[4], &["before the wait was over"]);
}

#[test]
fn a_success_that_nobody_waited_for_may_have_closed_it() {
    let at = 1_230 * MS;
    let builder = tripped()
        .invoke(invoke(4, at))
        .executed(run(4, at, false))
        .end(4, at + 10 * MS, unknown())
        .works(5, 1_500)
        .works(6, 1_510);
    builder.assert_kept(Promise::OneProbe);
}

#[test]
fn fewer_failures_or_a_success_between_them_do_not_open_it() {
    builder().fails(1, 0).fails(2, 10).fails(4, 500).fails(5, 510).assert_kept(Promise::OneProbe);
    builder()
        .fails(1, 0)
        .fails(2, 10)
        .works(3, 20)
        .fails(4, 300)
        .fails(5, 310)
        .fails(6, 600)
        .assert_kept(Promise::OneProbe);
}

#[test]
fn what_clears_supervision_lets_everybody_in_and_a_crash_does_not() {
    let hurt = |act, target| {
        tripped().nemesis(500 * MS, act, target, true).nemesis(550 * MS, act, target, false).fails(4, 700)
    };
    for (act, target) in [("reload", "sick"), ("stop-start", "sick"), ("kill-daemon", "daemon")] {
        hurt(act, target).assert_kept(Promise::OneProbe);
    }
    for (act, target) in [("kill-server", "sick"), ("reload", "a")] {
        hurt(act, target).assert_broken(Promise::OneProbe, &[4], &["before the wait was over"]);
    }
}

#[test]
fn nothing_is_concluded_while_something_clears_it() {
    let builder = builder()
        .nemesis(0, "stop-start", "sick", true)
        .fails(1, 10)
        .fails(2, 20)
        .fails(3, 30)
        .fails(4, 300)
        .nemesis(900 * MS, "stop-start", "sick", false);
    builder.assert_kept(Promise::OneProbe);
}

#[test]
fn a_server_without_a_known_breaker_is_not_held_to_it() {
    let mut builder = tripped().fails(4, 700);
    builder.history.remove(0);
    builder.assert_kept(Promise::OneProbe);
}
