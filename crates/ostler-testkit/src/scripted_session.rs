//! Session of a scripted server: runs the reply that the script has for each request.

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

/// The fate of a session. It ends once.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SessionFate {
    Alive,
    /// It ended by itself at this moment.
    Crashed(Instant),
    /// The host closed it.
    Closed,
}

/// A session of a scripted server.
pub(crate) struct ScriptedSession {
    server: ScriptedServer,
    context: ConnectContext,
    state: Mutex<ScriptedState>,
    /// Wakes waiters in the order of pending, which a `watch` does not, so that runs are
    /// repeatable.
    ended: Notify,
}

struct ScriptedState {
    fate: SessionFate,
    is_hung: bool,
    last_response: Option<Instant>,
    /// The arrival of each open request, by its number.
    pending: BTreeMap<usize, Instant>,
}

impl ScriptedSession {
    pub(crate) fn new(server: ScriptedServer, context: ConnectContext) -> Self {
        let state = ScriptedState {
            fate: SessionFate::Alive,
            is_hung: false,
            last_response: None,
            pending: BTreeMap::new(),
        };
        Self { server, context, state: Mutex::new(state), ended: Notify::new() }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.context.generation
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
        (self.context.notification_sink)(event);
    }

    /// Ends the session, unless it has ended.
    fn set_ended(&self, fate: SessionFate) {
        let mut state = self.state();
        if state.fate == SessionFate::Alive {
            state.fate = fate;
            drop(state);
            self.ended.notify_waiters();
        }
    }

    /// Waits deadline the session has ended.
    async fn wait_for_end(&self) -> SessionFate {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            let fate = self.state().fate.clone();
            if fate != SessionFate::Alive {
                return fate;
            }
            ended.await;
        }
    }

    /// Returns the reason why nothing can be sent any more, if the session has ended.
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

    async fn handle_request(&self, request: UpstreamRequest<'_>) -> Result<RpcOutcome, Fault> {
        if let Some(kind) = self.end_reason() {
            return Err(Fault::not_sent(kind));
        }
        let received = self.server.record_request(self.generation(), &request);
        let began = Instant::now();
        let mut pending = ScriptedPending::register(self, &received);
        let reply = self.server.script.reply_to(&received);
        if reply.is_received() {
            self.server.record_execution(&received);
        }
        let deadline = if reply.asks_client() { request.hard_deadline } else { request.deadline };
        let result = tokio::select! {
            // Steps that ran before the end or the deadline count.
            biased;
            result = self.run_reply(&request, reply) => Some(result),
            _ = self.wait_for_end() => None,
            () = sleep_until(deadline) => Some(Err(Fault::unknown(FaultKind::TimedOut(request.deadline - began)))),
        };
        let result =
            result.unwrap_or_else(|| Err(Fault::unknown(self.end_reason().unwrap_or(FaultKind::Closed))));
        pending.is_cancelled = matches!(&result, Err(Fault { kind: FaultKind::TimedOut(_), .. }));
        if result.is_ok() {
            self.state().last_response = Some(Instant::now());
            self.server.history().answered += 1;
        }
        result
    }

    /// Runs the steps before the answer, then the answer.
    async fn run_reply(
        &self,
        request: &UpstreamRequest<'_>,
        reply: ScriptedReply,
    ) -> Result<RpcOutcome, Fault> {
        for step in &reply.steps {
            self.run_step(request, step).await;
        }
        self.finish_reply(reply).await
    }

    async fn run_step(&self, request: &UpstreamRequest<'_>, step: &ReplyStep) {
        match (step, request.observer) {
            (ReplyStep::Pause(time), _) => sleep(*time).await,
            (ReplyStep::Progress(members), Some(observer)) if observer.wants_progress() => {
                let params = format!("{{\"progressToken\":{},{members}}}", self.context.generation).into();
                if let Some(progress) = ProgressParams::parse(&params) {
                    observer.on_progress(&progress);
                }
            }
            (ReplyStep::Notify(method, params), Some(observer)) if observer.wants_notifications() => {
                observer.on_notification(method, Some(&params.clone().into()));
            }
            (ReplyStep::RequestClient(method, params), observer) => {
                let answer = match observer.filter(|observer| observer.can_answer(method)) {
                    Some(observer) => {
                        let (server_request, answer) =
                            ServerRequest::new(method.as_str().into(), Some(params.clone().into()));
                        observer.on_request(server_request);
                        answer.await.ok()
                    }
                    None => None,
                };
                self.server.history().client_answers.push(answer);
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
        &self.server.script.server_info
    }

    fn request<'a>(&'a self, request: UpstreamRequest<'a>) -> BoxFuture<'a, Result<RpcOutcome, Fault>> {
        Box::pin(self.handle_request(request))
    }

    fn notify(&self, method: &str, _params: Option<&[u8]>) {
        self.server.history().notifications.push(method.to_owned());
    }

    fn listen(&self, resources: &[String]) {
        self.server.history().listen_requests.push(resources.to_vec());
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
            sleep(self.server.script.close_after).await;
            self.server.history().closed.push(self.generation());
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

/// An open request; it counts as cancelled if it is dropped before its answer.
struct ScriptedPending<'a> {
    session: &'a ScriptedSession,
    number: usize,
    is_cancelled: bool,
}

impl<'a> ScriptedPending<'a> {
    fn register(session: &'a ScriptedSession, received: &ReceivedRequest) -> Self {
        session.state().pending.insert(received.number, Instant::now());
        Self { session, number: received.number, is_cancelled: true }
    }
}

impl Drop for ScriptedPending<'_> {
    fn drop(&mut self) {
        self.session.state().pending.remove(&self.number);
        let mut history = self.session.server.history();
        history.in_flight -= 1;
        history.cancelled += usize::from(self.is_cancelled);
    }
}
