//! Host side of the relay: takes calls of workers and executes each at most once.
//!
//! ```text
//! subscriptions.rs  messages of workers, dispatched
//! request.rs        a worker's request: envelope and body
//! limits.rs         limits of calls, manifests and chunked answers
//! call_registry.rs  calls in flight, cached answers, presence
//! call.rs           one call, top to bottom
//! observer.rs       progress and server requests of a call
//! answer.rs         answers as bytes and in chunks
//! answer_cache.rs   answers for workers that ask again
//! presence.rs       worker instances that are alive
//! manifest.rs       manifests, answered and pushed
//! heartbeat.rs      heartbeats and sweeps
//! lifecycle.rs      the task that owns all others
//! ```

mod answer;
mod answer_cache;
mod call;
mod call_registry;
mod heartbeat;
mod lifecycle;
mod limits;
mod manifest;
mod observer;
mod presence;
mod request;
mod subscriptions;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::keyed_limit::KeyedLimit;
use ostler_host::Host;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use self::call_registry::{CallRegistry, RelayCallKey};
use self::lifecycle::ServiceStage;
use self::limits::WorkerSemaphore;
use self::observer::ProgressMessage;
use crate::broker::{Broker, BrokerConnectError, BrokerMessage, LinkError};
use crate::call_id::Instance;
use crate::clock::WallClock;
use crate::envelope::RelayProgress;
use crate::journal::CallJournal;
use crate::name::RelayName;
use crate::reconnect::{BrokerConnection, LinkReport, LinkState, Reconnector, StatusSink};
use crate::subject::Subjects;

pub use self::presence::WorkerStatus;

/// Timeout for publishing one message. A connection that stalls for longer is closed.
const PUBLISH: Duration = Duration::from_secs(5);

/// Limit of open manifest requests: in all, and per worker. An instance has one open at a time, and
/// a worker may have several instances.
const MANIFEST_REQUEST_LIMIT: (usize, usize) = (1_024, 16);

/// Limit of manifests built at once: in all, and per worker. Each may query every server.
const MANIFEST_BUILD_LIMIT: (usize, usize) = (64, 16);

/// Limit of chunked answers sent at once: in all, and per worker. Each buffers one window of
/// chunks.
const CHUNKED_ANSWER_LIMIT: (usize, usize) = (64, 16);

/// Options of a service.
#[derive(Clone)]
pub struct ServiceOptions {
    /// Tenant whose subjects the service uses.
    pub tenant: RelayName,
    /// Name of this host, unique within the tenant.
    pub host_name: RelayName,
    /// Limit of calls in flight; one worker gets at most half of them.
    pub max_in_flight: usize,
    /// Clock of the deadlines.
    pub clock: WallClock,
    /// Seed of the RNG (tests only).
    pub seed: Option<u64>,
    /// Callback for connection events.
    pub status_sink: StatusSink,
}

impl ServiceOptions {
    /// Returns the documented defaults.
    pub fn new(tenant: RelayName, host_name: RelayName) -> Self {
        let status_sink: StatusSink = Arc::new(|report: &LinkReport| tracing::info!("{report}"));
        Self { tenant, host_name, max_in_flight: 1_024, clock: WallClock::new(), seed: None, status_sink }
    }
}

impl fmt::Debug for ServiceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ServiceOptions");
        debug.field("tenant", &self.tenant).field("host_name", &self.host_name).finish_non_exhaustive()
    }
}

/// Status of the relay service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServiceStatus {
    /// Address of the broker.
    pub place: String,
    /// State of the connection.
    pub state: ServiceState,
    /// Reason for a state other than `connected`, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// `true` while the service drains and accepts no calls.
    #[serde(default)]
    pub draining: bool,
    /// Calls in flight.
    pub in_flight: usize,
    /// Calls answered, refusals included.
    pub answered: u64,
    /// Messages refused before the host was asked.
    pub refused: u64,
    /// Workers heard in the last minute, sorted by name.
    pub workers: Vec<WorkerStatus>,
}

/// Connection state of the relay service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ServiceState {
    /// Connected; workers can reach the host.
    Connected,
    /// The broker is unreachable; the service retries.
    Waiting,
    /// The broker rejects the credentials or a subscription.
    Refused,
    /// The service has ended.
    Over,
}

/// Handle of a relay service; clones share it. Dropping the last handle ends the service and its
/// calls at once.
#[derive(Clone)]
pub struct Service(Arc<ServiceOwner>);

struct ServiceOwner {
    core: Arc<ServiceCore>,
    task: AbortHandle,
    is_closed: watch::Receiver<bool>,
}

impl Drop for ServiceOwner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// State shared by the tasks of a service.
pub(crate) struct ServiceCore {
    host: Host,
    journal: Arc<dyn CallJournal>,
    subjects: Subjects,
    name: RelayName,
    /// Instance of this host.
    generation: Instance,
    clock: WallClock,
    broker_address: String,
    reconnector: Reconnector,
    registry: Arc<CallRegistry>,
    stage: watch::Sender<ServiceStage>,
    /// Limit of answers sent again to workers that repeat a request.
    resend_limit: Arc<KeyedLimit>,
    manifest_request_limit: Arc<KeyedLimit>,
    manifest_builds: Arc<WorkerSemaphore>,
    chunked_answers: Arc<WorkerSemaphore>,
    counters: ServiceCounters,
    /// `true` after a failed claim; prevents logging it again.
    is_journal_broken: AtomicBool,
    /// Last subscription that the broker denied on this connection.
    denial: Mutex<Option<String>>,
}

#[derive(Default)]
struct ServiceCounters {
    answered: AtomicU64,
    refused: AtomicU64,
}

impl Service {
    /// Starts the service; it connects in the background and retries without limit.
    pub fn start(
        host: Host,
        broker: Arc<dyn Broker>,
        journal: Arc<dyn CallJournal>,
        options: ServiceOptions,
    ) -> Self {
        let mut rng = options.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let max_in_flight = options.max_in_flight.max(1);
        let core = Arc::new(ServiceCore {
            host,
            journal,
            subjects: Subjects::new(options.tenant),
            name: options.host_name,
            generation: Instance(rng.u64(..)),
            clock: options.clock,
            broker_address: broker.address(),
            reconnector: Reconnector::start(broker, rng, options.status_sink),
            registry: Arc::new(CallRegistry::new(max_in_flight)),
            stage: watch::Sender::new(ServiceStage::Serving),
            // One per call, running and refused.
            resend_limit: KeyedLimit::new(max_in_flight * 2, max_in_flight),
            manifest_request_limit: KeyedLimit::new(MANIFEST_REQUEST_LIMIT.0, MANIFEST_REQUEST_LIMIT.1),
            manifest_builds: WorkerSemaphore::new(MANIFEST_BUILD_LIMIT.0, MANIFEST_BUILD_LIMIT.1),
            chunked_answers: WorkerSemaphore::new(CHUNKED_ANSWER_LIMIT.0, CHUNKED_ANSWER_LIMIT.1),
            counters: ServiceCounters::default(),
            is_journal_broken: AtomicBool::new(false),
            denial: Mutex::default(),
        });
        let (closed, is_closed) = watch::channel(false);
        let task = tokio::spawn(lifecycle::run(Arc::clone(&core), closed)).abort_handle();
        Self(Arc::new(ServiceOwner { core, task, is_closed }))
    }

    /// Returns the status of the service.
    pub fn status(&self) -> ServiceStatus {
        let core = &self.0.core;
        let (state, why) = core.state();
        ServiceStatus {
            place: core.broker_address.clone(),
            state,
            why,
            draining: core.is_draining(),
            in_flight: core.registry.in_flight(),
            answered: core.counters.answered.load(Ordering::Relaxed),
            refused: core.counters.refused.load(Ordering::Relaxed),
            workers: core.registry.workers(),
        }
    }

    /// Stops accepting calls, waits for the calls in flight, then ends the service. After `within`
    /// the remaining calls are cancelled.
    pub async fn drain(&self, within: Duration) {
        let deadline = Instant::now() + within;
        self.0.core.stage.send_if_modified(|stage| {
            let is_new = matches!(stage, ServiceStage::Serving);
            if is_new {
                *stage = ServiceStage::Draining { deadline };
            }
            is_new
        });
        let mut closed = self.0.is_closed.clone();
        // An error means that the task has ended.
        let _ = closed.wait_for(|closed| *closed).await;
    }
}

impl ServiceCore {
    /// Publishes a message under a timeout. A connection that does not take it is closed; over the
    /// next one, workers learn what they missed.
    async fn publish(&self, connection: &BrokerConnection, message: BrokerMessage) -> Result<(), LinkError> {
        timeout(PUBLISH, connection.link.publish(message)).await.unwrap_or_else(|_| {
            connection.link.close();
            Err(LinkError::Closed)
        })
    }

    /// Tells a worker that its call was accepted, or that it should ask again for the answer.
    /// Returns whether the message was sent.
    async fn send_accepted(&self, key: &RelayCallKey) -> bool {
        let (host, generation) = (self.name.clone(), self.generation);
        let message =
            ProgressMessage { kind: RelayProgress::Accepted { host, generation }, text: Bytes::new() };
        self.send_progress(key, message).await
    }

    /// Sends a worker a message about its call; without a connection the message is lost. Returns
    /// whether it was sent.
    async fn send_progress(&self, key: &RelayCallKey, message: ProgressMessage) -> bool {
        let Some(connection) = self.reconnector.connection() else { return false };
        let subject = self.subjects.progress(&key.worker, key.call);
        self.publish(&connection, BrokerMessage::new(subject, message.kind.headers(), message.text))
            .await
            .is_ok()
    }

    fn is_draining(&self) -> bool {
        matches!(*self.stage.borrow(), ServiceStage::Draining { .. })
    }

    fn count_answer(&self) {
        self.counters.answered.fetch_add(1, Ordering::Relaxed);
    }

    fn count_refusal(&self) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn set_denial(&self, denial: impl Into<Option<String>>) {
        *self.denial.lock().unwrap_or_else(PoisonError::into_inner) = denial.into();
    }

    fn state(&self) -> (ServiceState, Option<String>) {
        match &*self.reconnector.watch_state().borrow() {
            LinkState::Connected(_) => {
                match self.denial.lock().unwrap_or_else(PoisonError::into_inner).clone() {
                    None => (ServiceState::Connected, None),
                    denial => (ServiceState::Refused, denial),
                }
            }
            LinkState::Disconnected { why: Some(why @ BrokerConnectError::Credentials(_)) } => {
                (ServiceState::Refused, Some(why.to_string()))
            }
            LinkState::Disconnected { why } => {
                (ServiceState::Waiting, why.as_ref().map(std::string::ToString::to_string))
            }
            LinkState::Closed => (ServiceState::Over, None),
        }
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Service").field(&self.0.core.state().0).finish()
    }
}
