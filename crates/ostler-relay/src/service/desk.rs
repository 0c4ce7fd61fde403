//! What is known of calls: which are under way, what was answered, who lives.
//!
//! All of it is behind one lock that is held for a lookup or two, because the
//! parts must agree: a call is under way, or answered, or unknown, never two
//! of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use ostler_core::keyed_limit::Permit;
use ostler_host::Caller;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::answers::Answers;
use super::load::{Load, Room};
use super::order::Order;
use super::presence::{Life, Presence, WorkerStatus};
use super::voice::WorkerVoice;
use crate::call_id::CallId;
use crate::name::Name;
use crate::subject::Inbox;

/// Answers that could not be sent and are announced once they can be, and as
/// many that may not have arrived; beyond that their workers find out by themselves.
const MAX_UNSENT: usize = 1_024;

/// What was said so shortly before a connection was lost may be lost with it:
/// that it is dead takes some moments to be seen.
const DOUBT: Duration = Duration::from_secs(5);

/// One call of one worker. What another worker says under the same id is
/// another call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) worker: Name,
    pub(super) call: CallId,
}

/// Where an answer goes. The broker lets us answer a message over the
/// connection that it came by.
#[derive(Debug, Clone)]
pub(super) struct Address {
    pub(super) key: Key,
    pub(super) reply: String,
    pub(super) epoch: u64,
}

impl Address {
    /// Where a worker wants an answer. That is its own inbox and nothing else:
    /// the broker lets us publish to whatever a message names, and a worker
    /// could have us speak where it may not.
    pub(super) fn of(life: &Life, call: CallId, reply: Option<String>, epoch: u64) -> Result<Self, String> {
        let reply = reply.ok_or("it does not say where the answer goes")?;
        if reply != Inbox::new(&life.worker, life.instance).answer(call) {
            return Err("the answer would not go to its worker's inbox".into());
        }
        Ok(Self { key: Key { worker: life.worker.clone(), call }, reply, epoch })
    }
}

/// What a message that asks for a call has found.
pub(super) enum Found {
    /// Nobody has heard of it; it is under way from now on.
    New(Place, Cancelled),
    /// It was asked for before.
    Known(Known),
    /// More messages wait for a refusal than are worth one.
    Flooded,
}

/// What has become of a call.
pub(super) enum Known {
    /// It is under way; its answer goes to where the new message says.
    UnderWay {
        /// Whether it was claimed and is carried out.
        is_accepted: bool,
    },
    /// It was answered.
    Answered(Bytes),
}

struct UnderWay {
    life: Life,
    to: Address,
    _permit: Permit,
    is_accepted: bool,
    cancel: Option<oneshot::Sender<()>>,
    voice: Option<Arc<WorkerVoice>>,
}

/// The calls of all workers.
pub(super) struct Desk {
    books: Mutex<Books>,
}

struct Books {
    calls: HashMap<Key, UnderWay>,
    load: Load,
    answers: Answers,
    presence: Presence,
    /// How far the answers that are being sent have arrived.
    acks: HashMap<Key, watch::Sender<u32>>,
    unsent: Vec<Key>,
    /// When the last connection was lost, until there is another one.
    lost: Option<std::time::Instant>,
}

impl Books {
    /// What has become of a call; its answer goes there from now on.
    fn known(&mut self, to: &Address) -> Option<Known> {
        if let Some(answer) = self.answers.get(&to.key) {
            return Some(Known::Answered(answer));
        }
        let call = self.calls.get_mut(&to.key)?;
        call.to = to.clone();
        Some(Known::UnderWay { is_accepted: call.is_accepted })
    }
}

impl Desk {
    /// Makes a desk where `max` calls may be carried out at once.
    pub(super) fn new(max: usize) -> Self {
        let books = Books {
            calls: HashMap::new(),
            load: Load::new(max),
            answers: Answers::default(),
            presence: Presence::new(now()),
            acks: HashMap::new(),
            unsent: Vec::new(),
            lost: None,
        };
        Self { books: Mutex::new(books) }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up what a message asks for, and begins it if it is new.
    pub(super) fn enter(self: &Arc<Self>, order: &Order) -> Found {
        let (key, now) = (&order.to.key, now());
        let mut books = self.books();
        let books = &mut *books;
        books.presence.on_heard(&order.life, now);
        if let Some(known) = books.known(&order.to) {
            return Found::Known(known);
        }
        let Some((room, permit)) = books.load.enter(&key.worker) else { return Found::Flooded };
        books.presence.on_begun(&order.life, &order.caller);
        let (cancel, cancelled) = oneshot::channel();
        let call = UnderWay {
            life: order.life.clone(),
            to: order.to.clone(),
            _permit: permit,
            is_accepted: false,
            cancel: Some(cancel),
            voice: None,
        };
        books.calls.insert(key.clone(), call);
        Found::New(Place { desk: Arc::clone(self), key: key.clone(), room }, Cancelled(cancelled))
    }

    /// A worker has asked for something.
    pub(super) fn heard(&self, life: &Life) {
        self.books().presence.on_heard(life, now());
    }

    /// A worker has said something about what it asked for. Of one that has not
    /// asked us for anything, nothing is remembered.
    pub(super) fn still_there(&self, life: &Life) {
        self.books().presence.is_known(life, now());
    }

    /// A worker was told what it may use.
    pub(super) fn told(&self, life: &Life, caller: &Caller, version: Option<String>) {
        self.books().presence.on_told(life, caller, version);
    }

    /// Who was told what.
    pub(super) fn all_told(&self) -> Vec<(Life, Caller, String)> {
        self.books().presence.told()
    }

    /// Nobody waits for a call any more. One that has not come yet, because
    /// messages of different subjects overtake each other, will not begin.
    pub(super) fn cancel(&self, key: Key, instead: impl FnOnce() -> Bytes) {
        let mut books = self.books();
        if let Some(call) = books.calls.get_mut(&key) {
            call.cancel.take().map(|cancel| cancel.send(()));
        } else if books.answers.get(&key).is_none() {
            books.answers.keep(key, instead(), now());
        }
    }

    /// Gives up the calls of workers that are gone, and forgets what is old.
    pub(super) fn sweep(&self) {
        let mut books = self.books();
        let now = now();
        books.answers.trim(now);
        let gone = books.presence.poll(now);
        for call in books.calls.values_mut().filter(|call| gone.contains(&call.life)) {
            call.cancel.take().map(|cancel| cancel.send(()));
        }
    }

    /// What has become of a call, for a worker that was cut off; the answer
    /// goes to where it says now. `None` where nothing is known of it.
    pub(super) fn resume(&self, to: &Address) -> Option<Known> {
        let mut books = self.books();
        let known = books.known(to)?;
        if let Some(voice) = books.calls.get(&to.key).and_then(|call| call.voice.as_ref()) {
            voice.ask_again();
        }
        Some(known)
    }

    /// Who takes the answers to questions of a call.
    pub(super) fn voice_of(&self, key: &Key) -> Option<Arc<WorkerVoice>> {
        self.books().calls.get(key)?.voice.clone()
    }

    /// Follows how far an answer has arrived. Whoever followed it before learns
    /// by the end of its channel that it is sent anew.
    pub(super) fn follow(&self, key: &Key) -> watch::Receiver<u32> {
        let (acks, followed) = watch::channel(0);
        self.books().acks.insert(key.clone(), acks);
        followed
    }

    /// Stops following, unless somebody else does.
    pub(super) fn unfollow(&self, key: &Key, followed: watch::Receiver<u32>) {
        let mut books = self.books();
        if books.acks.get(key).is_some_and(|acks| acks.subscribe().same_channel(&followed)) {
            books.acks.remove(key);
        }
    }

    /// All chunks before this one have arrived.
    pub(super) fn acknowledge(&self, key: &Key, number: u32) {
        if let Some(acks) = self.books().acks.get(key) {
            acks.send_if_modified(|acked| {
                let is_more = number > *acked;
                *acked = number.max(*acked);
                is_more
            });
        }
    }

    /// An answer could not be sent.
    pub(super) fn put_off(&self, key: &Key) {
        let mut books = self.books();
        if books.unsent.len() < MAX_UNSENT {
            books.unsent.push(key.clone());
        }
    }

    /// The calls of which a worker may have missed something while there was
    /// no connection: answers that could not be sent, or only just, and all
    /// that are under way.
    pub(super) fn take_doubtful(&self) -> Vec<Key> {
        let mut books = self.books();
        let mut doubtful = std::mem::take(&mut books.unsent);
        let Some(lost) = books.lost.take() else { return doubtful };
        let since = lost.checked_sub(DOUBT).unwrap_or(lost);
        doubtful.extend(books.answers.since(since).take(MAX_UNSENT).cloned());
        let under_way = books.calls.iter().filter(|(_, call)| call.is_accepted);
        doubtful.extend(under_way.map(|(key, _)| key.clone()));
        doubtful
    }

    /// The connection is lost, or there.
    pub(super) fn set_connected(&self, is_connected: bool) {
        let mut books = self.books();
        match is_connected {
            true => books.presence.on_up(now()),
            false => {
                books.presence.on_down(now());
                books.lost = Some(now());
            }
        }
    }

    /// Calls under way.
    pub(super) fn in_flight(&self) -> usize {
        self.books().calls.len()
    }

    /// Who lives.
    pub(super) fn workers(&self) -> Vec<WorkerStatus> {
        self.books().presence.workers()
    }
}

/// The place of a call among those under way; dropping it makes room.
pub(super) struct Place {
    desk: Arc<Desk>,
    key: Key,
    pub(super) room: Room,
}

/// Tells that nobody waits for a call any more.
pub(super) struct Cancelled(oneshot::Receiver<()>);

impl Cancelled {
    /// Waits until nobody waits for the call.
    pub(super) async fn wait(self) {
        if self.0.await.is_err() {
            // It has not been cancelled, and can't be any more.
            std::future::pending().await
        }
    }
}

impl Place {
    /// What is asked and answered meanwhile goes through this.
    pub(super) fn set_voice(&self, voice: Arc<WorkerVoice>) {
        if let Some(call) = self.desk.books().calls.get_mut(&self.key) {
            call.voice = Some(voice);
        }
    }

    /// From now on it is carried out.
    pub(super) fn set_accepted(&self) {
        if let Some(call) = self.desk.books().calls.get_mut(&self.key) {
            call.is_accepted = true;
        }
    }

    /// Keeps the answer, and says where it goes.
    pub(super) fn answered(&self, text: Bytes) -> Option<Address> {
        let mut books = self.desk.books();
        let books = &mut *books;
        books.answers.keep(self.key.clone(), text, now());
        let call = books.calls.get_mut(&self.key)?;
        call.voice = None;
        Some(call.to.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut books = self.desk.books();
        let books = &mut *books;
        let Some(call) = books.calls.remove(&self.key) else { return };
        books.presence.on_ended(&call.life);
    }
}

/// The runtime's clock, which tests pause.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}
