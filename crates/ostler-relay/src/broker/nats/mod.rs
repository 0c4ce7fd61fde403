//! The broker is a NATS server.
//!
//! ```text
//! options.rs   where it is, and who we are
//! dial.rs      makes one connection, and knows when it is over
//! link.rs      one connection as the rest of the relay sees it
//! words.rs     NATS's words for messages and denials
//! ```

mod dial;
mod link;
mod options;
mod words;

use std::sync::Arc;

use ostler_host::upstream::BoxFuture;

use super::{Broker, Link, Refusal};

pub(crate) use dial::{Line, dial};
pub use options::{BadAddress, Credentials, NatsOptions, Tls, check_server};

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
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Link>, Refusal>> {
        Box::pin(async move {
            let line = dial(&self.0).await?;
            Ok(Arc::new(link::NatsLink::new(line, self.0.is_loopback())) as Arc<dyn Link>)
        })
    }

    fn place(&self) -> String {
        self.0.place()
    }
}
