//! The journal that all hosts of a life share: it outlives each of them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use ostler_host::upstream::BoxFuture;
use ostler_relay::journal::{CallJournal, ClaimError, ClaimOutcome, MemoryJournal};
use ostler_relay::{CallId, RelayName};

/// The longest time that a claim takes.
pub(crate) const SLOWEST: Duration = Duration::from_millis(30);

/// Whether a journal remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JournalMode {
    Durable,
    /// Every claim is the first.
    Forgetful,
}

/// A journal that is slow now and then, and sometimes can't be written.
pub(crate) struct UnreliableJournal {
    mode: JournalMode,
    kept: MemoryJournal,
    chance: Mutex<Rng>,
}

impl UnreliableJournal {
    pub(crate) fn new(mode: JournalMode, rng: Rng) -> Self {
        Self { mode, kept: MemoryJournal::new(), chance: Mutex::new(rng) }
    }
}

impl CallJournal for UnreliableJournal {
    fn claim<'a>(
        &'a self,
        call: CallId,
        worker: &'a RelayName,
    ) -> BoxFuture<'a, Result<ClaimOutcome, ClaimError>> {
        let (dice, wait) = {
            let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
            (chance.u8(..50), chance.u64(..SLOWEST.as_millis() as u64))
        };
        Box::pin(async move {
            if dice < 10 {
                tokio::time::sleep(Duration::from_millis(wait)).await;
            }
            if dice == 10 {
                return Err(ClaimError("the disk is full".into()));
            }
            match self.mode {
                JournalMode::Durable => self.kept.claim(call, worker).await,
                JournalMode::Forgetful => Ok(ClaimOutcome::Ours),
            }
        })
    }

    fn mark_answered(&self, call: CallId) {
        self.kept.mark_answered(call);
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        self.kept.flush()
    }
}
