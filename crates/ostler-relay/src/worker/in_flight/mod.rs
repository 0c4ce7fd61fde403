//! Relayed calls in flight: the pending state of each call id and the channel to its caller.
//!
//! One lock covers all calls and is held briefly. A call in flight is a [`PendingRelayCall`]; its outcome goes to
//! its caller through a channel that is created for each publish. One timer serves all calls.

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

/// Limit of calls in flight per worker.
pub(super) const MOST: usize = 1_024;

/// Limit of open server requests per call.
const MAX_SERVER_REQUESTS: usize = 16;

/// Bound on the bytes of partly received answers of all calls. A call whose chunk exceeds it fails.
const MAX_BUFFERED_BYTES: usize = 512 << 20;

/// Calls in flight of a worker.
#[derive(Debug)]
pub(super) struct RelayedCalls {
    state: Mutex<RelayedCallsState>,
    outbox: Outbox,
    /// Wakes the timer when it must run earlier.
    timer_wake: Notify,
}

#[derive(Debug, Default)]
struct RelayedCallsState {
    calls: HashMap<CallId, RelayedCall>,
    /// Epoch of the current connection; `None` while disconnected.
    epoch: Option<u64>,
    /// Next wake-up of the timer; time alone changes nothing before it.
    next_wake: Option<Instant>,
    is_closed: bool,
}

/// Facts about a call that stay fixed while it is in flight.
pub(super) struct RelayedCallInfo {
    /// Subject that the call is published to.
    pub(super) subject: String,
    /// Deadlines of the call.
    pub(super) times: CallTimes,
    /// Session that the call belongs to; `None` for a manifest request.
    pub(super) session: Option<u64>,
    /// Observer of the call.
    pub(super) observer: Option<SharedCallObserver>,
}

struct RelayedCall {
    info: RelayedCallInfo,
    pending: PendingRelayCall,
    /// Channel to the caller; `None` until the call is published and after its outcome.
    outcome_sender: Option<oneshot::Sender<RelaySendOutcome>>,
    /// An answer that arrived after the broker had reported no responders.
    early_outcome: Option<RelaySendOutcome>,
    assembly: Option<Box<ChunkAssembly>>,
    /// Open server requests; dropping a sender withdraws the request.
    server_requests: Vec<(u32, oneshot::Sender<()>)>,
}

impl std::fmt::Debug for RelayedCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.pending.fmt(f)
    }
}

/// Outcome of publishing a call once.
#[derive(Debug)]
pub(super) enum RelaySendOutcome {
    /// The complete response.
    Answer(Bytes),
    /// All chunks of the response.
    Chunks(Box<ChunkAssembly>),
    /// No answer.
    Fault(Fault),
    /// No host received the call; it may be sent again.
    NoResponders,
}

impl RelayedCalls {
    pub(super) fn new(outbox: Outbox) -> Self {
        Self { state: Mutex::default(), outbox, timer_wake: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, RelayedCallsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a call before it is published.
    pub(super) fn register(
        &self,
        call: CallId,
        info: RelayedCallInfo,
    ) -> Result<RelayedCallHandle<'_>, Fault> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(shutdown_fault());
        }
        // Call ids are unique, so a duplicate is a bug; it fails like a full table.
        let is_full = info.session.is_some() && state.calls.len() >= MOST;
        if is_full || state.calls.contains_key(&call) {
            return Err(Fault::not_sent(FaultKind::Congested));
        }
        let pending = PendingRelayCall::new(info.times);
        let relayed = RelayedCall {
            info,
            pending,
            outcome_sender: None,
            early_outcome: None,
            assembly: None,
            server_requests: Vec::new(),
        };
        state.calls.insert(call, relayed);
        Ok(RelayedCallHandle { calls: self, call })
    }

    /// Returns whether any call of a session may be at a host.
    pub(super) fn has_outstanding(&self) -> bool {
        let may_have_left =
            |relayed: &RelayedCall| relayed.info.session.is_some() && relayed.pending.may_have_left();
        self.lock().calls.values().any(may_have_left)
    }

    /// Completes a call with its response.
    pub(super) fn answer(&self, call: CallId, body: Bytes) {
        self.lock().finish(call, RelaySendOutcome::Answer(body));
    }

    /// Records length and hash of a chunked response.
    pub(super) fn announce(&self, call: CallId, length: u64, sha256: &str) {
        self.assemble(call, |assembly| assembly.announce(length, sha256));
    }

    /// Adds one chunk of a response.
    pub(super) fn add_chunk(&self, call: CallId, number: u32, body: Bytes) {
        if self.lock().buffered_bytes() + body.len() > MAX_BUFFERED_BYTES {
            let why = "there is no room for more long answers at once".into();
            return self.fail(call, Fault::unknown(FaultKind::Transfer(why)));
        }
        self.assemble(call, |assembly| assembly.add(number, body));
    }

    fn assemble(&self, call: CallId, add: impl FnOnce(&mut ChunkAssembly) -> AssemblyStep) {
        let mut state = self.lock();
        let Some(relayed) = state.calls.get_mut(&call) else { return };
        relayed.pending.on_progress(Instant::now());
        let assembly = relayed.assembly.get_or_insert_default();
        let ack = match add(assembly) {
            AssemblyStep::Wait => None,
            AssemblyStep::Ack(number) => Some(number),
            AssemblyStep::Complete(number) => {
                if let Some(assembly) = relayed.assembly.take() {
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

    /// Handles the broker's report that a published call had no subscriber.
    pub(super) fn on_no_responders(&self, call: CallId) {
        let mut state = self.lock();
        let Some(relayed) = state.calls.get_mut(&call) else { return };
        if relayed.pending.on_no_responders()
            && let Some(sender) = relayed.outcome_sender.take()
        {
            let _ = sender.send(RelaySendOutcome::NoResponders);
        }
    }

    /// Records that a host has accepted a call.
    pub(super) fn on_accepted(&self, call: CallId, host: RelayName, generation: Instance) {
        let mut state = self.lock();
        let Some(relayed) = state.calls.get_mut(&call) else { return };
        let next = relayed.pending.on_accepted(host, generation, Instant::now());
        let wake = relayed.pending.next_wake();
        self.wake_by(&mut state, wake);
        drop(state);
        if next == PendingAction::Resume {
            self.outbox.resume(call);
        }
    }

    /// Records a notification of a call and returns the call's observer.
    pub(super) fn on_notification(&self, call: CallId, is_progress: bool) -> Option<SharedCallObserver> {
        let mut state = self.lock();
        let RelayedCall { info, pending, .. } = state.calls.get_mut(&call)?;
        match is_progress {
            true => pending.on_progress(Instant::now()),
            false => pending.on_host_message(Instant::now()),
        }
        info.observer.clone()
    }

    /// Opens a server request. Returns the call's observer and a channel that closes when the call
    /// ends; `None` for a request that is open already.
    pub(super) fn open_server_request(
        &self,
        call: CallId,
        number: u32,
    ) -> Option<(Option<SharedCallObserver>, oneshot::Receiver<()>)> {
        let mut state = self.lock();
        let RelayedCall { info, pending, server_requests, .. } = state.calls.get_mut(&call)?;
        let is_known = server_requests.iter().any(|(open, _)| *open == number);
        if is_known || server_requests.len() >= MAX_SERVER_REQUESTS {
            return None;
        }
        let (open, call_ended) = oneshot::channel();
        server_requests.push((number, open));
        pending.on_server_request(Instant::now());
        Some((info.observer.clone(), call_ended))
    }

    /// Closes a server request; the call's timeout runs again.
    pub(super) fn close_server_request(&self, call: CallId, number: u32) {
        let mut state = self.lock();
        let Some(RelayedCall { pending, server_requests, .. }) = state.calls.get_mut(&call) else {
            return;
        };
        server_requests.retain(|(open, _)| *open != number);
        pending.on_server_request_closed(Instant::now());
        let wake = pending.next_wake();
        self.wake_by(&mut state, wake);
    }

    /// Records a heartbeat of a host.
    pub(super) fn on_heartbeat(&self, host: &RelayName, generation: Instance) {
        let now = Instant::now();
        let mut to_resume = Vec::new();
        self.fail_matching(|call, pending, _| match pending.on_heartbeat(host, generation, now) {
            PendingAction::Nothing => None,
            PendingAction::Resume => {
                to_resume.push(call);
                None
            }
            PendingAction::Fail(fault) => Some(fault),
        });
        to_resume.into_iter().for_each(|call| self.outbox.resume(call));
    }

    /// Fails the calls of a subject that the broker denies. Returns whether there were any.
    pub(super) fn on_denied(&self, subject: &str) -> bool {
        self.fail_matching(|_, pending, info| match info.subject == subject {
            true => pending.on_denied(subject),
            false => None,
        }) > 0
    }

    /// Records a new connection and asks for the state of disconnected calls.
    pub(super) fn on_link_up(&self, epoch: u64) {
        let now = Instant::now();
        let mut state = self.lock();
        state.epoch = Some(epoch);
        let mut disconnected = Vec::new();
        for (call, relayed) in &mut state.calls {
            if relayed.pending.is_disconnected() {
                relayed.pending.on_resumed(now);
                disconnected.push((*call, relayed.pending.next_wake()));
            }
        }
        if let Some(wake) = disconnected.iter().map(|(_, wake)| *wake).min() {
            self.wake_by(&mut state, wake);
        }
        drop(state);
        for (call, _) in disconnected {
            self.outbox.resume(call);
        }
    }

    /// Records a lost connection.
    pub(super) fn on_link_lost(&self) {
        let mut state = self.lock();
        state.epoch = None;
        state.calls.values_mut().for_each(|relayed| relayed.pending.on_link_lost());
    }

    /// Fails one call.
    pub(super) fn fail(&self, call: CallId, fault: Fault) {
        let mut state = self.lock();
        let may_have_left = state.calls.get(&call).is_some_and(|relayed| relayed.pending.may_have_left());
        state.finish(call, RelaySendOutcome::Fault(fault));
        drop(state);
        if may_have_left {
            self.cancel(call);
        }
    }

    /// Fails the calls of a session.
    pub(super) fn end_session(&self, session: u64) {
        self.fail_matching(|_, pending, info| match info.session == Some(session) {
            true if pending.may_have_left() => Some(Fault::unknown(FaultKind::Retired)),
            true => Some(Fault::not_sent(FaultKind::Retired)),
            false => None,
        });
    }

    /// Fails all calls and accepts no more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.fail_matching(|_, pending, _| match pending.may_have_left() {
            true => Some(Fault::unknown(FaultKind::Retired)),
            false => Some(shutdown_fault()),
        });
        self.timer_wake.notify_one();
    }

    /// Fails every published call that `find_fault` returns a fault for, and cancels those that may
    /// have left. Returns their number.
    fn fail_matching(
        &self,
        mut find_fault: impl FnMut(CallId, &mut PendingRelayCall, &RelayedCallInfo) -> Option<Fault>,
    ) -> usize {
        let mut failed = Vec::new();
        let mut state = self.lock();
        for (call, relayed) in &mut state.calls {
            if relayed.outcome_sender.is_some()
                && let Some(fault) = find_fault(*call, &mut relayed.pending, &relayed.info)
            {
                failed.push((*call, fault));
            }
        }
        let count = failed.len();
        let mut cancelled = Vec::new();
        for (call, fault) in failed {
            let relayed = state.calls.get(&call);
            if relayed.is_some_and(|relayed| relayed.pending.may_have_left() && !is_rejected(&fault)) {
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
    /// Returns the bytes of all partly received answers.
    fn buffered_bytes(&self) -> usize {
        let assemblies = self.calls.values().filter_map(|relayed| relayed.assembly.as_deref());
        assemblies.map(ChunkAssembly::buffered_bytes).sum()
    }

    /// Sends the outcome of a published call to its caller and withdraws its server requests. The
    /// entry stays until the caller drops its handle.
    fn finish(&mut self, call: CallId, outcome: RelaySendOutcome) {
        let Some(relayed) = self.calls.get_mut(&call) else { return };
        relayed.server_requests.clear();
        match relayed.outcome_sender.take() {
            Some(sender) => drop(sender.send(outcome)),
            None if matches!(outcome, RelaySendOutcome::Fault(_)) => {}
            None => relayed.early_outcome = Some(outcome),
        }
    }
}

/// Returns whether no host received the call.
fn is_rejected(fault: &Fault) -> bool {
    fault.delivery == ostler_core::fault::Delivery::Rejected
}

/// Returns the fault of a worker that shuts down: no retry would be sent either.
fn shutdown_fault() -> Fault {
    Fault::rejected(FaultKind::Unreachable("the worker is shutting down".into()))
}
