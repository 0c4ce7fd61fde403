//! Multiplexer of one connection: matches responses to calls, and knows which frames have left.
//!
//! ```text
//! submitted ──▶ queued ──writer takes it──▶ sent ──answer──▶ done
//!                 │                          │
//!                 └─ taken back: NotSent     └─ cancelled or lost: Unknown
//! ```
//!
//! One short lock per connection covers the outgoing bytes and the table of pending calls, so that "has it left?" and
//! "is it still wanted?" can't disagree. Frames are written straight into the outgoing buffer; a call allocates only
//! its reply channel.

mod deadlines;
mod listen;
mod open_requests;

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use ostler_core::fault::{Fault, FaultKind};
use ostler_core::sabotage;
use ostler_wire::{FIRST_REQUEST_ID, RequestId, RequestMeta, RpcOutcome, SessionMeta};
use tokio::net::unix::pipe;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use self::listen::ListenRequests;
use self::open_requests::OpenStdioRequest;
pub(crate) use self::open_requests::{AttributedRequest, RequestAttribution};
use crate::upstream::{ClientMeta, SharedCallObserver, UpstreamRequest, attribution};

/// Upper bound on bytes queued for a server that does not read. A frame is accepted while the buffer is below this,
/// so one large frame always fits.
const MAX_OUTBOX: usize = 16 << 20;

/// The response to one call.
pub(crate) type StdioCallReply = Result<RpcOutcome, Fault>;

/// The pending calls of one connection.
#[derive(Debug)]
pub(crate) struct Multiplexer {
    state: Mutex<MultiplexerState>,
    /// Wakes the writer: there are bytes, or the connection is closed.
    pub(crate) wake: Notify,
    /// Notifies the session that writing has failed.
    pub(crate) write_broken: Notify,
    /// Notifies callers that found the outbox full.
    outbox_drained: Notify,
    /// Wakes the timer: a deadline precedes the one it waits for, or there will be no more.
    deadline_changed: Notify,
    /// Metadata of every request of a modern session.
    meta: Option<SessionMeta>,
}

#[derive(Debug)]
struct MultiplexerState {
    /// `None` once the host has closed the connection.
    stdin: Option<Arc<pipe::Sender>>,
    outbox: Vec<u8>,
    /// The frames in `outbox` that can be withdrawn: the call id and the offset.
    queued: Vec<(u64, usize)>,
    /// True while the writer holds unwritten bytes.
    is_writing: bool,
    pending: HashMap<u64, StdioPendingCall>,
    /// Lower bound on all calls' deadlines; the timer waits for it.
    next_deadline: Option<Instant>,
    next_id: u64,
    /// The open listen requests of a modern server.
    listen_requests: ListenRequests,
    /// The fault for which nothing can be sent any more.
    closed: Option<FaultKind>,
}

struct StdioPendingCall {
    reply: oneshot::Sender<StdioCallReply>,
    since: Instant,
    is_sent: bool,
    /// True if the call can make the server send a request or notification.
    can_trigger_messages: bool,
    /// Moved by progress and by server requests, up to `at_most`.
    deadline: Instant,
    hard_deadline: Instant,
    observer: Option<SharedCallObserver>,
    /// Set once an unattributed notification may be another caller's.
    has_other_callers: Option<Arc<AtomicBool>>,
    /// Open server requests. Dropping them withdraws them.
    open_requests: Vec<OpenStdioRequest>,
}

impl std::fmt::Debug for StdioPendingCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting")
            .field("since", &self.since)
            .field("is_sent", &self.is_sent)
            .finish_non_exhaustive()
    }
}

/// Result of the writer's poll for bytes.
#[derive(Debug)]
pub(crate) enum WriteBatch {
    /// Bytes to write.
    Bytes,
    /// Nothing at present.
    Empty,
    /// The connection is closed.
    Closed,
}

impl Multiplexer {
    pub(crate) fn new(stdin: pipe::Sender, meta: Option<SessionMeta>) -> Self {
        let state = MultiplexerState {
            stdin: Some(Arc::new(stdin)),
            outbox: Vec::new(),
            queued: Vec::new(),
            is_writing: false,
            pending: HashMap::new(),
            next_deadline: None,
            next_id: FIRST_REQUEST_ID,
            listen_requests: ListenRequests::default(),
            closed: None,
        };
        Self {
            state: Mutex::new(state),
            wake: Notify::new(),
            write_broken: Notify::new(),
            outbox_drained: Notify::new(),
            deadline_changed: Notify::new(),
            meta,
        }
    }

    fn lock(&self) -> MutexGuard<'_, MultiplexerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the descriptor that the writer writes to.
    pub(crate) fn stdin(&self) -> Option<Arc<pipe::Sender>> {
        self.lock().stdin.clone()
    }

    /// Queues a request and returns its id and the receiver of its response. The caller waits while the outbox is
    /// full.
    pub(crate) async fn send(
        &self,
        ask: &UpstreamRequest<'_>,
    ) -> Result<(u64, oneshot::Receiver<StdioCallReply>), Fault> {
        let congested = match self.try_send(ask) {
            Err(fault) if fault.kind == FaultKind::Congested => fault,
            outcome => return outcome,
        };
        loop {
            let emptied = self.outbox_drained.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            match self.try_send(ask) {
                Err(fault) if fault.kind == FaultKind::Congested => {}
                outcome => return outcome,
            }
            if timeout_at(ask.deadline, emptied).await.is_err() {
                return Err(congested);
            }
        }
    }

    fn try_send(&self, ask: &UpstreamRequest<'_>) -> Result<(u64, oneshot::Receiver<StdioCallReply>), Fault> {
        let (reply, answer) = oneshot::channel();
        let mut state = self.lock();
        if let Some(kind) = &state.closed {
            return Err(Fault::not_sent(kind.clone()));
        }
        if state.outbox.len() >= MAX_OUTBOX {
            return Err(Fault::not_sent(FaultKind::Congested));
        }
        let id = state.next_id;
        state.next_id += 1;
        let start = state.outbox.len();
        let session = match ask.client {
            ClientMeta::Host => self.meta.as_ref(),
            ClientMeta::Session(client) => self.meta.as_ref().map(|_| client),
            ClientMeta::Own => None,
        };
        let meta = RequestMeta {
            session,
            idempotency_key: ask.idempotency_key,
            progress_token: ask.observer.filter(|voice| voice.wants_progress()).map(|_| id),
            is_legacy: self.meta.is_none(),
        };
        ostler_wire::write_request(&mut state.outbox, id, ask.method, ask.params, &meta);
        let is_alone = start == 0 && !state.is_writing && state.pending.is_empty();
        let waiting = StdioPendingCall {
            reply,
            since: Instant::now(),
            is_sent: false,
            can_trigger_messages: attribution::can_trigger_messages(ask.method),
            deadline: ask.deadline,
            hard_deadline: ask.hard_deadline,
            observer: ask.observer.cloned(),
            has_other_callers: ask.has_other_callers.cloned(),
            open_requests: Vec::new(),
        };
        state.pending.insert(id, waiting);
        state.queued.push((id, start));
        // Calls of one server have the same timeout, so this is true for the first one and seldom afterwards.
        if state.schedule_deadline(ask.deadline) {
            self.deadline_changed.notify_one();
        }
        if is_alone {
            state.write_at_once().map_err(|kind| {
                state.pending.remove(&id);
                self.write_broken.notify_one();
                Fault::not_sent(kind)
            })?;
        }
        let has_more = !state.outbox.is_empty();
        drop(state);
        if has_more {
            self.wake.notify_one();
        }
        Ok((id, answer))
    }

    /// Appends a frame without a waiter, unless the outbox is full.
    pub(crate) fn send_detached(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock();
        if state.closed.is_none() && state.outbox.len() < MAX_OUTBOX {
            write(&mut state.outbox);
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Cancels a pending call. One that has not left is withdrawn; for one that has, the server is notified.
    pub(crate) fn cancel_call(&self, id: u64, reason: &str) {
        let mut state = self.lock();
        let Some(waiting) = state.pending.remove(&id) else { return };
        let kind = FaultKind::TimedOut(waiting.deadline.saturating_duration_since(waiting.since));
        let fault = if waiting.is_sent {
            if state.closed.is_none() && state.outbox.len() < MAX_OUTBOX {
                ostler_wire::write_cancelled(&mut state.outbox, id, reason);
                self.wake.notify_one();
            }
            Fault::unknown(kind)
        } else {
            state.remove_queued(id);
            self.outbox_drained.notify_waiters();
            Fault::not_sent(kind)
        };
        drop(state);
        // A caller that has gone does not receive.
        let _ = waiting.reply.send(Err(fault));
    }

    /// Delivers a response to its pending call. Returns false if there is none.
    pub(crate) fn complete(&self, id: &RequestId, reply: StdioCallReply) -> bool {
        let Some(number) = id.number() else { return false };
        let waiting = {
            let mut state = self.lock();
            sabotage!(SwappedAnswers, state.swap_callers(number));
            // A response to an id that was not sent yet is no response.
            match state.pending.entry(number) {
                Entry::Occupied(entry) if entry.get().is_sent => entry.remove(),
                Entry::Occupied(_) | Entry::Vacant(_) => return false,
            }
        };
        sabotage!(
            LostAnswer,
            if number.is_multiple_of(8) {
                // The caller must not learn that the call has ended.
                std::mem::forget(waiting);
                return true;
            }
        );
        waiting.reply.send(reply).is_ok()
    }

    /// Moves all queued bytes into `bytes`, and the ids of their calls into `calls`.
    pub(crate) fn take_batch(&self, bytes: &mut Vec<u8>, calls: &mut Vec<(u64, usize)>) -> WriteBatch {
        let mut state = self.lock();
        bytes.clear();
        calls.clear();
        state.is_writing = false;
        if state.stdin.is_none() {
            return WriteBatch::Closed;
        }
        if state.outbox.is_empty() {
            return WriteBatch::Empty;
        }
        std::mem::swap(&mut state.outbox, bytes);
        std::mem::swap(&mut state.queued, calls);
        state.is_writing = true;
        for (id, _) in calls.iter() {
            if let Some(waiting) = state.pending.get_mut(id) {
                waiting.is_sent = true;
            }
        }
        drop(state);
        self.outbox_drained.notify_waiters();
        WriteBatch::Bytes
    }

    /// Handles a write that failed after `written` bytes of a batch. Calls whose frames begin later were not sent;
    /// the others may still be answered.
    pub(crate) fn write_failed(&self, calls: &[(u64, usize)], written: usize, error: &io::Error) {
        let kind = FaultKind::Write(error.to_string());
        let unsent = {
            let mut state = self.lock();
            state.closed.get_or_insert_with(|| kind.clone());
            state.stdin = None;
            state.is_writing = false;
            let late = calls.iter().filter(|(_, start)| *start >= written).map(|(id, _)| *id);
            let ids: Vec<u64> = late.chain(state.queued.iter().map(|(id, _)| *id)).collect();
            state.queued.clear();
            state.outbox = Vec::new();
            ids.into_iter().filter_map(|id| state.pending.remove(&id)).collect::<Vec<_>>()
        };
        for waiting in unsent {
            let _ = waiting.reply.send(Err(Fault::not_sent(kind.clone())));
        }
        self.outbox_drained.notify_waiters();
        self.write_broken.notify_one();
    }

    /// Closes the connection: every pending call gets its fault.
    pub(crate) fn finish(&self, kind: &FaultKind) {
        let left = {
            let mut state = self.lock();
            state.closed = Some(kind.clone());
            state.stdin = None;
            state.outbox = Vec::new();
            state.queued = Vec::new();
            std::mem::take(&mut state.pending)
        };
        self.wake.notify_one();
        self.deadline_changed.notify_one();
        self.outbox_drained.notify_waiters();
        for waiting in left.into_values() {
            let fault =
                if waiting.is_sent { Fault::unknown(kind.clone()) } else { Fault::not_sent(kind.clone()) };
            let _ = waiting.reply.send(Err(fault));
        }
    }

    /// Returns the start of the oldest pending call.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.lock().pending.values().map(|waiting| waiting.since).min()
    }
}

impl MultiplexerState {
    /// Writes a single frame without waking the writer. The bytes that the pipe does not accept stay for the writer.
    fn write_at_once(&mut self) -> Result<(), FaultKind> {
        let Some(stdin) = &self.stdin else { return Ok(()) };
        match stdin.try_write(&self.outbox) {
            Ok(written) => {
                self.outbox.drain(..written);
                for (id, _) in self.queued.drain(..) {
                    if let Some(waiting) = self.pending.get_mut(&id) {
                        waiting.is_sent = true;
                    }
                }
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => {
                let kind = FaultKind::Write(error.to_string());
                self.closed = Some(kind.clone());
                self.stdin = None;
                self.outbox.clear();
                self.queued.clear();
                Err(kind)
            }
        }
    }

    /// Swaps one in sixteen calls with another pending one.
    #[cfg(ostler_sabotage)]
    fn swap_callers(&mut self, number: u64) {
        let is_other = |id: &u64, waiting: &StdioPendingCall| *id != number && waiting.is_sent;
        let other = self.pending.iter().find(|(id, waiting)| is_other(id, waiting)).map(|(id, _)| *id);
        if let Some(other) = other.filter(|_| number.is_multiple_of(16))
            && let [Some(one), Some(two)] = self.pending.get_disjoint_mut([&number, &other])
        {
            std::mem::swap(&mut one.reply, &mut two.reply);
        }
    }

    /// Removes the frame of a call that has not left.
    fn remove_queued(&mut self, id: u64) {
        let Some(at) = self.queued.iter().position(|(queued, _)| *queued == id) else { return };
        let (_, start) = self.queued.remove(at);
        // The frame ends at its newline: frames hold no other.
        let length =
            memchr::memchr(b'\n', &self.outbox[start..]).map_or(self.outbox.len() - start, |n| n + 1);
        self.outbox.drain(start..start + length);
        for (_, later) in &mut self.queued[at..] {
            *later -= length;
        }
    }
}
