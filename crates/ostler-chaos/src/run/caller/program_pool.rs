//! The programs that callers share: one for each way and person.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler_chaos::history::CallRoute;
use tokio::process::Command;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::CallerDeadlines;
use super::stdio_program::StdioProgram;
use crate::run::environment::testbed::Testbed;
use crate::run::environment::users::TestUser;

/// Before a program that did not come up is tried again.
const PAUSE: Duration = Duration::from_millis(100);

type ProgramSlot = Arc<AsyncMutex<Option<Arc<StdioProgram>>>>;

/// Finds the program of a caller, and starts it if it is gone.
#[derive(Debug)]
pub(crate) struct ProgramPool {
    testbed: Arc<Testbed>,
    slots: Mutex<HashMap<(CallRoute, &'static str), ProgramSlot>>,
}

impl ProgramPool {
    pub(crate) fn new(testbed: Arc<Testbed>) -> Self {
        Self { testbed, slots: Mutex::default() }
    }

    /// The program that runs for this person; None if it does not come up in time. None is started
    /// once nothing would be sent any more, but one that has started is heard out.
    pub(super) async fn get(
        &self,
        way: CallRoute,
        person: &'static TestUser,
        patience: CallerDeadlines,
    ) -> Option<Arc<StdioProgram>> {
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry((way, person.name)).or_default())
        };
        let mut slot = tokio::time::timeout_at(patience.send_by, slot.lock()).await.ok()?;
        loop {
            if let Some(pipe) = slot.as_ref().filter(|pipe| !pipe.is_gone()) {
                return Some(Arc::clone(pipe));
            }
            *slot = None;
            let starting = StdioProgram::start(self.command(way, person)?);
            match tokio::time::timeout_at(patience.answer_by, starting).await.ok()? {
                Ok(pipe) => *slot = Some(Arc::new(pipe)),
                Err(_) if Instant::now() + PAUSE >= patience.send_by => return None,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// The processes that run for a way, in a fixed order.
    pub(crate) async fn pids(&self, way: CallRoute) -> Vec<u32> {
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

    fn command(&self, way: CallRoute, person: &'static TestUser) -> Option<Command> {
        let log =
            File::options().create(true).append(true).open(self.testbed.folder.join("clients.log")).ok()?;
        let mut command = match way {
            CallRoute::Relay => {
                let url = format!("nats://127.0.0.1:{}", self.testbed.ports.broker?);
                let args = ["worker", "--nats", &url, "--role", person.role, "--name", person.name];
                self.testbed.worker_command(&args)
            }
            _ => {
                // Named, so that it never starts a daemon of its own.
                let url = format!("http://127.0.0.1:{}", self.testbed.ports.daemon);
                let mut command = self.testbed.host_command(&["stdio", "--daemon", &url]);
                command.env("OSTLER_TOKEN", self.testbed.tokens.get(person.name)?);
                command
            }
        };
        command.stderr(log);
        Some(command)
    }
}
