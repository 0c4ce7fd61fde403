//! The broker: what carries messages between workers and hosts.

pub mod memory;
pub mod nats;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use ostler_host::upstream::BoxFuture;
use tokio::sync::broadcast;

use crate::envelope::RelayHeaders;

/// Makes connections to one broker.
pub trait Broker: Send + Sync + 'static {
    /// Makes one connection, in a time of its own choice. Dropping the future
    /// gives up.
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn RelayLink>, BrokerConnectError>>;

    /// Where it is, for people. Never with a secret in it.
    fn address(&self) -> String;
}

/// One live connection to a broker. It never comes back once it has ended:
/// whoever needs another one asks the [`Broker`] for it, and nothing that was
/// handed to this one is delivered by that.
pub trait RelayLink: Send + Sync + 'static {
    /// Hands a message over. Until it is ready the message has not been sent,
    /// and dropping the future takes it back; afterwards it may arrive.
    fn publish(&self, message: BrokerMessage) -> BoxFuture<'_, Result<(), LinkError>>;

    /// Listens to a subject; of those in the same `queue` one gets each
    /// message. What comes faster than it is read is dropped beyond a limit.
    fn subscribe(
        &self,
        subject: &str,
        queue: Option<&str>,
    ) -> BoxFuture<'_, Result<BrokerSubscription, LinkError>>;

    /// Waits until everything before it has left this process. What comes after
    /// it on this connection is taken in after it; another connection may be faster.
    fn flush(&self) -> BoxFuture<'_, Result<(), LinkError>>;

    /// Waits until the connection is over, and says why for people.
    fn ended(&self) -> BoxFuture<'_, String>;

    /// Ends it. What was handed over before may still leave.
    fn close(&self);

    /// What the broker does not let us do, as it says so.
    fn denials(&self) -> broadcast::Receiver<Denial>;

    /// What the broker said of itself.
    fn broker_info(&self) -> &BrokerInfo;
}

/// What a broker says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerInfo {
    /// The longest message, headers included.
    pub max_payload: usize,
    /// Whether it asks who comes. One that does not lets anybody take any role.
    pub requires_credentials: bool,
    /// Whether it can be reached from this machine only, as far as the address tells.
    pub is_loopback: bool,
}

/// Why no connection was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokerConnectError {
    /// Nobody is there, or nobody who speaks our language.
    #[error("{0}")]
    Unreachable(String),
    /// The broker does not accept the credentials: only a person can help.
    #[error("{0}")]
    Credentials(String),
}

/// A message that has not left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The connection is over.
    #[error("the connection to the broker is over")]
    Closed,
    /// The broker takes no message that long.
    #[error("the message is longer than the {limit} bytes that the broker takes")]
    TooLong {
        /// What it takes.
        limit: usize,
    },
}

/// Something that the broker does not let us do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// Publish to a subject; nothing was delivered.
    Publish(String),
    /// Listen to a subject.
    Subscribe(String),
}

/// One message, either way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerMessage {
    /// Where to, or where it came.
    pub subject: String,
    /// Where an answer goes.
    pub reply_to: Option<String>,
    /// What it says beside the body.
    pub headers: RelayHeaders,
    /// The body.
    pub body: Bytes,
    /// The broker says that nobody listens to what was asked on this reply
    /// subject: it was not delivered to anybody.
    pub is_no_responders: bool,
}

impl BrokerMessage {
    /// A message that expects no answer.
    pub fn new(subject: String, headers: RelayHeaders, body: impl Into<Bytes>) -> Self {
        Self { subject, reply_to: None, headers, body: body.into(), is_no_responders: false }
    }

    /// The same, with where an answer goes.
    #[must_use]
    pub fn with_reply_to(mut self, reply: String) -> Self {
        self.reply_to = Some(reply);
        self
    }
}

/// Messages as they come. Dropping it stops listening.
pub struct BrokerSubscription(Box<dyn MessageSource>);

/// Where the messages of a subscription come from.
pub trait MessageSource: Send + 'static {
    /// The next message; `None` when the connection is over.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BrokerMessage>>;

    /// Asks for no more: what is on the way still comes, and then the end.
    fn drain(&mut self) -> BoxFuture<'_, ()>;
}

impl BrokerSubscription {
    /// A subscription to a source.
    pub fn new(source: impl MessageSource) -> Self {
        Self(Box::new(source))
    }

    /// Asks for no more. What the broker has chosen this subscription for still
    /// comes, and then the end; dropping it instead would lose that.
    pub async fn drain(&mut self) {
        self.0.drain().await;
    }

    /// The next message, as [`Self::next`] waits for it.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BrokerMessage>> {
        self.0.poll_next(cx)
    }

    /// The next message; `None` when the connection is over, or all has come
    /// after a [`Self::stop`]. Cancel-safe.
    pub async fn next(&mut self) -> Option<BrokerMessage> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}

impl fmt::Debug for BrokerSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}
