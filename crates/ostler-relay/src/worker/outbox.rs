//! What a worker has to say about its calls: cancellations, answers,
//! acknowledgements. Nobody waits for it, and it outlives a connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ostler_wire::{Message as Rpc, error_code, write_error};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::broker::{BrokerMessage, LinkError};
use crate::call_id::{CallId, Instance};
use crate::envelope::Control;
use crate::name::RelayName;
use crate::reconnect::BrokerConnection;
use crate::subject::{Subjects, WorkerInbox};

/// Messages that wait for a connection. Beyond that they are lost: a call
/// whose cancellation is lost ends with its deadline.
const MOST: usize = 4_096;

/// Where the messages go in.
#[derive(Debug, Clone)]
pub(super) struct Outbox {
    inlet: mpsc::Sender<OutboxItem>,
    subjects: Arc<Subjects>,
    worker: RelayName,
    instance: Instance,
    inbox: WorkerInbox,
}

enum OutboxItem {
    Message(BrokerMessage),
    /// Tells when everything before it has left.
    Flush(oneshot::Sender<()>),
}

impl Outbox {
    /// An outbox, and what empties it.
    pub(super) fn new(subjects: Arc<Subjects>, worker: RelayName, instance: Instance) -> (Self, OutboxTask) {
        let (inlet, outlet) = mpsc::channel(MOST);
        let inbox = WorkerInbox::new(&worker, instance);
        (Self { inlet, subjects, worker, instance, inbox }, OutboxTask(outlet))
    }

    /// Says something about a call.
    pub(super) fn control(&self, call: CallId, control: Control, body: impl Into<Bytes>) {
        let subject = self.subjects.control(&self.worker, call);
        self.enqueue(BrokerMessage::new(subject, control.headers(self.instance), body));
    }

    /// Asks what has become of a call. A host may answer where it is asked to,
    /// and nowhere else.
    pub(super) fn resume(&self, call: CallId) {
        let subject = self.subjects.control(&self.worker, call);
        let message = BrokerMessage::new(subject, Control::Resume.headers(self.instance), Bytes::new());
        self.enqueue(message.with_reply_to(self.inbox.answer_subject(call)));
    }

    /// Says that the worker lives.
    pub(super) fn alive(&self) {
        let subject = self.subjects.alive(&self.worker);
        self.enqueue(BrokerMessage::new(subject, Control::Alive.headers(self.instance), Bytes::new()));
    }

    fn enqueue(&self, message: BrokerMessage) {
        if self.inlet.try_send(OutboxItem::Message(message)).is_err() {
            tracing::debug!("a message about a call was lost: there are too many");
        }
    }

    /// Waits until everything so far has reached the broker, but not longer than this.
    pub(super) async fn flush(&self, within: Duration) {
        let (tell, told) = oneshot::channel();
        let waiting = async {
            if self.inlet.send(OutboxItem::Flush(tell)).await.is_ok() {
                let _ = told.await;
            }
        };
        let _ = timeout(within, waiting).await;
    }
}

/// Empties an outbox.
pub(super) struct OutboxTask(mpsc::Receiver<OutboxItem>);

impl OutboxTask {
    /// Sends what there is, whenever there is a connection; for ever.
    pub(super) async fn run(mut self, mut ready: watch::Receiver<Option<BrokerConnection>>) {
        while let Some(item) = self.0.recv().await {
            let sent = match item {
                OutboxItem::Message(message) => send(&mut ready, message).await,
                OutboxItem::Flush(tell) => flush(&mut ready, tell).await,
            };
            if sent.is_none() {
                return;
            }
        }
    }
}

/// `None` when there will be no connection any more.
async fn send(
    ready: &mut watch::Receiver<Option<BrokerConnection>>,
    mut message: BrokerMessage,
) -> Option<()> {
    loop {
        let up = ready.wait_for(Option::is_some).await.ok()?.clone()?;
        match up.link.publish(message.clone()).await {
            Ok(()) => return Some(()),
            // Everything else that there is to say must not wait for it.
            Err(LinkError::TooLong { limit }) => match too_long_response(&message.body, limit) {
                Some(body) if body.len() < message.body.len() => message.body = body,
                _ => return Some(()),
            },
            // What this connection did not take, the next one may.
            Err(LinkError::Closed) => wait_for_other(ready, up.epoch).await?,
        }
    }
}

/// What is said in place of an answer that is too long: without one the server
/// would wait for it.
fn too_long_response(answer: &Bytes, limit: usize) -> Option<Bytes> {
    let Ok(Rpc::Response { id, .. }) = Rpc::parse(answer.clone()) else { return None };
    let why = format!("the answer of the caller is longer than the {limit} bytes that the broker takes");
    let mut body = Vec::new();
    write_error(&mut body, &id?, error_code::INTERNAL_ERROR, &why, None);
    // A message of its own needs no end of line.
    body.pop();
    Some(body.into())
}

/// Waits until there is no connection, or another one.
async fn wait_for_other(ready: &mut watch::Receiver<Option<BrokerConnection>>, epoch: u64) -> Option<()> {
    ready.wait_for(|now| now.as_ref().is_none_or(|now| now.epoch != epoch)).await.ok().map(drop)
}

async fn flush(
    ready: &mut watch::Receiver<Option<BrokerConnection>>,
    tell: oneshot::Sender<()>,
) -> Option<()> {
    let up = ready.wait_for(Option::is_some).await.ok()?.clone()?;
    let _ = up.link.flush().await;
    let _ = tell.send(());
    Some(())
}
