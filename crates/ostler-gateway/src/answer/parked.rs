//! A legacy server asks a modern client: the call is parked, and the client
//! gets `input_required` with a sealed ticket. Its retry answers the server's
//! question and waits for the original answer.
//!
//! ```text
//! running ──answer──▶ done
//!    │ question                     ticket expired, lost, client gone
//!    ▼                                            │
//! parked ──ticket with the answers──▶ running     └──▶ cancelled at the server
//! ```
//!
//! A ticket is good once. A call that is gone is never started again: its
//! client learns that nobody knows what became of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::keyed_limit::{KeyedLimit, Permit};
use ostler_core::name::ServerName;
use ostler_host::upstream::Question;
use ostler_host::{Answer, STATE_LIFE, Target, request_digest};
use ostler_wire::{Era, Outcome, Params};
use tokio::task::JoinHandle;

use super::forward::finish_modern;
use super::voice::Questions;
use crate::exchange::{Exchange, Reply};
use crate::gateway::{Gateway, Shared};

/// Calls that wait for an answer of their client.
#[derive(Debug)]
pub(crate) struct Lot {
    calls: Mutex<HashMap<[u8; 16], Parked>>,
    /// One for every call that may have to be parked, taken before it is sent:
    /// a call that has begun always finds room. Half of them at most are one caller's.
    places: Arc<KeyedLimit>,
}

#[derive(Debug)]
struct Parked {
    /// Who may come back for it.
    caller: Caller,
    call: Running,
    /// What the server asked, under the names the client was given.
    open: Vec<(String, Question)>,
    /// Digest of the parameters that must be the same again.
    digest: [u8; 32],
    _expiry: Expiry,
}

/// Ends with the call that it is for.
#[derive(Debug)]
struct Expiry(JoinHandle<()>);

impl Drop for Expiry {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A call under way, whose end somebody waits for. Dropping it cancels it.
#[derive(Debug)]
struct Running {
    task: JoinHandle<Result<Answer, CallError>>,
    questions: Questions,
    /// Numbers the questions of a call.
    asked: u32,
    _place: Permit,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Lot {
    pub(crate) fn new(max: usize) -> Self {
        let most = (max / 2).max(1);
        Self { calls: Mutex::default(), places: KeyedLimit::new(max, most) }
    }

    /// Takes a place for a call that may have to be parked.
    fn take(&self, caller: &Caller) -> Option<Permit> {
        self.places.acquire(caller.principal()).ok()
    }

    /// Ends the calls of callers that are over: nobody may come back for them.
    pub(crate) fn end_callers(&self, is_over: impl Fn(&Caller) -> bool) {
        let ended: Vec<Parked> = {
            let mut calls = self.calls();
            calls.extract_if(|_, parked| is_over(&parked.caller)).map(|(_, parked)| parked).collect()
        };
        // Dropped behind the lock: that cancels them at their servers.
        drop(ended);
    }

    /// How many calls wait.
    pub(crate) fn len(&self) -> usize {
        self.calls().len()
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<[u8; 16], Parked>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What stays the same when a call is parked and goes on.
struct Asked {
    server: ServerName,
    tool: Option<String>,
    digest: [u8; 32],
}

impl Asked {
    fn of(target: &Target<'_>) -> Self {
        let params = target.params();
        let tool = params.name().map(|name| name.into_owned());
        Self { server: target.server().clone(), tool, digest: request_digest(params) }
    }
}

/// Sends a request whose server may ask its client.
pub(crate) async fn run(
    gateway: &Gateway,
    exchange: &Exchange,
    target: Target<'_>,
    mut questions: Questions,
) -> Reply {
    let Some(place) = gateway.0.lot.take(&exchange.caller) else {
        let what = "too many calls are under way whose servers may ask their clients".into();
        let error = CallError::Overloaded { what, retry_after: Duration::from_secs(10) };
        return Reply::failed(&error, Era::Modern);
    };
    let host = gateway.0.host.clone();
    let asked = Asked::of(&target);
    let target = target.into_owned();
    let mut work = Box::pin(async move { host.send(target).await });
    // A call that asks nothing needs no task of its own.
    let question = tokio::select! {
        biased;
        result = &mut work => return finish_modern(gateway, exchange, result),
        Some(question) = questions.recv() => question,
    };
    let call = Running { task: tokio::spawn(work), questions, asked: 0, _place: place };
    park(gateway, exchange, asked, call, vec![question])
}

/// Goes on with a parked call.
pub(crate) async fn resume(
    gateway: &Gateway,
    exchange: &Exchange,
    (target, params): (Target<'_>, &Params),
    ticket: [u8; 16],
) -> Reply {
    let Some(responses) = params.input_responses().and_then(ostler_wire::all_members) else {
        return Reply::invalid("`inputResponses` is missing");
    };
    let asked = Asked::of(&target);
    let parked = {
        let mut calls = gateway.0.lot.calls();
        match calls.get(&ticket) {
            None => return lost(&asked),
            Some(parked) if parked.digest != asked.digest => {
                return Reply::invalid("the request is not the one that `requestState` was given for");
            }
            Some(_) => calls.remove(&ticket),
        }
    };
    let Some(Parked { mut call, open, .. }) = parked else { return lost(&asked) };
    let mut unanswered = Vec::new();
    for (key, question) in open {
        match responses.iter().find(|(name, _)| *name == key) {
            Some((_, raw)) => {
                question.answer(Outcome::Result(Bytes::copy_from_slice(raw)));
            }
            None => unanswered.push(question),
        }
    }
    if !unanswered.is_empty() {
        return park(gateway, exchange, asked, call, unanswered);
    }
    let question = tokio::select! {
        biased;
        result = &mut call.task => {
            let result = result.unwrap_or_else(|_| Err(gone(&asked)));
            return finish_modern(gateway, exchange, result);
        }
        Some(question) = call.questions.recv() => question,
    };
    park(gateway, exchange, asked, call, vec![question])
}

/// Puts a call aside until its client comes back with answers.
fn park(
    gateway: &Gateway,
    exchange: &Exchange,
    asked: Asked,
    mut call: Running,
    mut questions: Vec<Question>,
) -> Reply {
    while let Ok(question) = call.questions.try_recv() {
        questions.push(question);
    }
    let mut open = Vec::new();
    for question in questions {
        call.asked += 1;
        open.push((format!("q{}", call.asked), question));
    }
    let mut ticket = [0; 16];
    if getrandom::fill(&mut ticket).is_err() {
        return Reply::error(ostler_wire::INTERNAL_ERROR, "no source of chance", None);
    }
    let (caller, method) = (&exchange.caller, exchange.method.as_str());
    let state = gateway.0.host.seal_parked(caller, method, &asked.server, ticket);
    let body = input_required(&open, &state);
    {
        let mut calls = gateway.0.lot.calls();
        let expiry = forget_later(Arc::downgrade(&gateway.0), ticket);
        let (caller, digest) = (exchange.caller.clone(), asked.digest);
        calls.insert(ticket, Parked { caller, call, open, digest, _expiry: expiry });
    }
    Reply::Result(body.into())
}

/// Ends a call whose ticket is not used in time; its own hard end may come first.
fn forget_later(gateway: Weak<Shared>, ticket: [u8; 16]) -> Expiry {
    Expiry(tokio::spawn(async move {
        tokio::time::sleep(STATE_LIFE).await;
        if let Some(gateway) = gateway.upgrade() {
            let late = gateway.lot.calls().remove(&ticket);
            drop(late);
        }
    }))
}

fn input_required(open: &[(String, Question)], state: &str) -> Vec<u8> {
    let mut body = b"{\"resultType\":\"input_required\",\"inputRequests\":{".to_vec();
    for (at, (key, question)) in open.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        ostler_wire::push_text(&mut body, key);
        body.extend_from_slice(b":{\"method\":");
        ostler_wire::push_text(&mut body, question.method.as_str());
        if let Some(params) = &question.params {
            body.extend_from_slice(b",\"params\":");
            body.extend_from_slice(params);
        }
        body.push(b'}');
    }
    body.extend_from_slice(b"},\"requestState\":");
    ostler_wire::push_text(&mut body, state);
    body.push(b'}');
    body
}

fn gone(asked: &Asked) -> CallError {
    CallError::OutcomeUnknown {
        server: asked.server.clone(),
        tool: asked.tool.clone(),
        cause: "the call that waited for this answer is gone: it took too long, or the gateway was restarted"
            .into(),
    }
}

fn lost(asked: &Asked) -> Reply {
    Reply::failed(&gone(asked), Era::Modern)
}
