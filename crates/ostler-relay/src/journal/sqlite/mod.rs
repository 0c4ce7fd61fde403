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

mod orders;
mod tables;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_host::upstream::BoxFuture;
use ostler_store::{Queue, StoreError, Thread};
use tokio::sync::oneshot;

use self::orders::{GATHER, Orders};
use self::writer::Writer;
use super::{Claim, Journal, Unclaimed};
use crate::call_id::CallId;
use crate::name::Name;

/// How long a claim waits for the disk. A call that is not claimed by then is
/// past its time to begin anyway.
const PATIENCE: Duration = Duration::from_secs(2);

/// A journal in a file of SQLite. Dropping it ends it; what was ordered before
/// is still written.
#[derive(Debug)]
pub struct SqliteJournal(Thread<Orders>);

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
#[error("the journal of calls {} can't be opened: {why}", file.display())]
pub struct OpenError {
    file: PathBuf,
    why: StoreError,
}

impl SqliteJournal {
    /// Opens the journal in a file, or begins one that only its user may read.
    /// A file that is no journal is put aside, and a warning says so.
    pub fn open(file: &Path) -> Result<Self, OpenError> {
        let failed = |why: StoreError| OpenError { file: file.to_owned(), why };
        let writer = Writer::open(file).map_err(failed)?;
        let thread = Thread::begin("relay-journal", Arc::new(Queue::new(GATHER)), writer);
        Ok(Self(thread.map_err(|error| failed(error.into()))?))
    }
}

impl Journal for SqliteJournal {
    fn claim<'a>(&'a self, call: CallId, _worker: &'a Name) -> BoxFuture<'a, Result<Claim, Unclaimed>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            self.0.queue().change(|orders, _| orders.claim(call, reply))?;
            match tokio::time::timeout(PATIENCE, answer).await {
                Ok(Ok(claim)) => claim,
                Ok(Err(_)) => Err(Unclaimed("its thread has ended".into())),
                Err(_) => Err(Unclaimed(format!("the disk did not answer within {} s", PATIENCE.as_secs()))),
            }
        })
    }

    fn settle(&self, call: CallId) {
        self.0.queue().change(|orders, _| orders.settle(call));
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let (reply, done) = oneshot::channel();
            self.0.queue().change(|orders, _| orders.flushes.push(reply));
            // A disk that does not answer must not keep the process.
            let _ = tokio::time::timeout(PATIENCE, done).await;
        })
    }
}
