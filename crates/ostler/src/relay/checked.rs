//! A broker that is asked whether it asks who comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ostler_host::upstream::BoxFuture;
use ostler_relay::broker::{Broker, Link, Refusal, Welcome};
use ostler_relay::{Report, Say};

use crate::invocation::command;

/// A broker that lets in anybody lets anybody take any role. On this machine
/// that is said at every start; elsewhere it is not used unless the config
/// allows it.
pub(crate) struct Checked<B> {
    broker: B,
    may_be_open: bool,
    tell: fn(&str),
    /// What is wrong was the broker's openness, and nothing else.
    is_too_open: Arc<AtomicBool>,
    has_warned: AtomicBool,
}

impl<B: Broker> Checked<B> {
    pub(crate) fn new(broker: B, may_be_open: bool, tell: fn(&str)) -> Self {
        Self { broker, may_be_open, tell, is_too_open: Arc::default(), has_warned: AtomicBool::new(false) }
    }

    /// Says how the connection is, in words that fit.
    pub(crate) fn say(&self) -> Say {
        let (tell, is_too_open) = (self.tell, Arc::clone(&self.is_too_open));
        Arc::new(move |report| match report {
            Report::Refused { place, why } if is_too_open.load(Ordering::Relaxed) => tell(&format!(
                "error: the relay is not served at {place}: {why}\n  hint: set up users, as {} prints them, or set \
                 relay.allow_open_broker = true",
                command("relay nats-config")
            )),
            report => tell(&report.to_string()),
        })
    }

    fn judge(&self, welcome: &Welcome) -> Result<(), Refusal> {
        let is_open = !welcome.asks_for_credentials;
        let is_too_open = is_open && !welcome.is_loopback && !self.may_be_open;
        self.is_too_open.store(is_too_open, Ordering::Relaxed);
        let what = "the broker asks nobody for credentials, so anybody who reaches it can take any role";
        if is_too_open {
            return Err(Refusal::Credentials(what.into()));
        }
        if is_open && !self.has_warned.swap(true, Ordering::Relaxed) {
            let users = command("relay nats-config");
            (self.tell)(&format!("warning: {what}\n  hint: {users} prints users for it"));
        }
        Ok(())
    }
}

impl<B: Broker> Broker for Checked<B> {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Link>, Refusal>> {
        Box::pin(async move {
            // Why the last attempt failed says nothing about this one.
            self.is_too_open.store(false, Ordering::Relaxed);
            let link = self.broker.connect().await?;
            match self.judge(link.welcome()) {
                Ok(()) => Ok(link),
                Err(refusal) => {
                    link.close();
                    Err(refusal)
                }
            }
        })
    }

    fn place(&self) -> String {
        self.broker.place()
    }
}
