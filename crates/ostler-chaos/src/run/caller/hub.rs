//! The programs that callers share: one for each way and person.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler_chaos::history::Way;
use tokio::process::Command;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::Patience;
use super::pipe::Pipe;
use crate::run::world::people::Person;
use crate::run::world::site::Site;

/// Before a program that did not come up is tried again.
const PAUSE: Duration = Duration::from_millis(100);

type Slot = Arc<AsyncMutex<Option<Arc<Pipe>>>>;

/// Finds the program of a caller, and starts it if it is gone.
#[derive(Debug)]
pub(crate) struct Hub {
    site: Arc<Site>,
    slots: Mutex<HashMap<(Way, &'static str), Slot>>,
}

impl Hub {
    pub(crate) fn new(site: Arc<Site>) -> Self {
        Self { site, slots: Mutex::default() }
    }

    /// The program that runs for this person; None if it does not come up in time. None is started
    /// once nothing would be sent any more, but one that has started is heard out.
    pub(super) async fn pipe(
        &self,
        way: Way,
        person: &'static Person,
        patience: Patience,
    ) -> Option<Arc<Pipe>> {
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry((way, person.name)).or_default())
        };
        let mut slot = tokio::time::timeout_at(patience.to_send, slot.lock()).await.ok()?;
        loop {
            if let Some(pipe) = slot.as_ref().filter(|pipe| !pipe.is_gone()) {
                return Some(Arc::clone(pipe));
            }
            *slot = None;
            let starting = Pipe::start(self.command(way, person)?);
            match tokio::time::timeout_at(patience.to_hear, starting).await.ok()? {
                Ok(pipe) => *slot = Some(Arc::new(pipe)),
                Err(_) if Instant::now() + PAUSE >= patience.to_send => return None,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// The processes that run for a way, in a fixed order.
    pub(crate) async fn pids(&self, way: Way) -> Vec<u32> {
        let mut slots: Vec<_> = {
            let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots
                .iter()
                .filter(|(key, _)| key.0 == way)
                .map(|(key, slot)| (key.1, Arc::clone(slot)))
                .collect()
        };
        slots.sort_by_key(|(name, _)| *name);
        let mut pids = Vec::new();
        for (_, slot) in slots {
            // One that is being started is left alone.
            let Ok(pipe) = slot.try_lock() else { continue };
            pids.extend(pipe.as_ref().filter(|pipe| !pipe.is_gone()).map(|pipe| pipe.pid));
        }
        pids
    }

    fn command(&self, way: Way, person: &'static Person) -> Option<Command> {
        let log =
            File::options().create(true).append(true).open(self.site.folder.join("clients.log")).ok()?;
        let mut command = match way {
            Way::Relay => {
                let url = format!("nats://127.0.0.1:{}", self.site.ports.broker?);
                let args = ["worker", "--nats", &url, "--role", person.role, "--name", person.name];
                self.site.far(&args)
            }
            _ => {
                // Named, so that it never starts a daemon of its own.
                let url = format!("http://127.0.0.1:{}", self.site.ports.daemon);
                let mut command = self.site.near(&["stdio", "--daemon", &url]);
                command.env("OSTLER_TOKEN", self.site.tokens.get(person.name)?);
                command
            }
        };
        command.stderr(log);
        Some(command)
    }
}
