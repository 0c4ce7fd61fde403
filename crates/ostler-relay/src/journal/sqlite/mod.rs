//! A journal in a file: what was claimed outlives the process.
//!
//! ```text
//! claim ─┐                                     ┌─▶ Ours, Taken, Unclaimed
//! claim ─┼─▶ orders.rs ──▶ writer.rs ── one transaction ──▶ tables.rs
//! settle ┘   (bounded)     (a thread)
//! ```
//!
//! Whatever waits when the thread is free goes into one transaction, and
//! everybody is answered when it is committed: the more wait, the less each
//! one costs. A committed claim survives the end of the process, however that
//! comes. A power cut may take the last commits away, for they are not forced
//! to the disk one by one; what was asked just before it is past its time to
//! begin when the machine is up again.
//!
//! Several processes may use one file: who inserts a call first has it.

mod batch;
mod claims_table;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_host::upstream::BoxFuture;
use ostler_store::{StoreError, WriterQueue, WriterThread};
use tokio::sync::oneshot;

use self::batch::{ClaimBatch, GATHER};
use self::writer::CallJournalWriter;
use super::{CallJournal, ClaimError, ClaimOutcome};
use crate::call_id::CallId;
use crate::name::RelayName;

/// How long a claim waits for the disk. A call that is not claimed by then is
/// past its time to begin anyway.
const DISK_TIMEOUT: Duration = Duration::from_secs(2);

/// A journal in a file of SQLite. Dropping it ends it; what was ordered before
/// is still written.
#[derive(Debug)]
pub struct SqliteJournal(WriterThread<ClaimBatch>);

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
#[error("the journal of calls {} can't be opened: {why}", file.display())]
pub struct CallJournalOpenError {
    file: PathBuf,
    why: StoreError,
}

impl SqliteJournal {
    /// Opens the journal in a file, or begins one that only its user may read.
    /// A file that is no journal is put aside, and a warning says so.
    pub fn open(file: &Path) -> Result<Self, CallJournalOpenError> {
        let failed = |why: StoreError| CallJournalOpenError { file: file.to_owned(), why };
        let writer = CallJournalWriter::open(file).map_err(failed)?;
        let thread = WriterThread::spawn("relay-journal", Arc::new(WriterQueue::new(GATHER)), writer);
        Ok(Self(thread.map_err(|error| failed(error.into()))?))
    }
}

impl CallJournal for SqliteJournal {
    fn claim<'a>(
        &'a self,
        call: CallId,
        _worker: &'a RelayName,
    ) -> BoxFuture<'a, Result<ClaimOutcome, ClaimError>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            self.0.queue().update(|orders, _| orders.push_claim(call, reply))?;
            match tokio::time::timeout(DISK_TIMEOUT, answer).await {
                Ok(Ok(claim)) => claim,
                Ok(Err(_)) => Err(ClaimError("its thread has ended".into())),
                Err(_) => {
                    Err(ClaimError(format!("the disk did not answer within {} s", DISK_TIMEOUT.as_secs())))
                }
            }
        })
    }

    fn mark_answered(&self, call: CallId) {
        self.0.queue().update(|orders, _| orders.push_answered(call));
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let (reply, done) = oneshot::channel();
            self.0.queue().update(|orders, _| orders.flushes.push(reply));
            // A disk that does not answer must not keep the process.
            let _ = tokio::time::timeout(DISK_TIMEOUT, done).await;
        })
    }
}
