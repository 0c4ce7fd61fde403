//! Host subscriptions: receives messages of workers over one connection and dispatches them.
//!
//! The envelope is parsed in this task, in order, so that a cancellation finds the call that came before it.
//! Anything slow runs in a task of its own.

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

/// Timeout for the broker to register subscriptions or to take a flush.
const FLUSH: Duration = Duration::from_secs(5);

/// Minimum interval between log lines about rejected messages.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Subscriptions of the host on one connection.
pub(super) struct HostSubscriptions {
    service: Arc<ServiceCore>,
    connection: BrokerConnection,
    control: BrokerSubscription,
    /// `None` once the host drains.
    manifest_requests: Option<BrokerSubscription>,
    calls: Option<BrokerSubscription>,
    denials: tokio::sync::broadcast::Receiver<Denial>,
    /// Index of the subscription that is polled first.
    first: usize,
}

/// Event of a connection.
pub(super) enum BrokerEvent {
    Message(BrokerMessage),
    /// The broker denied an operation; `None` if the receiver lagged.
    Denial(Option<Denial>),
    /// The connection has ended.
    Closed,
}

impl From<Option<BrokerMessage>> for BrokerEvent {
    fn from(message: Option<BrokerMessage>) -> Self {
        message.map_or(Self::Closed, Self::Message)
    }
}

/// Rate-limited log of rejected messages.
#[derive(Debug, Default)]
pub(super) struct RejectedMessageLog {
    last_logged: Option<Instant>,
    unlogged: u64,
}

impl HostSubscriptions {
    /// Subscribes and announces the host. No message is missed after this returns.
    pub(super) async fn open(
        service: &Arc<ServiceCore>,
        connection: &BrokerConnection,
    ) -> Result<Self, LinkError> {
        let subscriptions =
            timeout(FLUSH, Self::subscribe(service, connection)).await.unwrap_or(Err(LinkError::Closed))?;
        if !connection.link.broker_info().requires_credentials {
            tracing::warn!("the broker asks nobody for credentials: whoever reaches it can take any role");
        }
        heartbeat::send_heartbeat(service, connection).await;
        Ok(subscriptions)
    }

    async fn subscribe(service: &Arc<ServiceCore>, connection: &BrokerConnection) -> Result<Self, LinkError> {
        let denials = connection.link.denials();
        let [manifests, calls, control] = service.subjects.host_subscriptions();
        // Control messages come right after their calls, so they are subscribed first.
        let control = connection.link.subscribe(&control.0, control.1).await?;
        let manifests = connection.link.subscribe(&manifests.0, manifests.1).await?;
        let calls = connection.link.subscribe(&calls.0, calls.1).await?;
        connection.link.flush().await?;
        let (service, connection) = (Arc::clone(service), connection.clone());
        Ok(Self {
            service,
            connection,
            control,
            manifest_requests: Some(manifests),
            calls: Some(calls),
            denials,
            first: 0,
        })
    }

    /// Waits for the next event. Cancel-safe.
    pub(super) async fn receive(&mut self) -> BrokerEvent {
        tokio::select! {
            biased;
            message = std::future::poll_fn(|cx| {
                poll_round_robin([Some(&mut self.control), self.manifest_requests.as_mut(), self.calls.as_mut()], &mut self.first, cx)
            }) => message.into(),
            denial = self.denials.recv() => BrokerEvent::Denial(denial.ok()),
        }
    }

    /// Handles an event. Returns `false` when the connection has ended.
    pub(super) fn handle(
        &self,
        event: BrokerEvent,
        tasks: &mut JoinSet<()>,
        rejected: &mut RejectedMessageLog,
    ) -> bool {
        match event {
            BrokerEvent::Closed => return false,
            BrokerEvent::Denial(denial) => self.on_denial(denial),
            BrokerEvent::Message(message) => {
                let subject = self.service.subjects.parse_host_subject(&message.subject);
                let worker = subject.as_ref().map(|subject| subject.worker().clone());
                if let Err(why) = self.dispatch(subject, message, tasks) {
                    self.service.count_refusal();
                    rejected.add(worker.as_ref(), &why);
                }
            }
        }
        true
    }

    /// Stops taking new requests; handles those already routed to this host.
    pub(super) async fn close(&mut self, tasks: &mut JoinSet<()>, rejected: &mut RejectedMessageLog) {
        // The connection loses whatever has not arrived by then.
        let _ = timeout(FLUSH, self.drain_rest(tasks, rejected)).await;
        heartbeat::send_heartbeat(&self.service, &self.connection).await;
    }

    /// Handles the requests that the broker routed to this host before it processed the
    /// unsubscribe.
    async fn drain_rest(&mut self, tasks: &mut JoinSet<()>, rejected: &mut RejectedMessageLog) {
        for mut subscription in [self.calls.take(), self.manifest_requests.take()].into_iter().flatten() {
            subscription.drain().await;
            while let Some(message) = subscription.next().await {
                self.handle(BrokerEvent::Message(message), tasks, rejected);
            }
        }
    }

    /// Waits until all published messages have left.
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

    /// Dispatches a message. The error is text for the log.
    fn dispatch(
        &self,
        subject: Option<HostSubject>,
        message: BrokerMessage,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), String> {
        // The name in the subject is trustworthy: the broker lets no other client use it.
        let subject = subject.ok_or_else(|| format!("its subject can't be read: {:?}", message.subject))?;
        match subject {
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
        let request = RelayRequest::read(role, worker, message, self.connection.epoch)?;
        match self.service.registry.register(&request) {
            CallLookup::Flooded => Err(too_many()),
            CallLookup::Known(known) => self.resend(request.reply_address, known, tasks),
            CallLookup::New(guard, cancelled) => {
                tasks.spawn(call::run(Arc::clone(&self.service), request, guard, cancelled));
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
        let request = manifest::ManifestRequest::read(role, worker, message, self.connection.epoch)?;
        self.service.registry.record_worker(&request.worker_instance);
        let permit = self.service.manifest_request_limit.acquire(request.worker_instance.worker.as_str());
        let permit = permit.map_err(|_| "too many questions for a manifest are open")?;
        let service = Arc::clone(&self.service);
        tasks.spawn(async move {
            manifest::answer(service, request).await;
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
        let registry = &self.service.registry;
        let worker_instance = WorkerInstance { worker, instance };
        registry.refresh_worker(&worker_instance);
        let Some(call) = call else { return Ok(()) };
        let key = RelayCallKey { worker: worker_instance.worker.clone(), call };
        match control {
            Control::Alive => {}
            Control::Cancel => registry.cancel(key, || AnswerBody::from(&cancelled()).to_response(None)),
            Control::Ack(number) => registry.acknowledge(&key, number),
            Control::Answer(number) => {
                if let Some(observer) = registry.observer(&key) {
                    observer.answer(number, message.body);
                }
            }
            Control::Resume => {
                let reply_address =
                    ReplyAddress::new(&worker_instance, call, message.reply_to, self.connection.epoch)?;
                // An unknown call may belong to another host.
                if let Some(known) = registry.resume(&reply_address) {
                    return self.resend(reply_address, known, tasks);
                }
            }
        }
        Ok(())
    }

    /// Sends the current state of a call again.
    fn resend(
        &self,
        reply_address: ReplyAddress,
        known: KnownCall,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), String> {
        let service = Arc::clone(&self.service);
        let permit =
            service.resend_limit.acquire(reply_address.key.worker.as_str()).map_err(|_| too_many())?;
        tasks.spawn(async move {
            match known {
                KnownCall::Answered(answer) => answer::send(&service, &reply_address, answer).await,
                KnownCall::InFlight { is_accepted: true } => {
                    _ = service.send_accepted(&reply_address.key).await
                }
                // The task that claims the call reports it.
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

/// Returns the answer for a call that arrives after its cancellation.
fn cancelled() -> CallError {
    CallError::Invalid { what: "the call was cancelled".into(), hint: String::new() }
}

/// Polls the subscriptions in turn, so that a flood on one does not starve the others.
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
