//! One session of a scripted server.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ostler_core::fault::{Fault, FaultKind};
use ostler_core::supervisor::ServerFailure;
use ostler_host::upstream::{
    BoxFuture, CloseMode, ConnectContext, ServerNotification, ServerRequest, ServerSession, SessionStats,
    UpstreamRequest,
};
use ostler_wire::{ProgressParams, RpcOutcome, ServerInfo};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::scripted_reply::{CRASH_EXIT, ReplyAction, ReplyStep, ScriptedReply};
use crate::scripted_server::{ReceivedRequest, ScriptedServer};

/// How a session stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SessionFate {
    Alive,
    /// It ended by itself at this moment.
    Crashed(Instant),
    /// The host closed it.
    Closed,
}

/// One session of a scripted server.
pub(crate) struct ScriptedSession {
    stage: ScriptedServer,
    plan: ConnectContext,
    state: Mutex<ScriptedState>,
    /// Wakes in the order of waiting, which a `watch` would not: runs can be repeated.
    ended: Notify,
}

struct ScriptedState {
    fate: SessionFate,
    is_hung: bool,
    last_response: Option<Instant>,
    /// Since when each waiting request waits, by its number.
    pending: BTreeMap<usize, Instant>,
}

impl ScriptedSession {
    pub(crate) fn new(stage: ScriptedServer, plan: ConnectContext) -> Self {
        let state = ScriptedState {
            fate: SessionFate::Alive,
            is_hung: false,
            last_response: None,
            pending: BTreeMap::new(),
        };
        Self { stage, plan, state: Mutex::new(state), ended: Notify::new() }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.plan.generation
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.state().fate == SessionFate::Alive
    }

    pub(crate) fn crash(&self) {
        self.set_ended(SessionFate::Crashed(Instant::now()));
    }

    pub(crate) fn hang(&self) {
        self.state().is_hung = true;
    }

    pub(crate) fn announce(&self, event: ServerNotification) {
        (self.plan.notification_sink)(event);
    }

    /// A session ends once.
    fn set_ended(&self, fate: SessionFate) {
        let mut state = self.state();
        if state.fate == SessionFate::Alive {
            state.fate = fate;
            drop(state);
            self.ended.notify_waiters();
        }
    }

    /// Waits for the end.
    async fn wait_for_end(&self) -> SessionFate {
        loop {
            let over = self.ended.notified();
            tokio::pin!(over);
            over.as_mut().enable();
            let fate = self.state().fate.clone();
            if fate != SessionFate::Alive {
                return fate;
            }
            over.await;
        }
    }

    /// Why nothing can be sent any more.
    fn end_reason(&self) -> Option<FaultKind> {
        match self.state().fate {
            SessionFate::Alive => None,
            SessionFate::Crashed(_) => Some(CRASH_EXIT),
            SessionFate::Closed => Some(FaultKind::Retired),
        }
    }

    fn state(&self) -> MutexGuard<'_, ScriptedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn handle_request(&self, ask: UpstreamRequest<'_>) -> Result<RpcOutcome, Fault> {
        if let Some(kind) = self.end_reason() {
            return Err(Fault::not_sent(kind));
        }
        let asked = self.stage.record_request(self.generation(), &ask);
        let began = Instant::now();
        let mut waiting = ScriptedPending::register(self, &asked);
        let reply = self.stage.script.reply_to(&asked);
        if reply.is_received() {
            self.stage.record_execution(&asked);
        }
        let until = if reply.asks_client() { ask.hard_deadline } else { ask.deadline };
        let result = tokio::select! {
            // What the server did before its end or the deadline counts.
            biased;
            result = self.run_reply(&ask, reply) => Some(result),
            _ = self.wait_for_end() => None,
            () = sleep_until(until) => Some(Err(Fault::unknown(FaultKind::TimedOut(ask.deadline - began)))),
        };
        let result =
            result.unwrap_or_else(|| Err(Fault::unknown(self.end_reason().unwrap_or(FaultKind::Closed))));
        waiting.is_cancelled = matches!(&result, Err(Fault { kind: FaultKind::TimedOut(_), .. }));
        if result.is_ok() {
            self.state().last_response = Some(Instant::now());
            self.stage.history().answered += 1;
        }
        result
    }

    /// What comes before the answer, then the answer.
    async fn run_reply(&self, ask: &UpstreamRequest<'_>, reply: ScriptedReply) -> Result<RpcOutcome, Fault> {
        for step in &reply.steps {
            self.run_step(ask, step).await;
        }
        self.finish_reply(reply).await
    }

    async fn run_step(&self, ask: &UpstreamRequest<'_>, step: &ReplyStep) {
        match (step, ask.observer) {
            (ReplyStep::Pause(time), _) => sleep(*time).await,
            (ReplyStep::Progress(members), Some(voice)) if voice.wants_progress() => {
                let params = format!("{{\"progressToken\":{},{members}}}", self.plan.generation).into();
                if let Some(progress) = ProgressParams::parse(&params) {
                    voice.on_progress(&progress);
                }
            }
            (ReplyStep::Notify(method, params), Some(voice)) if voice.wants_notifications() => {
                voice.on_notification(method, Some(&params.clone().into()));
            }
            (ReplyStep::RequestClient(method, params), voice) => {
                let answer = match voice.filter(|voice| voice.can_answer(method)) {
                    Some(voice) => {
                        let (question, answer) =
                            ServerRequest::new(method.as_str().into(), Some(params.clone().into()));
                        voice.on_request(question);
                        answer.await.ok()
                    }
                    None => None,
                };
                self.stage.history().client_answers.push(answer);
            }
            _ => {}
        }
    }

    async fn finish_reply(&self, reply: ScriptedReply) -> Result<RpcOutcome, Fault> {
        if !reply.after.is_zero() {
            sleep(reply.after).await;
        }
        if self.state().is_hung {
            return std::future::pending().await;
        }
        match reply.action {
            ReplyAction::Answer(outcome) => Ok(outcome),
            ReplyAction::Fail(fault) => Err(fault),
            ReplyAction::Crash => {
                self.crash();
                Err(Fault::unknown(CRASH_EXIT))
            }
            ReplyAction::CrashBeforeRead => {
                self.crash();
                Err(Fault::not_sent(CRASH_EXIT))
            }
            ReplyAction::Never => std::future::pending().await,
        }
    }
}

impl ServerSession for ScriptedSession {
    fn server_info(&self) -> &ServerInfo {
        &self.stage.script.hello
    }

    fn request<'a>(&'a self, ask: UpstreamRequest<'a>) -> BoxFuture<'a, Result<RpcOutcome, Fault>> {
        Box::pin(self.handle_request(ask))
    }

    fn notify(&self, method: &str, _params: Option<&[u8]>) {
        self.stage.history().notifications.push(method.to_owned());
    }

    fn listen(&self, resources: &[String]) {
        self.stage.history().listen_requests.push(resources.to_vec());
    }

    fn ended(&self) -> BoxFuture<'_, ServerFailure> {
        Box::pin(async move {
            match self.wait_for_end().await {
                SessionFate::Crashed(at) => ServerFailure::new(CRASH_EXIT, at.into_std()),
                SessionFate::Alive | SessionFate::Closed => std::future::pending().await,
            }
        })
    }

    fn close(&self, _: CloseMode) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.set_ended(SessionFate::Closed);
            sleep(self.stage.script.close_after).await;
            self.stage.history().closed.push(self.generation());
        })
    }

    fn stats(&self) -> SessionStats {
        SessionStats::default()
    }

    fn activity(&self) -> (Option<Instant>, Option<Instant>) {
        let state = self.state();
        (state.last_response, state.pending.values().min().copied())
    }
}

/// A request that waits for its answer; dropped before that, it is cancelled.
struct ScriptedPending<'a> {
    session: &'a ScriptedSession,
    number: usize,
    is_cancelled: bool,
}

impl<'a> ScriptedPending<'a> {
    fn register(session: &'a ScriptedSession, asked: &ReceivedRequest) -> Self {
        session.state().pending.insert(asked.number, Instant::now());
        Self { session, number: asked.number, is_cancelled: true }
    }
}

impl Drop for ScriptedPending<'_> {
    fn drop(&mut self) {
        self.session.state().pending.remove(&self.number);
        let mut book = self.session.stage.history();
        book.in_flight -= 1;
        book.cancelled += usize::from(self.is_cancelled);
    }
}
