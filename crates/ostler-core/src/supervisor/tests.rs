use super::*;
use crate::fault::{CertificateFault, ExecFault, Exit, FaultKind, PermanentCause};
use crate::server_name::ServerName;
use crate::test_clock::{at, ms};

/// A supervisor and its clock, so that a test reads as a story.
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
    // The breaker has tests of its own; here it never opens.
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

    /// Creates a lazy server with one session and no callers.
    pub(super) fn ready() -> Self {
        let mut scenario = Self::lazy();
        scenario.supervisor.on_wait();
        assert_eq!(scenario.poll(), [start(1)]);
        scenario.supervisor.on_started(1, at(0));
        scenario.supervisor.on_wait_over();
        scenario
    }

    pub(super) fn advance(&mut self, millis: u64) -> &mut Self {
        self.now += millis;
        self
    }

    /// Returns all due actions.
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

    /// Waits out the backoff and starts the next session.
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

    /// Completes a call with this classification.
    pub(super) fn answer(&mut self, generation: u64, signal: HealthSignal, effect: SessionEffect) {
        let permit = self.supervisor.admit(CALL, at(self.now)).unwrap();
        let classification = Classification { signal, effect };
        self.supervisor.record_outcome(
            permit,
            CompletedCall { origin: CALL, generation, classification },
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
    let mut scenario = SupervisorScenario::lazy();
    assert_eq!(scenario.poll(), []);
    for _ in 0..100 {
        scenario.supervisor.on_wait();
    }
    assert_eq!(scenario.poll(), [start(1)]);
    assert_eq!(scenario.supervisor.availability(at(scenario.now)), Availability::Wait);
    assert!(scenario.supervisor.on_started(1, at(5)));
    assert_eq!(scenario.supervisor.availability(at(scenario.now)), Availability::Ready(1));
}

#[test]
fn an_eager_server_starts_and_restarts_by_itself() {
    let mut scenario = SupervisorScenario::eager();
    assert_eq!(scenario.poll(), [start(1)]);
    scenario.supervisor.on_started(1, at(0));
    assert!(scenario.crash(1));
    assert_eq!(scenario.poll(), [retire(1, RetireMode::Now)]);
    assert_eq!(scenario.recover(), 2);
}

#[test]
fn one_crash_seen_many_times_is_one_restart() {
    let mut scenario = SupervisorScenario::ready();
    let seen: Vec<bool> = (0..64).map(|_| scenario.crash(1)).collect();
    assert_eq!(seen.iter().filter(|&&was_first| was_first).count(), 1);
    assert_eq!(scenario.supervisor.restarts(at(0)), (1, 5));
    assert_eq!(scenario.poll(), [retire(1, RetireMode::Now)]);
}

#[test]
fn the_sixth_generation_that_fails_is_the_last() {
    for is_crash in [true, false] {
        let mut scenario = SupervisorScenario::eager();
        for generation in 1..=6 {
            scenario.advance(5_001);
            let actions = scenario.poll();
            assert_eq!(actions.last(), Some(&start(generation)), "{actions:?}");
            if is_crash {
                scenario.supervisor.on_started(generation, at(scenario.now));
                scenario.crash(generation);
            } else {
                scenario.fail_start(generation);
            }
        }
        let Availability::Ejected { readmit_at, ejection, .. } =
            scenario.supervisor.availability(at(scenario.now))
        else {
            panic!("{:?}", scenario.supervisor.phase())
        };
        assert_eq!(ejection, EjectionReason::BudgetSpent { failures: 6, window: ms(300_000) });
        assert_eq!(readmit_at, Some(at(scenario.now + 60_000)));
        scenario.poll();
        assert_eq!(scenario.advance(59_999).poll(), []);
    }
}

#[test]
fn a_reload_clears_ejection_budget_breaker_and_the_last_failure() {
    let mut strict = spec();
    (strict.restart.max, strict.breaker.failures) = (0, 1);
    let mut scenario = SupervisorScenario::new(&strict);
    scenario.poll();
    scenario.supervisor.on_started(1, at(0));
    scenario.crash(1);
    scenario.poll();
    assert_eq!(scenario.word(), "ejected");
    assert!(matches!(scenario.supervisor.circuit(at(0)), BreakerState::Open { .. }));
    scenario.supervisor.on_reload();
    assert_eq!(scenario.poll(), [start(2)]);
    assert_eq!(scenario.supervisor.circuit(at(0)), BreakerState::Closed { consecutive: 0 });
    assert_eq!((scenario.supervisor.restarts(at(0)), scenario.supervisor.failure()), ((0, 0), None));
}

#[test]
fn a_reload_lets_the_old_session_finish_and_begins_a_new_one_at_once() {
    let mut scenario = SupervisorScenario::ready();
    scenario.supervisor.on_lease();
    scenario.supervisor.on_reload();
    assert_eq!(scenario.poll(), [retire(1, RetireMode::Drain), start(2)]);
}

#[test]
fn events_of_another_generation_change_nothing() {
    let mut scenario = SupervisorScenario::ready();
    scenario.crash(1);
    scenario.poll();
    scenario.supervisor.on_wait();
    assert_eq!(scenario.recover(), 2);
    let before = scenario.supervisor.phase().clone();
    assert!(!scenario.crash(1));
    scenario.fail_start(1);
    scenario.fail_start(2);
    scenario.supervisor.on_start_abandoned(1);
    scenario.supervisor.on_closed(1);
    scenario.supervisor.on_closed(2);
    assert!(!scenario.supervisor.on_started(1, at(scenario.now)));
    scenario.answer(1, HealthSignal::Failure, SessionEffect::None);
    assert_eq!((scenario.supervisor.phase(), scenario.supervisor.restarts(at(0)).0), (&before, 1));
}

#[test]
fn a_lazy_server_that_nobody_waits_for_goes_idle_after_its_backoff() {
    let mut scenario = SupervisorScenario::ready();
    scenario.crash(1);
    assert_eq!(scenario.poll(), [retire(1, RetireMode::Now)]);
    assert_eq!(scenario.word(), "backoff");
    assert_eq!(scenario.advance(5_000).poll(), []);
    assert_eq!(scenario.word(), "idle");
    scenario.supervisor.on_wait();
    assert_eq!(scenario.poll(), [start(2)]);
}

#[test]
fn a_lazy_server_ends_keep_alive_after_the_end_of_its_last_lease() {
    let mut scenario = SupervisorScenario::ready();
    scenario.supervisor.on_lease();
    scenario.supervisor.on_lease();
    assert_eq!(scenario.supervisor.next_wake(), None);
    scenario.advance(10 * KEEP_ALIVE);
    assert!(!scenario.supervisor.on_release(at(scenario.now)));
    assert_eq!(scenario.poll(), []);
    scenario.advance(1_000);
    assert!(scenario.supervisor.on_release(at(scenario.now)));
    assert_eq!(scenario.supervisor.next_wake(), Some(at(scenario.now + KEEP_ALIVE)));
    assert_eq!(scenario.advance(KEEP_ALIVE - 1).poll(), []);
    assert_eq!(scenario.advance(1).poll(), [retire(1, RetireMode::Now)]);
    assert_eq!(scenario.word(), "idle");
}

#[test]
fn an_eager_server_stays_up_however_long_nobody_uses_it() {
    let mut scenario = SupervisorScenario::eager();
    scenario.poll();
    scenario.supervisor.on_started(1, at(0));
    assert_eq!(scenario.supervisor.next_wake(), None);
    assert_eq!(scenario.advance(100 * KEEP_ALIVE).poll(), []);
}

#[test]
fn a_binder_keeps_a_server_up_and_its_leaving_starts_the_clock() {
    let mut scenario = SupervisorScenario::lazy();
    scenario.supervisor.on_bind();
    assert_eq!(scenario.poll(), [start(1)]);
    scenario.supervisor.on_started(1, at(0));
    assert_eq!(scenario.advance(10 * KEEP_ALIVE).poll(), []);
    scenario.crash(1);
    scenario.poll();
    assert_eq!(scenario.recover(), 2);
    assert_eq!(scenario.supervisor.leases(), 1);
    scenario.supervisor.on_unbind(at(scenario.now));
    assert_eq!(scenario.supervisor.next_wake(), Some(at(scenario.now + KEEP_ALIVE)));
    assert_eq!(scenario.advance(KEEP_ALIVE).poll(), [retire(2, RetireMode::Now)]);
}

#[test]
fn a_wish_to_start_is_fulfilled_once() {
    let mut scenario = SupervisorScenario::lazy();
    scenario.supervisor.on_wait();
    assert_eq!(scenario.poll(), [start(1)]);
    scenario.supervisor.on_resume();
    scenario.supervisor.on_started(1, at(0));
    scenario.supervisor.on_wait_over();
    assert_eq!(scenario.advance(KEEP_ALIVE).poll(), [retire(1, RetireMode::Now)]);
    assert_eq!(scenario.word(), "idle");
}

#[test]
fn a_stop_while_starting_ends_what_was_started() {
    let mut scenario = SupervisorScenario::eager();
    assert_eq!(scenario.poll(), [start(1)]);
    scenario.supervisor.on_stop();
    assert!(!scenario.supervisor.is_starting(1));
    assert!(!scenario.supervisor.on_started(1, at(10)));
    assert_eq!(
        (scenario.poll(), scenario.supervisor.availability(at(scenario.now))),
        (vec![], Availability::Stopped)
    );
}

#[test]
fn a_stopped_server_drains_and_stays_down_until_it_is_resumed() {
    let mut scenario = SupervisorScenario::ready();
    scenario.supervisor.on_stop();
    scenario.supervisor.on_stop();
    assert_eq!(scenario.poll(), [retire(1, RetireMode::Drain)]);
    assert_eq!(
        (scenario.word(), scenario.supervisor.availability(at(scenario.now))),
        ("draining", Availability::Stopped)
    );
    scenario.supervisor.on_closed(1);
    assert_eq!(scenario.word(), "stopped");
    scenario.supervisor.on_wait();
    assert_eq!(scenario.advance(3_600_000).poll(), []);
    scenario.supervisor.on_resume();
    assert_eq!(scenario.poll(), [start(2)]);
}

#[test]
fn only_an_unused_lazy_session_is_evicted() {
    let mut eager = SupervisorScenario::eager();
    eager.poll();
    eager.supervisor.on_started(1, at(0));
    assert_eq!(eager.supervisor.idle_since(), None);
    assert!(!eager.supervisor.on_evict());
    assert_eq!(SupervisorScenario::lazy().supervisor.idle_since(), None, "there is nothing to evict");
    let mut scenario = SupervisorScenario::ready();
    scenario.supervisor.on_lease();
    assert_eq!(scenario.supervisor.idle_since(), None);
    assert!(!scenario.supervisor.on_evict());
    scenario.supervisor.on_release(at(0));
    scenario.supervisor.on_bind();
    assert!(!scenario.supervisor.on_evict());
    scenario.supervisor.on_unbind(at(0));
    assert_eq!(scenario.supervisor.idle_since(), Some(at(0)));
    assert!(scenario.supervisor.on_evict());
    assert!(!scenario.supervisor.on_evict());
    assert_eq!(scenario.poll(), [retire(1, RetireMode::Now)]);
}

#[test]
fn an_ejected_server_is_probed_once_after_a_minute_and_then_ever_more_seldom() {
    let mut strict = spec();
    strict.restart.max = 2;
    let mut scenario = SupervisorScenario::new(&strict);
    for generation in 1..=3 {
        scenario.poll();
        scenario.fail_start(generation);
        scenario.advance(5_000);
    }
    let mut generation = 3;
    for minutes in [1, 2, 4, 8, 10, 10] {
        assert_eq!(scenario.word(), "ejected");
        let failed = scenario.supervisor.failure().unwrap().at;
        assert_eq!(scenario.supervisor.next_wake(), Some(failed + ms(minutes * 60_000)));
        scenario.now = u64::try_from((failed - at(0)).as_millis()).unwrap() + minutes * 60_000;
        generation += 1;
        assert_eq!(scenario.poll(), [start(generation)]);
        scenario.fail_start(generation);
        assert_eq!(scenario.poll(), [], "one failure ejects again");
    }
    let Phase::Ejected { ejection, .. } = scenario.supervisor.phase() else { panic!("not ejected") };
    assert_eq!(*ejection, EjectionReason::FailedReadmission);
}

#[test]
fn a_readmitted_server_that_comes_up_has_its_whole_budget_again() {
    let mut strict = spec();
    strict.restart.max = 1;
    let mut scenario = SupervisorScenario::new(&strict);
    for generation in 1..=2 {
        scenario.poll();
        scenario.fail_start(generation);
        scenario.advance(5_000);
    }
    assert_eq!(scenario.advance(60_000).poll(), [start(3)]);
    scenario.supervisor.on_started(3, at(scenario.now));
    assert_eq!(scenario.supervisor.restarts(at(scenario.now)), (0, 1));
    scenario.answer(3, HealthSignal::Success, SessionEffect::None);
    scenario.crash(3);
    assert_eq!(scenario.word(), "backoff");
    scenario.recover();
    scenario.crash(4);
    let Phase::Ejected { readmit_at, .. } = *scenario.supervisor.phase() else { panic!("not ejected") };
    assert_eq!(readmit_at, Some(at(scenario.now + 120_000)), "it has not been healthy since");
}

#[test]
fn an_ejected_server_stays_out_where_that_is_left_to_the_operator() {
    let mut strict = spec();
    (strict.restart.max, strict.restart.readmit_after) = (0, None);
    let mut scenario = SupervisorScenario::new(&strict);
    scenario.poll();
    scenario.fail_start(1);
    assert_eq!(scenario.supervisor.next_wake(), None);
    assert_eq!(scenario.advance(3_600_000).poll(), []);
}

#[test]
fn a_lazy_server_that_is_readmitted_starts_with_the_next_caller_and_not_before() {
    let mut strict = spec().lazy();
    strict.restart.max = 0;
    let mut scenario = SupervisorScenario::new(&strict);
    scenario.supervisor.on_wait();
    scenario.poll();
    scenario.fail_start(1);
    scenario.supervisor.on_wait_over();
    assert_eq!((scenario.advance(60_000).poll(), scenario.word()), (vec![], "idle"));
    scenario.supervisor.on_wait();
    assert_eq!(scenario.poll(), [start(2)]);
    scenario.fail_start(2);
    assert_eq!(scenario.word(), "ejected");
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
        let mut scenario = SupervisorScenario::eager();
        scenario.poll();
        let failure = ServerFailure::new(FaultKind::from(cause.clone()), at(0));
        scenario.supervisor.on_start_failed(1, failure, &mut scenario.rng);
        let Availability::Ejected { ejection, cause: shown, .. } = scenario.supervisor.availability(at(0))
        else {
            panic!("{cause:?}: {:?}", scenario.supervisor.phase())
        };
        assert_eq!((ejection, shown), (EjectionReason::Permanent, &*cause.to_string()));
        assert_eq!((scenario.advance(59_999).poll(), scenario.supervisor.restarts(at(0)).0), (vec![], 0));
        assert_eq!(scenario.advance(1).poll(), [start(2)], "it is looked at again");
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
    for (text, expected) in table {
        assert_eq!(text, expected);
    }
}

#[test]
fn stopping_and_starting_is_no_way_around_an_ejection() {
    let mut strict = spec();
    strict.restart.max = 0;
    let mut scenario = SupervisorScenario::new(&strict);
    scenario.poll();
    scenario.fail_start(1);
    scenario.supervisor.on_stop();
    assert_eq!(scenario.word(), "stopped");
    scenario.supervisor.on_resume();
    assert_eq!((scenario.word(), scenario.poll()), ("ejected", vec![]));
    scenario.supervisor.on_stop();
    scenario.supervisor.on_reload();
    assert_eq!(scenario.poll(), [start(2)]);
}

#[test]
fn a_crash_counts_once_for_the_breaker_however_many_calls_it_ended() {
    let mut scenario = SupervisorScenario::ready();
    let permits: Vec<_> = (0..64).map(|_| scenario.supervisor.admit(CALL, at(0)).unwrap()).collect();
    scenario.crash(1);
    for permit in permits {
        let classification = Classification { signal: HealthSignal::Failure, effect: SessionEffect::Restart };
        scenario.supervisor.record_outcome(
            permit,
            CompletedCall { origin: CALL, generation: 1, classification },
            at(0),
        );
    }
    assert_eq!(scenario.supervisor.consecutive_failures(), 1);
}

#[test]
fn what_an_earlier_session_said_is_not_held_against_the_present_one() {
    let mut scenario = SupervisorScenario::ready();
    scenario.supervisor.on_reload();
    scenario.poll();
    assert!(scenario.supervisor.on_started(2, at(0)));
    for _ in 0..10 {
        scenario.answer(1, HealthSignal::Neutral, SessionEffect::None);
    }
    scenario.answer(1, HealthSignal::Success, SessionEffect::None);
    assert!(matches!(scenario.supervisor.phase(), Phase::Ready { is_proven: false, .. }));
    scenario.answer(2, HealthSignal::Success, SessionEffect::None);
    assert!(matches!(scenario.supervisor.phase(), Phase::Ready { is_proven: true, .. }));
}

#[test]
fn an_abandoned_start_is_nobodys_failure_and_may_be_tried_again() {
    let mut scenario = SupervisorScenario::lazy();
    scenario.supervisor.on_wait();
    assert_eq!(scenario.poll(), [start(1)]);
    scenario.supervisor.on_start_abandoned(1);
    assert_eq!(scenario.word(), "idle");
    assert_eq!(scenario.supervisor.restarts(at(0)).0, 0);
    assert_eq!(scenario.poll(), [start(2)]);
}

#[test]
fn the_last_failure_is_told_until_a_reload() {
    let mut scenario = SupervisorScenario::ready();
    assert!(scenario.supervisor.failure().is_none());
    scenario.crash(1);
    let failure = scenario.supervisor.failure().unwrap();
    assert_eq!((&failure.kind, failure.at), (&FaultKind::Exited(Exit::Code(1)), at(0)));
    scenario.supervisor.on_reload();
    assert!(scenario.supervisor.failure().is_none());
}

#[test]
fn a_permit_from_before_a_trip_is_not_current() {
    let mut spec = spec();
    spec.breaker.failures = 1;
    let mut scenario = SupervisorScenario::new(&spec);
    let permit = scenario.supervisor.admit(CALL, at(0)).unwrap();
    assert!(scenario.supervisor.is_current(&permit, CALL));
    scenario.answer(1, HealthSignal::Failure, SessionEffect::None);
    assert!(!scenario.supervisor.is_current(&permit, CALL));
    assert_eq!((scenario.supervisor.breaker_transitions(), scenario.supervisor.held_back()), (0, 1));
    scenario.supervisor.on_reload();
    assert_eq!((scenario.supervisor.breaker_transitions(), scenario.supervisor.held_back()), (1, 0));
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
