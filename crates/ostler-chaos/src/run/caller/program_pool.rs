//! Programs that callers share: one for each route and user.

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

/// Pause before a program that did not start is tried again.
const PAUSE: Duration = Duration::from_millis(100);

type ProgramSlot = Arc<AsyncMutex<Option<Arc<StdioProgram>>>>;

/// Pool of programs: starts a caller's program when it is gone.
#[derive(Debug)]
pub(crate) struct ProgramPool {
    testbed: Arc<Testbed>,
    slots: Mutex<HashMap<(CallRoute, &'static str), ProgramSlot>>,
}

impl ProgramPool {
    pub(crate) fn new(testbed: Arc<Testbed>) -> Self {
        Self { testbed, slots: Mutex::default() }
    }

    /// Returns the running program of a user; None if none starts in time. After `send_by` no
    /// program is started, but one that is starting may finish.
    pub(super) async fn get(
        &self,
        way: CallRoute,
        user: &'static TestUser,
        deadlines: CallerDeadlines,
    ) -> Option<Arc<StdioProgram>> {
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry((way, user.name)).or_default())
        };
        let mut slot = tokio::time::timeout_at(deadlines.send_by, slot.lock()).await.ok()?;
        loop {
            if let Some(program) = slot.as_ref().filter(|program| !program.is_gone()) {
                return Some(Arc::clone(program));
            }
            *slot = None;
            let starting = StdioProgram::start(self.command(way, user)?);
            match tokio::time::timeout_at(deadlines.answer_by, starting).await.ok()? {
                Ok(program) => *slot = Some(Arc::new(program)),
                Err(_) if Instant::now() + PAUSE >= deadlines.send_by => return None,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Returns the pids of a route's running programs, in a fixed order.
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
            // A locked slot is starting its program.
            let Ok(program) = slot.try_lock() else { continue };
            pids.extend(program.as_ref().filter(|program| !program.is_gone()).map(|program| program.pid));
        }
        pids
    }

    fn command(&self, way: CallRoute, user: &'static TestUser) -> Option<Command> {
        let log =
            File::options().create(true).append(true).open(self.testbed.folder.join("clients.log")).ok()?;
        let mut command = match way {
            CallRoute::Relay => {
                let url = format!("nats://127.0.0.1:{}", self.testbed.ports.broker?);
                let args = ["worker", "--nats", &url, "--role", user.role, "--name", user.name];
                self.testbed.worker_command(&args)
            }
            _ => {
                // With an explicit URL it never starts a daemon of its own.
                let url = format!("http://127.0.0.1:{}", self.testbed.ports.daemon);
                let mut command = self.testbed.host_command(&["stdio", "--daemon", &url]);
                command.env("OSTLER_TOKEN", self.testbed.tokens.get(user.name)?);
                command
            }
        };
        command.stderr(log);
        Some(command)
    }
}
