//! The calls of one connection: who waits for which number, and what has left.
//!
//! ```text
//! submitted ──▶ queued ──writer takes it──▶ sent ──answer──▶ done
//!                 │                          │
//!                 └─ taken back: NotSent     └─ cancelled or lost: Unknown
//! ```
//!
//! One short lock per connection covers the outgoing bytes and the table of
//! waiting calls, so that "has it left?" and "is it still wanted?" can't
//! disagree. Frames are written straight into the outgoing buffer; a call
//! allocates only its reply channel.

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

/// Bytes that may wait for a server that does not read. A frame is taken as
/// long as the buffer is below this, so one large frame always fits.
const MAX_OUTBOX: usize = 16 << 20;

/// The answer to one call.
pub(crate) type StdioCallReply = Result<RpcOutcome, Fault>;

/// The calls of one connection.
#[derive(Debug)]
pub(crate) struct Multiplexer {
    state: Mutex<MultiplexerState>,
    /// Wakes the writer: there are bytes, or the end has come.
    pub(crate) wake: Notify,
    /// Tells the session that writing has failed.
    pub(crate) write_broken: Notify,
    /// Tells callers that found the outbox full that this may have changed.
    outbox_drained: Notify,
    /// Tells the clock that a deadline comes before the one it waits for, or
    /// that there will be no more.
    deadline_changed: Notify,
    /// Goes into every request of a modern session.
    meta: Option<SessionMeta>,
}

#[derive(Debug)]
struct MultiplexerState {
    /// `None` once the connection is closed from our side.
    stdin: Option<Arc<pipe::Sender>>,
    outbox: Vec<u8>,
    /// The frames in `outbox` that can be taken back: their call, and where they begin.
    queued: Vec<(u64, usize)>,
    /// Whether the writer holds bytes that it has not written yet.
    is_writing: bool,
    pending: HashMap<u64, StdioPendingCall>,
    /// What the clock waits for: no call's time is over before it.
    next_deadline: Option<Instant>,
    next_id: u64,
    /// The requests for news that are open at a modern server.
    listen_requests: ListenRequests,
    /// Why nothing can be sent any more.
    closed: Option<FaultKind>,
}

struct StdioPendingCall {
    reply: oneshot::Sender<StdioCallReply>,
    since: Instant,
    is_sent: bool,
    /// Whether it can make the server ask or tell something.
    can_trigger_messages: bool,
    /// Moved by progress and by questions, up to `at_most`.
    deadline: Instant,
    hard_deadline: Instant,
    observer: Option<SharedCallObserver>,
    /// Set once a notice that names no call may be another caller's.
    has_other_callers: Option<Arc<AtomicBool>>,
    /// What the server wants to know before it goes on. Dropping them withdraws them.
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

/// What the writer finds.
#[derive(Debug)]
pub(crate) enum WriteBatch {
    /// Bytes to write.
    Bytes,
    /// Nothing for now.
    Empty,
    /// Nothing ever again.
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

    /// The descriptor the writer writes to.
    pub(crate) fn stdin(&self) -> Option<Arc<pipe::Sender>> {
        self.lock().stdin.clone()
    }

    /// Puts a request on its way and returns its number and its answer-to-be.
    /// While the server is behind with its reading, the caller waits.
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
        // Calls of one server have the same time, so this is true for the
        // first one and seldom afterwards.
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

    /// Appends a frame that nobody waits for, unless the server does not read.
    pub(crate) fn send_detached(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock();
        if state.closed.is_none() && state.outbox.len() < MAX_OUTBOX {
            write(&mut state.outbox);
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Gives up on a call that still waits. One that has not left is taken
    /// back; of one that has, the server is told.
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
        // A caller that went away does not listen any more.
        let _ = waiting.reply.send(Err(fault));
    }

    /// Hands an answer to whoever waits for it. False if nobody does.
    pub(crate) fn complete(&self, id: &RequestId, reply: StdioCallReply) -> bool {
        let Some(number) = id.number() else { return false };
        let waiting = {
            let mut state = self.lock();
            sabotage!(SwappedAnswers, state.swap_callers(number));
            // An answer to something that has not been asked yet is not an answer.
            match state.pending.entry(number) {
                Entry::Occupied(entry) if entry.get().is_sent => entry.remove(),
                Entry::Occupied(_) | Entry::Vacant(_) => return false,
            }
        };
        sabotage!(
            LostAnswer,
            if number.is_multiple_of(8) {
                // The caller must not even learn that it is gone.
                std::mem::forget(waiting);
                return true;
            }
        );
        waiting.reply.send(reply).is_ok()
    }

    /// Moves everything that waits to be written into `bytes`, and the calls
    /// it belongs to into `calls`.
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

    /// Writing failed after `written` bytes of a batch. Calls whose frames
    /// begin later were not sent; the others may still be answered.
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

    /// The end of the connection: every call that still waits gets its fault.
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

    /// When the oldest call that waits was made.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.lock().pending.values().map(|waiting| waiting.since).min()
    }
}

impl MultiplexerState {
    /// Writes the only frame there is without waking the writer. What the pipe
    /// does not take stays for the writer.
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

    /// Lets one in sixteen calls change places with another that waits.
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
