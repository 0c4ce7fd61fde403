//! The doors through which processes reach the broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ostler_host::upstream::BoxFuture;
use ostler_relay::broker::{Broker, Denial, Link, Message, Refusal, Subscription, Unsent, Welcome};
use tokio::sync::broadcast;

use crate::site::Ground;
use crate::sky::argument_of;

/// A door of a process that may die, through which requests may pass twice.
pub(crate) struct Door {
    door: Arc<dyn Broker>,
    is_dead: Arc<AtomicBool>,
    ground: Arc<Ground>,
}

impl Door {
    /// The door, and how to close it for ever.
    pub(crate) fn make(door: Arc<dyn Broker>, ground: Arc<Ground>) -> (Arc<dyn Broker>, Arc<AtomicBool>) {
        let is_dead = Arc::new(AtomicBool::new(false));
        (Arc::new(Self { door, is_dead: Arc::clone(&is_dead), ground }), is_dead)
    }
}

impl Broker for Door {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Link>, Refusal>> {
        Box::pin(async move {
            if self.is_dead.load(Ordering::Relaxed) {
                return Err(Refusal::Away("the process is gone".into()));
            }
            let link = self.door.connect().await?;
            Ok(Arc::new(Echoing { link, ground: Arc::clone(&self.ground) }) as Arc<dyn Link>)
        })
    }

    fn place(&self) -> String {
        self.door.place()
    }
}

/// A connection that sends some requests twice.
struct Echoing {
    link: Arc<dyn Link>,
    ground: Arc<Ground>,
}

impl Link for Echoing {
    fn publish(&self, message: Message) -> BoxFuture<'_, Result<(), Unsent>> {
        if let Some(argument) = argument_of(&message)
            && let Some(delay) = self.ground.sky.echo()
        {
            self.ground.watch.note_echo(&argument);
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

    fn subscribe(&self, subject: &str, queue: Option<&str>) -> BoxFuture<'_, Result<Subscription, Unsent>> {
        self.link.subscribe(subject, queue)
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), Unsent>> {
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

    fn welcome(&self) -> &Welcome {
        self.link.welcome()
    }
}
