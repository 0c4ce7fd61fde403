//! Those who call, one call at a time each, for as long as the run lasts.

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

/// When a call must be over: its time at the server, a start, what the nemesis
/// holds up, and what a busy machine adds.
const DEADLINE: Duration = Duration::from_secs(20);
/// How much later than that the caller itself stops waiting, and how much sooner it stops trying to send:
/// what never left is told of in time, and what has left may still be answered.
const GRACE: Duration = Duration::from_secs(2);
/// Calls of one caller; their numbers do not meet those of another.
const RANGE: u64 = 1_000_000_000;
/// The number of the nemesis among callers: of somebody who may use everything, and not behind the proxy.
const PROBER: usize = 1_000_000;
/// The longest pause between two calls.
const PAUSE_MS: u64 = 6;

/// What all callers share.
#[derive(Debug)]
pub(crate) struct CallerContext {
    pub(crate) testbed: Arc<Testbed>,
    pub(crate) recorder: Arc<HistoryWriter>,
    pub(crate) programs: Arc<ProgramPool>,
    /// Whether there is a daemon to call.
    pub(crate) is_up: watch::Receiver<bool>,
    pub(crate) is_over: watch::Receiver<bool>,
    /// What callers do most of the time.
    pub(crate) focus: Option<Focus>,
}

/// Until when a caller tries what.
#[derive(Debug, Clone, Copy)]
struct CallerDeadlines {
    /// Nothing is sent, or sent again, after this.
    send_by: Instant,
    /// No answer is waited for after this.
    answer_by: Instant,
}

impl CallerDeadlines {
    /// That of a call that begins now.
    fn from_now() -> Self {
        let now = Instant::now();
        Self { send_by: now + DEADLINE - GRACE, answer_by: now + DEADLINE + GRACE }
    }

    fn until(deadline: Instant) -> Self {
        Self { send_by: deadline, answer_by: deadline }
    }
}

/// One caller.
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
    /// The caller of that number, of `ways`.
    pub(crate) fn new(stage: &Arc<CallerContext>, seed: u64, number: usize, ways: &[CallRoute]) -> Self {
        let way = ways[number % ways.len()];
        let person = user_for(way, number / ways.len());
        let client = match way {
            CallRoute::Stdio | CallRoute::Relay => CallerClient::Program,
            _ => {
                let ports = &stage.testbed.ports;
                let port =
                    if (number / ways.len()).is_multiple_of(2) { ports.daemon } else { ports.cuttable };
                let token = stage.testbed.tokens.get(person.name).map_or("", String::as_str);
                CallerClient::Http(Box::new(HttpClient::new(way, token, port)))
            }
        };
        let rng = Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        let next = number as u64 * RANGE + 1;
        Self {
            context: Arc::clone(stage),
            profile: CallerProfile { user: person, way, focus: stage.focus },
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
            // Refusals cost nothing, and who gets nothing else would make most of the calls.
            let slower = if self.profile.user.role == NONE { 10 } else { 1 };
            tokio::time::sleep(Duration::from_millis(self.rng.u64(..slower * PAUSE_MS))).await;
        }
    }

    /// One that only tries whether servers work, for the nemesis.
    pub(crate) fn prober(stage: &Arc<CallerContext>) -> Self {
        Self::new(stage, 0, PROBER, &[CallRoute::HttpModern])
    }

    /// Calls a server until it answers well, or for as long as a call may take.
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

    /// Waits for a daemon; false if the run is over first.
    async fn wait_until_up(&self) -> bool {
        let (mut is_up, mut is_over) = (self.context.is_up.clone(), self.context.is_over.clone());
        tokio::select! {
            up = is_up.wait_for(|up| *up) => up.is_ok(),
            _ = is_over.wait_for(|over| *over) => false,
        }
    }

    /// Makes a call and takes it down; whether it was good.
    async fn call(&mut self, call: &PlannedCall, nonce: CallNumber) -> bool {
        let (at, patience) = (now(), CallerDeadlines::from_now());
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
            CallerClient::Http(client) => client.call(call, patience).await,
            CallerClient::Program => {
                call_by_program(&self.context.programs, self.profile, call, patience).await
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
                    Some(pipe) => timeout_at(deadline, pipe.list(deadline)).await.ok().flatten(),
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
    hub: &ProgramPool,
    who: CallerProfile,
    call: &PlannedCall,
    patience: CallerDeadlines,
) -> CallEnd {
    loop {
        let Some(pipe) = hub.get(who.way, who.user, patience).await else {
            return stdio_program::not_started(who.way);
        };
        if let Some(end) = pipe.call(call, patience.answer_by).await {
            return end;
        }
    }
}
