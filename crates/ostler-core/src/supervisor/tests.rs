use super::*;
use crate::fault::{CertificateFault, ExecFault, Exit, FaultKind, PermanentCause};
use crate::server_name::ServerName;
use crate::test_clock::{at, ms};

/// A supervisor and the time, so that a test reads as a story.
pub(super) struct SupervisorScenario {
    pub(super) supervisor: Supervisor,
    pub(super) rng: fastrand::Rng,
    /// Milliseconds since the beginning.
    pub(super) now: u64,
}

const KEEP_ALIVE: u64 = 60_000;

fn spec() -> ServerSpec {
    let mut spec = ServerSpec::stdio(ServerName::new("a").unwrap(), "a");
    spec.keep_alive = ms(KEEP_ALIVE);
    // The breaker has tests of its own; here it stays out of the way.
    spec.breaker.failures = 0;
    spec
}

impl SupervisorScenario {
    fn new(spec: &ServerSpec) -> Self {
        Self { supervisor: Supervisor::new(spec, at(0)), rng: fastrand::Rng::with_seed(7), now: 0 }
    }

    fn lazy() -> Self {
        Self::new(&spec().lazy())
    }

    pub(super) fn eager() -> Self {
        Self::new(&spec())
    }

    /// A lazy server with one session and nobody who uses it.
    pub(super) fn ready() -> Self {
        let mut story = Self::lazy();
        story.supervisor.on_wait();
        assert_eq!(story.poll(), [start(1)]);
        story.supervisor.on_started(1, at(0));
        story.supervisor.on_wait_over();
        story
    }

    pub(super) fn advance(&mut self, millis: u64) -> &mut Self {
        self.now += millis;
        self
    }

    /// Everything there is to do now.
    pub(super) fn poll(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.supervisor.poll(at(self.now))).collect()
    }

    pub(super) fn crash(&mut self, generation: u64) -> bool {
        let failure = ServerFailure::new(FaultKind::Exited(Exit::Code(1)), at(self.now));
        self.supervisor.on_lost(generation, failure, &mut self.rng)
    }

    pub(super) fn fail_start(&mut self, generation: u64) {
        let failure = ServerFailure::new(FaultKind::Start("no such file".into()), at(self.now));
        self.supervisor.on_start_failed(generation, failure, &mut self.rng);
    }

    /// Waits out the backoff and brings the next session up.
    pub(super) fn recover(&mut self) -> u64 {
        let Phase::Backoff { until, .. } = *self.supervisor.phase() else {
            panic!("{:?}", self.supervisor.phase())
        };
        self.now = u64::try_from((until - at(0)).as_millis()).unwrap() + 1;
        let generation = self.supervisor.generation() + 1;
        assert!(self.poll().contains(&start(generation)));
        assert!(self.supervisor.on_started(generation, at(self.now)));
        generation
    }

    /// A call that the server answered with something of this weight.
    pub(super) fn answer(&mut self, generation: u64, mark: HealthSignal, effect: SessionEffect) {
        let permit = self.supervisor.admit(CALL, at(self.now)).unwrap();
        let weight = Classification { signal: mark, effect };
        self.supervisor.record_outcome(
            permit,
            CompletedCall { origin: CALL, generation, classification: weight },
            at(self.now),
        );
    }

    fn word(&self) -> &'static str {
        self.supervisor.phase().as_str()
    }
}

/// A call of one caller.
pub(super) const CALL: Option<CallOrigin<'static>> = Some(CallOrigin { caller: "ada", tool: "work" });

pub(super) fn start(generation: u64) -> Action {
    Action::Start { generation }
}

pub(super) fn retire(generation: u64, manner: RetireMode) -> Action {
    Action::Retire { generation, mode: manner }
}

#[test]
fn a_lazy_server_starts_when_somebody_waits_and_not_before() {
    let mut story = SupervisorScenario::lazy();
    assert_eq!(story.poll(), []);
    for _ in 0..100 {
        story.supervisor.on_wait();
    }
    assert_eq!(story.poll(), [start(1)]);
    assert_eq!(story.supervisor.availability(at(story.now)), Availability::Wait);
    assert!(story.supervisor.on_started(1, at(5)));
    assert_eq!(story.supervisor.availability(at(story.now)), Availability::Ready(1));
}

#[test]
fn an_eager_server_starts_and_restarts_by_itself() {
    let mut story = SupervisorScenario::eager();
    assert_eq!(story.poll(), [start(1)]);
    story.supervisor.on_started(1, at(0));
    assert!(story.crash(1));
    assert_eq!(story.poll(), [retire(1, RetireMode::Now)]);
    assert_eq!(story.recover(), 2);
}

#[test]
fn one_crash_seen_many_times_is_one_restart() {
    let mut story = SupervisorScenario::ready();
    let seen: Vec<bool> = (0..64).map(|_| story.crash(1)).collect();
    assert_eq!(seen.iter().filter(|&&was_first| was_first).count(), 1);
    assert_eq!(story.supervisor.restarts(at(0)), (1, 5));
    assert_eq!(story.poll(), [retire(1, RetireMode::Now)]);
}

#[test]
fn the_sixth_generation_that_fails_is_the_last() {
    for is_crash in [true, false] {
        let mut story = SupervisorScenario::eager();
        for generation in 1..=6 {
            story.advance(5_001);
            let actions = story.poll();
            assert_eq!(actions.last(), Some(&start(generation)), "{actions:?}");
            if is_crash {
                story.supervisor.on_started(generation, at(story.now));
                story.crash(generation);
            } else {
                story.fail_start(generation);
            }
        }
        let Availability::Ejected { readmit_at, ejection, .. } = story.supervisor.availability(at(story.now))
        else {
            panic!("{:?}", story.supervisor.phase())
        };
        assert_eq!(ejection, EjectionReason::BudgetSpent { failures: 6, window: ms(300_000) });
        assert_eq!(readmit_at, Some(at(story.now + 60_000)));
        story.poll();
        assert_eq!(story.advance(59_999).poll(), []);
    }
}

#[test]
fn a_reload_clears_ejection_budget_breaker_and_the_last_failure() {
    let mut strict = spec();
    (strict.restart.max, strict.breaker.failures) = (0, 1);
    let mut story = SupervisorScenario::new(&strict);
    story.poll();
    story.supervisor.on_started(1, at(0));
    story.crash(1);
    story.poll();
    assert_eq!(story.word(), "ejected");
    assert!(matches!(story.supervisor.circuit(at(0)), BreakerState::Open { .. }));
    story.supervisor.on_reload();
    assert_eq!(story.poll(), [start(2)]);
    assert_eq!(story.supervisor.circuit(at(0)), BreakerState::Closed { consecutive: 0 });
    assert_eq!((story.supervisor.restarts(at(0)), story.supervisor.failure()), ((0, 0), None));
}

#[test]
fn a_reload_lets_the_old_session_finish_and_begins_a_new_one_at_once() {
    let mut story = SupervisorScenario::ready();
    story.supervisor.on_lease();
    story.supervisor.on_reload();
    assert_eq!(story.poll(), [retire(1, RetireMode::Drain), start(2)]);
}

#[test]
fn events_of_another_generation_change_nothing() {
    let mut story = SupervisorScenario::ready();
    story.crash(1);
    story.poll();
    story.supervisor.on_wait();
    assert_eq!(story.recover(), 2);
    let before = story.supervisor.phase().clone();
    assert!(!story.crash(1));
    story.fail_start(1);
    story.fail_start(2);
    story.supervisor.on_start_abandoned(1);
    story.supervisor.on_closed(1);
    story.supervisor.on_closed(2);
    assert!(!story.supervisor.on_started(1, at(story.now)));
    story.answer(1, HealthSignal::Failure, SessionEffect::None);
    assert_eq!((story.supervisor.phase(), story.supervisor.restarts(at(0)).0), (&before, 1));
}

#[test]
fn a_lazy_server_that_nobody_waits_for_goes_idle_after_its_backoff() {
    let mut story = SupervisorScenario::ready();
    story.crash(1);
    assert_eq!(story.poll(), [retire(1, RetireMode::Now)]);
    assert_eq!(story.word(), "backoff");
    assert_eq!(story.advance(5_000).poll(), []);
    assert_eq!(story.word(), "idle");
    story.supervisor.on_wait();
    assert_eq!(story.poll(), [start(2)]);
}

#[test]
fn a_lazy_server_ends_keep_alive_after_the_end_of_its_last_lease() {
    let mut story = SupervisorScenario::ready();
    story.supervisor.on_lease();
    story.supervisor.on_lease();
    assert_eq!(story.supervisor.next_wake(), None);
    story.advance(10 * KEEP_ALIVE);
    assert!(!story.supervisor.on_release(at(story.now)));
    assert_eq!(story.poll(), []);
    story.advance(1_000);
    assert!(story.supervisor.on_release(at(story.now)));
    assert_eq!(story.supervisor.next_wake(), Some(at(story.now + KEEP_ALIVE)));
    assert_eq!(story.advance(KEEP_ALIVE - 1).poll(), []);
    assert_eq!(story.advance(1).poll(), [retire(1, RetireMode::Now)]);
    assert_eq!(story.word(), "idle");
}

#[test]
fn an_eager_server_stays_up_however_long_nobody_uses_it() {
    let mut story = SupervisorScenario::eager();
    story.poll();
    story.supervisor.on_started(1, at(0));
    assert_eq!(story.supervisor.next_wake(), None);
    assert_eq!(story.advance(100 * KEEP_ALIVE).poll(), []);
}

#[test]
fn a_binder_keeps_a_server_up_and_its_leaving_starts_the_clock() {
    let mut story = SupervisorScenario::lazy();
    story.supervisor.on_bind();
    assert_eq!(story.poll(), [start(1)]);
    story.supervisor.on_started(1, at(0));
    assert_eq!(story.advance(10 * KEEP_ALIVE).poll(), []);
    story.crash(1);
    story.poll();
    assert_eq!(story.recover(), 2);
    assert_eq!(story.supervisor.leases(), 1);
    story.supervisor.on_unbind(at(story.now));
    assert_eq!(story.supervisor.next_wake(), Some(at(story.now + KEEP_ALIVE)));
    assert_eq!(story.advance(KEEP_ALIVE).poll(), [retire(2, RetireMode::Now)]);
}

#[test]
fn a_wish_to_start_is_fulfilled_once() {
    let mut story = SupervisorScenario::lazy();
    story.supervisor.on_wait();
    assert_eq!(story.poll(), [start(1)]);
    story.supervisor.on_resume();
    story.supervisor.on_started(1, at(0));
    story.supervisor.on_wait_over();
    assert_eq!(story.advance(KEEP_ALIVE).poll(), [retire(1, RetireMode::Now)]);
    assert_eq!(story.word(), "idle");
}

#[test]
fn a_stop_while_starting_ends_what_was_started() {
    let mut story = SupervisorScenario::eager();
    assert_eq!(story.poll(), [start(1)]);
    story.supervisor.on_stop();
    assert!(!story.supervisor.is_starting(1));
    assert!(!story.supervisor.on_started(1, at(10)));
    assert_eq!((story.poll(), story.supervisor.availability(at(story.now))), (vec![], Availability::Stopped));
}

#[test]
fn a_stopped_server_drains_and_stays_down_until_it_is_resumed() {
    let mut story = SupervisorScenario::ready();
    story.supervisor.on_stop();
    story.supervisor.on_stop();
    assert_eq!(story.poll(), [retire(1, RetireMode::Drain)]);
    assert_eq!(
        (story.word(), story.supervisor.availability(at(story.now))),
        ("draining", Availability::Stopped)
    );
    story.supervisor.on_closed(1);
    assert_eq!(story.word(), "stopped");
    story.supervisor.on_wait();
    assert_eq!(story.advance(3_600_000).poll(), []);
    story.supervisor.on_resume();
    assert_eq!(story.poll(), [start(2)]);
}

#[test]
fn only_an_unused_lazy_session_is_evicted() {
    let mut eager = SupervisorScenario::eager();
    eager.poll();
    eager.supervisor.on_started(1, at(0));
    assert_eq!(eager.supervisor.idle_since(), None);
    assert!(!eager.supervisor.on_evict());
    assert_eq!(SupervisorScenario::lazy().supervisor.idle_since(), None, "there is nothing to evict");
    let mut story = SupervisorScenario::ready();
    story.supervisor.on_lease();
    assert_eq!(story.supervisor.idle_since(), None);
    assert!(!story.supervisor.on_evict());
    story.supervisor.on_release(at(0));
    story.supervisor.on_bind();
    assert!(!story.supervisor.on_evict());
    story.supervisor.on_unbind(at(0));
    assert_eq!(story.supervisor.idle_since(), Some(at(0)));
    assert!(story.supervisor.on_evict());
    assert!(!story.supervisor.on_evict());
    assert_eq!(story.poll(), [retire(1, RetireMode::Now)]);
}

#[test]
fn an_ejected_server_is_probed_once_after_a_minute_and_then_ever_more_seldom() {
    let mut strict = spec();
    strict.restart.max = 2;
    let mut story = SupervisorScenario::new(&strict);
    for generation in 1..=3 {
        story.poll();
        story.fail_start(generation);
        story.advance(5_000);
    }
    let mut generation = 3;
    for minutes in [1, 2, 4, 8, 10, 10] {
        assert_eq!(story.word(), "ejected");
        let failed = story.supervisor.failure().unwrap().at;
        assert_eq!(story.supervisor.next_wake(), Some(failed + ms(minutes * 60_000)));
        story.now = u64::try_from((failed - at(0)).as_millis()).unwrap() + minutes * 60_000;
        generation += 1;
        assert_eq!(story.poll(), [start(generation)]);
        story.fail_start(generation);
        assert_eq!(story.poll(), [], "one failure ejects again");
    }
    let Phase::Ejected { ejection, .. } = story.supervisor.phase() else { panic!("not ejected") };
    assert_eq!(*ejection, EjectionReason::FailedReadmission);
}

#[test]
fn a_readmitted_server_that_comes_up_has_its_whole_budget_again() {
    let mut strict = spec();
    strict.restart.max = 1;
    let mut story = SupervisorScenario::new(&strict);
    for generation in 1..=2 {
        story.poll();
        story.fail_start(generation);
        story.advance(5_000);
    }
    assert_eq!(story.advance(60_000).poll(), [start(3)]);
    story.supervisor.on_started(3, at(story.now));
    assert_eq!(story.supervisor.restarts(at(story.now)), (0, 1));
    story.answer(3, HealthSignal::Success, SessionEffect::None);
    story.crash(3);
    assert_eq!(story.word(), "backoff");
    story.recover();
    story.crash(4);
    let Phase::Ejected { readmit_at, .. } = *story.supervisor.phase() else { panic!("not ejected") };
    assert_eq!(readmit_at, Some(at(story.now + 120_000)), "it has not been healthy since");
}

#[test]
fn an_ejected_server_stays_out_where_that_is_left_to_the_operator() {
    let mut strict = spec();
    (strict.restart.max, strict.restart.readmit_after) = (0, None);
    let mut story = SupervisorScenario::new(&strict);
    story.poll();
    story.fail_start(1);
    assert_eq!(story.supervisor.next_wake(), None);
    assert_eq!(story.advance(3_600_000).poll(), []);
}

#[test]
fn a_lazy_server_that_is_readmitted_starts_with_the_next_caller_and_not_before() {
    let mut strict = spec().lazy();
    strict.restart.max = 0;
    let mut story = SupervisorScenario::new(&strict);
    story.supervisor.on_wait();
    story.poll();
    story.fail_start(1);
    story.supervisor.on_wait_over();
    assert_eq!((story.advance(60_000).poll(), story.word()), (vec![], "idle"));
    story.supervisor.on_wait();
    assert_eq!(story.poll(), [start(2)]);
    story.fail_start(2);
    assert_eq!(story.word(), "ejected");
}

#[test]
fn what_only_a_change_removes_is_tried_once() {
    let causes = [
        PermanentCause::ProgramMissing { program: "x".into(), path: Some("/bin".into()) },
        PermanentCause::NotExecutable { program: "x".into(), why: ExecFault::Permission },
        PermanentCause::Config("`${env:TOKEN}` is not set".into()),
        PermanentCause::Usage(Exit::Code(2)),
        PermanentCause::Certificate(CertificateFault::UnknownIssuer),
        PermanentCause::NoEndpoint { code: 404, text: String::new() },
        PermanentCause::NotMcp("`text/html`".into()),
    ];
    for cause in causes {
        let mut story = SupervisorScenario::eager();
        story.poll();
        let failure = ServerFailure::new(FaultKind::from(cause.clone()), at(0));
        story.supervisor.on_start_failed(1, failure, &mut story.rng);
        let Availability::Ejected { ejection, cause: told, .. } = story.supervisor.availability(at(0)) else {
            panic!("{cause:?}: {:?}", story.supervisor.phase())
        };
        assert_eq!((ejection, told), (EjectionReason::Permanent, &*cause.to_string()));
        assert_eq!((story.advance(59_999).poll(), story.supervisor.restarts(at(0)).0), (vec![], 0));
        assert_eq!(story.advance(1).poll(), [start(2)], "it is looked at again");
    }
}

#[test]
fn an_ejection_says_what_is_done_about_the_server() {
    let spent = EjectionReason::BudgetSpent { failures: 6, window: ms(300_000) };
    let once = EjectionReason::BudgetSpent { failures: 1, window: ms(300_000) };
    let table = [
        (
            spent.explain(Some(ms(60_000))),
            "ejected after 6 failures in 5m; it is not tried again for 1m, unless it is reloaded",
        ),
        (once.explain(None), "ejected after one failure; it is not tried again until it is reloaded"),
        (
            EjectionReason::FailedReadmission.explain(Some(ms(120_000))),
            "ejected again, since it failed when it was readmitted; it is not tried again for 2m, unless it is reloaded",
        ),
        (
            EjectionReason::Permanent.explain(Some(ms(60_000))),
            "it is not tried again for 1m, unless it is reloaded or its config changes",
        ),
        (
            EjectionReason::Permanent.explain(None),
            "it is not tried again until it is reloaded or its config changes",
        ),
    ];
    for (said, expected) in table {
        assert_eq!(said, expected);
    }
}

#[test]
fn stopping_and_starting_is_no_way_around_an_ejection() {
    let mut strict = spec();
    strict.restart.max = 0;
    let mut story = SupervisorScenario::new(&strict);
    story.poll();
    story.fail_start(1);
    story.supervisor.on_stop();
    assert_eq!(story.word(), "stopped");
    story.supervisor.on_resume();
    assert_eq!((story.word(), story.poll()), ("ejected", vec![]));
    story.supervisor.on_stop();
    story.supervisor.on_reload();
    assert_eq!(story.poll(), [start(2)]);
}

#[test]
fn a_crash_counts_once_for_the_breaker_however_many_calls_it_ended() {
    let mut story = SupervisorScenario::ready();
    let permits: Vec<_> = (0..64).map(|_| story.supervisor.admit(CALL, at(0)).unwrap()).collect();
    story.crash(1);
    for permit in permits {
        let weight = Classification { signal: HealthSignal::Failure, effect: SessionEffect::Restart };
        story.supervisor.record_outcome(
            permit,
            CompletedCall { origin: CALL, generation: 1, classification: weight },
            at(0),
        );
    }
    assert_eq!(story.supervisor.consecutive_failures(), 1);
}

#[test]
fn what_an_earlier_session_said_is_not_held_against_the_present_one() {
    let mut story = SupervisorScenario::ready();
    story.supervisor.on_reload();
    story.poll();
    assert!(story.supervisor.on_started(2, at(0)));
    for _ in 0..10 {
        story.answer(1, HealthSignal::Neutral, SessionEffect::None);
    }
    story.answer(1, HealthSignal::Success, SessionEffect::None);
    assert!(matches!(story.supervisor.phase(), Phase::Ready { is_proven: false, .. }));
    story.answer(2, HealthSignal::Success, SessionEffect::None);
    assert!(matches!(story.supervisor.phase(), Phase::Ready { is_proven: true, .. }));
}

#[test]
fn an_abandoned_start_is_nobodys_failure_and_may_be_tried_again() {
    let mut story = SupervisorScenario::lazy();
    story.supervisor.on_wait();
    assert_eq!(story.poll(), [start(1)]);
    story.supervisor.on_start_abandoned(1);
    assert_eq!(story.word(), "idle");
    assert_eq!(story.supervisor.restarts(at(0)).0, 0);
    assert_eq!(story.poll(), [start(2)]);
}

#[test]
fn the_last_failure_is_told_until_a_reload() {
    let mut story = SupervisorScenario::ready();
    assert!(story.supervisor.failure().is_none());
    story.crash(1);
    let failure = story.supervisor.failure().unwrap();
    assert_eq!((&failure.kind, failure.at), (&FaultKind::Exited(Exit::Code(1)), at(0)));
    story.supervisor.on_reload();
    assert!(story.supervisor.failure().is_none());
}

#[test]
fn a_permit_from_before_a_trip_is_not_current() {
    let mut spec = spec();
    spec.breaker.failures = 1;
    let mut story = SupervisorScenario::new(&spec);
    let permit = story.supervisor.admit(CALL, at(0)).unwrap();
    assert!(story.supervisor.is_current(&permit, CALL));
    story.answer(1, HealthSignal::Failure, SessionEffect::None);
    assert!(!story.supervisor.is_current(&permit, CALL));
    assert_eq!((story.supervisor.breaker_transitions(), story.supervisor.held_back()), (0, 1));
    story.supervisor.on_reload();
    assert_eq!((story.supervisor.breaker_transitions(), story.supervisor.held_back()), (1, 0));
}

#[test]
fn a_failure_is_told_by_its_cause_and_then_by_its_exit() {
    let crash = ServerFailure::new(FaultKind::Exited(Exit::Code(1)), at(0));
    assert_eq!(crash.to_string(), "it ended with exit code 1");
    let mut failure = ServerFailure::new(FaultKind::Closed, at(0));
    assert_eq!(failure.to_string(), "the server closed the connection");
    failure.exit = Some(Exit::Signal(9));
    failure.attach_stderr(vec!["first".into(), "last".into()]);
    assert_eq!(failure.to_string(), "\"last\", the server closed the connection, signal 9");
    let mut failure = ServerFailure::new(FaultKind::StartTimeout(Duration::from_secs(60)), at(0));
    failure.attach_stderr(vec!["loading".into()]);
    assert_eq!(failure.to_string(), "it has not answered the MCP handshake within 1m, \"loading\"");
}

#[test]
fn the_lines_kept_of_a_failure_begin_with_its_cause() {
    let mut failure = ServerFailure::new(FaultKind::Exited(Exit::Code(1)), at(0));
    let frames = (0..20).map(|n| format!("    at f{n} (/srv/x.js:1:{n})"));
    let ends = ["}", "", "Node.js v20.20.2"].map(str::to_owned);
    failure.attach_stderr(
        ["one", "Error: no token"].map(str::to_owned).into_iter().chain(frames).chain(ends).collect(),
    );
    assert_eq!(failure.to_string(), "\"Error: no token\", exit code 1");
    assert_eq!((failure.stderr.len(), &failure.stderr[0][..]), (8, "Error: no token"));
    failure.attach_stderr(["one", "Error: no token"].map(str::to_owned).into());
    assert_eq!(failure.stderr, ["one", "Error: no token"]);
}
