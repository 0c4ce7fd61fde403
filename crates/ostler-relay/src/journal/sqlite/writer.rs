//! The thread that writes. While it can't, every claim is refused, and each
//! batch is one more attempt.

use std::path::Path;
use std::time::{Duration, Instant};

use ostler_store::{Database, Failed, Next, Queue, Serve, StoreError};

use super::super::{Claim, Unclaimed};
use super::orders::{MOST_SETTLED, Orders};
use super::tables::{self, Clock, LAYOUT};
use crate::call_id::CallId;

/// How often old claims are looked for while nothing happens.
const TRIM_EVERY: Duration = Duration::from_secs(10);
/// The pause between two steps of making room: most of the time is for claims,
/// and still more goes than ten thousand calls a second bring.
const TRIM_PAUSE: Duration = Duration::from_millis(10);
/// How long nothing is claimed in a journal that replaces another one. What
/// was claimed in that one is not known, so a request that comes a second time
/// would be taken for a new one; after this long it is past its time to begin.
const QUIET: Duration = Duration::from_secs(5);

/// What the thread works with.
pub(super) struct Writer {
    database: Database,
    clock: Clock,
    /// Ends that are not noted yet, at most [`MOST_SETTLED`].
    settled: Vec<CallId>,
    /// When the journal has replaced another one, and why.
    replaced: Option<(Instant, &'static str)>,
    /// When old claims are looked for next.
    trim_at: Instant,
}

impl Writer {
    pub(super) fn open(file: &Path) -> Result<Self, StoreError> {
        let mut writer = Self {
            database: Database::new(file.to_owned(), LAYOUT),
            clock: Clock::new(),
            settled: Vec::new(),
            replaced: None,
            trim_at: Instant::now(),
        };
        match writer.write(&[]) {
            Err(failed) if failed.error.is_new_file() => writer.write(&[]),
            other => other,
        }
        .map_err(|failed| failed.error)?;
        Ok(writer)
    }

    /// Refuses claims while those of before may be asked for again.
    fn keep_quiet(&mut self, orders: &mut Orders) {
        let Some((at, why)) = self.replaced else { return };
        let left = QUIET.saturating_sub(at.elapsed());
        if left.is_zero() {
            self.replaced = None;
            return;
        }
        let why = format!("it {why} and is begun anew, ready in {} ms", left.as_millis());
        refuse(orders, &why);
    }

    fn write(&mut self, calls: &[CallId]) -> Result<Vec<Claim>, Failed> {
        let (settled, at) = (&self.settled, self.clock.now());
        let written = self.database.write(|writing| tables::write(writing, calls, settled, at));
        match written {
            Ok(written) => {
                self.settled.clear();
                if let Some(outage) = written.outage {
                    let file = self.database.file().display();
                    tracing::info!(%file, after = ?outage, "the journal is written again");
                }
                Ok(written.value)
            }
            Err(failed) => {
                self.note(&failed);
                Err(failed)
            }
        }
    }

    /// Says what is wrong, once and not for every claim.
    fn note(&mut self, Failed { error, is_first }: &Failed) {
        let file = self.database.file().display();
        if error.is_new_file() {
            let why = if matches!(error, StoreError::Gone) { "was taken away" } else { "was corrupt" };
            self.replaced = Some((Instant::now(), why));
            tracing::warn!(
                %file, %error,
                "the journal of relayed calls is begun anew; which calls were begun before is not known any more, \
                 and none begins for {} s", QUIET.as_secs()
            );
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
        let has_more = tables::trim(&mut self.database, self.clock.now()).unwrap_or(false);
        self.trim_at = now + if has_more { TRIM_PAUSE } else { TRIM_EVERY };
    }
}

impl Serve for Writer {
    type Waiting = Orders;

    fn serve(&mut self, queue: &Queue<Orders>, is_last: bool) -> Next {
        let mut orders = queue.change(|orders, _| std::mem::take(orders));
        let room = MOST_SETTLED.saturating_sub(self.settled.len());
        self.settled.extend(orders.settled.drain(..).take(room));
        // Whoever does not wait any more has been told that nothing begins.
        orders.claims.retain(|(_, reply)| !reply.is_closed());
        self.keep_quiet(&mut orders);
        if !orders.claims.is_empty() || !self.settled.is_empty() {
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
        }
        for reply in orders.flushes {
            let _ = reply.send(());
        }
        if !is_last {
            self.trim();
        }
        Next::Wait(self.trim_at.saturating_duration_since(Instant::now()))
    }
}

fn refuse(orders: &mut Orders, why: &str) {
    orders.claims.drain(..).for_each(|(_, reply)| drop(reply.send(Err(Unclaimed(why.to_owned())))));
}
