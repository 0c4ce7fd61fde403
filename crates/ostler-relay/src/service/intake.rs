//! Messages of workers, taken as they come over one connection.
//!
//! What a message says beside its body is read here, so that a cancellation
//! finds the call that came before it; everything that takes time happens in a
//! task of its own.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ostler_core::error::CallError;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::desk::{Address, Found, Key, Known};
use super::order::Order;
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

/// Unreadable messages are complained about this often.
const COMPLAIN: Duration = Duration::from_secs(10);

/// What workers say over one connection.
pub(super) struct Intake {
    service: Arc<Shared>,
    up: Up,
    control: Subscription,
    /// Absent once nothing new is taken.
    manifests: Option<Subscription>,
    calls: Option<Subscription>,
    denials: tokio::sync::broadcast::Receiver<Denial>,
    /// Which of them is looked at first.
    first: usize,
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
        Ok(Self { service, up, control, manifests: Some(manifests), calls: Some(calls), denials, first: 0 })
    }

    /// Waits for what comes next. Cancel-safe.
    pub(super) async fn receive(&mut self) -> Arrival {
        tokio::select! {
            biased;
            message = std::future::poll_fn(|cx| {
                poll_in_turn([Some(&mut self.control), self.manifests.as_mut(), self.calls.as_mut()], &mut self.first, cx)
            }) => message.into(),
            denial = self.denials.recv() => Arrival::Denial(denial.ok()),
        }
    }

    /// Deals with it. False when the connection is over.
    pub(super) fn on(&self, arrival: Arrival, tasks: &mut JoinSet<()>, complaints: &mut Complaints) -> bool {
        match arrival {
            Arrival::End => return false,
            Arrival::Denial(denial) => self.on_denial(denial),
            Arrival::Message(message) => {
                let to_host = self.service.subjects.read_to_host(&message.subject);
                let worker = to_host.as_ref().map(|to_host| to_host.worker().clone());
                if let Err(why) = self.take(to_host, message, tasks) {
                    self.service.count_refusal();
                    complaints.add(worker.as_ref(), &why);
                }
            }
        }
        true
    }

    /// Takes nothing new from now on. What has come is taken.
    pub(super) async fn close(&mut self, tasks: &mut JoinSet<()>, complaints: &mut Complaints) {
        // What has not come by then is lost with the connection.
        let _ = timeout(FLUSH, self.take_rest(tasks, complaints)).await;
        beat::beat(&self.service, &self.up).await;
    }

    /// Takes what the broker has chosen us for before it heard that we stop.
    async fn take_rest(&mut self, tasks: &mut JoinSet<()>, complaints: &mut Complaints) {
        for mut rest in [self.calls.take(), self.manifests.take()].into_iter().flatten() {
            rest.stop().await;
            while let Some(message) = rest.next().await {
                self.on(Arrival::Message(message), tasks, complaints);
            }
        }
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
    fn take(&self, to_host: Option<ToHost>, message: Message, tasks: &mut JoinSet<()>) -> Result<(), String> {
        // Whose it is stands there all the same: the broker lets nobody use another's name.
        let to_host = to_host.ok_or_else(|| format!("its subject can't be read: {:?}", message.subject))?;
        match to_host {
            ToHost::Call { role, worker } => self.take_call(&role, worker, message, tasks),
            ToHost::Manifest { role, worker } => self.take_question(role, worker, message, tasks),
            ToHost::Control { worker, call } => self.take_control(worker, call, message, tasks),
        }
    }

    fn take_call(
        &self,
        role: &Name,
        worker: Name,
        message: Message,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), String> {
        let order = Order::read(role, worker, message, self.up.epoch)?;
        match self.service.desk.enter(&order) {
            Found::Flooded => Err(too_many()),
            Found::Known(known) => self.say_again(order.to, known, tasks),
            Found::New(place, cancelled) => {
                tasks.spawn(call::begin(Arc::clone(&self.service), order, place, cancelled));
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
        let permit = self.service.questions.acquire(question.life.worker.as_str());
        let permit = permit.map_err(|_| "too many questions for a manifest are open")?;
        let service = Arc::clone(&self.service);
        tasks.spawn(async move {
            manifest::answer(service, question).await;
            drop(permit);
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
        desk.still_there(&life);
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
                // What is not known here may be another host's.
                if let Some(known) = desk.resume(&to) {
                    return self.say_again(to, known, tasks);
                }
            }
        }
        Ok(())
    }

    /// Says again what has become of a call.
    fn say_again(&self, to: Address, known: Known, tasks: &mut JoinSet<()>) -> Result<(), String> {
        let service = Arc::clone(&self.service);
        let permit = service.repeats.acquire(to.key.worker.as_str()).map_err(|_| too_many())?;
        tasks.spawn(async move {
            match known {
                Known::Answered(answer) => send::send(&service, &to, answer).await,
                Known::UnderWay { is_accepted: true } => drop(service.accept(&to.key).await),
                // Whoever claims it says so.
                Known::UnderWay { is_accepted: false } => {}
            }
            drop(permit);
        });
        Ok(())
    }
}

fn too_many() -> String {
    "there are too many of them".into()
}

impl Complaints {
    fn add(&mut self, worker: Option<&Name>, why: &str) {
        self.unsaid += 1;
        if self.last.is_some_and(|last| last.elapsed() < COMPLAIN) {
            return;
        }
        let worker = worker.map(Name::as_str);
        tracing::warn!(worker, why, count = self.unsaid, "a message of a worker was not taken");
        (self.last, self.unsaid) = (Some(Instant::now()), 0);
    }
}

/// What a call gets that comes after its cancellation.
fn cancelled() -> CallError {
    CallError::Invalid { what: "the call was cancelled".into(), hint: String::new() }
}

/// The next message of any of them, each first in its turn: who floods one
/// does not keep out what comes by another.
fn poll_in_turn(
    mut subscriptions: [Option<&mut Subscription>; 3],
    first: &mut usize,
    cx: &mut Context<'_>,
) -> Poll<Option<Message>> {
    let count = subscriptions.len();
    for at in (0..count).map(|offset| (*first + offset) % count) {
        if let Some(subscription) = &mut subscriptions[at]
            && let Poll::Ready(message) = subscription.poll_next(cx)
        {
            *first = (at + 1) % count;
            return Poll::Ready(message);
        }
    }
    Poll::Pending
}
