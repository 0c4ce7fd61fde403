//! Broker: the interface to what carries messages between workers and hosts.

pub mod memory;
pub mod nats;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use ostler_host::upstream::BoxFuture;
use tokio::sync::broadcast;

use crate::envelope::RelayHeaders;

/// Factory of connections to one broker.
pub trait Broker: Send + Sync + 'static {
    /// Opens one connection under a timeout of the broker's choice. Dropping the future aborts the
    /// attempt.
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn RelayLink>, BrokerConnectError>>;

    /// Returns the broker's address for messages, with secrets redacted.
    fn address(&self) -> String;
}

/// One live connection to a broker. Once ended it never comes back: the caller opens another one
/// through [`Broker`], and no message handed to this one leaves by another.
pub trait RelayLink: Send + Sync + 'static {
    /// Hands a message to the connection. Until the future is ready the message has not been sent,
    /// and dropping the future withdraws it; afterwards it may arrive.
    fn publish(&self, message: BrokerMessage) -> BoxFuture<'_, Result<(), LinkError>>;

    /// Subscribes to a subject. Of the subscriptions with the same `queue` one gets each message. A
    /// subscription drops messages beyond a bounded backlog.
    fn subscribe(
        &self,
        subject: &str,
        queue: Option<&str>,
    ) -> BoxFuture<'_, Result<BrokerSubscription, LinkError>>;

    /// Waits until everything published before has left this process. The broker processes later
    /// messages of this connection after it; other connections have no such order.
    fn flush(&self) -> BoxFuture<'_, Result<(), LinkError>>;

    /// Waits until the connection ends and returns the reason, for people.
    fn ended(&self) -> BoxFuture<'_, String>;

    /// Closes the connection. Messages handed over before may still leave.
    fn close(&self);

    /// Subscribes to the permission violations that the broker reports.
    fn denials(&self) -> broadcast::Receiver<Denial>;

    /// Returns what the broker announced when the connection opened.
    fn broker_info(&self) -> &BrokerInfo;
}

/// Facts that a broker announces when a connection opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerInfo {
    /// Longest message in bytes, headers included.
    pub max_payload: usize,
    /// `true` if clients must authenticate; otherwise any client can use any role.
    pub requires_credentials: bool,
    /// `true` if every address is a loopback address.
    pub is_loopback: bool,
}

/// Error: the connection could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokerConnectError {
    /// No broker answers at the address, or the peer speaks another protocol.
    #[error("{0}")]
    Unreachable(String),
    /// The broker rejects the credentials; only an operator can correct them.
    #[error("{0}")]
    Credentials(String),
}

/// Error: the message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The connection has ended.
    #[error("the connection to the broker is over")]
    Closed,
    /// The message exceeds the broker's limit.
    #[error("the message is longer than the {limit} bytes that the broker takes")]
    TooLong {
        /// The broker's limit in bytes.
        limit: usize,
    },
}

/// Permission violation reported by the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// Publishing to a subject; nothing was delivered.
    Publish(String),
    /// Subscribing to a subject.
    Subscribe(String),
}

/// One message, sent or received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerMessage {
    /// Subject that the message is published to.
    pub subject: String,
    /// Subject for the answer.
    pub reply_to: Option<String>,
    /// Headers of the relay's envelope.
    pub headers: RelayHeaders,
    /// Body, byte for byte.
    pub body: Bytes,
    /// `true` for the broker's own reply that the request with this reply subject had no subscriber
    /// and was not delivered.
    pub is_no_responders: bool,
}

impl BrokerMessage {
    /// Returns a message that expects no answer.
    pub fn new(subject: String, headers: RelayHeaders, body: impl Into<Bytes>) -> Self {
        Self { subject, reply_to: None, headers, body: body.into(), is_no_responders: false }
    }

    /// Sets the subject for the answer.
    #[must_use]
    pub fn with_reply_to(mut self, reply: String) -> Self {
        self.reply_to = Some(reply);
        self
    }
}

/// Stream of messages. Dropping it unsubscribes.
pub struct BrokerSubscription(Box<dyn MessageSource>);

/// Source of a subscription's messages.
pub trait MessageSource: Send + 'static {
    /// Polls for the next message; `None` when the connection has ended.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BrokerMessage>>;

    /// Unsubscribes; messages in flight still arrive, then the stream ends.
    fn drain(&mut self) -> BoxFuture<'_, ()>;
}

impl BrokerSubscription {
    /// Wraps a source.
    pub fn new(source: impl MessageSource) -> Self {
        Self(Box::new(source))
    }

    /// Unsubscribes but keeps what the broker has already routed to this subscription; dropping it
    /// would lose those messages.
    pub async fn drain(&mut self) {
        self.0.drain().await;
    }

    /// Polls for the next message, as [`Self::next`] does.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BrokerMessage>> {
        self.0.poll_next(cx)
    }

    /// Waits for the next message; `None` when the connection has ended or a [`Self::drain`] is
    /// complete. Cancel-safe.
    pub async fn next(&mut self) -> Option<BrokerMessage> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}

impl fmt::Debug for BrokerSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BrokerSubscription")
    }
}
