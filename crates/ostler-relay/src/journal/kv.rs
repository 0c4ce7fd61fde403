//! A journal that several hosts share: a key-value bucket of the NATS server.
//!
//! A claim is the creation of a key: of all who try it, the server lets one.
//! The bucket forgets keys after [`KEPT`].
//!
//! It has a connection of its own, so that a flood of answers can't hold up
//! claims, and the same rule as everywhere in the relay: what was asked on a
//! connection that is lost is not asked again by itself. A claim whose end
//! nobody heard may stand in the bucket all the same; then nobody gets it.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::context::{CreateKeyValueErrorKind, KeyValueErrorKind};
use async_nats::jetstream::kv::{Config, Store, UpdateErrorKind};
use async_nats::jetstream::stream::StorageType;
use bytes::Bytes;
use ostler_core::backoff::Backoff;
use ostler_host::upstream::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use super::{Claim, Journal, KEPT, Unclaimed};
use crate::broker::Denial;
use crate::broker::nats::{Line, NatsOptions, dial};
use crate::call_id::CallId;
use crate::name::Name;

/// How long a claim may take. A worker believes for two seconds that its call
/// has not begun, and a refusal must reach it before.
const CLAIM: Duration = Duration::from_millis(1_500);

/// How long the bucket may take to be found or made.
const OPEN: Duration = Duration::from_secs(5);

/// How long the last notes may take to leave.
const CLOSE: Duration = Duration::from_secs(2);

/// The first and the last ceiling of the pause between two connections.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Notes that wait to leave; more are dropped, for nothing depends on one.
const NOTES: usize = 8_192;

/// What stands in the place of a call that has begun.
const BEGUN: Bytes = Bytes::from_static(b"begun");

/// What stands in the place of a call that was answered.
const DONE: Bytes = Bytes::from_static(b"done");

/// The name of a tenant's bucket.
pub fn kv_bucket(tenant: &Name) -> String {
    format!("ostler_claims_{tenant}")
}

/// A journal in a bucket of a NATS server.
#[derive(Debug)]
pub struct KvJournal {
    state: watch::Receiver<State>,
    notes: mpsc::Sender<Note>,
    task: AbortHandle,
}

/// How the bucket can be reached.
#[derive(Debug, Clone)]
enum State {
    /// Not now, and why.
    Away(String),
    Here(Arc<Store>),
}

/// What is told and not waited for.
#[derive(Debug)]
enum Note {
    Done(CallId),
    /// Answered when all notes before it have left.
    Flush(oneshot::Sender<()>),
}

impl KvJournal {
    /// The journal of a tenant, in a bucket on one server. Must be called in a
    /// runtime; it connects in the background, and claims wait a little for it.
    pub fn open(options: NatsOptions, tenant: &Name) -> Self {
        Self::open_on(options, tenant, 1)
    }

    /// The same, in a bucket on this many servers of a cluster.
    pub fn open_on(options: NatsOptions, tenant: &Name, replicas: usize) -> Self {
        let (tell, state) = watch::channel(State::Away("it is not connected yet".into()));
        let (notes, to_tell) = mpsc::channel(NOTES);
        let keeping = Keeping { options, bucket: kv_bucket(tenant), replicas, tell };
        let task = tokio::spawn(keeping.run(to_tell)).abort_handle();
        Self { state, notes, task }
    }

    async fn claim_key(&self, key: String) -> Result<Claim, Unclaimed> {
        let store = self.store().await?;
        match store.update(&key, BEGUN, 0).await.map_err(|error| (error.kind(), error)) {
            Ok(_) => Ok(Claim::Ours),
            Err((UpdateErrorKind::WrongLastRevision, _)) => {
                let value = store.get(key).await.ok().flatten();
                Ok(Claim::Taken { is_settled: value == Some(DONE) })
            }
            Err((
                UpdateErrorKind::InvalidKey | UpdateErrorKind::TimedOut | UpdateErrorKind::Other,
                error,
            )) => Err(Unclaimed(format!("the bucket {}: {error}", store.name))),
        }
    }

    async fn store(&self) -> Result<Arc<Store>, Unclaimed> {
        let mut state = self.state.clone();
        let here = state.wait_for(|state| matches!(state, State::Here(_))).await;
        match here.as_deref() {
            Ok(State::Here(store)) => Ok(Arc::clone(store)),
            _ => Err(Unclaimed("the journal is closed".into())),
        }
    }

    fn why_not(&self) -> Unclaimed {
        match &*self.state.borrow() {
            State::Away(why) => Unclaimed(why.clone()),
            State::Here(store) => {
                Unclaimed(format!("the bucket {} has not answered within {CLAIM:?}", store.name))
            }
        }
    }
}

impl Journal for KvJournal {
    fn claim<'a>(&'a self, call: CallId, _worker: &'a Name) -> BoxFuture<'a, Result<Claim, Unclaimed>> {
        Box::pin(async move {
            let claim = tokio::time::timeout(CLAIM, self.claim_key(call.to_string())).await;
            claim.unwrap_or_else(|_| Err(self.why_not()))
        })
    }

    fn settle(&self, call: CallId) {
        let _ = self.notes.try_send(Note::Done(call));
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let (tell, told) = oneshot::channel();
            let all = async {
                if self.notes.send(Note::Flush(tell)).await.is_ok() {
                    let _ = told.await;
                }
            };
            let _ = tokio::time::timeout(CLOSE, all).await;
        })
    }
}

impl Drop for KvJournal {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Keeps one connection and the bucket behind it.
struct Keeping {
    options: NatsOptions,
    bucket: String,
    replicas: usize,
    tell: watch::Sender<State>,
}

/// Ends a connection with whoever keeps it, even if that is aborted.
struct Closing(Line);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Keeping {
    async fn run(self, mut notes: mpsc::Receiver<Note>) {
        let mut backoff = Backoff::new(PAUSE.0, PAUSE.1);
        let mut chance = fastrand::Rng::new();
        loop {
            let why = match self.open().await {
                Ok((line, store)) => {
                    backoff.reset();
                    self.tell.send_replace(State::Here(Arc::new(store)));
                    tell_notes(&line.0, &self.bucket, &mut notes).await
                }
                Err(why) => why,
            };
            self.tell.send_replace(State::Away(why));
            tokio::time::sleep(backoff.next(&mut chance)).await;
        }
    }

    async fn open(&self) -> Result<(Closing, Store), String> {
        let line = Closing(dial(&self.options).await.map_err(|refusal| refusal.to_string())?);
        let mut denials = line.0.denials();
        let opened = tokio::select! {
            // The server says nothing else to who may not ask.
            Ok(denial) = denials.recv() => return Err(match denial {
                Denial::Publish(subject) => format!("the broker does not let us publish to {subject}"),
                Denial::Subscribe(subject) => format!("the broker does not let us read {subject}"),
            }),
            opened = tokio::time::timeout(OPEN, self.bucket(&line.0)) => opened,
        };
        match opened {
            Ok(Ok(store)) => Ok((line, store)),
            Ok(Err(why)) => Err(format!("the bucket {}: {why}", self.bucket)),
            Err(_) => Err(format!("the bucket {} was not there within {OPEN:?}", self.bucket)),
        }
    }

    /// Finds the bucket, or makes it.
    async fn bucket(&self, line: &Line) -> Result<Store, String> {
        let mut context = jetstream::new(line.client.clone());
        // Whoever asks has a limit of its own, and says more when it is reached.
        context.set_timeout(OPEN);
        let store = match context.get_key_value(&self.bucket).await {
            Ok(store) => store,
            Err(error) => match error.kind() {
                KeyValueErrorKind::GetBucket => self.make(&context).await?,
                KeyValueErrorKind::InvalidStoreName | KeyValueErrorKind::JetStream => {
                    return Err(error.to_string());
                }
            },
        };
        let kept = store.stream.cached_info().config.max_age;
        // Zero is for ever. A claim that is forgotten early is no claim.
        if !kept.is_zero() && kept < KEPT {
            return Err(format!("it keeps claims for {kept:?} only, and must for {KEPT:?}: delete it"));
        }
        Ok(store)
    }

    async fn make(&self, context: &jetstream::Context) -> Result<Store, String> {
        let config = Config {
            bucket: self.bucket.clone(),
            description: "Calls that a relay of Ostler has begun".into(),
            history: 1,
            max_age: KEPT,
            storage: StorageType::File,
            num_replicas: self.replicas,
            ..Config::default()
        };
        let made = context.create_key_value(config).await;
        made.map_err(|error| match error.kind() {
            CreateKeyValueErrorKind::JetStream => format!("JetStream is needed for it: {error}"),
            _ => error.to_string(),
        })
    }
}

/// Passes notes on until the connection is over, and says why it is.
async fn tell_notes(line: &Line, bucket: &str, notes: &mut mpsc::Receiver<Note>) -> String {
    let ended = line.ended();
    tokio::pin!(ended);
    loop {
        tokio::select! {
            biased;
            why = &mut ended => return why,
            Some(note) = notes.recv() => match note {
                // The server keeps it and has nobody to tell so.
                Note::Done(call) => drop(line.client.publish(format!("$KV.{bucket}.{call}"), DONE).await),
                Note::Flush(told) => {
                    let _ = line.client.flush().await;
                    let _ = told.send(());
                }
            }
        }
    }
}
