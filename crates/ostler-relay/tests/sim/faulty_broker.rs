//! Faulty broker: connections of a process that may die, and requests that are sent twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ostler_host::upstream::BoxFuture;
use ostler_relay::broker::{
    Broker, BrokerConnectError, BrokerInfo, BrokerMessage, BrokerSubscription, Denial, LinkError, RelayLink,
};
use tokio::sync::broadcast;

use crate::network::argument_of;
use crate::sim_host::RelaySimShared;

/// Broker of a process that may die, which resends some requests.
pub(crate) struct FaultyBroker {
    inner: Arc<dyn Broker>,
    is_dead: Arc<AtomicBool>,
    shared: Arc<RelaySimShared>,
}

impl FaultyBroker {
    /// Wraps a broker. Setting the returned flag refuses all further connections.
    pub(crate) fn wrap(
        broker: Arc<dyn Broker>,
        shared: Arc<RelaySimShared>,
    ) -> (Arc<dyn Broker>, Arc<AtomicBool>) {
        let is_dead = Arc::new(AtomicBool::new(false));
        (Arc::new(Self { inner: broker, is_dead: Arc::clone(&is_dead), shared }), is_dead)
    }
}

impl Broker for FaultyBroker {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn RelayLink>, BrokerConnectError>> {
        Box::pin(async move {
            if self.is_dead.load(Ordering::Relaxed) {
                return Err(BrokerConnectError::Unreachable("the process is gone".into()));
            }
            let link = self.inner.connect().await?;
            Ok(Arc::new(ResendingLink { link, shared: Arc::clone(&self.shared) }) as Arc<dyn RelayLink>)
        })
    }

    fn address(&self) -> String {
        self.inner.address()
    }
}

/// Link that sends some requests twice.
struct ResendingLink {
    link: Arc<dyn RelayLink>,
    shared: Arc<RelaySimShared>,
}

impl RelayLink for ResendingLink {
    fn publish(&self, message: BrokerMessage) -> BoxFuture<'_, Result<(), LinkError>> {
        if let Some(argument) = argument_of(&message)
            && let Some(delay) = self.shared.network.resend_delay()
        {
            self.shared.invariants.record_resend(&argument);
            let (link, message) = (Arc::downgrade(&self.link), message.clone());
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                if let Some(link) = link.upgrade() {
                    let _ = link.publish(message).await;
                }
            });
        }
        self.link.publish(message)
    }

    fn subscribe(
        &self,
        subject: &str,
        queue: Option<&str>,
    ) -> BoxFuture<'_, Result<BrokerSubscription, LinkError>> {
        self.link.subscribe(subject, queue)
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), LinkError>> {
        self.link.flush()
    }

    fn ended(&self) -> BoxFuture<'_, String> {
        self.link.ended()
    }

    fn close(&self) {
        self.link.close();
    }

    fn denials(&self) -> broadcast::Receiver<Denial> {
        self.link.denials()
    }

    fn broker_info(&self) -> &BrokerInfo {
        self.link.broker_info()
    }
}
