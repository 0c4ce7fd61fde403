//! One connection after the other: what is listened to on it, and where that goes.

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

/// How long the broker may take to let us listen.
const SUBSCRIBING: Duration = Duration::from_secs(5);

/// What is listened to on one connection.
struct WorkerSubscriptions {
    progress: BrokerSubscription,
    heartbeats: BrokerSubscription,
    answers: BrokerSubscription,
    denials: broadcast::Receiver<Denial>,
}

/// Serves one connection after the other.
pub(super) async fn run(core: Arc<WorkerCore>) {
    let mut situation = core.link_state.clone();
    loop {
        let up =
            match situation.wait_for(|now| !matches!(now, LinkState::Disconnected { .. })).await.as_deref() {
                Ok(LinkState::Connected(up)) => up.clone(),
                _ => return,
            };
        match timeout(SUBSCRIBING, subscribe(&core, &up)).await {
            Ok(Ok(ears)) => serve(&core, &up, ears, &mut situation).await,
            // It is over already.
            Ok(Err(_)) => {}
            Err(_) => up.link.close(),
        }
        if situation.wait_for(|now| !is_connected(now, up.epoch)).await.is_err() {
            return;
        }
    }
}

fn is_connected(situation: &LinkState, epoch: u64) -> bool {
    matches!(situation, LinkState::Connected(up) if up.epoch == epoch)
}

async fn subscribe(core: &WorkerCore, up: &BrokerConnection) -> Result<WorkerSubscriptions, LinkError> {
    let denials = up.link.denials();
    let [progress, beats, answers] = core.subjects.worker_subscriptions(&core.name, &core.inbox);
    Ok(WorkerSubscriptions {
        progress: up.link.subscribe(&progress, None).await?,
        heartbeats: up.link.subscribe(&beats, None).await?,
        answers: up.link.subscribe(&answers, None).await?,
        denials,
    })
}

async fn serve(
    core: &Arc<WorkerCore>,
    up: &BrokerConnection,
    mut ears: WorkerSubscriptions,
    situation: &mut watch::Receiver<LinkState>,
) {
    core.hosts().on_link_up(Instant::now());
    core.calls.on_link_up(up.epoch);
    core.ready_connection.send_replace(Some(up.clone()));
    core.receive_until_lost(&mut ears, situation, up.epoch).await;
    core.ready_connection.send_replace(None);
    // What has arrived counts, though nothing more does.
    for ear in [&mut ears.heartbeats, &mut ears.progress, &mut ears.answers] {
        drain_ready(ear, |message| core.on_message(message)).await;
    }
    core.calls.on_link_lost();
}

impl WorkerCore {
    async fn receive_until_lost(
        self: &Arc<Self>,
        ears: &mut WorkerSubscriptions,
        situation: &mut watch::Receiver<LinkState>,
        epoch: u64,
    ) {
        let WorkerSubscriptions { progress, heartbeats: beats, answers, denials } = ears;
        // What comes seldom comes first, so that nothing starves: a heartbeat
        // behind a thousand answers would be a host that is silent.
        loop {
            let message = tokio::select! {
                biased;
                denial = denials.recv() => {
                    match denial {
                        Ok(denial) => self.on_denial(&denial),
                        // Those that were missed are met by the calls' own time.
                        Err(broadcast::error::RecvError::Lagged(_)) => {}
                        Err(broadcast::error::RecvError::Closed) => return,
                    }
                    continue;
                }
                _ = situation.wait_for(|now| !is_connected(now, epoch)) => return,
                message = beats.next() => message,
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
            // About no call, or of a kind that is not known here and so means nothing.
            Ok(RelayProgress::ManifestChanged) | Err(BadEnvelope::Kind(_)) => {}
            Err(error) => self.fail(call, &error),
        }
    }

    /// What can't be understood is no answer, and who speaks so is not understood later.
    fn fail(&self, call: CallId, error: &BadEnvelope) {
        self.calls.fail(call, Fault::unknown(FaultKind::Malformed(error.to_string())));
    }

    /// A notification about a call.
    fn on_notification(&self, call: CallId, message: BrokerMessage) {
        let Ok(ostler_wire::Message::Notification { method, params }) =
            ostler_wire::Message::parse(message.body)
        else {
            return;
        };
        let notice = NotificationKind::from_method(method.as_str());
        // It is for the caller of that call, and no one else if it takes none.
        let Some(voice) = self.calls.on_notification(call, notice == NotificationKind::Progress) else {
            return;
        };
        if notice == NotificationKind::Progress {
            let progress = params.as_ref().and_then(ostler_wire::ProgressParams::parse);
            if let Some(progress) = progress {
                voice.on_progress(&progress);
            }
        } else if voice.wants_notifications() {
            voice.on_notification(method.as_str(), params.as_ref());
        }
    }

    fn on_heartbeat(&self, host: &RelayName, message: &BrokerMessage) {
        let beat = match Heartbeat::read(&message.headers) {
            Ok(beat) => beat,
            Err(error) => return tracing::debug!(%host, %error, "a heartbeat can't be read"),
        };
        if self.hosts().on_heartbeat(host, &beat, self.clock.now(), Instant::now()) {
            // Its config, and what its servers list, may be others.
            self.manifest_refresh.mark_changed();
        }
        self.calls.on_heartbeat(host, beat.generation);
        if !beat.is_draining {
            self.host_heard.notify_waiters();
        }
    }
}

/// Takes what has arrived, without waiting for more.
async fn drain_ready(ear: &mut BrokerSubscription, take: impl Fn(BrokerMessage)) {
    std::future::poll_fn(|cx| {
        while let Poll::Ready(Some(message)) = std::pin::pin!(ear.next()).poll(cx) {
            take(message);
        }
        Poll::Ready(())
    })
    .await;
}
