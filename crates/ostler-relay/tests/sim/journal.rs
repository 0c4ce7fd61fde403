//! Journal shared by all hosts of a run; it outlives each of them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use ostler_host::upstream::BoxFuture;
use ostler_relay::journal::{CallJournal, ClaimError, ClaimOutcome, MemoryJournal};
use ostler_relay::{CallId, RelayName};

/// Upper bound on the duration of a claim.
pub(crate) const SLOWEST: Duration = Duration::from_millis(30);

/// Reliability of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JournalMode {
    Durable,
    /// Grants every claim.
    Forgetful,
}

/// Journal that is sometimes slow and sometimes fails.
pub(crate) struct UnreliableJournal {
    mode: JournalMode,
    inner: MemoryJournal,
    rng: Mutex<Rng>,
}

impl UnreliableJournal {
    pub(crate) fn new(mode: JournalMode, rng: Rng) -> Self {
        Self { mode, inner: MemoryJournal::new(), rng: Mutex::new(rng) }
    }
}

impl CallJournal for UnreliableJournal {
    fn claim<'a>(
        &'a self,
        call: CallId,
        worker: &'a RelayName,
    ) -> BoxFuture<'a, Result<ClaimOutcome, ClaimError>> {
        let (roll, wait) = {
            let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
            (rng.u8(..50), rng.u64(..SLOWEST.as_millis() as u64))
        };
        Box::pin(async move {
            if roll < 10 {
                tokio::time::sleep(Duration::from_millis(wait)).await;
            }
            if roll == 10 {
                return Err(ClaimError("the disk is full".into()));
            }
            match self.mode {
                JournalMode::Durable => self.inner.claim(call, worker).await,
                JournalMode::Forgetful => Ok(ClaimOutcome::Ours),
            }
        })
    }

    fn mark_answered(&self, call: CallId) {
        self.inner.mark_answered(call);
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        self.inner.flush()
    }
}
