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

use super::answer::AnswerBody;
use super::call_registry::{CallLookup, KnownCall, RelayCallKey, ReplyAddress};
use super::presence::WorkerInstance;
use super::request::RelayRequest;
use super::{ServiceCore, answer, call, heartbeat, manifest};
use crate::broker::{BrokerMessage, BrokerSubscription, Denial, LinkError};
use crate::call_id::CallId;
use crate::envelope::Control;
use crate::name::RelayName;
use crate::reconnect::BrokerConnection;
use crate::subject::HostSubject;

/// How long the broker may take to know what we listen to, or that something has left.
const FLUSH: Duration = Duration::from_secs(5);

/// Unreadable messages are complained about this often.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// What workers say over one connection.
pub(super) struct HostSubscriptions {
    service: Arc<ServiceCore>,
    connection: BrokerConnection,
    control: BrokerSubscription,
    /// Absent once nothing new is taken.
    manifest_requests: Option<BrokerSubscription>,
    calls: Option<BrokerSubscription>,
    denials: tokio::sync::broadcast::Receiver<Denial>,
    /// Which of them is looked at first.
    first: usize,
}

/// What comes over a connection.
pub(super) enum BrokerEvent {
    Message(BrokerMessage),
    /// The broker does not let us do something; none is one that we missed.
    Denial(Option<Denial>),
    /// The connection is over.
    Closed,
}

impl From<Option<BrokerMessage>> for BrokerEvent {
    fn from(message: Option<BrokerMessage>) -> Self {
        message.map_or(Self::Closed, Self::Message)
    }
}

/// What was unreadable since the last complaint.
#[derive(Debug, Default)]
pub(super) struct RejectedMessageLog {
    last_logged: Option<Instant>,
    unlogged: u64,
}

impl HostSubscriptions {
    /// Begins to listen, and says so. Nothing is missed from when this returns.
    pub(super) async fn open(service: &Arc<ServiceCore>, up: &BrokerConnection) -> Result<Self, LinkError> {
        let intake = timeout(FLUSH, Self::subscribe(service, up)).await.unwrap_or(Err(LinkError::Closed))?;
        if !up.link.broker_info().requires_credentials {
            tracing::warn!("the broker asks nobody for credentials: whoever reaches it can take any role");
        }
        heartbeat::send_heartbeat(service, up).await;
        Ok(intake)
    }

    async fn subscribe(service: &Arc<ServiceCore>, up: &BrokerConnection) -> Result<Self, LinkError> {
        let denials = up.link.denials();
        let [manifests, calls, control] = service.subjects.host_subscriptions();
        // Calls come once they are listened to, and what is about them right after.
        let control = up.link.subscribe(&control.0, control.1).await?;
        let manifests = up.link.subscribe(&manifests.0, manifests.1).await?;
        let calls = up.link.subscribe(&calls.0, calls.1).await?;
        up.link.flush().await?;
        let (service, up) = (Arc::clone(service), up.clone());
        Ok(Self {
            service,
            connection: up,
            control,
            manifest_requests: Some(manifests),
            calls: Some(calls),
            denials,
            first: 0,
        })
    }

    /// Waits for what comes next. Cancel-safe.
    pub(super) async fn receive(&mut self) -> BrokerEvent {
        tokio::select! {
            biased;
            message = std::future::poll_fn(|cx| {
                poll_round_robin([Some(&mut self.control), self.manifest_requests.as_mut(), self.calls.as_mut()], &mut self.first, cx)
            }) => message.into(),
            denial = self.denials.recv() => BrokerEvent::Denial(denial.ok()),
        }
    }

    /// Deals with it. False when the connection is over.
    pub(super) fn handle(
        &self,
        arrival: BrokerEvent,
        tasks: &mut JoinSet<()>,
        complaints: &mut RejectedMessageLog,
    ) -> bool {
        match arrival {
            BrokerEvent::Closed => return false,
            BrokerEvent::Denial(denial) => self.on_denial(denial),
            BrokerEvent::Message(message) => {
                let to_host = self.service.subjects.parse_host_subject(&message.subject);
                let worker = to_host.as_ref().map(|to_host| to_host.worker().clone());
                if let Err(why) = self.dispatch(to_host, message, tasks) {
                    self.service.count_refusal();
                    complaints.add(worker.as_ref(), &why);
                }
            }
        }
        true
    }

    /// Takes nothing new from now on. What has come is taken.
    pub(super) async fn close(&mut self, tasks: &mut JoinSet<()>, complaints: &mut RejectedMessageLog) {
        // What has not come by then is lost with the connection.
        let _ = timeout(FLUSH, self.drain_rest(tasks, complaints)).await;
        heartbeat::send_heartbeat(&self.service, &self.connection).await;
    }

    /// Takes what the broker has chosen us for before it heard that we stop.
    async fn drain_rest(&mut self, tasks: &mut JoinSet<()>, complaints: &mut RejectedMessageLog) {
        for mut rest in [self.calls.take(), self.manifest_requests.take()].into_iter().flatten() {
            rest.drain().await;
            while let Some(message) = rest.next().await {
                self.handle(BrokerEvent::Message(message), tasks, complaints);
            }
        }
    }

    /// Waits until what was sent has left.
    pub(super) async fn flush(&mut self) {
        let _ = timeout(FLUSH, self.connection.link.flush()).await;
    }

    fn on_denial(&self, denial: Option<Denial>) {
        match denial {
            Some(Denial::Subscribe(subject)) => {
                tracing::warn!(subject, "the broker does not let the host listen");
                self.service.set_denial(format!("the broker does not let us listen to {subject}"));
            }
            Some(Denial::Publish(subject)) => {
                tracing::debug!(subject, "the broker did not let a message pass");
            }
            None => {}
        }
    }

    /// Deals with a message, or says what is wrong with it.
    fn dispatch(
        &self,
        to_host: Option<HostSubject>,
        message: BrokerMessage,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), String> {
        // Whose it is stands there all the same: the broker lets nobody use another's name.
        let to_host = to_host.ok_or_else(|| format!("its subject can't be read: {:?}", message.subject))?;
        match to_host {
            HostSubject::Call { role, worker } => self.handle_call(&role, worker, message, tasks),
            HostSubject::Manifest { role, worker } => {
                self.handle_manifest_request(role, worker, message, tasks)
            }
            HostSubject::Control { worker, call } => self.handle_control(worker, call, message, tasks),
        }
    }

    fn handle_call(
        &self,
        role: &RelayName,
        worker: RelayName,
        message: BrokerMessage,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), String> {
        let order = RelayRequest::read(role, worker, message, self.connection.epoch)?;
        match self.service.registry.register(&order) {
            CallLookup::Flooded => Err(too_many()),
            CallLookup::Known(known) => self.resend(order.reply_address, known, tasks),
            CallLookup::New(place, cancelled) => {
                tasks.spawn(call::run(Arc::clone(&self.service), order, place, cancelled));
                Ok(())
            }
        }
    }

    fn handle_manifest_request(
        &self,
        role: RelayName,
        worker: RelayName,
        message: BrokerMessage,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), String> {
        let question = manifest::ManifestRequest::read(role, worker, message, self.connection.epoch)?;
        self.service.registry.record_worker(&question.worker_instance);
        let permit = self.service.manifest_request_limit.acquire(question.worker_instance.worker.as_str());
        let permit = permit.map_err(|_| "too many questions for a manifest are open")?;
        let service = Arc::clone(&self.service);
        tasks.spawn(async move {
            manifest::answer(service, question).await;
            drop(permit);
        });
        Ok(())
    }

    fn handle_control(
        &self,
        worker: RelayName,
        call: Option<CallId>,
        message: BrokerMessage,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), String> {
        let (control, instance) = Control::read(&message.headers).map_err(|error| error.to_string())?;
        let desk = &self.service.registry;
        let life = WorkerInstance { worker, instance };
        desk.refresh_worker(&life);
        let Some(call) = call else { return Ok(()) };
        let key = RelayCallKey { worker: life.worker.clone(), call };
        match control {
            Control::Alive => {}
            Control::Cancel => desk.cancel(key, || AnswerBody::from(&cancelled()).to_response(None)),
            Control::Ack(number) => desk.acknowledge(&key, number),
            Control::Answer(number) => {
                if let Some(voice) = desk.observer(&key) {
                    voice.answer(number, message.body);
                }
            }
            Control::Resume => {
                let to = ReplyAddress::new(&life, call, message.reply_to, self.connection.epoch)?;
                // What is not known here may be another host's.
                if let Some(known) = desk.resume(&to) {
                    return self.resend(to, known, tasks);
                }
            }
        }
        Ok(())
    }

    /// Says again what has become of a call.
    fn resend(&self, to: ReplyAddress, known: KnownCall, tasks: &mut JoinSet<()>) -> Result<(), String> {
        let service = Arc::clone(&self.service);
        let permit = service.resend_limit.acquire(to.key.worker.as_str()).map_err(|_| too_many())?;
        tasks.spawn(async move {
            match known {
                KnownCall::Answered(answer) => answer::send(&service, &to, answer).await,
                KnownCall::InFlight { is_accepted: true } => drop(service.send_accepted(&to.key).await),
                // Whoever claims it says so.
                KnownCall::InFlight { is_accepted: false } => {}
            }
            drop(permit);
        });
        Ok(())
    }
}

fn too_many() -> String {
    "there are too many of them".into()
}

impl RejectedMessageLog {
    fn add(&mut self, worker: Option<&RelayName>, why: &str) {
        self.unlogged += 1;
        if self.last_logged.is_some_and(|last| last.elapsed() < LOG_INTERVAL) {
            return;
        }
        let worker = worker.map(RelayName::as_str);
        tracing::warn!(worker, why, count = self.unlogged, "a message of a worker was not taken");
        (self.last_logged, self.unlogged) = (Some(Instant::now()), 0);
    }
}

/// What a call gets that comes after its cancellation.
fn cancelled() -> CallError {
    CallError::Invalid { what: "the call was cancelled".into(), hint: String::new() }
}

/// The next message of any of them, each first in its turn: who floods one
/// does not keep out what comes by another.
fn poll_round_robin(
    mut subscriptions: [Option<&mut BrokerSubscription>; 3],
    first: &mut usize,
    cx: &mut Context<'_>,
) -> Poll<Option<BrokerMessage>> {
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
