//! Outbox: control messages of a worker, queued across connections. No caller waits for them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ostler_wire::{Message, error_code, write_error};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::wait_for_other_connection;
use crate::broker::{BrokerMessage, LinkError};
use crate::call_id::{CallId, Instance};
use crate::envelope::Control;
use crate::name::RelayName;
use crate::reconnect::BrokerConnection;
use crate::subject::{Subjects, WorkerInbox};

/// Queue length. Further messages are dropped: a call whose cancellation is lost ends at its
/// deadline.
const MOST: usize = 4_096;

/// Sending half of the outbox.
#[derive(Debug, Clone)]
pub(super) struct Outbox {
    sender: mpsc::Sender<OutboxItem>,
    subjects: Arc<Subjects>,
    worker: RelayName,
    instance: Instance,
    inbox: WorkerInbox,
}

enum OutboxItem {
    Message(BrokerMessage),
    /// Answered when all messages before it have left.
    Flush(oneshot::Sender<()>),
}

impl Outbox {
    /// Creates an outbox and the task that sends its messages.
    pub(super) fn new(subjects: Arc<Subjects>, worker: RelayName, instance: Instance) -> (Self, OutboxTask) {
        let (sender, receiver) = mpsc::channel(MOST);
        let inbox = WorkerInbox::new(&worker, instance);
        (Self { sender, subjects, worker, instance, inbox }, OutboxTask(receiver))
    }

    /// Queues a message about a call.
    pub(super) fn control(&self, call: CallId, control: Control, body: impl Into<Bytes>) {
        let subject = self.subjects.control(&self.worker, call);
        self.enqueue(BrokerMessage::new(subject, control.headers(self.instance), body));
    }

    /// Queues the question for the state of a call. A host may answer only on the reply subject.
    pub(super) fn resume(&self, call: CallId) {
        let subject = self.subjects.control(&self.worker, call);
        let message = BrokerMessage::new(subject, Control::Resume.headers(self.instance), Bytes::new());
        self.enqueue(message.with_reply_to(self.inbox.answer_subject(call)));
    }

    /// Queues a sign of life.
    pub(super) fn alive(&self) {
        let subject = self.subjects.alive(&self.worker);
        self.enqueue(BrokerMessage::new(subject, Control::Alive.headers(self.instance), Bytes::new()));
    }

    fn enqueue(&self, message: BrokerMessage) {
        if self.sender.try_send(OutboxItem::Message(message)).is_err() {
            tracing::debug!("a message about a call was lost: there are too many");
        }
    }

    /// Waits at most `within` until all queued messages have reached the broker.
    pub(super) async fn flush(&self, within: Duration) {
        let (done, is_done) = oneshot::channel();
        let flush = async {
            if self.sender.send(OutboxItem::Flush(done)).await.is_ok() {
                let _ = is_done.await;
            }
        };
        let _ = timeout(within, flush).await;
    }
}

/// Task that sends the queued messages.
pub(super) struct OutboxTask(mpsc::Receiver<OutboxItem>);

impl OutboxTask {
    /// Sends queued messages whenever there is a connection, until the worker ends.
    pub(super) async fn run(mut self, mut ready: watch::Receiver<Option<BrokerConnection>>) {
        while let Some(item) = self.0.recv().await {
            let sent = match item {
                OutboxItem::Message(message) => send(&mut ready, message).await,
                OutboxItem::Flush(done) => flush(&mut ready, done).await,
            };
            if sent.is_none() {
                return;
            }
        }
    }
}

/// Publishes one message; `None` if the worker has ended.
async fn send(
    ready: &mut watch::Receiver<Option<BrokerConnection>>,
    mut message: BrokerMessage,
) -> Option<()> {
    loop {
        let connection = ready.wait_for(Option::is_some).await.ok()?.clone()?;
        match connection.link.publish(message.clone()).await {
            Ok(()) => return Some(()),
            // One oversized message must not block the others.
            Err(LinkError::TooLong { limit }) => match too_long_response(&message.body, limit) {
                Some(body) if body.len() < message.body.len() => message.body = body,
                _ => return Some(()),
            },
            // A message that a closed connection did not take may leave by the next one.
            Err(LinkError::Closed) => wait_for_other_connection(ready, connection.epoch).await?,
        }
    }
}

/// Returns an error response that replaces an oversized response: without one the server would
/// wait.
fn too_long_response(answer: &Bytes, limit: usize) -> Option<Bytes> {
    let Ok(Message::Response { id, .. }) = Message::parse(answer.clone()) else { return None };
    let why = format!("the answer of the caller is longer than the {limit} bytes that the broker takes");
    let mut body = Vec::new();
    write_error(&mut body, &id?, error_code::INTERNAL_ERROR, &why, None);
    // A message has no line break at its end.
    body.pop();
    Some(body.into())
}

async fn flush(
    ready: &mut watch::Receiver<Option<BrokerConnection>>,
    done: oneshot::Sender<()>,
) -> Option<()> {
    let connection = ready.wait_for(Option::is_some).await.ok()?.clone()?;
    let _ = connection.link.flush().await;
    let _ = done.send(());
    Some(())
}
