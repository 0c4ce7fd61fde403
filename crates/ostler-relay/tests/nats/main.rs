//! The relay's broker, its journal and its printed config, with real NATS servers.

mod entry;
mod gate;
mod journal;
mod life;
mod rights;
mod rude;
mod talk;

use std::sync::Arc;
use std::time::Duration;

use ostler_relay::broker::nats::{NatsBroker, NatsOptions};
use ostler_relay::broker::{Broker as _, Link, Message, Subscription};
use ostler_relay::envelope::Headers;
use ostler_testkit::{NatsServer, NatsVersion};

const BOTH: [NatsVersion; 2] = [NatsVersion::Core, NatsVersion::Current];

/// Whatever takes longer than this on a loopback never comes.
const PATIENCE: Duration = Duration::from_secs(10);

fn at(server: &NatsServer) -> NatsOptions {
    NatsOptions::new(vec![server.url()])
}

async fn connect(options: NatsOptions) -> Arc<dyn Link> {
    in_time(NatsBroker::new(options).connect()).await.unwrap_or_else(|error| panic!("{error}"))
}

async fn subscribe(link: &Arc<dyn Link>, subject: &str) -> Subscription {
    link.subscribe(subject, None).await.unwrap_or_else(|error| panic!("{error}"))
}

async fn publish(link: &Arc<dyn Link>, message: Message) {
    link.publish(message).await.unwrap_or_else(|error| panic!("{error}"));
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(PATIENCE, future).await;
    result.unwrap_or_else(|_| panic!("nothing within {PATIENCE:?}"))
}

async fn next(subscription: &mut Subscription) -> Message {
    in_time(subscription.next()).await.unwrap_or_else(|| panic!("the connection is over"))
}

fn message(subject: &str, body: &str) -> Message {
    Message::new(subject.into(), Headers::new(), body.to_owned())
}

/// Waits until the server has taken in all that this link was given before.
/// Nobody else listens to what is said for that.
async fn settle(link: &Arc<dyn Link>, subject: &str) {
    let mut own = subscribe(link, subject).await;
    publish(link, message(subject, "settled")).await;
    while next(&mut own).await.body != "settled" {}
}
