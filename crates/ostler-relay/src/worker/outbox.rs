//! What a worker has to say about its calls: cancellations, answers,
//! acknowledgements. Nobody waits for it, and it outlives a connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ostler_wire::{Message as Rpc, code, write_error};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::broker::{Message, Unsent};
use crate::call_id::{CallId, Instance};
use crate::envelope::Control;
use crate::name::Name;
use crate::subject::{Inbox, Subjects};
use crate::tether::Up;

/// Messages that wait for a connection. Beyond that they are lost: a call
/// whose cancellation is lost ends with its deadline.
const MOST: usize = 4_096;

/// Where the messages go in.
#[derive(Debug, Clone)]
pub(super) struct Outbox {
    inlet: mpsc::Sender<Item>,
    subjects: Arc<Subjects>,
    worker: Name,
    instance: Instance,
    inbox: Inbox,
}

enum Item {
    Message(Message),
    /// Tells when everything before it has left.
    Mark(oneshot::Sender<()>),
}

impl Outbox {
    /// An outbox, and what empties it.
    pub(super) fn new(subjects: Arc<Subjects>, worker: Name, instance: Instance) -> (Self, Sending) {
        let (inlet, outlet) = mpsc::channel(MOST);
        let inbox = Inbox::new(&worker, instance);
        (Self { inlet, subjects, worker, instance, inbox }, Sending(outlet))
    }

    /// Says something about a call.
    pub(super) fn control(&self, call: CallId, control: Control, body: impl Into<Bytes>) {
        let subject = self.subjects.control(&self.worker, call);
        self.put(Message::new(subject, control.headers(self.instance), body));
    }

    /// Asks what has become of a call. A host may answer where it is asked to,
    /// and nowhere else.
    pub(super) fn resume(&self, call: CallId) {
        let subject = self.subjects.control(&self.worker, call);
        let message = Message::new(subject, Control::Resume.headers(self.instance), Bytes::new());
        self.put(message.with_reply(self.inbox.answer(call)));
    }

    /// Says that the worker lives.
    pub(super) fn alive(&self) {
        let subject = self.subjects.alive(&self.worker);
        self.put(Message::new(subject, Control::Alive.headers(self.instance), Bytes::new()));
    }

    fn put(&self, message: Message) {
        if self.inlet.try_send(Item::Message(message)).is_err() {
            tracing::debug!("a message about a call was lost: there are too many");
        }
    }

    /// Waits until everything so far has reached the broker, but not longer than this.
    pub(super) async fn emptied(&self, within: Duration) {
        let (tell, told) = oneshot::channel();
        let waiting = async {
            if self.inlet.send(Item::Mark(tell)).await.is_ok() {
                let _ = told.await;
            }
        };
        let _ = timeout(within, waiting).await;
    }
}

/// Empties an outbox.
pub(super) struct Sending(mpsc::Receiver<Item>);

impl Sending {
    /// Sends what there is, whenever there is a connection; for ever.
    pub(super) async fn run(mut self, mut ready: watch::Receiver<Option<Up>>) {
        while let Some(item) = self.0.recv().await {
            let sent = match item {
                Item::Message(message) => send(&mut ready, message).await,
                Item::Mark(tell) => flush(&mut ready, tell).await,
            };
            if sent.is_none() {
                return;
            }
        }
    }
}

/// `None` when there will be no connection any more.
async fn send(ready: &mut watch::Receiver<Option<Up>>, mut message: Message) -> Option<()> {
    loop {
        let up = ready.wait_for(Option::is_some).await.ok()?.clone()?;
        match up.link.publish(message.clone()).await {
            Ok(()) => return Some(()),
            // Everything else that there is to say must not wait for it.
            Err(Unsent::TooLong { limit }) => match refusal(&message.body, limit) {
                Some(body) if body.len() < message.body.len() => message.body = body,
                _ => return Some(()),
            },
            // What this connection did not take, the next one may.
            Err(Unsent::Over) => other_than(ready, up.epoch).await?,
        }
    }
}

/// What is said in place of an answer that is too long: without one the server
/// would wait for it.
fn refusal(answer: &Bytes, limit: usize) -> Option<Bytes> {
    let Ok(Rpc::Response { id, .. }) = Rpc::parse(answer.clone()) else { return None };
    let why = format!("the answer of the caller is longer than the {limit} bytes that the broker takes");
    let mut body = Vec::new();
    write_error(&mut body, &id?, code::INTERNAL_ERROR, &why, None);
    // A message of its own needs no end of line.
    body.pop();
    Some(body.into())
}

/// Waits until there is no connection, or another one.
async fn other_than(ready: &mut watch::Receiver<Option<Up>>, epoch: u64) -> Option<()> {
    ready.wait_for(|now| now.as_ref().is_none_or(|now| now.epoch != epoch)).await.ok().map(drop)
}

async fn flush(ready: &mut watch::Receiver<Option<Up>>, tell: oneshot::Sender<()>) -> Option<()> {
    let up = ready.wait_for(Option::is_some).await.ok()?.clone()?;
    let _ = up.link.flush().await;
    let _ = tell.send(());
    Some(())
}
