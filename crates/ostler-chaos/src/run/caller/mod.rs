//! Callers: each makes one call at a time for as long as the run lasts.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ostler_chaos::history::{CallEnd, CallNumber, CallRoute, HistoryEvent, Invoke};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use self::http_client::HttpClient;
pub(crate) use self::next_action::Focus;
use self::next_action::{CallerAction, CallerProfile, PlannedCall};
use self::program_pool::ProgramPool;
use super::environment::testbed::Testbed;
use super::environment::users::{NONE, user_for};
use super::history_writer::{HistoryWriter, now};

pub(crate) mod abuse;
mod answer;
mod http_client;
mod http_connection;
mod next_action;
pub(crate) mod program_pool;
mod stdio_program;

/// Upper bound of a call: its time at the server, a start, the delays that the nemesis causes, and
/// those of a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);
/// The caller stops waiting this much later than the deadline, and stops sending this much earlier:
/// an unsent call is reported in time, and a sent one may still be answered.
const GRACE: Duration = Duration::from_secs(2);
/// The numbers of one caller's calls; ranges do not overlap.
const RANGE: u64 = 1_000_000_000;
/// The caller number of the nemesis: of a user who may use everything, and not behind the proxy.
const PROBER: usize = 1_000_000;
/// The longest pause between two calls.
const PAUSE_MS: u64 = 6;

/// Everything that callers share.
#[derive(Debug)]
pub(crate) struct CallerContext {
    pub(crate) testbed: Arc<Testbed>,
    pub(crate) recorder: Arc<HistoryWriter>,
    pub(crate) programs: Arc<ProgramPool>,
    /// True while a daemon runs.
    pub(crate) is_up: watch::Receiver<bool>,
    pub(crate) is_over: watch::Receiver<bool>,
    /// The kind of most actions.
    pub(crate) focus: Option<Focus>,
}

/// The deadlines of one call.
#[derive(Debug, Clone, Copy)]
struct CallerDeadlines {
    /// Nothing is sent, or sent again, after this.
    send_by: Instant,
    /// No answer is waited for after this.
    answer_by: Instant,
}

impl CallerDeadlines {
    /// Returns the deadlines of a call that starts now.
    fn from_now() -> Self {
        let now = Instant::now();
        Self { send_by: now + DEADLINE - GRACE, answer_by: now + DEADLINE + GRACE }
    }

    fn until(deadline: Instant) -> Self {
        Self { send_by: deadline, answer_by: deadline }
    }
}

/// A caller.
#[derive(Debug)]
pub(crate) struct ChaosCaller {
    context: Arc<CallerContext>,
    profile: CallerProfile,
    rng: Rng,
    next: u64,
    client: CallerClient,
}

#[derive(Debug)]
enum CallerClient {
    Http(Box<HttpClient>),
    Program,
}

impl ChaosCaller {
    /// Makes the caller with a number; numbers are spread over `ways`.
    pub(crate) fn new(context: &Arc<CallerContext>, seed: u64, number: usize, ways: &[CallRoute]) -> Self {
        let way = ways[number % ways.len()];
        let user = user_for(way, number / ways.len());
        let client = match way {
            CallRoute::Stdio | CallRoute::Relay => CallerClient::Program,
            _ => {
                let ports = &context.testbed.ports;
                let port =
                    if (number / ways.len()).is_multiple_of(2) { ports.daemon } else { ports.cuttable };
                let token = context.testbed.tokens.get(user.name).map_or("", String::as_str);
                CallerClient::Http(Box::new(HttpClient::new(way, token, port)))
            }
        };
        let rng = Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        let next = number as u64 * RANGE + 1;
        Self {
            context: Arc::clone(context),
            profile: CallerProfile { user, way, focus: context.focus },
            rng,
            next,
            client,
        }
    }

    pub(crate) async fn run(mut self) {
        while !*self.context.is_over.borrow() {
            if !self.wait_until_up().await {
                return;
            }
            let nonce = self.next;
            self.next += 1;
            match CallerAction::draw(&mut self.rng, self.profile, nonce) {
                CallerAction::Call(call) => {
                    self.call(&call, CallNumber(nonce)).await;
                }
                CallerAction::List(server) => self.list(server).await,
            }
            // Refusals take no time, so a user who gets nothing else would make most of the calls.
            let slower = if self.profile.user.role == NONE { 10 } else { 1 };
            tokio::time::sleep(Duration::from_millis(self.rng.u64(..slower * PAUSE_MS))).await;
        }
    }

    /// Makes the caller with which the nemesis checks that servers work.
    pub(crate) fn prober(context: &Arc<CallerContext>) -> Self {
        Self::new(context, 0, PROBER, &[CallRoute::HttpModern])
    }

    /// Calls a server until it succeeds, or until the deadline of a call.
    pub(crate) async fn call_until_ok(&mut self, server: &'static str) {
        let end = Instant::now() + DEADLINE;
        while Instant::now() < end && !*self.context.is_over.borrow() {
            let nonce = self.next;
            self.next += 1;
            if self.call(&next_action::probe(server, nonce), CallNumber(nonce)).await {
                return;
            }
        }
    }

    /// Waits for a daemon. Returns false if the run is over first.
    async fn wait_until_up(&self) -> bool {
        let (mut is_up, mut is_over) = (self.context.is_up.clone(), self.context.is_over.clone());
        tokio::select! {
            up = is_up.wait_for(|up| *up) => up.is_ok(),
            _ = is_over.wait_for(|over| *over) => false,
        }
    }

    /// Makes a call and records it. Returns whether it succeeded.
    async fn call(&mut self, call: &PlannedCall, nonce: CallNumber) -> bool {
        let (at, deadlines) = (now(), CallerDeadlines::from_now());
        let micros = u64::try_from(DEADLINE.as_micros()).unwrap_or(u64::MAX);
        self.context.recorder.record(&HistoryEvent::Invoke(Invoke {
            call: nonce,
            at,
            way: self.profile.way,
            principal: self.profile.user.name.into(),
            role: self.profile.user.role.into(),
            server: call.server.into(),
            tool: call.tool.into(),
            purpose: call.purpose,
            deadline: at.saturating_add(micros),
        }));
        let end = match &mut self.client {
            CallerClient::Http(client) => client.call(call, deadlines).await,
            CallerClient::Program => {
                call_by_program(&self.context.programs, self.profile, call, deadlines).await
            }
        };
        let is_good = matches!(end, CallEnd::Ok { .. });
        self.context.recorder.record(&HistoryEvent::End { call: nonce, at: now(), end });
        if !is_good {
            tokio::time::sleep(Duration::from_millis(self.rng.u64(1..4 * PAUSE_MS))).await;
        }
        is_good
    }

    async fn list(&mut self, server: &'static str) {
        let deadline = Instant::now() + DEADLINE;
        let listing = match &mut self.client {
            CallerClient::Http(client) => client.list(server, deadline).await,
            CallerClient::Program => {
                match self
                    .context
                    .programs
                    .get(self.profile.way, self.profile.user, CallerDeadlines::until(deadline))
                    .await
                {
                    Some(program) => timeout_at(deadline, program.list(deadline)).await.ok().flatten(),
                    None => None,
                }
            }
        };
        let Some(tools) = listing else { return };
        let (principal, role) = (self.profile.user.name.into(), self.profile.user.role.into());
        self.context.recorder.record(&HistoryEvent::Listed {
            at: now(),
            way: self.profile.way,
            principal,
            role,
            tools,
        });
    }
}

async fn call_by_program(
    programs: &ProgramPool,
    profile: CallerProfile,
    call: &PlannedCall,
    deadlines: CallerDeadlines,
) -> CallEnd {
    loop {
        let Some(program) = programs.get(profile.way, profile.user, deadlines).await else {
            return stdio_program::not_started(profile.way);
        };
        if let Some(end) = program.call(call, deadlines.answer_by).await {
            return end;
        }
    }
}
