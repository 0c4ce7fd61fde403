//! The thread that writes. While it can't, every claim is refused, and each
//! batch is one more attempt.

use std::path::Path;
use std::time::{Duration, Instant};

use ostler_store::{BatchWriter, Database, NextBatch, StoreError, WriteError, WriterQueue};

use super::super::{ClaimError, ClaimOutcome};
use super::batch::{ClaimBatch, MAX_ANSWERED};
use super::claims_table::{self, ClaimClock, LAYOUT};
use crate::call_id::CallId;

/// How often old claims are looked for while nothing happens.
const TRIM_EVERY: Duration = Duration::from_secs(10);
/// The pause between two steps of making room: most of the time is for claims,
/// and still more goes than ten thousand calls a second bring.
const TRIM_PAUSE: Duration = Duration::from_millis(10);
/// How long nothing is claimed in a journal that replaces another one. What
/// was claimed in that one is not known, so a request that comes a second time
/// would be taken for a new one; after this long it is past its time to begin.
const REPLACED_QUIET_TIME: Duration = Duration::from_secs(5);

/// What the thread works with.
pub(super) struct CallJournalWriter {
    database: Database,
    clock: ClaimClock,
    /// Ends that are not noted yet, at most [`MOST_SETTLED`].
    answered: Vec<CallId>,
    /// When the journal has replaced another one, and why.
    replaced: Option<(Instant, &'static str)>,
    /// When old claims are looked for next.
    trim_at: Instant,
}

impl CallJournalWriter {
    pub(super) fn open(file: &Path) -> Result<Self, StoreError> {
        let mut writer = Self {
            database: Database::new(file.to_owned(), LAYOUT),
            clock: ClaimClock::new(),
            answered: Vec::new(),
            replaced: None,
            trim_at: Instant::now(),
        };
        match writer.write(&[]) {
            Err(failed) if failed.error.is_reopened() => writer.write(&[]),
            other => other,
        }
        .map_err(|failed| failed.error)?;
        Ok(writer)
    }

    /// Refuses claims while those of before may be asked for again.
    fn refuse_while_replaced(&mut self, orders: &mut ClaimBatch) {
        let Some((at, why)) = self.replaced else { return };
        let left = REPLACED_QUIET_TIME.saturating_sub(at.elapsed());
        if left.is_zero() {
            self.replaced = None;
            return;
        }
        let why = format!("it {why} and is begun anew, ready in {} ms", left.as_millis());
        refuse(orders, &why);
    }

    fn write(&mut self, calls: &[CallId]) -> Result<Vec<ClaimOutcome>, WriteError> {
        let (settled, at) = (&self.answered, self.clock.now());
        let mut write = || self.database.write(|writing| claims_table::write(writing, calls, settled, at));
        let written = match write() {
            Err(failed) if failed.error.is_reopened() && !failed.error.may_have_lost() => {
                log_reopened(&failed.error);
                write()
            }
            other => other,
        };
        match written {
            Ok(written) => {
                self.answered.clear();
                if let Some(outage) = written.outage {
                    let file = self.database.file().display();
                    tracing::info!(%file, after = ?outage, "the journal is written again");
                }
                Ok(written.value)
            }
            Err(failed) => {
                self.log_failure(&failed);
                Err(failed)
            }
        }
    }

    /// Says what is wrong, once and not for every claim.
    fn log_failure(&mut self, WriteError { error, is_first }: &WriteError) {
        let file = self.database.file().display();
        if error.may_have_lost() {
            let why = match error {
                StoreError::FileGone { .. } => "was taken away",
                StoreError::LogGone { .. } => "has lost its log",
                _ => "was corrupt",
            };
            self.replaced = Some((Instant::now(), why));
            tracing::warn!(
                %file, %error,
                "the journal of relayed calls is begun anew; which calls were begun before is not known any more, \
                 and none begins for {} s", REPLACED_QUIET_TIME.as_secs()
            );
        } else if error.is_reopened() {
            log_reopened(error);
        } else if *is_first {
            tracing::warn!(
                %file, %error,
                "the journal of relayed calls can't be written, so no relayed call begins"
            );
        }
    }

    /// Deletes a few old claims, if it is time for that. What can't be deleted
    /// now will be, later.
    fn trim(&mut self) {
        let now = Instant::now();
        if now < self.trim_at {
            return;
        }
        let has_more = claims_table::trim(&mut self.database, self.clock.now()).unwrap_or(false);
        self.trim_at = now + if has_more { TRIM_PAUSE } else { TRIM_EVERY };
    }
}

impl BatchWriter for CallJournalWriter {
    type Waiting = ClaimBatch;

    fn write_batch(&mut self, queue: &WriterQueue<ClaimBatch>, is_last: bool) -> NextBatch {
        let mut orders = queue.update(|orders, _| std::mem::take(orders));
        let room = MAX_ANSWERED.saturating_sub(self.answered.len());
        self.answered.extend(orders.answered.drain(..).take(room));
        // Whoever does not wait any more has been told that nothing begins.
        orders.claims.retain(|(_, reply)| !reply.is_closed());
        self.refuse_while_replaced(&mut orders);
        if !orders.claims.is_empty() || !self.answered.is_empty() {
            let calls: Vec<CallId> = orders.claims.iter().map(|(call, _)| *call).collect();
            match self.write(&calls) {
                Ok(claims) => {
                    let replies = orders.claims.drain(..).zip(claims);
                    replies.for_each(|((_, reply), claim)| drop(reply.send(Ok(claim))));
                }
                Err(failed) => {
                    let why = format!("{}: {failed}", self.database.file().display());
                    refuse(&mut orders, &why);
                }
            }
        } else if let Err(error) = self.database.check_files() {
            self.log_failure(&WriteError { error, is_first: true });
        }
        if !orders.flushes.is_empty() {
            // The process may end before this thread.
            self.database.checkpoint();
        }
        for reply in orders.flushes {
            let _ = reply.send(());
        }
        match is_last {
            true => self.database.close(),
            false => self.trim(),
        }
        let now = Instant::now();
        let patience = self.trim_at.saturating_duration_since(now);
        NextBatch::Wait(self.database.settle(now).map_or(patience, |settle| settle.min(patience)))
    }
}

/// Says that the log was begun anew and that every claim is known.
fn log_reopened(error: &StoreError) {
    tracing::warn!(%error, "the journal of relayed calls begins another log; all claims are in the file");
}

fn refuse(orders: &mut ClaimBatch, why: &str) {
    orders.claims.drain(..).for_each(|(_, reply)| drop(reply.send(Err(ClaimError(why.to_owned())))));
}
