//! Worker subscriptions: receives messages over one connection after the other and dispatches them.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ostler_core::fault::{Fault, FaultKind};
use ostler_wire::NotificationKind;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, timeout};

use super::WorkerCore;
use super::server_requests;
use crate::broker::{BrokerMessage, BrokerSubscription, Denial, LinkError};
use crate::call_id::CallId;
use crate::envelope::{BadEnvelope, Heartbeat, RelayProgress, RelayReply};
use crate::name::RelayName;
use crate::reconnect::{BrokerConnection, LinkState};
use crate::subject::WorkerSubject;

/// Timeout for the broker to register the subscriptions.
const SUBSCRIBING: Duration = Duration::from_secs(5);

/// Subscriptions of a worker on one connection.
struct WorkerSubscriptions {
    progress: BrokerSubscription,
    heartbeats: BrokerSubscription,
    answers: BrokerSubscription,
    denials: broadcast::Receiver<Denial>,
}

/// Serves one connection after the other until the worker ends.
pub(super) async fn run(core: Arc<WorkerCore>) {
    let mut link_state = core.link_state.clone();
    loop {
        let connection = match link_state
            .wait_for(|state| !matches!(state, LinkState::Disconnected { .. }))
            .await
            .as_deref()
        {
            Ok(LinkState::Connected(connection)) => connection.clone(),
            _ => return,
        };
        match timeout(SUBSCRIBING, subscribe(&core, &connection)).await {
            Ok(Ok(subscriptions)) => serve(&core, &connection, subscriptions, &mut link_state).await,
            // The connection has ended already.
            Ok(Err(_)) => {}
            Err(_) => connection.link.close(),
        }
        if link_state.wait_for(|state| !state.is_connected(connection.epoch)).await.is_err() {
            return;
        }
    }
}

async fn subscribe(
    core: &WorkerCore,
    connection: &BrokerConnection,
) -> Result<WorkerSubscriptions, LinkError> {
    let denials = connection.link.denials();
    let [progress, heartbeats, answers] = core.subjects.worker_subscriptions(&core.name, &core.inbox);
    Ok(WorkerSubscriptions {
        progress: connection.link.subscribe(&progress, None).await?,
        heartbeats: connection.link.subscribe(&heartbeats, None).await?,
        answers: connection.link.subscribe(&answers, None).await?,
        denials,
    })
}

async fn serve(
    core: &Arc<WorkerCore>,
    connection: &BrokerConnection,
    mut subscriptions: WorkerSubscriptions,
    link_state: &mut watch::Receiver<LinkState>,
) {
    core.hosts().on_link_up(Instant::now());
    core.calls.on_link_up(connection.epoch);
    core.ready_connection.send_replace(Some(connection.clone()));
    core.receive_until_lost(&mut subscriptions, link_state, connection.epoch).await;
    core.ready_connection.send_replace(None);
    // Messages that arrived before the end still count.
    for subscription in
        [&mut subscriptions.heartbeats, &mut subscriptions.progress, &mut subscriptions.answers]
    {
        drain_ready(subscription, |message| core.on_message(message)).await;
    }
    core.calls.on_link_lost();
}

impl WorkerCore {
    async fn receive_until_lost(
        self: &Arc<Self>,
        subscriptions: &mut WorkerSubscriptions,
        link_state: &mut watch::Receiver<LinkState>,
        epoch: u64,
    ) {
        let WorkerSubscriptions { progress, heartbeats, answers, denials } = subscriptions;
        // Rare messages first, so that none starves: a heartbeat queued behind a thousand answers
        // would make its host look silent.
        loop {
            let message = tokio::select! {
                biased;
                denial = denials.recv() => {
                    match denial {
                        Ok(denial) => self.on_denial(&denial),
                        // Calls with a missed denial end by their own timeout.
                        Err(broadcast::error::RecvError::Lagged(_)) => {}
                        Err(broadcast::error::RecvError::Closed) => return,
                    }
                    continue;
                }
                _ = link_state.wait_for(|state| !state.is_connected(epoch)) => return,
                message = heartbeats.next() => message,
                message = progress.next() => message,
                message = answers.next() => message,
            };
            match message {
                Some(message) => self.on_message(message),
                None => return,
            }
        }
    }

    fn on_denial(&self, denial: &Denial) {
        match denial {
            Denial::Publish(subject) if self.calls.on_denied(subject) => {}
            Denial::Publish(subject) => tracing::debug!(subject, "the broker does not let us publish"),
            Denial::Subscribe(subject) => {
                self.manifest_refresh
                    .set_subscribe_denial(format!("the broker does not let this worker listen to {subject}"));
            }
        }
    }

    fn on_message(self: &Arc<Self>, message: BrokerMessage) {
        match self.subjects.parse_worker_subject(&self.inbox, &message.subject) {
            Some(WorkerSubject::Answer(call)) if message.is_no_responders => {
                self.calls.on_no_responders(call)
            }
            Some(WorkerSubject::Answer(call)) => self.on_reply(call, message),
            Some(WorkerSubject::Progress(call)) => self.on_progress(call, message),
            Some(WorkerSubject::ManifestChanged) => self.manifest_refresh.mark_changed(),
            Some(WorkerSubject::Heartbeat(host)) => self.on_heartbeat(&host, &message),
            None => {}
        }
    }

    fn on_reply(&self, call: CallId, message: BrokerMessage) {
        match RelayReply::read(&message.headers) {
            Ok(RelayReply::Answer) => self.calls.answer(call, message.body),
            Ok(RelayReply::Chunked { length, sha256 }) => self.calls.announce(call, length, &sha256),
            Err(error) => self.fail(call, &error),
        }
    }

    fn on_progress(self: &Arc<Self>, call: CallId, message: BrokerMessage) {
        match RelayProgress::read(&message.headers) {
            Ok(RelayProgress::Accepted { host, generation }) => {
                self.calls.on_accepted(call, host, generation)
            }
            Ok(RelayProgress::Notification) => self.on_notification(call, message),
            Ok(RelayProgress::ServerRequest(number)) => {
                server_requests::forward_server_request(self, call, number, message.body)
            }
            Ok(RelayProgress::Chunk(number)) => self.calls.add_chunk(call, number, message.body),
            // No message about a call, or of an unknown kind, which is ignored.
            Ok(RelayProgress::ManifestChanged) | Err(BadEnvelope::Kind(_)) => {}
            Err(error) => self.fail(call, &error),
        }
    }

    /// Fails the call: a peer that sends unreadable messages will not send readable ones later.
    fn fail(&self, call: CallId, error: &BadEnvelope) {
        self.calls.fail(call, Fault::unknown(FaultKind::Malformed(error.to_string())));
    }

    /// Forwards a notification to the observer of its call.
    fn on_notification(&self, call: CallId, message: BrokerMessage) {
        let Ok(ostler_wire::Message::Notification { method, params }) =
            ostler_wire::Message::parse(message.body)
        else {
            return;
        };
        let kind = NotificationKind::from_method(method.as_str());
        // Only the caller of that call may receive it.
        let Some(observer) = self.calls.on_notification(call, kind == NotificationKind::Progress) else {
            return;
        };
        if kind == NotificationKind::Progress {
            let progress = params.as_ref().and_then(ostler_wire::ProgressParams::parse);
            if let Some(progress) = progress {
                observer.on_progress(&progress);
            }
        } else if observer.wants_notifications() {
            observer.on_notification(method.as_str(), params.as_ref());
        }
    }

    fn on_heartbeat(&self, host: &RelayName, message: &BrokerMessage) {
        let heartbeat = match Heartbeat::read(&message.headers) {
            Ok(heartbeat) => heartbeat,
            Err(error) => return tracing::debug!(%host, %error, "a heartbeat can't be read"),
        };
        if self.hosts().on_heartbeat(host, &heartbeat, self.clock.now(), Instant::now()) {
            // A restarted host may have another config and other lists.
            self.manifest_refresh.mark_changed();
        }
        self.calls.on_heartbeat(host, heartbeat.generation);
        if !heartbeat.is_draining {
            self.host_heard.notify_waiters();
        }
    }
}

/// Handles all messages that have arrived, without waiting for more.
async fn drain_ready(subscription: &mut BrokerSubscription, take: impl Fn(BrokerMessage)) {
    std::future::poll_fn(|cx| {
        while let Poll::Ready(Some(message)) = std::pin::pin!(subscription.next()).poll(cx) {
            take(message);
        }
        Poll::Ready(())
    })
    .await;
}
