//! Messages of workers, taken as they come over one connection.
//!
//! What a message says beside its body is read here, so that a cancellation
//! finds the call that came before it; everything that takes time happens in a
//! task of its own.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::error::CallError;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::desk::{Address, Found, Key};
use super::order::{Order, Subject};
use super::presence::Life;
use super::said::Said;
use super::{Shared, beat, call, manifest, send};
use crate::broker::{Denial, Message, Subscription, Unsent};
use crate::call_id::CallId;
use crate::envelope::Control;
use crate::name::Name;
use crate::subject::ToHost;
use crate::tether::Up;

/// How long the broker may take to know what we listen to, or that something has left.
const FLUSH: Duration = Duration::from_secs(5);

/// Messages that may have come when nothing new is taken any more, and are
/// taken all the same.
const REST: usize = 16_384;

/// Unreadable messages are complained about this often.
const COMPLAIN: Duration = Duration::from_secs(10);

/// Questions for manifests that may wait for their turn.
pub(super) const MAX_QUESTIONS: usize = 1_024;

/// What workers say over one connection.
pub(super) struct Intake {
    service: Arc<Shared>,
    up: Up,
    control: Subscription,
    /// Absent once nothing new is taken.
    manifests: Option<Subscription>,
    calls: Option<Subscription>,
    denials: tokio::sync::broadcast::Receiver<Denial>,
}

/// What comes over a connection.
pub(super) enum Arrival {
    Message(Message),
    /// The broker does not let us do something; none is one that we missed.
    Denial(Option<Denial>),
    /// The connection is over.
    End,
}

impl From<Option<Message>> for Arrival {
    fn from(message: Option<Message>) -> Self {
        message.map_or(Self::End, Self::Message)
    }
}

/// What was unreadable since the last complaint.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    last: Option<Instant>,
    unsaid: u64,
}

impl Intake {
    /// Begins to listen, and says so. Nothing is missed from when this returns.
    pub(super) async fn open(service: &Arc<Shared>, up: &Up) -> Result<Self, Unsent> {
        let intake = timeout(FLUSH, Self::listen(service, up)).await.unwrap_or(Err(Unsent::Over))?;
        if !up.link.welcome().asks_for_credentials {
            tracing::warn!("the broker asks nobody for credentials: whoever reaches it can take any role");
        }
        beat::beat(service, up).await;
        Ok(intake)
    }

    async fn listen(service: &Arc<Shared>, up: &Up) -> Result<Self, Unsent> {
        let denials = up.link.denials();
        let [manifests, calls, control] = service.subjects.of_hosts();
        // Calls come once they are listened to, and what is about them right after.
        let control = up.link.subscribe(&control.0, control.1).await?;
        let manifests = up.link.subscribe(&manifests.0, manifests.1).await?;
        let calls = up.link.subscribe(&calls.0, calls.1).await?;
        up.link.flush().await?;
        let (service, up) = (Arc::clone(service), up.clone());
        Ok(Self { service, up, control, manifests: Some(manifests), calls: Some(calls), denials })
    }

    /// Waits for what comes next. Cancel-safe.
    pub(super) async fn receive(&mut self) -> Arrival {
        tokio::select! {
            biased;
            message = self.control.next() => message.into(),
            denial = self.denials.recv() => Arrival::Denial(denial.ok()),
            message = next_of(&mut self.manifests) => message.into(),
            message = next_of(&mut self.calls) => message.into(),
        }
    }

    /// Deals with it. False when the connection is over.
    pub(super) fn on(&self, arrival: Arrival, tasks: &mut JoinSet<()>, complaints: &mut Complaints) -> bool {
        match arrival {
            Arrival::End => return false,
            Arrival::Denial(denial) => self.on_denial(denial),
            Arrival::Message(message) => {
                if let Err(why) = self.take(message, tasks) {
                    self.service.count_refusal();
                    complaints.add(&why);
                }
            }
        }
        true
    }

    /// Takes nothing new from now on. What has come is taken.
    pub(super) async fn close(&mut self, tasks: &mut JoinSet<()>, complaints: &mut Complaints) {
        for _ in 0..REST {
            // Nothing is waited for, but what has come is there at the first look.
            let Ok(arrival) = timeout(Duration::ZERO, self.receive()).await else { break };
            if !self.on(arrival, tasks, complaints) {
                return;
            }
        }
        (self.manifests, self.calls) = (None, None);
        self.flush().await;
        beat::beat(&self.service, &self.up).await;
    }

    /// Waits until what was sent has left.
    pub(super) async fn flush(&mut self) {
        let _ = timeout(FLUSH, self.up.link.flush()).await;
    }

    fn on_denial(&self, denial: Option<Denial>) {
        match denial {
            Some(Denial::Subscribe(subject)) => {
                tracing::warn!(subject, "the broker does not let the host listen");
                self.service.set_trouble(format!("the broker does not let us listen to {subject}"));
            }
            Some(Denial::Publish(subject)) => {
                tracing::debug!(subject, "the broker did not let a message pass");
            }
            None => {}
        }
    }

    /// Deals with a message, or says what is wrong with it.
    fn take(&self, message: Message, tasks: &mut JoinSet<()>) -> Result<(), String> {
        let to_host = self.service.subjects.read_to_host(&message.subject);
        let to_host = to_host.ok_or("its subject can't be read")?;
        // Calls are bounded before this; it is those who repeat themselves that are not.
        if tasks.len() >= self.service.max_tasks && !matches!(to_host, ToHost::Control { .. }) {
            return Err("there are too many of them".into());
        }
        match to_host {
            ToHost::Call { role, worker, server, what } => {
                self.take_call(Subject { role, worker, server, what }, message, tasks)
            }
            ToHost::Manifest { role, worker } => self.take_question(role, worker, message, tasks),
            ToHost::Control { worker, call } => self.take_control(worker, call, message, tasks),
        }
    }

    fn take_call(&self, subject: Subject, message: Message, tasks: &mut JoinSet<()>) -> Result<(), String> {
        let order = Order::read(subject, message, self.up.epoch)?;
        match self.service.desk.enter(&order) {
            Found::Flooded => Err("there are too many of them".into()),
            found => {
                tasks.spawn(call::run(Arc::clone(&self.service), order, found));
                Ok(())
            }
        }
    }

    fn take_question(
        &self,
        role: Name,
        worker: Name,
        message: Message,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), String> {
        let question = manifest::Question::read(role, worker, message, self.up.epoch)?;
        self.service.desk.heard(&question.life);
        let waits = Arc::clone(&self.service.questions).try_acquire_owned();
        let waits = waits.map_err(|_| format!("{MAX_QUESTIONS} workers wait for their manifest"))?;
        let service = Arc::clone(&self.service);
        tasks.spawn(async move {
            manifest::answer(service, question).await;
            drop(waits);
        });
        Ok(())
    }

    fn take_control(
        &self,
        worker: Name,
        call: Option<CallId>,
        message: Message,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), String> {
        let (control, instance) = Control::read(&message.headers).map_err(|error| error.to_string())?;
        let desk = &self.service.desk;
        let life = Life { worker, instance };
        desk.heard(&life);
        let Some(call) = call else { return Ok(()) };
        let key = Key { worker: life.worker.clone(), call };
        match control {
            Control::Alive => {}
            Control::Cancel => desk.cancel(key, || Said::from(&cancelled()).frame(None)),
            Control::Ack(number) => desk.acknowledge(&key, number),
            Control::Answer(number) => {
                if let Some(voice) = desk.voice_of(&key) {
                    voice.answer(number, message.body);
                }
            }
            Control::Resume => {
                let to = Address::of(&life, call, message.reply, self.up.epoch)?;
                self.resume(to, tasks);
            }
        }
        Ok(())
    }

    /// Says again what has become of a call. What is not known here may be
    /// another host's.
    fn resume(&self, to: Address, tasks: &mut JoinSet<()>) {
        let service = Arc::clone(&self.service);
        if tasks.len() >= service.max_tasks {
            return;
        }
        match service.desk.resume(to.clone()) {
            Some(Found::Answered(answer)) => {
                tasks.spawn(async move { send::send(&service, &to, answer).await });
            }
            Some(Found::UnderWay { is_accepted: true }) => {
                tasks.spawn(async move {
                    service.accept(&to.key).await;
                });
            }
            _ => {}
        }
    }
}

impl Complaints {
    fn add(&mut self, why: &str) {
        self.unsaid += 1;
        if self.last.is_some_and(|last| last.elapsed() < COMPLAIN) {
            return;
        }
        tracing::warn!(why, count = self.unsaid, "a message of a worker was not taken");
        (self.last, self.unsaid) = (Some(Instant::now()), 0);
    }
}

/// What a call gets that comes after its cancellation.
fn cancelled() -> CallError {
    CallError::Invalid { what: "the call was cancelled".into(), hint: String::new() }
}

async fn next_of(subscription: &mut Option<Subscription>) -> Option<Message> {
    match subscription {
        Some(subscription) => subscription.next().await,
        None => std::future::pending().await,
    }
}
