//! The calls of a worker that wait: who waits for which id, and what has
//! become of it.
//!
//! One short lock covers them all. A call that is on its way is a
//! [`Pending`]; whatever ends it goes to its caller through a channel that is
//! made for each time it is sent. One timer serves all of them.

mod handle;
mod timer;

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hashbrown::HashMap;
use ostler_core::fault::{Fault, FaultKind};
use ostler_host::upstream::SharedCallObserver;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

pub(super) use self::handle::RelayedCallHandle;
use super::chunk_assembly::{AssemblyStep, ChunkAssembly};
use super::outbox::Outbox;
use super::pending::{CallTimes, PendingAction, PendingRelayCall};
use crate::call_id::{CallId, Instance};
use crate::chunk::MAX_ANSWER;
use crate::envelope::Control;
use crate::name::RelayName;

/// Calls of a worker at once.
pub(super) const MOST: usize = 1_024;

/// Questions that one call may have open.
const MAX_QUESTIONS: usize = 16;

/// Bytes of answers in chunks that are kept until they are whole, of all calls
/// together. A call whose chunk comes beyond that has no answer.
const MAX_HELD: usize = 512 << 20;

/// The calls of a worker that wait.
#[derive(Debug)]
pub(super) struct RelayedCalls {
    state: Mutex<RelayedCallsState>,
    outbox: Outbox,
    /// Tells the clock that it has to look sooner.
    timer_wake: Notify,
}

#[derive(Debug, Default)]
struct RelayedCallsState {
    calls: HashMap<CallId, RelayedCall>,
    /// The connection through which calls are heard of, if there is one.
    epoch: Option<u64>,
    /// What the clock waits for: nothing changes by time alone before it.
    next_wake: Option<Instant>,
    is_closed: bool,
}

/// What is known of a call that waits.
pub(super) struct RelayedCallInfo {
    /// Where it is published.
    pub(super) subject: String,
    /// Its times.
    pub(super) times: CallTimes,
    /// The session that it belongs to; none for what the worker itself asks.
    pub(super) session: Option<u64>,
    /// Who hears of it meanwhile.
    pub(super) observer: Option<SharedCallObserver>,
}

struct RelayedCall {
    info: RelayedCallInfo,
    pending: PendingRelayCall,
    /// Where the end is told; none while it is with its caller.
    outcome_sender: Option<oneshot::Sender<RelaySendOutcome>>,
    /// An answer that came although nobody should have got the call.
    early_outcome: Option<RelaySendOutcome>,
    assembly: Option<Box<ChunkAssembly>>,
    /// The questions that are open. Dropping them withdraws them.
    server_requests: Vec<(u32, oneshot::Sender<()>)>,
}

impl std::fmt::Debug for RelayedCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.pending.fmt(f)
    }
}

/// What came of sending a call once.
#[derive(Debug)]
pub(super) enum RelaySendOutcome {
    /// The whole response.
    Answer(Bytes),
    /// The same, in chunks.
    Chunks(Box<ChunkAssembly>),
    /// There is no answer.
    Fault(Fault),
    /// Nobody has got it: it may be sent again.
    NoResponders,
}

impl RelayedCalls {
    pub(super) fn new(outbox: Outbox) -> Self {
        Self { state: Mutex::default(), outbox, timer_wake: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, RelayedCallsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a call in, before it is sent.
    pub(super) fn register(
        &self,
        call: CallId,
        entry: RelayedCallInfo,
    ) -> Result<RelayedCallHandle<'_>, Fault> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(shutdown_fault());
        }
        // Two calls never share an id, so the last condition is about what can't be.
        let is_full = entry.session.is_some() && state.calls.len() >= MOST;
        if is_full || state.calls.contains_key(&call) {
            return Err(Fault::not_sent(FaultKind::Congested));
        }
        let pending = PendingRelayCall::new(entry.times);
        let waiting = RelayedCall {
            info: entry,
            pending,
            outcome_sender: None,
            early_outcome: None,
            assembly: None,
            server_requests: Vec::new(),
        };
        state.calls.insert(call, waiting);
        Ok(RelayedCallHandle { calls: self, call })
    }

    /// Whether any call is with a host, or on its way.
    pub(super) fn has_outstanding(&self) -> bool {
        let is_out =
            |waiting: &RelayedCall| waiting.info.session.is_some() && waiting.pending.may_have_left();
        self.lock().calls.values().any(is_out)
    }

    /// The response of a call.
    pub(super) fn answer(&self, call: CallId, body: Bytes) {
        self.lock().finish(call, RelaySendOutcome::Answer(body));
    }

    /// A response that comes in chunks.
    pub(super) fn announce(&self, call: CallId, length: u64, sha256: &str) {
        self.assemble(call, |assembly| assembly.announce(length, sha256));
    }

    /// One chunk of a response.
    pub(super) fn add_chunk(&self, call: CallId, number: u32, body: Bytes) {
        if self.lock().buffered_bytes() + body.len() > MAX_HELD {
            let why = "there is no room for more long answers at once".into();
            return self.fail(call, Fault::unknown(FaultKind::Transfer(why)));
        }
        self.assemble(call, |assembly| assembly.add(number, body));
    }

    fn assemble(&self, call: CallId, add: impl FnOnce(&mut ChunkAssembly) -> AssemblyStep) {
        let mut state = self.lock();
        let Some(waiting) = state.calls.get_mut(&call) else { return };
        waiting.pending.on_progress(Instant::now());
        let assembly = waiting.assembly.get_or_insert_default();
        let ack = match add(assembly) {
            AssemblyStep::Wait => None,
            AssemblyStep::Ack(number) => Some(number),
            AssemblyStep::Complete(number) => {
                if let Some(assembly) = waiting.assembly.take() {
                    state.finish(call, RelaySendOutcome::Chunks(assembly));
                }
                Some(number)
            }
            AssemblyStep::TooLong => {
                let kind = FaultKind::Oversize(MAX_ANSWER);
                drop(state);
                return self.fail(call, Fault::unknown(kind));
            }
        };
        drop(state);
        if let Some(number) = ack {
            self.outbox.control(call, Control::Ack(number), Bytes::new());
        }
    }

    /// Nobody listens to where a call was published.
    pub(super) fn on_no_responders(&self, call: CallId) {
        let mut state = self.lock();
        let Some(waiting) = state.calls.get_mut(&call) else { return };
        if waiting.pending.on_no_responders()
            && let Some(tell) = waiting.outcome_sender.take()
        {
            let _ = tell.send(RelaySendOutcome::NoResponders);
        }
    }

    /// A host has claimed a call.
    pub(super) fn on_accepted(&self, call: CallId, host: RelayName, generation: Instance) {
        let mut state = self.lock();
        let Some(waiting) = state.calls.get_mut(&call) else { return };
        let next = waiting.pending.on_accepted(host, generation, Instant::now());
        let wake = waiting.pending.next_wake();
        self.wake_by(&mut state, wake);
        drop(state);
        if next == PendingAction::Resume {
            self.outbox.resume(call);
        }
    }

    /// Something is told about a call: its voice.
    pub(super) fn on_notification(&self, call: CallId, is_progress: bool) -> Option<SharedCallObserver> {
        let mut state = self.lock();
        let RelayedCall { info: entry, pending, .. } = state.calls.get_mut(&call)?;
        match is_progress {
            true => pending.on_progress(Instant::now()),
            false => pending.on_host_message(Instant::now()),
        }
        entry.observer.clone()
    }

    /// A question about a call: who answers it, and a channel that closes when
    /// the call is over. A question that is open already is not asked again.
    pub(super) fn open_server_request(
        &self,
        call: CallId,
        number: u32,
    ) -> Option<(Option<SharedCallObserver>, oneshot::Receiver<()>)> {
        let mut state = self.lock();
        let RelayedCall { info: entry, pending, server_requests: questions, .. } =
            state.calls.get_mut(&call)?;
        let is_known = questions.iter().any(|(open, _)| *open == number);
        if is_known || questions.len() >= MAX_QUESTIONS {
            return None;
        }
        let (open, over) = oneshot::channel();
        questions.push((number, open));
        pending.on_server_request(Instant::now());
        Some((entry.observer.clone(), over))
    }

    /// A question was answered or refused: the call's time runs again.
    pub(super) fn close_server_request(&self, call: CallId, number: u32) {
        let mut state = self.lock();
        let Some(RelayedCall { pending, server_requests: questions, .. }) = state.calls.get_mut(&call) else {
            return;
        };
        questions.retain(|(open, _)| *open != number);
        pending.on_server_request_closed(Instant::now());
        let wake = pending.next_wake();
        self.wake_by(&mut state, wake);
    }

    /// A host lives.
    pub(super) fn on_heartbeat(&self, host: &RelayName, generation: Instance) {
        let now = Instant::now();
        let mut asked = Vec::new();
        self.fail_matching(|call, pending, _| match pending.on_heartbeat(host, generation, now) {
            PendingAction::Nothing => None,
            PendingAction::Resume => {
                asked.push(call);
                None
            }
            PendingAction::Fail(fault) => Some(fault),
        });
        asked.into_iter().for_each(|call| self.outbox.resume(call));
    }

    /// The broker does not let us publish to a subject. True if a call was meant.
    pub(super) fn on_denied(&self, subject: &str) -> bool {
        self.fail_matching(|_, pending, entry| match entry.subject == subject {
            true => pending.on_denied(subject),
            false => None,
        }) > 0
    }

    /// There is a connection, and what is said of calls is heard on it. What
    /// was severed is asked about.
    pub(super) fn on_link_up(&self, epoch: u64) {
        let now = Instant::now();
        let mut state = self.lock();
        state.epoch = Some(epoch);
        let mut severed = Vec::new();
        for (call, waiting) in &mut state.calls {
            if waiting.pending.is_disconnected() {
                waiting.pending.on_resumed(now);
                severed.push((*call, waiting.pending.next_wake()));
            }
        }
        if let Some(wake) = severed.iter().map(|(_, wake)| *wake).min() {
            self.wake_by(&mut state, wake);
        }
        drop(state);
        for (call, _) in severed {
            self.outbox.resume(call);
        }
    }

    /// The connection is lost.
    pub(super) fn on_link_lost(&self) {
        let mut state = self.lock();
        state.epoch = None;
        state.calls.values_mut().for_each(|waiting| waiting.pending.on_link_lost());
    }

    /// Ends one call without an answer.
    pub(super) fn fail(&self, call: CallId, fault: Fault) {
        let mut state = self.lock();
        let is_out = state.calls.get(&call).is_some_and(|waiting| waiting.pending.may_have_left());
        state.finish(call, RelaySendOutcome::Fault(fault));
        drop(state);
        if is_out {
            self.cancel(call);
        }
    }

    /// Ends the calls of a session.
    pub(super) fn end_session(&self, session: u64) {
        self.fail_matching(|_, pending, entry| match entry.session == Some(session) {
            true if pending.may_have_left() => Some(Fault::unknown(FaultKind::Retired)),
            true => Some(Fault::not_sent(FaultKind::Retired)),
            false => None,
        });
    }

    /// Ends all calls, and takes no more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.fail_matching(|_, pending, _| match pending.may_have_left() {
            true => Some(Fault::unknown(FaultKind::Retired)),
            false => Some(shutdown_fault()),
        });
        self.timer_wake.notify_one();
    }

    /// Ends every call on its way for which there is a fault, and says how many
    /// those were. Hosts are told of those that may have left.
    fn fail_matching(
        &self,
        mut judge: impl FnMut(CallId, &mut PendingRelayCall, &RelayedCallInfo) -> Option<Fault>,
    ) -> usize {
        let mut over = Vec::new();
        let mut state = self.lock();
        for (call, waiting) in &mut state.calls {
            if waiting.outcome_sender.is_some()
                && let Some(fault) = judge(*call, &mut waiting.pending, &waiting.info)
            {
                over.push((*call, fault));
            }
        }
        let count = over.len();
        let mut cancelled = Vec::new();
        for (call, fault) in over {
            let waiting = state.calls.get(&call);
            if waiting.is_some_and(|waiting| waiting.pending.may_have_left() && !is_rejected(&fault)) {
                cancelled.push(call);
            }
            state.finish(call, RelaySendOutcome::Fault(fault));
        }
        drop(state);
        cancelled.into_iter().for_each(|call| self.cancel(call));
        count
    }

    fn cancel(&self, call: CallId) {
        self.outbox.control(call, Control::Cancel, Bytes::new());
    }
}

impl RelayedCallsState {
    /// Bytes of answers that are not whole.
    fn buffered_bytes(&self) -> usize {
        let assemblies = self.calls.values().filter_map(|waiting| waiting.assembly.as_deref());
        assemblies.map(ChunkAssembly::buffered_bytes).sum()
    }

    /// Tells the caller of a call that is on its way how that ended. Its entry
    /// stays until the caller has gone, with nothing open any more.
    fn finish(&mut self, call: CallId, verdict: RelaySendOutcome) {
        let Some(waiting) = self.calls.get_mut(&call) else { return };
        waiting.server_requests.clear();
        match waiting.outcome_sender.take() {
            Some(tell) => drop(tell.send(verdict)),
            None if matches!(verdict, RelaySendOutcome::Fault(_)) => {}
            None => waiting.early_outcome = Some(verdict),
        }
    }
}

/// Whether nothing has come to a host.
fn is_rejected(fault: &Fault) -> bool {
    fault.delivery == ostler_core::fault::Delivery::Rejected
}

/// Nothing is sent any more. No other attempt would be.
fn shutdown_fault() -> Fault {
    Fault::rejected(FaultKind::Unreachable("the worker is shutting down".into()))
}
