//! A broker that is asked whether it asks who comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ostler_host::upstream::BoxFuture;
use ostler_relay::broker::{Broker, BrokerConnectError, BrokerInfo, RelayLink};
use ostler_relay::{LinkReport, StatusSink};

use crate::invocation::command;

/// A broker that lets in anybody lets anybody take any role. On this machine
/// that is said at every start; elsewhere it is not used unless the config
/// allows it.
pub(crate) struct CheckedBroker<B> {
    broker: B,
    allows_anonymous: bool,
    print: fn(&str),
    /// What is wrong was the broker's openness, and nothing else.
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

    /// Says how the connection is, in words that fit.
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
            // Why the last attempt failed says nothing about this one.
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
