//! One connection to a NATS server, as the rest of the relay sees it.

use std::pin::Pin;
use std::task::{Context, Poll};

use async_nats::{PublishErrorKind, Subscriber};
use futures_core::Stream;
use ostler_host::upstream::BoxFuture;
use tokio::sync::broadcast;

use super::{Line, words};
use crate::broker::{Denial, Link, Message, Source, Subscription, Unsent, Welcome};

pub(super) struct NatsLink {
    line: Line,
    welcome: Welcome,
}

impl NatsLink {
    pub(super) fn new(line: Line, is_loopback: bool) -> Self {
        let said = line.client.server_info();
        let welcome = Welcome {
            max_payload: said.max_payload,
            // Who accepts keys says a nonce, even where it accepts nobody else.
            asks_for_credentials: said.auth_required || !said.nonce.is_empty(),
            is_loopback,
        };
        Self { line, welcome }
    }

    async fn send(&self, message: Message) -> Result<(), Unsent> {
        if self.line.is_over() {
            return Err(Unsent::Over);
        }
        let client = &self.line.client;
        let headers = words::write_headers(message.headers);
        let sent = match message.reply {
            Some(reply) => {
                let reply =
                    client.publish_with_reply_and_headers(message.subject, reply, headers, message.body);
                reply.await
            }
            None => client.publish_with_headers(message.subject, headers, message.body).await,
        };
        sent.map_err(|error| match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => Unsent::TooLong { limit: client.max_payload() },
            PublishErrorKind::InvalidSubject | PublishErrorKind::Send => Unsent::Over,
        })
    }
}

impl Link for NatsLink {
    fn publish(&self, message: Message) -> BoxFuture<'_, Result<(), Unsent>> {
        Box::pin(self.send(message))
    }

    fn subscribe(&self, subject: &str, queue: Option<&str>) -> BoxFuture<'_, Result<Subscription, Unsent>> {
        let (subject, queue) = (subject.to_owned(), queue.map(str::to_owned));
        Box::pin(async move {
            if self.line.is_over() {
                return Err(Unsent::Over);
            }
            let subscribed = match queue {
                Some(queue) => self.line.client.queue_subscribe(subject, queue).await,
                None => self.line.client.subscribe(subject).await,
            };
            let subscriber = subscribed.map_err(|_| Unsent::Over)?;
            Ok(Subscription::new(Incoming(subscriber)))
        })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), Unsent>> {
        Box::pin(async move {
            if self.line.is_over() {
                return Err(Unsent::Over);
            }
            self.line.client.flush().await.map_err(|_| Unsent::Over)
        })
    }

    fn ended(&self) -> BoxFuture<'_, String> {
        Box::pin(self.line.ended())
    }

    fn close(&self) {
        self.line.close();
    }

    fn denials(&self) -> broadcast::Receiver<Denial> {
        self.line.denials()
    }

    fn welcome(&self) -> &Welcome {
        &self.welcome
    }
}

impl Drop for NatsLink {
    fn drop(&mut self) {
        self.line.close();
    }
}

/// The messages of one subscription. The client ends it with the connection.
struct Incoming(Subscriber);

impl Source for Incoming {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        Pin::new(&mut self.0).poll_next(cx).map(|message| message.map(words::read))
    }

    fn stop(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // Who can't be told has ended, and says so by the end of the messages.
            let _ = self.0.drain().await;
        })
    }
}
