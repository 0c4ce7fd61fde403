//! Check of a broker's authentication: refuses brokers that accept anonymous clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ostler_host::upstream::BoxFuture;
use ostler_relay::broker::{Broker, BrokerConnectError, BrokerInfo, RelayLink};
use ostler_relay::{LinkReport, StatusSink};

use crate::invocation::command;

/// Broker with its check. A client of an open broker can take any role. On this machine that is reported at every
/// start; elsewhere such a broker is refused unless the config allows it.
pub(crate) struct CheckedBroker<B> {
    broker: B,
    allows_anonymous: bool,
    print: fn(&str),
    /// True if the last attempt failed only because the broker is open.
    was_refused: Arc<AtomicBool>,
    has_warned: AtomicBool,
}

impl<B: Broker> CheckedBroker<B> {
    pub(crate) fn new(broker: B, allows_anonymous: bool, print: fn(&str)) -> Self {
        Self {
            broker,
            allows_anonymous,
            print,
            was_refused: Arc::default(),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Returns the sink that reports the state of the connection.
    pub(crate) fn status_sink(&self) -> StatusSink {
        let (tell, is_too_open) = (self.print, Arc::clone(&self.was_refused));
        Arc::new(move |report| match report {
            LinkReport::Refused { address: place, why } if is_too_open.load(Ordering::Relaxed) => {
                tell(&format!(
                    "error: the relay is not served at {place}: {why}\n  hint: set up users, as {} prints them, or set \
                 relay.allow_open_broker = true",
                    command("relay nats-config")
                ))
            }
            report => tell(&report.to_string()),
        })
    }

    fn check_welcome(&self, welcome: &BrokerInfo) -> Result<(), BrokerConnectError> {
        let is_open = !welcome.requires_credentials;
        let is_too_open = is_open && !welcome.is_loopback && !self.allows_anonymous;
        self.was_refused.store(is_too_open, Ordering::Relaxed);
        let what = "the broker asks nobody for credentials, so anybody who reaches it can take any role";
        if is_too_open {
            return Err(BrokerConnectError::Credentials(what.into()));
        }
        if is_open && !self.has_warned.swap(true, Ordering::Relaxed) {
            let users = command("relay nats-config");
            (self.print)(&format!("warning: {what}\n  hint: {users} prints users for it"));
        }
        Ok(())
    }
}

impl<B: Broker> Broker for CheckedBroker<B> {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn RelayLink>, BrokerConnectError>> {
        Box::pin(async move {
            // The cause of the last failure says nothing about this attempt.
            self.was_refused.store(false, Ordering::Relaxed);
            let link = self.broker.connect().await?;
            match self.check_welcome(link.broker_info()) {
                Ok(()) => Ok(link),
                Err(refusal) => {
                    link.close();
                    Err(refusal)
                }
            }
        })
    }

    fn address(&self) -> String {
        self.broker.address()
    }
}
