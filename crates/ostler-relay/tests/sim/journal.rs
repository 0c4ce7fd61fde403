//! The journal that all hosts of a life share: it outlives each of them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use ostler_host::upstream::BoxFuture;
use ostler_relay::journal::{Claim, Journal, MemoryJournal, Unclaimed};
use ostler_relay::{CallId, Name};

/// The longest time that a claim takes.
pub(crate) const SLOWEST: Duration = Duration::from_millis(30);

/// Whether a journal remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Honesty {
    Honest,
    /// Every claim is the first.
    Forgetful,
}

/// A journal that is slow now and then, and sometimes can't be written.
pub(crate) struct Shelf {
    honesty: Honesty,
    kept: MemoryJournal,
    chance: Mutex<Rng>,
}

impl Shelf {
    pub(crate) fn new(honesty: Honesty, rng: Rng) -> Self {
        Self { honesty, kept: MemoryJournal::new(), chance: Mutex::new(rng) }
    }
}

impl Journal for Shelf {
    fn claim<'a>(&'a self, call: CallId, worker: &'a Name) -> BoxFuture<'a, Result<Claim, Unclaimed>> {
        let (dice, wait) = {
            let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
            (chance.u8(..50), chance.u64(..SLOWEST.as_millis() as u64))
        };
        Box::pin(async move {
            if dice < 10 {
                tokio::time::sleep(Duration::from_millis(wait)).await;
            }
            if dice == 10 {
                return Err(Unclaimed("the disk is full".into()));
            }
            match self.honesty {
                Honesty::Honest => self.kept.claim(call, worker).await,
                Honesty::Forgetful => Ok(Claim::Ours),
            }
        })
    }

    fn settle(&self, call: CallId) {
        self.kept.settle(call);
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.kept.close()
    }
}
