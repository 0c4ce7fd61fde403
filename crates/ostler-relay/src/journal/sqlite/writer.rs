//! The thread that writes. While it can't, every claim is refused, and each
//! batch is one more attempt.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::{Claim, Unclaimed};
use super::orders::{Batch, MOST_SETTLED, Orders};
use super::store::{Store, StoreError, put_aside};
use crate::call_id::CallId;

/// How often old claims are looked for while nothing happens.
const TRIM_EVERY: Duration = Duration::from_secs(10);
/// The pause between two steps of making room: most of the time is for claims,
/// and still more goes than ten thousand calls a second bring.
const TRIM_PAUSE: Duration = Duration::from_millis(10);
/// After this long without success the file is opened anew before every attempt.
const STUCK: Duration = Duration::from_secs(10);
/// A file that is spoilt is put aside at most this often: on a disk that spoils
/// everything, putting aside would fill it.
const ASIDE_EVERY: Duration = Duration::from_secs(3600);
/// How long nothing is claimed in a journal that replaces a spoilt one. What
/// was claimed in that one is not known, so a request that comes a second time
/// would be taken for a new one; after this long it is past its time to begin.
const QUIET: Duration = Duration::from_secs(5);

/// What the thread works with.
pub(super) struct Writer {
    file: PathBuf,
    orders: Arc<Orders>,
    store: Option<Store>,
    /// Ends that are not noted yet, at most [`MOST_SETTLED`].
    settled: Vec<CallId>,
    /// Since when nothing can be written.
    failing: Option<Instant>,
    /// When a spoilt file was last put aside.
    aside: Option<Instant>,
    /// When old claims are looked for next.
    trim_at: Instant,
}

impl Writer {
    pub(super) fn open(file: &Path, orders: Arc<Orders>) -> Result<Self, StoreError> {
        let mut writer = Self {
            file: file.to_owned(),
            orders,
            store: None,
            settled: Vec::new(),
            failing: None,
            aside: None,
            trim_at: Instant::now(),
        };
        let opened = match Store::open(file) {
            Err(error) if error.is_spoilt() && writer.begin_anew(&error) => Store::open(file),
            other => other,
        };
        writer.store = Some(opened?);
        Ok(writer)
    }

    /// Writes until nothing will come any more.
    pub(super) fn run(mut self) {
        loop {
            let batch = self.orders.take(self.trim_at.saturating_duration_since(Instant::now()));
            let is_last = batch.is_last;
            self.serve(batch);
            if is_last {
                return;
            }
            self.trim();
        }
    }

    fn serve(&mut self, mut batch: Batch) {
        if batch.is_empty() {
            return;
        }
        let room = MOST_SETTLED.saturating_sub(self.settled.len());
        self.settled.extend(batch.settled.drain(..).take(room));
        // Whoever does not wait any more has been told that nothing begins.
        batch.claims.retain(|(_, reply)| !reply.is_closed());
        let quiet = self.aside.map(|at| QUIET.saturating_sub(at.elapsed())).filter(|left| !left.is_zero());
        if let Some(left) = quiet {
            let why = format!("it was spoilt and is begun anew, ready in {} ms", left.as_millis());
            batch.claims.drain(..).for_each(|(_, reply)| drop(reply.send(Err(Unclaimed(why.clone())))));
        }
        let calls: Vec<CallId> = batch.claims.iter().map(|(call, _)| *call).collect();
        match self.write(&calls) {
            Ok(claims) => {
                batch
                    .claims
                    .into_iter()
                    .zip(claims)
                    .for_each(|((_, reply), claim)| drop(reply.send(Ok(claim))));
            }
            Err(error) => {
                let why = format!("{}: {error}", self.file.display());
                batch.claims.into_iter().for_each(|(_, reply)| drop(reply.send(Err(Unclaimed(why.clone())))));
            }
        }
        for reply in batch.flushes {
            let _ = reply.send(());
        }
    }

    fn write(&mut self, calls: &[CallId]) -> Result<Vec<Claim>, StoreError> {
        match self.try_write(calls) {
            Ok(claims) => {
                self.settled.clear();
                self.recovered();
                Ok(claims)
            }
            Err(error) => {
                let is_stuck = self.failing.is_some_and(|since| since.elapsed() >= STUCK);
                if is_stuck || !error.may_pass() {
                    self.store = None;
                }
                if error.is_spoilt() {
                    self.begin_anew(&error);
                }
                self.failed(&error);
                Err(error)
            }
        }
    }

    fn try_write(&mut self, calls: &[CallId]) -> Result<Vec<Claim>, StoreError> {
        let store = match &mut self.store {
            Some(store) => store,
            none => none.insert(Store::open(&self.file)?),
        };
        store.write(calls, &self.settled)
    }

    /// Puts a spoilt file aside, so that the next attempt makes a new one. True
    /// if that was done.
    fn begin_anew(&mut self, error: &StoreError) -> bool {
        if self.aside.is_some_and(|at| at.elapsed() < ASIDE_EVERY) {
            return false;
        }
        self.store = None;
        let Ok(aside) = put_aside(&self.file) else { return false };
        self.aside = Some(Instant::now());
        tracing::warn!(
            file = %self.file.display(), %error, kept = %aside.display(),
            "the journal of relayed calls is spoilt, so a new one is begun; which calls were begun before is not \
             known any more, and none begins for {} s", QUIET.as_secs()
        );
        true
    }

    /// Deletes a few old claims, if it is time for that. What can't be deleted
    /// now will be, later.
    fn trim(&mut self) {
        let now = Instant::now();
        if now < self.trim_at {
            return;
        }
        let has_more = self.store.as_mut().is_some_and(|store| store.trim().unwrap_or(false));
        self.trim_at = now + if has_more { TRIM_PAUSE } else { TRIM_EVERY };
    }

    /// Says it once, and not for every claim.
    fn failed(&mut self, error: &StoreError) {
        if self.failing.is_none() {
            self.failing = Some(Instant::now());
            tracing::warn!(
                file = %self.file.display(), %error,
                "the journal of relayed calls can't be written, so no relayed call begins"
            );
        }
    }

    fn recovered(&mut self) {
        if let Some(since) = self.failing.take() {
            tracing::info!(file = %self.file.display(), after = ?since.elapsed(), "the journal is written again");
        }
    }
}
