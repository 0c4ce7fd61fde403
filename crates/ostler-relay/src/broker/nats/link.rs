//! NATS link: one connection as [`RelayLink`].

use std::pin::Pin;
use std::task::{Context, Poll};

use async_nats::{PublishErrorKind, Subscriber};
use futures_core::Stream;
use ostler_host::upstream::BoxFuture;
use tokio::sync::broadcast;

use super::{NatsConnection, codec};
use crate::broker::{
    BrokerInfo, BrokerMessage, BrokerSubscription, Denial, LinkError, MessageSource, RelayLink,
};

pub(super) struct NatsLink {
    connection: NatsConnection,
    broker_info: BrokerInfo,
}

impl NatsLink {
    pub(super) fn new(connection: NatsConnection, is_loopback: bool) -> Self {
        let server = connection.client.server_info();
        let broker_info = BrokerInfo {
            max_payload: server.max_payload,
            // A server that accepts keys sends a nonce, and may leave `auth_required` unset.
            requires_credentials: server.auth_required || !server.nonce.is_empty(),
            is_loopback,
        };
        Self { connection, broker_info }
    }

    async fn send(&self, message: BrokerMessage) -> Result<(), LinkError> {
        if self.connection.is_closed() {
            return Err(LinkError::Closed);
        }
        let client = &self.connection.client;
        let headers = codec::encode_headers(message.headers);
        let sent = match message.reply_to {
            Some(reply) => {
                let reply =
                    client.publish_with_reply_and_headers(message.subject, reply, headers, message.body);
                reply.await
            }
            None => client.publish_with_headers(message.subject, headers, message.body).await,
        };
        sent.map_err(|error| match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => LinkError::TooLong { limit: client.max_payload() },
            PublishErrorKind::InvalidSubject | PublishErrorKind::Send => LinkError::Closed,
        })
    }
}

impl RelayLink for NatsLink {
    fn publish(&self, message: BrokerMessage) -> BoxFuture<'_, Result<(), LinkError>> {
        Box::pin(self.send(message))
    }

    fn subscribe(
        &self,
        subject: &str,
        queue: Option<&str>,
    ) -> BoxFuture<'_, Result<BrokerSubscription, LinkError>> {
        let (subject, queue) = (subject.to_owned(), queue.map(str::to_owned));
        Box::pin(async move {
            if self.connection.is_closed() {
                return Err(LinkError::Closed);
            }
            let subscribed = match queue {
                Some(queue) => self.connection.client.queue_subscribe(subject, queue).await,
                None => self.connection.client.subscribe(subject).await,
            };
            let subscriber = subscribed.map_err(|_| LinkError::Closed)?;
            Ok(BrokerSubscription::new(NatsSource(subscriber)))
        })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), LinkError>> {
        Box::pin(async move {
            if self.connection.is_closed() {
                return Err(LinkError::Closed);
            }
            self.connection.client.flush().await.map_err(|_| LinkError::Closed)
        })
    }

    fn ended(&self) -> BoxFuture<'_, String> {
        Box::pin(self.connection.ended())
    }

    fn close(&self) {
        self.connection.close();
    }

    fn denials(&self) -> broadcast::Receiver<Denial> {
        self.connection.denials()
    }

    fn broker_info(&self) -> &BrokerInfo {
        &self.broker_info
    }
}

impl Drop for NatsLink {
    fn drop(&mut self) {
        self.connection.close();
    }
}

/// Messages of one subscription; the client ends the stream with the connection.
struct NatsSource(Subscriber);

impl MessageSource for NatsSource {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BrokerMessage>> {
        Pin::new(&mut self.0).poll_next(cx).map(|message| message.map(codec::decode_message))
    }

    fn drain(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // An error means that the client has ended, which the stream reports as its end.
            let _ = self.0.drain().await;
        })
    }
}
