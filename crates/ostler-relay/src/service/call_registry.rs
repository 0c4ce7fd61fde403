//! What is known of calls: which are under way, what was answered, who lives.
//!
//! All of it is behind one lock that is held for a lookup or two, because the
//! parts must agree: a call is under way, or answered, or unknown, never two
//! of them.

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

/// Answers that could not be sent and are announced once they can be, and as
/// many that may not have arrived; beyond that their workers find out by themselves.
const MAX_UNSENT: usize = 1_024;

/// What was said so shortly before a connection was lost may be lost with it:
/// that it is dead takes some moments to be seen.
const UNCONFIRMED_WINDOW: Duration = Duration::from_secs(5);

/// One call of one worker. What another worker says under the same id is
/// another call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RelayCallKey {
    pub(super) worker: RelayName,
    pub(super) call: CallId,
}

/// Where an answer goes. The broker lets us answer a message over the
/// connection that it came by.
#[derive(Debug, Clone)]
pub(super) struct ReplyAddress {
    pub(super) key: RelayCallKey,
    pub(super) subject: String,
    pub(super) epoch: u64,
}

impl ReplyAddress {
    /// Where a worker wants an answer. That is its own inbox and nothing else:
    /// the broker lets us publish to whatever a message names, and a worker
    /// could have us speak where it may not.
    pub(super) fn new(
        life: &WorkerInstance,
        call: CallId,
        reply: Option<String>,
        epoch: u64,
    ) -> Result<Self, String> {
        let reply = reply.ok_or("it does not say where the answer goes")?;
        if reply != WorkerInbox::new(&life.worker, life.instance).answer_subject(call) {
            return Err("the answer would not go to its worker's inbox".into());
        }
        Ok(Self { key: RelayCallKey { worker: life.worker.clone(), call }, subject: reply, epoch })
    }
}

/// What a message that asks for a call has found.
pub(super) enum CallLookup {
    /// Nobody has heard of it; it is under way from now on.
    New(RegisteredCallGuard, RelayCancelSignal),
    /// It was asked for before.
    Known(KnownCall),
    /// More messages wait for a refusal than are worth one.
    Flooded,
}

/// What has become of a call.
pub(super) enum KnownCall {
    /// It is under way; its answer goes to where the new message says.
    InFlight {
        /// Whether it was claimed and is carried out.
        is_accepted: bool,
    },
    /// It was answered.
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

/// The calls of all workers.
pub(super) struct CallRegistry {
    state: Mutex<CallRegistryState>,
}

struct CallRegistryState {
    calls: HashMap<RelayCallKey, RegisteredCall>,
    limits: ServiceCallLimits,
    answers: AnswerCache,
    presence: WorkerPresence,
    /// How far the answers that are being sent have arrived.
    acks: HashMap<RelayCallKey, watch::Sender<u32>>,
    unsent: Vec<RelayCallKey>,
    /// When the last connection was lost, until there is another one.
    disconnected_at: Option<std::time::Instant>,
}

impl CallRegistryState {
    /// What has become of a call; its answer goes there from now on.
    fn lookup(&mut self, to: &ReplyAddress) -> Option<KnownCall> {
        if let Some(answer) = self.answers.get(&to.key) {
            return Some(KnownCall::Answered(answer));
        }
        let call = self.calls.get_mut(&to.key)?;
        call.reply_address = to.clone();
        Some(KnownCall::InFlight { is_accepted: call.is_accepted })
    }
}

impl CallRegistry {
    /// Makes a desk where `max` calls may be carried out at once.
    pub(super) fn new(max: usize) -> Self {
        let books = CallRegistryState {
            calls: HashMap::new(),
            limits: ServiceCallLimits::new(max),
            answers: AnswerCache::default(),
            presence: WorkerPresence::new(now()),
            acks: HashMap::new(),
            unsent: Vec::new(),
            disconnected_at: None,
        };
        Self { state: Mutex::new(books) }
    }

    fn lock(&self) -> MutexGuard<'_, CallRegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up what a message asks for, and begins it if it is new.
    pub(super) fn register(self: &Arc<Self>, order: &RelayRequest) -> CallLookup {
        let (key, now) = (&order.reply_address.key, now());
        let mut books = self.lock();
        let books = &mut *books;
        books.presence.on_heard(&order.worker_instance, now);
        if let Some(known) = books.lookup(&order.reply_address) {
            return CallLookup::Known(known);
        }
        let Some((room, permit)) = books.limits.acquire(&key.worker) else { return CallLookup::Flooded };
        books.presence.on_call_begun(&order.worker_instance, &order.caller);
        let (cancel, cancelled) = oneshot::channel();
        let call = RegisteredCall {
            worker_instance: order.worker_instance.clone(),
            reply_address: order.reply_address.clone(),
            _permit: permit,
            is_accepted: false,
            cancel: Some(cancel),
            observer: None,
        };
        books.calls.insert(key.clone(), call);
        CallLookup::New(
            RegisteredCallGuard { registry: Arc::clone(self), key: key.clone(), capacity: room },
            RelayCancelSignal(cancelled),
        )
    }

    /// A worker has asked for something.
    pub(super) fn record_worker(&self, life: &WorkerInstance) {
        self.lock().presence.on_heard(life, now());
    }

    /// A worker has said something about what it asked for. Of one that has not
    /// asked us for anything, nothing is remembered.
    pub(super) fn refresh_worker(&self, life: &WorkerInstance) {
        self.lock().presence.refresh(life, now());
    }

    /// A worker was told what it may use.
    pub(super) fn record_manifest_version(
        &self,
        life: &WorkerInstance,
        caller: &Caller,
        version: Option<String>,
    ) {
        self.lock().presence.on_manifest_sent(life, caller, version);
    }

    /// Who was told what.
    pub(super) fn manifest_versions(&self) -> Vec<(WorkerInstance, Caller, String)> {
        self.lock().presence.manifest_versions()
    }

    /// Nobody waits for a call any more. One that has not come yet, because
    /// messages of different subjects overtake each other, will not begin.
    pub(super) fn cancel(&self, key: RelayCallKey, instead: impl FnOnce() -> Bytes) {
        let mut books = self.lock();
        if let Some(call) = books.calls.get_mut(&key) {
            call.cancel.take().map(|cancel| cancel.send(()));
        } else if books.answers.get(&key).is_none() {
            books.answers.insert(key, instead(), now());
        }
    }

    /// Gives up the calls of workers that are gone, and forgets what is old.
    pub(super) fn sweep(&self) {
        let mut books = self.lock();
        let now = now();
        books.answers.evict(now);
        let gone = books.presence.expire(now);
        for call in books.calls.values_mut().filter(|call| gone.contains(&call.worker_instance)) {
            call.cancel.take().map(|cancel| cancel.send(()));
        }
    }

    /// What has become of a call, for a worker that was cut off; the answer
    /// goes to where it says now. `None` where nothing is known of it.
    pub(super) fn resume(&self, to: &ReplyAddress) -> Option<KnownCall> {
        let mut books = self.lock();
        let known = books.lookup(to)?;
        if let Some(voice) = books.calls.get(&to.key).and_then(|call| call.observer.as_ref()) {
            voice.resend_open();
        }
        Some(known)
    }

    /// Who takes the answers to questions of a call.
    pub(super) fn observer(&self, key: &RelayCallKey) -> Option<Arc<WorkerObserver>> {
        self.lock().calls.get(key)?.observer.clone()
    }

    /// Follows how far an answer has arrived. Whoever followed it before learns
    /// by the end of its channel that it is sent anew.
    pub(super) fn subscribe_acks(&self, key: &RelayCallKey) -> watch::Receiver<u32> {
        let (acks, followed) = watch::channel(0);
        self.lock().acks.insert(key.clone(), acks);
        followed
    }

    /// Stops following, unless somebody else does.
    pub(super) fn unsubscribe_acks(&self, key: &RelayCallKey, followed: watch::Receiver<u32>) {
        let mut books = self.lock();
        if books.acks.get(key).is_some_and(|acks| acks.subscribe().same_channel(&followed)) {
            books.acks.remove(key);
        }
    }

    /// All chunks before this one have arrived.
    pub(super) fn acknowledge(&self, key: &RelayCallKey, number: u32) {
        if let Some(acks) = self.lock().acks.get(key) {
            acks.send_if_modified(|acked| {
                let is_more = number > *acked;
                *acked = number.max(*acked);
                is_more
            });
        }
    }

    /// An answer could not be sent.
    pub(super) fn mark_unsent(&self, key: &RelayCallKey) {
        let mut books = self.lock();
        if books.unsent.len() < MAX_UNSENT {
            books.unsent.push(key.clone());
        }
    }

    /// The calls of which a worker may have missed something while there was
    /// no connection: answers that could not be sent, or only just, and all
    /// that are under way.
    pub(super) fn take_unconfirmed(&self) -> Vec<RelayCallKey> {
        let mut books = self.lock();
        let mut doubtful = std::mem::take(&mut books.unsent);
        let Some(lost) = books.disconnected_at.take() else { return doubtful };
        let since = lost.checked_sub(UNCONFIRMED_WINDOW).unwrap_or(lost);
        doubtful.extend(books.answers.answered_since(since).take(MAX_UNSENT).cloned());
        let under_way = books.calls.iter().filter(|(_, call)| call.is_accepted);
        doubtful.extend(under_way.map(|(key, _)| key.clone()));
        doubtful
    }

    /// The connection is lost, or there.
    pub(super) fn set_connected(&self, is_connected: bool) {
        let mut books = self.lock();
        match is_connected {
            true => books.presence.on_connected(now()),
            false => {
                books.presence.on_disconnected(now());
                books.disconnected_at = Some(now());
            }
        }
    }

    /// Calls under way.
    pub(super) fn in_flight(&self) -> usize {
        self.lock().calls.len()
    }

    /// Who lives.
    pub(super) fn workers(&self) -> Vec<WorkerStatus> {
        self.lock().presence.workers()
    }
}

/// The place of a call among those under way; dropping it makes room.
pub(super) struct RegisteredCallGuard {
    registry: Arc<CallRegistry>,
    key: RelayCallKey,
    pub(super) capacity: CallCapacity,
}

/// Tells that nobody waits for a call any more.
pub(super) struct RelayCancelSignal(oneshot::Receiver<()>);

impl RelayCancelSignal {
    /// Waits until nobody waits for the call.
    pub(super) async fn wait(self) {
        if self.0.await.is_err() {
            // It has not been cancelled, and can't be any more.
            std::future::pending().await
        }
    }
}

impl RegisteredCallGuard {
    /// What is asked and answered meanwhile goes through this.
    pub(super) fn set_observer(&self, voice: Arc<WorkerObserver>) {
        if let Some(call) = self.registry.lock().calls.get_mut(&self.key) {
            call.observer = Some(voice);
        }
    }

    /// From now on it is carried out.
    pub(super) fn set_accepted(&self) {
        if let Some(call) = self.registry.lock().calls.get_mut(&self.key) {
            call.is_accepted = true;
        }
    }

    /// Keeps the answer, and says where it goes.
    pub(super) fn finish(&self, text: Bytes) -> Option<ReplyAddress> {
        let mut books = self.registry.lock();
        let books = &mut *books;
        books.answers.insert(self.key.clone(), text, now());
        let call = books.calls.get_mut(&self.key)?;
        call.observer = None;
        Some(call.reply_address.clone())
    }
}

impl Drop for RegisteredCallGuard {
    fn drop(&mut self) {
        let mut books = self.registry.lock();
        let books = &mut *books;
        let Some(call) = books.calls.remove(&self.key) else { return };
        books.presence.on_call_ended(&call.worker_instance);
    }
}

/// The runtime's clock, which tests pause.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}
