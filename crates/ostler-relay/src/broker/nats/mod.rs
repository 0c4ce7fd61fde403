//! The broker is a NATS server.
//!
//! ```text
//! options.rs   where it is, and who we are
//! dial.rs      makes one connection, and knows when it is over
//! link.rs      one connection as the rest of the relay sees it
//! words.rs     NATS's words for messages and denials
//! ```

mod codec;
mod connection;
mod link;
mod options;

use std::sync::Arc;

use ostler_host::upstream::BoxFuture;

use super::{Broker, BrokerConnectError, RelayLink};

pub(crate) use connection::{NatsConnection, connect_once};
pub use options::{BadAddress, Credentials, NatsOptions, Tls, check_address};

/// Makes connections to one NATS server, or to one of several that are one to us.
#[derive(Debug, Clone)]
pub struct NatsBroker(Arc<NatsOptions>);

impl NatsBroker {
    /// A broker at that place. Nothing is connected yet.
    pub fn new(options: NatsOptions) -> Self {
        Self(Arc::new(options))
    }
}

impl Broker for NatsBroker {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn RelayLink>, BrokerConnectError>> {
        Box::pin(async move {
            let line = connect_once(&self.0).await?;
            Ok(Arc::new(link::NatsLink::new(line, self.0.is_loopback())) as Arc<dyn RelayLink>)
        })
    }

    fn address(&self) -> String {
        self.0.redacted_addresses()
    }
}
