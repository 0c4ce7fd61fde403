//! Broker, key-value journal and printed config with real NATS servers.

mod authentication;
mod connections;
mod journal;
mod malformed_messages;
mod messages;
mod permissions;
mod tcp_proxy;

use std::sync::Arc;
use std::time::Duration;

use ostler_relay::broker::nats::{NatsBroker, NatsOptions};
use ostler_relay::broker::{Broker as _, BrokerMessage, BrokerSubscription, RelayLink};
use ostler_relay::envelope::RelayHeaders;
use ostler_testkit::{NatsServer, NatsVersion};

const BOTH: [NatsVersion; 2] = [NatsVersion::Core, NatsVersion::Current];

/// Timeout of every wait, far above the latency of a loopback.
const PATIENCE: Duration = Duration::from_secs(10);

fn at(server: &NatsServer) -> NatsOptions {
    NatsOptions::new(vec![server.url()])
}

async fn connect(options: NatsOptions) -> Arc<dyn RelayLink> {
    in_time(NatsBroker::new(options).connect()).await.unwrap_or_else(|error| panic!("{error}"))
}

async fn subscribe(link: &Arc<dyn RelayLink>, subject: &str) -> BrokerSubscription {
    link.subscribe(subject, None).await.unwrap_or_else(|error| panic!("{error}"))
}

async fn publish(link: &Arc<dyn RelayLink>, message: BrokerMessage) {
    link.publish(message).await.unwrap_or_else(|error| panic!("{error}"));
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(PATIENCE, future).await;
    result.unwrap_or_else(|_| panic!("nothing within {PATIENCE:?}"))
}

async fn next(subscription: &mut BrokerSubscription) -> BrokerMessage {
    in_time(subscription.next()).await.unwrap_or_else(|| panic!("the connection is over"))
}

fn message(subject: &str, body: &str) -> BrokerMessage {
    BrokerMessage::new(subject.into(), RelayHeaders::new(), body.to_owned())
}

/// Waits until the server has processed everything published on this link before.
async fn round_trip(link: &Arc<dyn RelayLink>, subject: &str) {
    let mut own = subscribe(link, subject).await;
    publish(link, message(subject, "settled")).await;
    while next(&mut own).await.body != "settled" {}
}
