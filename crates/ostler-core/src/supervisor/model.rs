//! Model test of the supervisor: random histories against a reference of a few lines.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::fault::FaultKind;
use crate::server_name::ServerName;
use crate::test_clock::{at, ms};

#[derive(Debug, Clone, Copy)]
enum SupervisorEvent {
    Wait,
    WaitOver,
    Lease,
    Release,
    Bind,
    Unbind,
    Started,
    StartFailed,
    StartAbandoned,
    Answered,
    Lost,
    Closed,
    Stop,
    Resume,
    Reload,
    Evict,
    Pass(u64),
}

fn events() -> impl Strategy<Value = SupervisorEvent> {
    use SupervisorEvent::*;
    prop_oneof![
        4 => prop::sample::select(vec![Wait, WaitOver, Lease, Release, Bind, Unbind]),
        4 => prop::sample::select(vec![Started, Started, StartFailed, StartAbandoned, Answered, Lost, Closed]),
        1 => prop::sample::select(vec![Stop, Resume, Resume, Reload, Evict]),
        3 => (0u64..3_000).prop_map(Pass),
        1 => (8_000u64..12_000).prop_map(Pass),
    ]
}

/// State of a generation; it only moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GenerationState {
    Starting,
    Live,
    Over,
}

/// Reference model: the sessions that were started, their ends, and the callers present.
#[derive(Debug, Default)]
struct SupervisorModel {
    generations: BTreeMap<u64, GenerationState>,
    /// Failures since the record was last cleared.
    failures: Vec<u64>,
    leases: usize,
    waiters: usize,
    binders: usize,
    /// True if an operator has asked for a session that has not come up since.
    is_start_requested: bool,
    /// Start time of the session, and whether it has given a good answer.
    session: (u64, bool),
    /// Ceiling of the next delay; `None` if nothing has failed since the delays were reset.
    ceiling: Option<u64>,
    has_started: bool,
    /// Time of the readmission of an ejected server, and the number of failed readmissions.
    readmit_at: u64,
    readmissions: u32,
    /// True if the next start is the only one before another ejection.
    is_on_probation: bool,
    now: u64,
}

const MAX: u32 = 3;
const WINDOW: u64 = 10_000;
const KEEP_ALIVE: u64 = 4_000;
const READMIT: u64 = 6_000;

struct ModelRun {
    is_lazy: bool,
    supervisor: Supervisor,
    model: SupervisorModel,
    rng: fastrand::Rng,
}

impl ModelRun {
    fn new(is_lazy: bool, seed: u64) -> Self {
        let mut spec = ServerSpec::stdio(ServerName::new("a").unwrap(), "a");
        spec.lazy = is_lazy;
        spec.keep_alive = ms(KEEP_ALIVE);
        (spec.restart.max, spec.restart.window) = (MAX, ms(WINDOW));
        spec.restart.readmit_after = Some(ms(READMIT));
        let supervisor = Supervisor::new(&spec, at(0));
        Self { is_lazy, supervisor, model: SupervisorModel::default(), rng: fastrand::Rng::with_seed(seed) }
    }

    fn failure(&self) -> ServerFailure {
        ServerFailure::new(FaultKind::Closed, at(self.model.now))
    }

    fn current(&self) -> u64 {
        self.supervisor.generation()
    }

    fn state(&mut self) -> Option<&mut GenerationState> {
        self.model.generations.get_mut(&self.supervisor.generation())
    }

    fn is_phase(&self, word: &str) -> bool {
        self.supervisor.phase().as_str() == word
    }

    fn apply(&mut self, event: SupervisorEvent) {
        let (now, current) = (at(self.model.now), self.current());
        let take = |count: &mut usize| count.checked_sub(1).map(|left| *count = left).is_some();
        match event {
            SupervisorEvent::Wait => {
                self.model.waiters += 1;
                self.supervisor.on_wait();
            }
            SupervisorEvent::WaitOver if take(&mut self.model.waiters) => self.supervisor.on_wait_over(),
            SupervisorEvent::Lease if self.is_phase("ready") => {
                self.model.leases += 1;
                self.supervisor.on_lease();
            }
            SupervisorEvent::Release if take(&mut self.model.leases) => {
                let is_last = self.supervisor.on_release(now);
                assert_eq!(is_last, self.model.leases == 0);
            }
            SupervisorEvent::Bind => {
                self.model.binders += 1;
                self.supervisor.on_bind();
            }
            SupervisorEvent::Unbind if take(&mut self.model.binders) => self.supervisor.on_unbind(now),
            SupervisorEvent::Started => self.finish_start(current, true),
            SupervisorEvent::StartFailed => self.finish_start(current, false),
            SupervisorEvent::StartAbandoned => {
                if self.supervisor.is_starting(current) {
                    self.model.generations.insert(current, GenerationState::Over);
                }
                self.supervisor.on_start_abandoned(current);
            }
            SupervisorEvent::Answered => self.answer(current),
            SupervisorEvent::Lost => {
                let failure = self.failure();
                let was_ready = self.is_phase("ready");
                assert_eq!(self.supervisor.on_lost(current, failure, &mut self.rng), was_ready);
                if was_ready {
                    self.note_uptime();
                    self.note_failure();
                    self.note_delay(self.model.session.1);
                }
            }
            SupervisorEvent::Closed => self.supervisor.on_closed(current),
            SupervisorEvent::Stop => self.supervisor.on_stop(),
            SupervisorEvent::Resume => {
                self.model.is_start_requested = !self.is_phase("ready");
                self.supervisor.on_resume();
            }
            SupervisorEvent::Reload => {
                self.model.failures.clear();
                self.model.ceiling = None;
                (self.model.readmissions, self.model.is_on_probation) = (0, false);
                self.model.is_start_requested = true;
                self.supervisor.on_reload();
            }
            SupervisorEvent::Evict => {
                let is_unused = self.model.leases + self.model.waiters + self.model.binders == 0;
                assert!(!self.supervisor.on_evict() || is_unused);
            }
            SupervisorEvent::Pass(millis) => self.model.now += millis,
            SupervisorEvent::WaitOver
            | SupervisorEvent::Lease
            | SupervisorEvent::Release
            | SupervisorEvent::Unbind => {}
        }
    }

    /// Reports a start by the task; a start that is no longer wanted is ended by the task.
    fn finish_start(&mut self, generation: u64, is_up: bool) {
        if self.state() != Some(&mut GenerationState::Starting) {
            return;
        }
        let was_starting = self.supervisor.is_starting(generation);
        if is_up {
            assert_eq!(self.supervisor.on_started(generation, at(self.model.now)), was_starting);
            if was_starting {
                self.model.session = (self.model.now, false);
                self.model.has_started = true;
                if std::mem::take(&mut self.model.is_on_probation) {
                    self.model.failures.clear();
                    self.model.ceiling = None;
                }
            }
        } else {
            let failure = self.failure();
            self.supervisor.on_start_failed(generation, failure, &mut self.rng);
            if was_starting {
                self.note_failure();
                if !self.model.has_started {
                    let ceiling = self.model.ceiling.unwrap_or_default();
                    self.model.ceiling = Some(ceiling.max(500));
                }
                self.note_delay(false);
            }
        }
        self.model.is_start_requested &= !(is_up && was_starting);
        let state = if is_up && was_starting { GenerationState::Live } else { GenerationState::Over };
        self.model.generations.insert(generation, state);
    }

    /// Failures in a window never exceed the budget by more than the one that ejects. A server on probation
    /// has no budget.
    fn note_failure(&mut self) {
        let now = self.model.now;
        if std::mem::take(&mut self.model.is_on_probation) {
            assert!(self.is_phase("ejected"), "a relapse");
        } else {
            self.model.failures.push(now);
            let recent = self.recent_failures();
            assert!(recent <= MAX as usize + 1);
            assert_eq!(recent == MAX as usize + 1, self.is_phase("ejected"), "{recent} failures");
        }
        if self.is_phase("ejected") {
            let wait = (READMIT << self.model.readmissions.min(10)).min(10 * READMIT);
            self.model.readmit_at = now + wait;
            assert_eq!(self.supervisor.next_wake(), Some(at(now + wait)));
        }
    }

    fn recent_failures(&self) -> usize {
        let now = self.model.now;
        self.model.failures.iter().filter(|&&then| now - then < WINDOW).count()
    }

    /// Clears the record after a session that worked for long enough.
    fn note_uptime(&mut self) {
        let SupervisorModel { session: (since, is_proven), now, .. } = self.model;
        if is_proven && at(now) - at(since) >= HEALTHY_AFTER {
            self.model.ceiling = None;
            self.model.readmissions = 0;
        }
    }

    /// Answers a list successfully.
    fn answer(&mut self, generation: u64) {
        let Ok(permit) = self.supervisor.admit(None, at(self.model.now)) else { panic!("a list passes") };
        let classification =
            Classification { signal: HealthSignal::Neutral, effect: SessionEffect::MarkProven };
        self.supervisor.record_outcome(
            permit,
            CompletedCall { origin: None, generation, classification },
            at(self.model.now),
        );
        self.model.session.1 |= self.is_phase("ready");
    }

    /// Checks a delay: the first failure of a session that has worked is followed by a start at once, the
    /// last restart of the budget by the longest delay, any other by one in the upper half of its ceiling.
    fn note_delay(&mut self, is_proven: bool) {
        let Phase::Backoff { soonest, until, .. } = *self.supervisor.phase() else { return };
        let (wait, ceiling) = (until - at(self.model.now), self.model.ceiling);
        assert_eq!(soonest, until);
        if is_proven && ceiling.is_none() {
            assert_eq!(wait, ms(0));
            self.model.ceiling = Some(100);
            return;
        }
        let is_last = self.recent_failures() == MAX as usize;
        let ceiling = if is_last { 5_000 } else { ceiling.unwrap_or(100) };
        let least = if is_last { ceiling } else { ceiling / 2 };
        assert!(wait >= ms(least) && wait <= ms(ceiling), "{wait:?} of {least} to {ceiling} ms");
        self.model.ceiling = Some((2 * ceiling).min(5_000));
    }

    fn has_demand(&self) -> bool {
        !self.is_lazy || self.model.waiters + self.model.binders > 0 || self.model.is_start_requested
    }

    /// Carries out all actions, as the server's task does.
    fn carry_out(&mut self) {
        loop {
            let before = self.supervisor.phase().as_str();
            let newest = self.current();
            if before == "ejected" && self.model.now >= self.model.readmit_at {
                self.model.readmissions += 1;
                self.model.is_on_probation = true;
            }
            let Some(action) = self.supervisor.poll(at(self.model.now)) else { break };
            match action {
                Action::Start { generation } => {
                    let is_out = before == "ejected" && !self.model.is_on_probation;
                    assert!(!is_out && !["stopped", "draining"].contains(&before), "started while {before}");
                    assert!(generation > newest, "generations go up");
                    assert!(self.has_demand(), "nobody wants a session");
                    self.model.is_start_requested = false;
                    // The task drops a start that this one replaces.
                    if let Some(state @ GenerationState::Starting) = self.model.generations.get_mut(&newest) {
                        *state = GenerationState::Over;
                    }
                    let outstanding =
                        self.model.generations.values().filter(|state| **state == GenerationState::Starting);
                    assert_eq!(outstanding.count(), 0, "one start at a time");
                    self.model.generations.insert(generation, GenerationState::Starting);
                }
                Action::Retire { generation, .. } => {
                    let state = self.model.generations.insert(generation, GenerationState::Over);
                    assert_eq!(state, Some(GenerationState::Live), "each session is retired once");
                }
            }
        }
        let wake = self.supervisor.next_wake();
        assert!(wake.is_none_or(|wake| wake > at(self.model.now)), "there is something left to do");
    }

    /// Checks the invariants that hold whenever the task has carried out its actions.
    fn check(&self) {
        let SupervisorModel { leases, waiters, binders, .. } = self.model;
        assert_eq!((self.supervisor.leases(), self.supervisor.waiters()), (leases + binders, waiters));
        let live: Vec<u64> = self.with_state(GenerationState::Live);
        match *self.supervisor.phase() {
            Phase::Ready { generation, .. } => assert_eq!(live, [generation]),
            _ => assert_eq!(live, [0; 0], "only the session in use is alive"),
        }
    }

    fn with_state(&self, state: GenerationState) -> Vec<u64> {
        self.model
            .generations
            .iter()
            .filter(|(_, it)| **it == state)
            .map(|(generation, _)| *generation)
            .collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_life_of_a_server_breaks_its_rules(
        is_lazy: bool,
        seed: u64,
        events in prop::collection::vec(events(), 0..120),
    ) {
        let mut run = ModelRun::new(is_lazy, seed);
        for event in events {
            run.apply(event);
            run.carry_out();
            run.check();
        }
    }
}
