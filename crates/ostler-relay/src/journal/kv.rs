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

use super::{CLAIM_RETENTION, CallJournal, ClaimError, ClaimOutcome};
use crate::broker::Denial;
use crate::broker::nats::{NatsConnection, NatsOptions, connect_once};
use crate::call_id::CallId;
use crate::name::RelayName;

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
const UPDATE_CAPACITY: usize = 8_192;

/// What stands in the place of a call that has begun.
const BEGUN_VALUE: Bytes = Bytes::from_static(b"begun");

/// What stands in the place of a call that was answered.
const ANSWERED_VALUE: Bytes = Bytes::from_static(b"done");

/// The name of a tenant's bucket.
pub fn kv_bucket(tenant: &RelayName) -> String {
    format!("ostler_claims_{tenant}")
}

/// A journal in a bucket of a NATS server.
#[derive(Debug)]
pub struct KvJournal {
    state: watch::Receiver<BucketState>,
    updates: mpsc::Sender<BucketUpdate>,
    task: AbortHandle,
}

/// How the bucket can be reached.
#[derive(Debug, Clone)]
enum BucketState {
    /// Not now, and why.
    Unavailable(String),
    Available(Arc<Store>),
}

/// What is told and not waited for.
#[derive(Debug)]
enum BucketUpdate {
    Answered(CallId),
    /// Answered when all notes before it have left.
    Flush(oneshot::Sender<()>),
}

impl KvJournal {
    /// The journal of a tenant, in a bucket on one server. Must be called in a
    /// runtime; it connects in the background, and claims wait a little for it.
    pub fn open(options: NatsOptions, tenant: &RelayName) -> Self {
        Self::open_replicated(options, tenant, 1)
    }

    /// The same, in a bucket on this many servers of a cluster.
    pub fn open_replicated(options: NatsOptions, tenant: &RelayName, replicas: usize) -> Self {
        let (tell, state) = watch::channel(BucketState::Unavailable("it is not connected yet".into()));
        let (updates, to_tell) = mpsc::channel(UPDATE_CAPACITY);
        let keeping = BucketTask { options, bucket: kv_bucket(tenant), replicas, tell };
        let task = tokio::spawn(keeping.run(to_tell)).abort_handle();
        Self { state, updates, task }
    }

    async fn claim_key(&self, key: String) -> Result<ClaimOutcome, ClaimError> {
        let store = self.wait_for_store().await?;
        match store.update(&key, BEGUN_VALUE, 0).await.map_err(|error| (error.kind(), error)) {
            Ok(_) => Ok(ClaimOutcome::Ours),
            Err((UpdateErrorKind::WrongLastRevision, _)) => {
                let value = store.get(key).await.ok().flatten();
                Ok(ClaimOutcome::Taken { is_answered: value == Some(ANSWERED_VALUE) })
            }
            Err((
                UpdateErrorKind::InvalidKey | UpdateErrorKind::TimedOut | UpdateErrorKind::Other,
                error,
            )) => Err(ClaimError(format!("the bucket {}: {error}", store.name))),
        }
    }

    async fn wait_for_store(&self) -> Result<Arc<Store>, ClaimError> {
        let mut state = self.state.clone();
        let here = state.wait_for(|state| matches!(state, BucketState::Available(_))).await;
        match here.as_deref() {
            Ok(BucketState::Available(store)) => Ok(Arc::clone(store)),
            _ => Err(ClaimError("the journal is closed".into())),
        }
    }

    fn timeout_error(&self) -> ClaimError {
        match &*self.state.borrow() {
            BucketState::Unavailable(why) => ClaimError(why.clone()),
            BucketState::Available(store) => {
                ClaimError(format!("the bucket {} has not answered within {CLAIM:?}", store.name))
            }
        }
    }
}

impl CallJournal for KvJournal {
    fn claim<'a>(
        &'a self,
        call: CallId,
        _worker: &'a RelayName,
    ) -> BoxFuture<'a, Result<ClaimOutcome, ClaimError>> {
        Box::pin(async move {
            let claim = tokio::time::timeout(CLAIM, self.claim_key(call.to_string())).await;
            claim.unwrap_or_else(|_| Err(self.timeout_error()))
        })
    }

    fn mark_answered(&self, call: CallId) {
        let _ = self.updates.try_send(BucketUpdate::Answered(call));
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let (tell, told) = oneshot::channel();
            let all = async {
                if self.updates.send(BucketUpdate::Flush(tell)).await.is_ok() {
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
struct BucketTask {
    options: NatsOptions,
    bucket: String,
    replicas: usize,
    tell: watch::Sender<BucketState>,
}

/// Ends a connection with whoever keeps it, even if that is aborted.
struct CloseOnDrop(NatsConnection);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl BucketTask {
    async fn run(self, mut notes: mpsc::Receiver<BucketUpdate>) {
        let mut backoff = Backoff::new(PAUSE.0, PAUSE.1);
        let mut chance = fastrand::Rng::new();
        loop {
            let why = match self.open().await {
                Ok((line, store)) => {
                    backoff.reset();
                    self.tell.send_replace(BucketState::Available(Arc::new(store)));
                    forward_updates(&line.0, &self.bucket, &mut notes).await
                }
                Err(why) => why,
            };
            self.tell.send_replace(BucketState::Unavailable(why));
            tokio::time::sleep(backoff.next(&mut chance)).await;
        }
    }

    async fn open(&self) -> Result<(CloseOnDrop, Store), String> {
        let line = CloseOnDrop(connect_once(&self.options).await.map_err(|refusal| refusal.to_string())?);
        let mut denials = line.0.denials();
        let opened = tokio::select! {
            // The server says nothing else to who may not ask.
            Ok(denial) = denials.recv() => return Err(match denial {
                Denial::Publish(subject) => format!("the broker does not let us publish to {subject}"),
                Denial::Subscribe(subject) => format!("the broker does not let us read {subject}"),
            }),
            opened = tokio::time::timeout(OPEN, self.find_or_create_bucket(&line.0)) => opened,
        };
        match opened {
            Ok(Ok(store)) => Ok((line, store)),
            Ok(Err(why)) => Err(format!("the bucket {}: {why}", self.bucket)),
            Err(_) => Err(format!("the bucket {} was not there within {OPEN:?}", self.bucket)),
        }
    }

    /// Finds the bucket, or makes it.
    async fn find_or_create_bucket(&self, line: &NatsConnection) -> Result<Store, String> {
        let mut context = jetstream::new(line.client.clone());
        // Whoever asks has a limit of its own, and says more when it is reached.
        context.set_timeout(OPEN);
        let store = match context.get_key_value(&self.bucket).await {
            Ok(store) => store,
            Err(error) => match error.kind() {
                KeyValueErrorKind::GetBucket => self.create_bucket(&context).await?,
                KeyValueErrorKind::InvalidStoreName | KeyValueErrorKind::JetStream => {
                    return Err(error.to_string());
                }
            },
        };
        let kept = store.stream.cached_info().config.max_age;
        // Zero is for ever. A claim that is forgotten early is no claim.
        if !kept.is_zero() && kept < CLAIM_RETENTION {
            return Err(format!(
                "it keeps claims for {kept:?} only, and must for {CLAIM_RETENTION:?}: delete it"
            ));
        }
        Ok(store)
    }

    async fn create_bucket(&self, context: &jetstream::Context) -> Result<Store, String> {
        let config = Config {
            bucket: self.bucket.clone(),
            description: "Calls that a relay of Ostler has begun".into(),
            history: 1,
            max_age: CLAIM_RETENTION,
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
async fn forward_updates(
    line: &NatsConnection,
    bucket: &str,
    notes: &mut mpsc::Receiver<BucketUpdate>,
) -> String {
    let ended = line.ended();
    tokio::pin!(ended);
    loop {
        tokio::select! {
            biased;
            why = &mut ended => return why,
            Some(note) = notes.recv() => match note {
                // The server keeps it and has nobody to tell so.
                BucketUpdate::Answered(call) => drop(line.client.publish(format!("$KV.{bucket}.{call}"), ANSWERED_VALUE).await),
                BucketUpdate::Flush(told) => {
                    let _ = line.client.flush().await;
                    let _ = told.send(());
                }
            }
        }
    }
}
