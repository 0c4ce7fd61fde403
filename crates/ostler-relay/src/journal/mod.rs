//! Which calls were begun, so that none is begun twice.

mod kv;
mod memory;
mod sqlite;

use std::time::Duration;

use ostler_host::upstream::BoxFuture;

use crate::call_id::CallId;
use crate::name::RelayName;

pub use kv::{KvJournal, kv_bucket};
pub use memory::MemoryJournal;
pub use sqlite::{CallJournalOpenError, SqliteJournal};

/// How long a claim is kept. No request comes later: its deadline to begin is
/// seconds after it was sent.
pub const CLAIM_RETENTION: Duration = Duration::from_secs(10 * 60);

/// Remembers which calls were begun.
pub trait CallJournal: Send + Sync + 'static {
    /// Claims a call. Only who gets [`ClaimOutcome::Ours`] may carry it out, and it is
    /// remembered before that is said, whatever then happens to this process.
    /// A future that is dropped may have claimed or not.
    fn claim<'a>(
        &'a self,
        call: CallId,
        worker: &'a RelayName,
    ) -> BoxFuture<'a, Result<ClaimOutcome, ClaimError>>;

    /// Notes that a claimed call was answered. Nobody waits for it.
    fn mark_answered(&self, call: CallId);

    /// Waits until what was noted so far is kept, in a time of its own choice.
    fn flush(&self) -> BoxFuture<'_, ()>;
}

/// Who carries out a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// Whoever asked.
    Ours,
    /// It was begun before, by this life of the host, an earlier one or another host.
    Taken {
        /// Whether its end was noted. Without one it is under way, or nobody
        /// knows what has become of it.
        is_answered: bool,
    },
}

/// The journal can't be kept, so nothing may begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the journal of calls can't be written: {0}")]
pub struct ClaimError(pub String);
