//! Call registry: calls in flight, cached answers and worker presence.
//!
//! One lock guards all of it, held for a lookup or two, because the parts must agree: a call is in flight,
//! answered or unknown, and never two of these.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use ostler_core::keyed_limit::KeyedPermit;
use ostler_host::Caller;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::answer_cache::AnswerCache;
use super::limits::{CallCapacity, ServiceCallLimits};
use super::observer::WorkerObserver;
use super::presence::{WorkerInstance, WorkerPresence, WorkerStatus};
use super::request::RelayRequest;
use crate::call_id::CallId;
use crate::name::RelayName;
use crate::subject::WorkerInbox;

/// Bound on unsent answers to announce later, and on answers of doubtful arrival. Beyond it workers
/// notice by their own timeouts.
const MAX_UNSENT: usize = 1_024;

/// Answers sent this shortly before a lost connection may be lost too: detecting a dead connection
/// takes seconds.
const UNCONFIRMED_WINDOW: Duration = Duration::from_secs(5);

/// One call of one worker. The same call id from another worker is another call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RelayCallKey {
    pub(super) worker: RelayName,
    pub(super) call: CallId,
}

/// Destination of an answer. The broker permits the answer only over the connection that the
/// request came by.
#[derive(Debug, Clone)]
pub(super) struct ReplyAddress {
    pub(super) key: RelayCallKey,
    pub(super) subject: String,
    pub(super) epoch: u64,
}

impl ReplyAddress {
    /// Validates the reply subject of a worker: it must be the worker's own inbox. The broker lets
    /// the host publish to any reply subject, so a worker could otherwise make the host publish
    /// where the worker may not.
    pub(super) fn new(
        worker_instance: &WorkerInstance,
        call: CallId,
        reply: Option<String>,
        epoch: u64,
    ) -> Result<Self, String> {
        let reply = reply.ok_or("it does not say where the answer goes")?;
        if reply != WorkerInbox::new(&worker_instance.worker, worker_instance.instance).answer_subject(call) {
            return Err("the answer would not go to its worker's inbox".into());
        }
        Ok(Self { key: RelayCallKey { worker: worker_instance.worker.clone(), call }, subject: reply, epoch })
    }
}

/// Result of registering a request.
pub(super) enum CallLookup {
    /// The call is new and is in flight from now on.
    New(RegisteredCallGuard, RelayCancelSignal),
    /// The call was requested before.
    Known(KnownCall),
    /// The limit of pending refusals is reached; the request gets no answer.
    Flooded,
}

/// State of a call that was requested before.
pub(super) enum KnownCall {
    /// In flight; its answer goes to the reply address of the latest request.
    InFlight {
        /// `true` if the call was claimed and is executing.
        is_accepted: bool,
    },
    /// Answered, with this response.
    Answered(Bytes),
}

struct RegisteredCall {
    worker_instance: WorkerInstance,
    reply_address: ReplyAddress,
    _permit: KeyedPermit,
    is_accepted: bool,
    cancel: Option<oneshot::Sender<()>>,
    observer: Option<Arc<WorkerObserver>>,
}

/// Registry of the calls of all workers.
pub(super) struct CallRegistry {
    state: Mutex<CallRegistryState>,
}

struct CallRegistryState {
    calls: HashMap<RelayCallKey, RegisteredCall>,
    limits: ServiceCallLimits,
    answers: AnswerCache,
    presence: WorkerPresence,
    /// Acknowledged chunks of each answer that is being sent.
    acks: HashMap<RelayCallKey, watch::Sender<u32>>,
    unsent: Vec<RelayCallKey>,
    /// Time of the last disconnect; `None` while connected.
    disconnected_at: Option<std::time::Instant>,
}

impl CallRegistryState {
    /// Returns the state of a call and redirects its answer to `to`.
    fn lookup(&mut self, reply_address: &ReplyAddress) -> Option<KnownCall> {
        if let Some(answer) = self.answers.get(&reply_address.key) {
            return Some(KnownCall::Answered(answer));
        }
        let call = self.calls.get_mut(&reply_address.key)?;
        call.reply_address = reply_address.clone();
        Some(KnownCall::InFlight { is_accepted: call.is_accepted })
    }
}

impl CallRegistry {
    /// Creates a registry in which `max` calls may be in flight.
    pub(super) fn new(max: usize) -> Self {
        let state = CallRegistryState {
            calls: HashMap::new(),
            limits: ServiceCallLimits::new(max),
            answers: AnswerCache::default(),
            presence: WorkerPresence::new(now()),
            acks: HashMap::new(),
            unsent: Vec::new(),
            disconnected_at: None,
        };
        Self { state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, CallRegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up the requested call and registers it if it is new.
    pub(super) fn register(self: &Arc<Self>, request: &RelayRequest) -> CallLookup {
        let (key, now) = (&request.reply_address.key, now());
        let mut state = self.lock();
        let state = &mut *state;
        state.presence.on_heard(&request.worker_instance, now);
        if let Some(known) = state.lookup(&request.reply_address) {
            return CallLookup::Known(known);
        }
        let Some((capacity, permit)) = state.limits.acquire(&key.worker) else { return CallLookup::Flooded };
        state.presence.on_call_begun(&request.worker_instance, &request.caller);
        let (cancel, cancelled) = oneshot::channel();
        let call = RegisteredCall {
            worker_instance: request.worker_instance.clone(),
            reply_address: request.reply_address.clone(),
            _permit: permit,
            is_accepted: false,
            cancel: Some(cancel),
            observer: None,
        };
        state.calls.insert(key.clone(), call);
        CallLookup::New(
            RegisteredCallGuard { registry: Arc::clone(self), key: key.clone(), capacity },
            RelayCancelSignal(cancelled),
        )
    }

    /// Records a request of a worker.
    pub(super) fn record_worker(&self, worker_instance: &WorkerInstance) {
        self.lock().presence.on_heard(worker_instance, now());
    }

    /// Records a sign of life of a worker that has made a request before; ignores others.
    pub(super) fn refresh_worker(&self, worker_instance: &WorkerInstance) {
        self.lock().presence.refresh(worker_instance, now());
    }

    /// Records the manifest version that was sent to a worker.
    pub(super) fn record_manifest_version(
        &self,
        worker_instance: &WorkerInstance,
        caller: &Caller,
        version: Option<String>,
    ) {
        self.lock().presence.on_manifest_sent(worker_instance, caller, version);
    }

    /// Returns the manifest version that each worker has.
    pub(super) fn manifest_versions(&self) -> Vec<(WorkerInstance, Caller, String)> {
        self.lock().presence.manifest_versions()
    }

    /// Cancels a call. A call that has not arrived yet, since messages of different subjects
    /// overtake each other, gets the answer `instead`.
    pub(super) fn cancel(&self, key: RelayCallKey, instead: impl FnOnce() -> Bytes) {
        let mut state = self.lock();
        if let Some(call) = state.calls.get_mut(&key) {
            call.cancel.take().map(|cancel| cancel.send(()));
        } else if state.answers.get(&key).is_none() {
            state.answers.insert(key, instead(), now());
        }
    }

    /// Cancels the calls of expired workers and evicts old answers.
    pub(super) fn sweep(&self) {
        let mut state = self.lock();
        let now = now();
        state.answers.evict(now);
        let gone = state.presence.expire(now);
        for call in state.calls.values_mut().filter(|call| gone.contains(&call.worker_instance)) {
            call.cancel.take().map(|cancel| cancel.send(()));
        }
    }

    /// Returns the state of a call for a worker that lost its connection, and redirects its answer;
    /// `None` if the call is unknown.
    pub(super) fn resume(&self, reply_address: &ReplyAddress) -> Option<KnownCall> {
        let mut state = self.lock();
        let known = state.lookup(reply_address)?;
        if let Some(observer) = state.calls.get(&reply_address.key).and_then(|call| call.observer.as_ref()) {
            observer.resend_open();
        }
        Some(known)
    }

    /// Returns the observer that takes responses to the server requests of a call.
    pub(super) fn observer(&self, key: &RelayCallKey) -> Option<Arc<WorkerObserver>> {
        self.lock().calls.get(key)?.observer.clone()
    }

    /// Subscribes to the acknowledgements of an answer. An earlier subscriber sees its channel
    /// close: the answer is being sent anew.
    pub(super) fn subscribe_acks(&self, key: &RelayCallKey) -> watch::Receiver<u32> {
        let (sender, receiver) = watch::channel(0);
        self.lock().acks.insert(key.clone(), sender);
        receiver
    }

    /// Removes the subscription unless a later one has replaced it.
    pub(super) fn unsubscribe_acks(&self, key: &RelayCallKey, receiver: watch::Receiver<u32>) {
        let mut state = self.lock();
        if state.acks.get(key).is_some_and(|acks| acks.subscribe().same_channel(&receiver)) {
            state.acks.remove(key);
        }
    }

    /// Records that all chunks before `number` have arrived.
    pub(super) fn acknowledge(&self, key: &RelayCallKey, number: u32) {
        if let Some(acks) = self.lock().acks.get(key) {
            acks.send_if_modified(|acked| {
                let is_more = number > *acked;
                *acked = number.max(*acked);
                is_more
            });
        }
    }

    /// Records an answer that could not be sent.
    pub(super) fn mark_unsent(&self, key: &RelayCallKey) {
        let mut state = self.lock();
        if state.unsent.len() < MAX_UNSENT {
            state.unsent.push(key.clone());
        }
    }

    /// Returns the calls of which a worker may have missed a message during the disconnect: unsent
    /// answers, answers sent just before it, and accepted calls in flight.
    pub(super) fn take_unconfirmed(&self) -> Vec<RelayCallKey> {
        let mut state = self.lock();
        let mut unconfirmed = std::mem::take(&mut state.unsent);
        let Some(lost) = state.disconnected_at.take() else { return unconfirmed };
        let since = lost.checked_sub(UNCONFIRMED_WINDOW).unwrap_or(lost);
        unconfirmed.extend(state.answers.answered_since(since).take(MAX_UNSENT).cloned());
        let in_flight = state.calls.iter().filter(|(_, call)| call.is_accepted);
        unconfirmed.extend(in_flight.map(|(key, _)| key.clone()));
        unconfirmed
    }

    /// Records that the connection is up or lost.
    pub(super) fn set_connected(&self, is_connected: bool) {
        let mut state = self.lock();
        match is_connected {
            true => state.presence.on_connected(now()),
            false => {
                state.presence.on_disconnected(now());
                state.disconnected_at = Some(now());
            }
        }
    }

    /// Returns the number of calls in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.lock().calls.len()
    }

    /// Returns the status of all known workers.
    pub(super) fn workers(&self) -> Vec<WorkerStatus> {
        self.lock().presence.workers()
    }
}

/// Registration of one call in flight; dropping it removes the call.
pub(super) struct RegisteredCallGuard {
    registry: Arc<CallRegistry>,
    key: RelayCallKey,
    pub(super) capacity: CallCapacity,
}

/// Cancellation of one call.
pub(super) struct RelayCancelSignal(oneshot::Receiver<()>);

impl RelayCancelSignal {
    /// Waits until the call is cancelled.
    pub(super) async fn wait(self) {
        if self.0.await.is_err() {
            // The sender is gone without a cancellation, so none can follow.
            std::future::pending().await
        }
    }
}

impl RegisteredCallGuard {
    /// Sets the observer that takes responses to server requests.
    pub(super) fn set_observer(&self, observer: Arc<WorkerObserver>) {
        if let Some(call) = self.registry.lock().calls.get_mut(&self.key) {
            call.observer = Some(observer);
        }
    }

    /// Marks the call as accepted.
    pub(super) fn set_accepted(&self) {
        if let Some(call) = self.registry.lock().calls.get_mut(&self.key) {
            call.is_accepted = true;
        }
    }

    /// Caches the answer and returns its destination.
    pub(super) fn finish(&self, text: Bytes) -> Option<ReplyAddress> {
        let mut state = self.registry.lock();
        let state = &mut *state;
        state.answers.insert(self.key.clone(), text, now());
        let call = state.calls.get_mut(&self.key)?;
        call.observer = None;
        Some(call.reply_address.clone())
    }
}

impl Drop for RegisteredCallGuard {
    fn drop(&mut self) {
        let mut state = self.registry.lock();
        let state = &mut *state;
        let Some(call) = state.calls.remove(&self.key) else { return };
        state.presence.on_call_ended(&call.worker_instance);
    }
}

/// Returns the time of the runtime's clock, which tests pause.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}
