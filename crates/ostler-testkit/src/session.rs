//! One session of a scripted server.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ostler_core::fault::{Fault, FaultKind};
use ostler_core::supervisor::Failure;
use ostler_host::upstream::{Ask, BoxFuture, Event, Force, Plan, Question, Session, Vitals};
use ostler_wire::{Hello, Outcome, Progress};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::reply::{Act, CRASHED, Reply, Step};
use crate::stage::{Asked, Stage};

/// How a session stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Alive,
    /// It ended by itself at this moment.
    Crashed(Instant),
    /// The host closed it.
    Closed,
}

/// One session of a scripted server.
pub(crate) struct ScriptedSession {
    stage: Stage,
    plan: Plan,
    state: Mutex<State>,
    /// Wakes in the order of waiting, which a `watch` would not: runs can be repeated.
    over: Notify,
}

struct State {
    fate: Fate,
    is_hung: bool,
    heard: Option<Instant>,
    /// Since when each waiting request waits, by its number.
    waiting: BTreeMap<usize, Instant>,
}

impl ScriptedSession {
    pub(crate) fn new(stage: Stage, plan: Plan) -> Self {
        let state = State { fate: Fate::Alive, is_hung: false, heard: None, waiting: BTreeMap::new() };
        Self { stage, plan, state: Mutex::new(state), over: Notify::new() }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.plan.generation
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.state().fate == Fate::Alive
    }

    pub(crate) fn crash(&self) {
        self.end(Fate::Crashed(Instant::now()));
    }

    pub(crate) fn hang(&self) {
        self.state().is_hung = true;
    }

    pub(crate) fn announce(&self, event: Event) {
        (self.plan.events)(event);
    }

    /// A session ends once.
    fn end(&self, fate: Fate) {
        let mut state = self.state();
        if state.fate == Fate::Alive {
            state.fate = fate;
            drop(state);
            self.over.notify_waiters();
        }
    }

    /// Waits for the end.
    async fn fate(&self) -> Fate {
        loop {
            let over = self.over.notified();
            tokio::pin!(over);
            over.as_mut().enable();
            let fate = self.state().fate.clone();
            if fate != Fate::Alive {
                return fate;
            }
            over.await;
        }
    }

    /// Why nothing can be sent any more.
    fn ending(&self) -> Option<FaultKind> {
        match self.state().fate {
            Fate::Alive => None,
            Fate::Crashed(_) => Some(CRASHED),
            Fate::Closed => Some(FaultKind::Retired),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn exchange(&self, ask: Ask<'_>) -> Result<Outcome, Fault> {
        if let Some(kind) = self.ending() {
            return Err(Fault::not_sent(kind));
        }
        let asked = self.stage.receive(self.generation(), &ask);
        let began = Instant::now();
        let mut waiting = Waiting::begin(self, &asked);
        let reply = self.stage.script.reply_to(&asked);
        if reply.is_read() {
            self.stage.execute(&asked);
        }
        let until = if reply.asks() { ask.at_most } else { ask.until };
        let result = tokio::select! {
            // What the server did before its end or the deadline counts.
            biased;
            result = self.perform(&ask, reply) => Some(result),
            _ = self.fate() => None,
            () = sleep_until(until) => Some(Err(Fault::unknown(FaultKind::TimedOut(ask.until - began)))),
        };
        let result =
            result.unwrap_or_else(|| Err(Fault::unknown(self.ending().unwrap_or(FaultKind::Closed))));
        waiting.is_cancelled = matches!(&result, Err(Fault { kind: FaultKind::TimedOut(_), .. }));
        if result.is_ok() {
            self.state().heard = Some(Instant::now());
            self.stage.book().answered += 1;
        }
        result
    }

    /// What comes before the answer, then the answer.
    async fn perform(&self, ask: &Ask<'_>, reply: Reply) -> Result<Outcome, Fault> {
        for step in &reply.before {
            self.step(ask, step).await;
        }
        self.play(reply).await
    }

    async fn step(&self, ask: &Ask<'_>, step: &Step) {
        match (step, ask.voice) {
            (Step::Pause(time), _) => sleep(*time).await,
            (Step::Report(members), Some(voice)) if voice.wants_progress() => {
                let params = format!("{{\"progressToken\":{},{members}}}", self.plan.generation).into();
                if let Some(progress) = Progress::parse(&params) {
                    voice.progress(&progress);
                }
            }
            (Step::Say(method, params), Some(voice)) if voice.wants_notices() => {
                voice.notice(method, Some(&params.clone().into()));
            }
            (Step::Ask(method, params), voice) => {
                let answer = match voice.filter(|voice| voice.can_answer(method)) {
                    Some(voice) => {
                        let (question, answer) =
                            Question::new(method.as_str().into(), Some(params.clone().into()));
                        voice.ask(question);
                        answer.await.ok()
                    }
                    None => None,
                };
                self.stage.book().told.push(answer);
            }
            _ => {}
        }
    }

    async fn play(&self, reply: Reply) -> Result<Outcome, Fault> {
        if !reply.after.is_zero() {
            sleep(reply.after).await;
        }
        if self.state().is_hung {
            return std::future::pending().await;
        }
        match reply.act {
            Act::Answer(outcome) => Ok(outcome),
            Act::Fail(fault) => Err(fault),
            Act::Crash => {
                self.crash();
                Err(Fault::unknown(CRASHED))
            }
            Act::CrashUnread => {
                self.crash();
                Err(Fault::not_sent(CRASHED))
            }
            Act::Never => std::future::pending().await,
        }
    }
}

impl Session for ScriptedSession {
    fn hello(&self) -> &Hello {
        &self.stage.script.hello
    }

    fn request<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<Outcome, Fault>> {
        Box::pin(self.exchange(ask))
    }

    fn notify(&self, method: &str, _params: Option<&[u8]>) {
        self.stage.book().notified.push(method.to_owned());
    }

    fn listen(&self, resources: &[String]) {
        self.stage.book().listened.push(resources.to_vec());
    }

    fn ended(&self) -> BoxFuture<'_, Failure> {
        Box::pin(async move {
            match self.fate().await {
                Fate::Crashed(at) => Failure::new(CRASHED, at.into_std()),
                Fate::Alive | Fate::Closed => std::future::pending().await,
            }
        })
    }

    fn close(&self, _: Force) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.end(Fate::Closed);
            sleep(self.stage.script.close_after).await;
            self.stage.book().closed.push(self.generation());
        })
    }

    fn vitals(&self) -> Vitals {
        Vitals::default()
    }

    fn signs(&self) -> (Option<Instant>, Option<Instant>) {
        let state = self.state();
        (state.heard, state.waiting.values().min().copied())
    }
}

/// A request that waits for its answer; dropped before that, it is cancelled.
struct Waiting<'a> {
    session: &'a ScriptedSession,
    number: usize,
    is_cancelled: bool,
}

impl<'a> Waiting<'a> {
    fn begin(session: &'a ScriptedSession, asked: &Asked) -> Self {
        session.state().waiting.insert(asked.number, Instant::now());
        Self { session, number: asked.number, is_cancelled: true }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.session.state().waiting.remove(&self.number);
        let mut book = self.session.stage.book();
        book.in_flight -= 1;
        book.cancelled += usize::from(self.is_cancelled);
    }
}
