//! The host's side: takes calls of workers and carries them out once.
//!
//! ```text
//! intake.rs     messages as they come, each to where it belongs
//! order.rs      a request as it came: who stands in the subject, what in the body
//! load.rs       whether one more call fits in
//! desk.rs       which calls are under way, what was answered, who lives
//! call.rs       one call, top to bottom
//! lists.rs      lists of one server
//! voice.rs      what a worker hears meanwhile, and how it is asked
//! said.rs       answers as bytes
//! send.rs       answers on their way, in chunks where they are long
//! answers.rs    answers that are kept for those who were cut off
//! presence.rs   which workers live
//! shares.rs     turns, of which no worker can have all
//! manifest.rs   what workers may use, told and pushed
//! beat.rs       heartbeats
//! run.rs        the task that owns all others
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

/// How long the broker may take to take one message. A connection that stalls
/// for longer is given up.
const PUBLISH: Duration = Duration::from_secs(5);

/// Questions for manifests that may be open, and those of one worker. It asks
/// one at a time, and may have a few lives.
const MANIFEST_REQUEST_LIMIT: (usize, usize) = (1_024, 16);

/// Manifests that are made at once, and those for one worker; each of them may
/// ask every server.
const MANIFEST_BUILD_LIMIT: (usize, usize) = (64, 16);

/// Long answers that are sent at once, with a window of chunks each, and those
/// to one worker.
const CHUNKED_ANSWER_LIMIT: (usize, usize) = (64, 16);

/// How a service is set up.
#[derive(Clone)]
pub struct ServiceOptions {
    /// Whose subjects.
    pub tenant: RelayName,
    /// The name of this host among the tenant's.
    pub host_name: RelayName,
    /// Calls at once; one worker has at most half of them.
    pub max_in_flight: usize,
    /// The clock that deadlines are in.
    pub clock: WallClock,
    /// Makes chance repeatable.
    pub seed: Option<u64>,
    /// Takes what is said to people about the connection.
    pub status_sink: StatusSink,
}

impl ServiceOptions {
    /// The documented defaults.
    pub fn new(tenant: RelayName, host_name: RelayName) -> Self {
        let status_sink: StatusSink = Arc::new(|report: &LinkReport| tracing::info!("{report}"));
        Self { tenant, host_name, max_in_flight: 1_024, clock: WallClock::new(), seed: None, status_sink }
    }
}

impl fmt::Debug for ServiceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ServiceOptions");
        shown.field("tenant", &self.tenant).field("host_name", &self.host_name).finish_non_exhaustive()
    }
}

/// How a service is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServiceStatus {
    /// Where the broker is.
    pub place: String,
    /// Whether there is a connection.
    pub state: ServiceState,
    /// Why not, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether nothing new is taken.
    #[serde(default)]
    pub draining: bool,
    /// Calls under way.
    pub in_flight: usize,
    /// Calls that were answered, refusals included.
    pub answered: u64,
    /// Messages that were refused before the host was asked.
    pub refused: u64,
    /// The workers that were heard in the last minute, by name.
    pub workers: Vec<WorkerStatus>,
}

/// How a service stands with the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ServiceState {
    /// Workers can reach it.
    Connected,
    /// The broker can't be reached, and is waited for.
    Waiting,
    /// The broker refuses the credentials, or what they do not allow.
    Refused,
    /// It has ended.
    Over,
}

/// Takes calls of workers. Clones are handles to the same service; when the
/// last one is dropped it ends at once, and its calls with it.
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

/// What the tasks of a service share.
pub(crate) struct ServiceCore {
    host: Host,
    journal: Arc<dyn CallJournal>,
    subjects: Subjects,
    name: RelayName,
    /// This life of the host.
    generation: Instance,
    clock: WallClock,
    broker_address: String,
    reconnector: Reconnector,
    registry: Arc<CallRegistry>,
    stage: watch::Sender<ServiceStage>,
    /// What is said again to who repeats itself.
    resend_limit: Arc<KeyedLimit>,
    manifest_request_limit: Arc<KeyedLimit>,
    manifest_builds: Arc<WorkerSemaphore>,
    chunked_answers: Arc<WorkerSemaphore>,
    counters: ServiceCounters,
    /// Whether the last claim failed, which is said once.
    is_journal_broken: AtomicBool,
    /// What the broker does not let this connection do.
    denial: Mutex<Option<String>>,
}

#[derive(Default)]
struct ServiceCounters {
    answered: AtomicU64,
    refused: AtomicU64,
}

impl Service {
    /// Begins to take calls, as soon as there is a broker and for ever.
    pub fn start(
        host: Host,
        broker: Arc<dyn Broker>,
        journal: Arc<dyn CallJournal>,
        options: ServiceOptions,
    ) -> Self {
        let mut chance = options.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let max_in_flight = options.max_in_flight.max(1);
        let shared = Arc::new(ServiceCore {
            host,
            journal,
            subjects: Subjects::new(options.tenant),
            name: options.host_name,
            generation: Instance(chance.u64(..)),
            clock: options.clock,
            broker_address: broker.address(),
            reconnector: Reconnector::start(broker, chance, options.status_sink),
            registry: Arc::new(CallRegistry::new(max_in_flight)),
            stage: watch::Sender::new(ServiceStage::Serving),
            // As many as calls, running and refused.
            resend_limit: KeyedLimit::new(max_in_flight * 2, max_in_flight),
            manifest_request_limit: KeyedLimit::new(MANIFEST_REQUEST_LIMIT.0, MANIFEST_REQUEST_LIMIT.1),
            manifest_builds: WorkerSemaphore::new(MANIFEST_BUILD_LIMIT.0, MANIFEST_BUILD_LIMIT.1),
            chunked_answers: WorkerSemaphore::new(CHUNKED_ANSWER_LIMIT.0, CHUNKED_ANSWER_LIMIT.1),
            counters: ServiceCounters::default(),
            is_journal_broken: AtomicBool::new(false),
            denial: Mutex::default(),
        });
        let (over, is_over) = watch::channel(false);
        let task = tokio::spawn(lifecycle::run(Arc::clone(&shared), over)).abort_handle();
        Self(Arc::new(ServiceOwner { core: shared, task, is_closed: is_over }))
    }

    /// How it is doing.
    pub fn status(&self) -> ServiceStatus {
        let shared = &self.0.core;
        let (state, why) = shared.state();
        ServiceStatus {
            place: shared.broker_address.clone(),
            state,
            why,
            draining: shared.is_draining(),
            in_flight: shared.registry.in_flight(),
            answered: shared.counters.answered.load(Ordering::Relaxed),
            refused: shared.counters.refused.load(Ordering::Relaxed),
            workers: shared.registry.workers(),
        }
    }

    /// Takes nothing new, finishes what is under way for at most this long, and
    /// leaves. What is not finished then is cancelled.
    pub async fn drain(&self, within: Duration) {
        let by = Instant::now() + within;
        self.0.core.stage.send_if_modified(|stage| {
            let is_new = matches!(stage, ServiceStage::Serving);
            if is_new {
                *stage = ServiceStage::Draining { by };
            }
            is_new
        });
        let mut is_over = self.0.is_closed.clone();
        // The task's end is an end too.
        let _ = is_over.wait_for(|is_over| *is_over).await;
    }
}

impl ServiceCore {
    /// Hands a message to the broker, in bounded time. A connection that does
    /// not take it is ended: over the next one, workers are told what they missed.
    async fn publish(&self, up: &BrokerConnection, message: BrokerMessage) -> Result<(), LinkError> {
        timeout(PUBLISH, up.link.publish(message)).await.unwrap_or_else(|_| {
            up.link.close();
            Err(LinkError::Closed)
        })
    }

    /// Tells a worker that its call is carried out, or that it should ask again
    /// for the answer. Whether that has left.
    async fn send_accepted(&self, key: &RelayCallKey) -> bool {
        let (host, generation) = (self.name.clone(), self.generation);
        let note = ProgressMessage { kind: RelayProgress::Accepted { host, generation }, text: Bytes::new() };
        self.send_progress(key, note).await
    }

    /// Tells a worker something about its call; lost without a connection.
    /// Whether it has left.
    async fn send_progress(&self, key: &RelayCallKey, note: ProgressMessage) -> bool {
        let Some(up) = self.reconnector.connection() else { return false };
        let subject = self.subjects.progress(&key.worker, key.call);
        self.publish(&up, BrokerMessage::new(subject, note.kind.headers(), note.text)).await.is_ok()
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

    fn set_denial(&self, trouble: impl Into<Option<String>>) {
        *self.denial.lock().unwrap_or_else(PoisonError::into_inner) = trouble.into();
    }

    fn state(&self) -> (ServiceState, Option<String>) {
        match &*self.reconnector.watch_state().borrow() {
            LinkState::Connected(_) => {
                match self.denial.lock().unwrap_or_else(PoisonError::into_inner).clone() {
                    None => (ServiceState::Connected, None),
                    trouble => (ServiceState::Refused, trouble),
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
