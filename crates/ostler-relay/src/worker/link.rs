//! One connection after the other: what is listened to on it, and where that goes.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ostler_core::fault::{Fault, FaultKind};
use ostler_wire::Notice;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, timeout};

use super::Core;
use super::asking;
use crate::broker::{Denial, Message, Subscription, Unsent};
use crate::call_id::CallId;
use crate::envelope::{BadEnvelope, Beat, Progress, Reply};
use crate::name::Name;
use crate::subject::ToWorker;
use crate::tether::{Situation, Up};

/// How long the broker may take to let us listen.
const SUBSCRIBING: Duration = Duration::from_secs(5);

/// What is listened to on one connection.
struct Ears {
    progress: Subscription,
    beats: Subscription,
    answers: Subscription,
    denials: broadcast::Receiver<Denial>,
}

/// Serves one connection after the other.
pub(super) async fn run(core: Arc<Core>) {
    let mut situation = core.situation.clone();
    loop {
        let up = match situation.wait_for(|now| !matches!(now, Situation::Waiting { .. })).await.as_deref() {
            Ok(Situation::Up(up)) => up.clone(),
            _ => return,
        };
        match timeout(SUBSCRIBING, listen(&core, &up)).await {
            Ok(Ok(ears)) => serve(&core, &up, ears, &mut situation).await,
            // It is over already.
            Ok(Err(_)) => {}
            Err(_) => up.link.close(),
        }
        if situation.wait_for(|now| !is_up(now, up.epoch)).await.is_err() {
            return;
        }
    }
}

fn is_up(situation: &Situation, epoch: u64) -> bool {
    matches!(situation, Situation::Up(up) if up.epoch == epoch)
}

async fn listen(core: &Core, up: &Up) -> Result<Ears, Unsent> {
    let denials = up.link.denials();
    let [progress, beats, answers] = core.subjects.of_worker(&core.name, &core.inbox);
    Ok(Ears {
        progress: up.link.subscribe(&progress, None).await?,
        beats: up.link.subscribe(&beats, None).await?,
        answers: up.link.subscribe(&answers, None).await?,
        denials,
    })
}

async fn serve(core: &Arc<Core>, up: &Up, mut ears: Ears, situation: &mut watch::Receiver<Situation>) {
    core.hosts().on_link_up(Instant::now());
    core.table.link_up(up.epoch);
    core.ready.send_replace(Some(up.clone()));
    core.hear(&mut ears, situation, up.epoch).await;
    core.ready.send_replace(None);
    // What has arrived counts, though nothing more does.
    for ear in [&mut ears.beats, &mut ears.progress, &mut ears.answers] {
        drain(ear, |message| core.take(message)).await;
    }
    core.table.link_lost();
}

impl Core {
    async fn hear(self: &Arc<Self>, ears: &mut Ears, situation: &mut watch::Receiver<Situation>, epoch: u64) {
        let Ears { progress, beats, answers, denials } = ears;
        // What comes seldom comes first, so that nothing starves: a heartbeat
        // behind a thousand answers would be a host that is silent.
        loop {
            let message = tokio::select! {
                biased;
                denial = denials.recv() => {
                    match denial {
                        Ok(denial) => self.denied(&denial),
                        // Those that were missed are met by the calls' own time.
                        Err(broadcast::error::RecvError::Lagged(_)) => {}
                        Err(broadcast::error::RecvError::Closed) => return,
                    }
                    continue;
                }
                _ = situation.wait_for(|now| !is_up(now, epoch)) => return,
                message = beats.next() => message,
                message = progress.next() => message,
                message = answers.next() => message,
            };
            match message {
                Some(message) => self.take(message),
                None => return,
            }
        }
    }

    fn denied(&self, denial: &Denial) {
        match denial {
            Denial::Publish(subject) if self.table.denied(subject) => {}
            Denial::Publish(subject) => tracing::debug!(subject, "the broker does not let us publish"),
            Denial::Subscribe(subject) => {
                self.asking.deaf(format!("the broker does not let this worker listen to {subject}"));
            }
        }
    }

    fn take(self: &Arc<Self>, message: Message) {
        match self.subjects.read_to_worker(&self.inbox, &message.subject) {
            Some(ToWorker::Answer(call)) if message.is_unheard => self.table.unheard(call),
            Some(ToWorker::Answer(call)) => self.take_reply(call, message),
            Some(ToWorker::Progress(call)) => self.take_progress(call, message),
            Some(ToWorker::Manifest) => self.asking.changed(),
            Some(ToWorker::Heartbeat(host)) => self.take_beat(&host, &message),
            None => {}
        }
    }

    fn take_reply(&self, call: CallId, message: Message) {
        match Reply::read(&message.headers) {
            Ok(Reply::Answer) => self.table.answer(call, message.body),
            Ok(Reply::Chunked { length, sha256 }) => self.table.announce(call, length, &sha256),
            Err(error) => self.fail(call, &error),
        }
    }

    fn take_progress(self: &Arc<Self>, call: CallId, message: Message) {
        match Progress::read(&message.headers) {
            Ok(Progress::Accepted { host, generation }) => self.table.accepted(call, host, generation),
            Ok(Progress::Note) => self.take_note(call, message),
            Ok(Progress::Ask(number)) => asking::ask(self, call, number, message.body),
            Ok(Progress::Chunk(number)) => self.table.chunk(call, number, message.body),
            // About no call, or of a kind that is not known here and so means nothing.
            Ok(Progress::Changed) | Err(BadEnvelope::Kind(_)) => {}
            Err(error) => self.fail(call, &error),
        }
    }

    /// What can't be understood is no answer, and who speaks so is not understood later.
    fn fail(&self, call: CallId, error: &BadEnvelope) {
        self.table.fail(call, Fault::unknown(FaultKind::Malformed(error.to_string())));
    }

    /// A notification about a call.
    fn take_note(&self, call: CallId, message: Message) {
        let Ok(ostler_wire::Message::Notification { method, params }) =
            ostler_wire::Message::parse(message.body)
        else {
            return;
        };
        let notice = Notice::of(method.as_str());
        // It is for the caller of that call, and no one else if it takes none.
        let Some(voice) = self.table.note(call, notice == Notice::Progress) else { return };
        if notice == Notice::Progress {
            let progress = params.as_ref().and_then(ostler_wire::Progress::parse);
            if let Some(progress) = progress {
                voice.progress(&progress);
            }
        } else if voice.wants_notices() {
            voice.notice(method.as_str(), params.as_ref());
        }
    }

    fn take_beat(&self, host: &Name, message: &Message) {
        let beat = match Beat::read(&message.headers) {
            Ok(beat) => beat,
            Err(error) => return tracing::debug!(%host, %error, "a heartbeat can't be read"),
        };
        if self.hosts().on_beat(host, &beat, self.clock.now(), Instant::now()) {
            // Its config, and what its servers list, may be others.
            self.asking.changed();
        }
        self.table.beat(host, beat.generation);
        if !beat.is_draining {
            self.beat.notify_waiters();
        }
    }
}

/// Takes what has arrived, without waiting for more.
async fn drain(ear: &mut Subscription, take: impl Fn(Message)) {
    std::future::poll_fn(|cx| {
        while let Poll::Ready(Some(message)) = std::pin::pin!(ear.next()).poll(cx) {
            take(message);
        }
        Poll::Ready(())
    })
    .await;
}
