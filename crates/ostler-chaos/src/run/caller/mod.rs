//! Those who call, one call at a time each, for as long as the run lasts.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ostler_chaos::history::{End, Event, Invoke, Nonce, Way};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use self::http::HttpClient;
use self::hub::Hub;
pub(crate) use self::plan::Focus;
use self::plan::{Call, Plan, Who};
use super::record::{Recorder, now};
use super::world::people::{NONE, seated};
use super::world::site::Site;

pub(crate) mod abuse;
mod answer;
mod http;
pub(crate) mod hub;
mod line;
mod pipe;
mod plan;

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
pub(crate) struct Stage {
    pub(crate) site: Arc<Site>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) hub: Arc<Hub>,
    /// Whether there is a daemon to call.
    pub(crate) is_up: watch::Receiver<bool>,
    pub(crate) is_over: watch::Receiver<bool>,
    /// What callers do most of the time.
    pub(crate) focus: Option<Focus>,
}

/// Until when a caller tries what.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// Nothing is sent, or sent again, after this.
    to_send: Instant,
    /// No answer is waited for after this.
    to_hear: Instant,
}

impl Patience {
    /// That of a call that begins now.
    fn begins() -> Self {
        let now = Instant::now();
        Self { to_send: now + DEADLINE - GRACE, to_hear: now + DEADLINE + GRACE }
    }

    fn till(deadline: Instant) -> Self {
        Self { to_send: deadline, to_hear: deadline }
    }
}

/// One caller.
#[derive(Debug)]
pub(crate) struct Caller {
    stage: Arc<Stage>,
    who: Who,
    rng: Rng,
    next: u64,
    client: Client,
}

#[derive(Debug)]
enum Client {
    Http(Box<HttpClient>),
    Pipe,
}

impl Caller {
    /// The caller of that number, of `ways`.
    pub(crate) fn new(stage: &Arc<Stage>, seed: u64, number: usize, ways: &[Way]) -> Self {
        let way = ways[number % ways.len()];
        let person = seated(way, number / ways.len());
        let client = match way {
            Way::Stdio | Way::Relay => Client::Pipe,
            _ => {
                let ports = &stage.site.ports;
                let port =
                    if (number / ways.len()).is_multiple_of(2) { ports.daemon } else { ports.cuttable };
                let token = stage.site.tokens.get(person.name).map_or("", String::as_str);
                Client::Http(Box::new(HttpClient::new(way, token, port)))
            }
        };
        let rng = Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        let next = number as u64 * RANGE + 1;
        Self { stage: Arc::clone(stage), who: Who { person, way, focus: stage.focus }, rng, next, client }
    }

    pub(crate) async fn run(mut self) {
        while !*self.stage.is_over.borrow() {
            if !self.until_up().await {
                return;
            }
            let nonce = self.next;
            self.next += 1;
            match Plan::draw(&mut self.rng, self.who, nonce) {
                Plan::Call(call) => {
                    self.call(&call, Nonce(nonce)).await;
                }
                Plan::List(server) => self.list(server).await,
            }
            // Refusals cost nothing, and who gets nothing else would make most of the calls.
            let slower = if self.who.person.role == NONE { 10 } else { 1 };
            tokio::time::sleep(Duration::from_millis(self.rng.u64(..slower * PAUSE_MS))).await;
        }
    }

    /// One that only tries whether servers work, for the nemesis.
    pub(crate) fn prober(stage: &Arc<Stage>) -> Self {
        Self::new(stage, 0, PROBER, &[Way::HttpModern])
    }

    /// Calls a server until it answers well, or for as long as a call may take.
    pub(crate) async fn until_good(&mut self, server: &'static str) {
        let end = Instant::now() + DEADLINE;
        while Instant::now() < end && !*self.stage.is_over.borrow() {
            let nonce = self.next;
            self.next += 1;
            if self.call(&plan::probe(server, nonce), Nonce(nonce)).await {
                return;
            }
        }
    }

    /// Waits for a daemon; false if the run is over first.
    async fn until_up(&self) -> bool {
        let (mut is_up, mut is_over) = (self.stage.is_up.clone(), self.stage.is_over.clone());
        tokio::select! {
            up = is_up.wait_for(|up| *up) => up.is_ok(),
            _ = is_over.wait_for(|over| *over) => false,
        }
    }

    /// Makes a call and takes it down; whether it was good.
    async fn call(&mut self, call: &Call, nonce: Nonce) -> bool {
        let (at, patience) = (now(), Patience::begins());
        let micros = u64::try_from(DEADLINE.as_micros()).unwrap_or(u64::MAX);
        self.stage.recorder.add(&Event::Invoke(Invoke {
            call: nonce,
            at,
            way: self.who.way,
            principal: self.who.person.name.into(),
            role: self.who.person.role.into(),
            server: call.server.into(),
            tool: call.tool.into(),
            purpose: call.purpose,
            deadline: at.saturating_add(micros),
        }));
        let end = match &mut self.client {
            Client::Http(client) => client.call(call, patience).await,
            Client::Pipe => call_by_pipe(&self.stage.hub, self.who, call, patience).await,
        };
        let is_good = matches!(end, End::Ok { .. });
        self.stage.recorder.add(&Event::End { call: nonce, at: now(), end });
        if !is_good {
            tokio::time::sleep(Duration::from_millis(self.rng.u64(1..4 * PAUSE_MS))).await;
        }
        is_good
    }

    async fn list(&mut self, server: &'static str) {
        let deadline = Instant::now() + DEADLINE;
        let listing = match &mut self.client {
            Client::Http(client) => client.list(server, deadline).await,
            Client::Pipe => {
                match self.stage.hub.pipe(self.who.way, self.who.person, Patience::till(deadline)).await {
                    Some(pipe) => timeout_at(deadline, pipe.list(deadline)).await.ok().flatten(),
                    None => None,
                }
            }
        };
        let Some(tools) = listing else { return };
        let (principal, role) = (self.who.person.name.into(), self.who.person.role.into());
        self.stage.recorder.add(&Event::Listed { at: now(), way: self.who.way, principal, role, tools });
    }
}

async fn call_by_pipe(hub: &Hub, who: Who, call: &Call, patience: Patience) -> End {
    loop {
        let Some(pipe) = hub.pipe(who.way, who.person, patience).await else {
            return pipe::not_started(who.way);
        };
        if let Some(end) = pipe.call(call, patience.to_hear).await {
            return end;
        }
    }
}
