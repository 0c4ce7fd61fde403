//! NATS broker.
//!
//! ```text
//! options.rs      addresses, credentials, TLS
//! connection.rs   opens one connection and detects its end
//! link.rs         one connection as `RelayLink`
//! codec.rs        messages, headers and denials of the NATS protocol
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

/// Factory of connections to one NATS server or cluster.
#[derive(Debug, Clone)]
pub struct NatsBroker(Arc<NatsOptions>);

impl NatsBroker {
    /// Returns a broker with these options; connects nothing yet.
    pub fn new(options: NatsOptions) -> Self {
        Self(Arc::new(options))
    }
}

impl Broker for NatsBroker {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn RelayLink>, BrokerConnectError>> {
        Box::pin(async move {
            let connection = connect_once(&self.0).await?;
            Ok(Arc::new(link::NatsLink::new(connection, self.0.is_loopback())) as Arc<dyn RelayLink>)
        })
    }

    fn address(&self) -> String {
        self.0.redacted_addresses()
    }
}
