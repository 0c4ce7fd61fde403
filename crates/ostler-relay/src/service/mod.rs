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

mod answers;
mod beat;
mod call;
mod desk;
mod intake;
mod lists;
mod load;
mod manifest;
mod order;
mod presence;
mod run;
mod said;
mod send;
mod shares;
mod voice;

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

use self::desk::{Desk, Key};
use self::run::Stage;
use self::shares::Shares;
use self::voice::Note;
use crate::broker::{Broker, Message, Refusal, Unsent};
use crate::call_id::Instance;
use crate::clock::WallClock;
use crate::envelope::Progress;
use crate::journal::Journal;
use crate::name::Name;
use crate::subject::Subjects;
use crate::tether::{Report, Say, Situation, Tether, Up};

pub use self::presence::WorkerStatus;

/// How long the broker may take to take one message. A connection that stalls
/// for longer is given up.
const PUBLISH: Duration = Duration::from_secs(5);

/// Questions for manifests that may be open, and those of one worker. It asks
/// one at a time, and may have a few lives.
const QUESTIONS: (usize, usize) = (1_024, 16);

/// Manifests that are made at once, and those for one worker; each of them may
/// ask every server.
const MANIFESTS: (usize, usize) = (64, 16);

/// Long answers that are sent at once, with a window of chunks each, and those
/// to one worker.
const SENDINGS: (usize, usize) = (64, 16);

/// How a service is set up.
#[derive(Clone)]
pub struct ServiceOptions {
    /// Whose subjects.
    pub tenant: Name,
    /// The name of this host among the tenant's.
    pub host_name: Name,
    /// Calls at once; one worker has at most half of them.
    pub max_in_flight: usize,
    /// The clock that deadlines are in.
    pub clock: WallClock,
    /// Makes chance repeatable.
    pub seed: Option<u64>,
    /// Takes what is said to people about the connection.
    pub say: Say,
}

impl ServiceOptions {
    /// The documented defaults.
    pub fn new(tenant: Name, host_name: Name) -> Self {
        let say: Say = Arc::new(|report: &Report| tracing::info!("{report}"));
        Self { tenant, host_name, max_in_flight: 1_024, clock: WallClock::new(), seed: None, say }
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
pub struct Service(Arc<Owner>);

struct Owner {
    shared: Arc<Shared>,
    task: AbortHandle,
    is_over: watch::Receiver<bool>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the tasks of a service share.
pub(crate) struct Shared {
    host: Host,
    journal: Arc<dyn Journal>,
    subjects: Subjects,
    name: Name,
    /// This life of the host.
    generation: Instance,
    clock: WallClock,
    place: String,
    tether: Tether,
    desk: Arc<Desk>,
    stage: watch::Sender<Stage>,
    /// What is said again to who repeats itself.
    repeats: Arc<KeyedLimit>,
    questions: Arc<KeyedLimit>,
    manifests: Arc<Shares>,
    sendings: Arc<Shares>,
    counts: Counts,
    /// Whether the last claim failed, which is said once.
    is_journal_broken: AtomicBool,
    /// What the broker does not let this connection do.
    trouble: Mutex<Option<String>>,
}

#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    refused: AtomicU64,
}

impl Service {
    /// Begins to take calls, as soon as there is a broker and for ever.
    pub fn start(
        host: Host,
        broker: Arc<dyn Broker>,
        journal: Arc<dyn Journal>,
        options: ServiceOptions,
    ) -> Self {
        let mut chance = options.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let max_in_flight = options.max_in_flight.max(1);
        let shared = Arc::new(Shared {
            host,
            journal,
            subjects: Subjects::new(options.tenant),
            name: options.host_name,
            generation: Instance(chance.u64(..)),
            clock: options.clock,
            place: broker.place(),
            tether: Tether::start(broker, chance, options.say),
            desk: Arc::new(Desk::new(max_in_flight)),
            stage: watch::Sender::new(Stage::Serving),
            // As many as calls, running and refused.
            repeats: KeyedLimit::new(max_in_flight * 2, max_in_flight),
            questions: KeyedLimit::new(QUESTIONS.0, QUESTIONS.1),
            manifests: Shares::new(MANIFESTS.0, MANIFESTS.1),
            sendings: Shares::new(SENDINGS.0, SENDINGS.1),
            counts: Counts::default(),
            is_journal_broken: AtomicBool::new(false),
            trouble: Mutex::default(),
        });
        let (over, is_over) = watch::channel(false);
        let task = tokio::spawn(run::run(Arc::clone(&shared), over)).abort_handle();
        Self(Arc::new(Owner { shared, task, is_over }))
    }

    /// How it is doing.
    pub fn status(&self) -> ServiceStatus {
        let shared = &self.0.shared;
        let (state, why) = shared.state();
        ServiceStatus {
            place: shared.place.clone(),
            state,
            why,
            draining: shared.is_draining(),
            in_flight: shared.desk.in_flight(),
            answered: shared.counts.answered.load(Ordering::Relaxed),
            refused: shared.counts.refused.load(Ordering::Relaxed),
            workers: shared.desk.workers(),
        }
    }

    /// Takes nothing new, finishes what is under way for at most this long, and
    /// leaves. What is not finished then is cancelled.
    pub async fn drain(&self, within: Duration) {
        let by = Instant::now() + within;
        self.0.shared.stage.send_if_modified(|stage| {
            let is_new = matches!(stage, Stage::Serving);
            if is_new {
                *stage = Stage::Draining { by };
            }
            is_new
        });
        let mut is_over = self.0.is_over.clone();
        // The task's end is an end too.
        let _ = is_over.wait_for(|is_over| *is_over).await;
    }
}

impl Shared {
    /// Hands a message to the broker, in bounded time. A connection that does
    /// not take it is ended: over the next one, workers are told what they missed.
    async fn publish(&self, up: &Up, message: Message) -> Result<(), Unsent> {
        timeout(PUBLISH, up.link.publish(message)).await.unwrap_or_else(|_| {
            up.link.close();
            Err(Unsent::Over)
        })
    }

    /// Tells a worker that its call is carried out, or that it should ask again
    /// for the answer. Whether that has left.
    async fn accept(&self, key: &Key) -> bool {
        let (host, generation) = (self.name.clone(), self.generation);
        let note = Note { kind: Progress::Accepted { host, generation }, text: Bytes::new() };
        self.note(key, note).await
    }

    /// Tells a worker something about its call; lost without a connection.
    /// Whether it has left.
    async fn note(&self, key: &Key, note: Note) -> bool {
        let Some(up) = self.tether.up() else { return false };
        let subject = self.subjects.progress(&key.worker, key.call);
        self.publish(&up, Message::new(subject, note.kind.headers(), note.text)).await.is_ok()
    }

    fn is_draining(&self) -> bool {
        matches!(*self.stage.borrow(), Stage::Draining { .. })
    }

    fn count_answer(&self) {
        self.counts.answered.fetch_add(1, Ordering::Relaxed);
    }

    fn count_refusal(&self) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn set_trouble(&self, trouble: impl Into<Option<String>>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble.into();
    }

    fn state(&self) -> (ServiceState, Option<String>) {
        match &*self.tether.situation().borrow() {
            Situation::Up(_) => match self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone() {
                None => (ServiceState::Connected, None),
                trouble => (ServiceState::Refused, trouble),
            },
            Situation::Waiting { why: Some(why @ Refusal::Credentials(_)) } => {
                (ServiceState::Refused, Some(why.to_string()))
            }
            Situation::Waiting { why } => {
                (ServiceState::Waiting, why.as_ref().map(std::string::ToString::to_string))
            }
            Situation::Over => (ServiceState::Over, None),
        }
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Service").field(&self.0.shared.state().0).finish()
    }
}
