//! The thread that writes. Whatever the disk does, it tries again; while it
//! can't write, rows wait, and beyond the queue they are counted.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ostler_core::config;
use ostler_core::fault::Span;
use ostler_store::{Database, Failed, Layout, Next, Queue, Serve, StoreError, Written};

use super::batch::Ink;
use super::layout::LAYOUT;
use super::queue::{Batch, Lost, RowQueue, Rows};
use super::redact::Veil;
use super::retention::{self, Deleted, Retention};
use super::row::{self, Kind, Queued, Row, Said};
use crate::output::tell;

/// How long to wait before what failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How often rows that are too old are looked for while nothing happens.
const TRIM_EVERY: Duration = Duration::from_secs(60);
/// How long to wait between two steps of making room.
const TRIM_PAUSE: Duration = Duration::from_millis(20);
/// Steps of making room at the end, for which somebody waits.
const LAST_TRIMS: usize = 32;
/// Transactions in a row, before it is looked whether there is room to make. At the end there may be more.
const IN_A_ROW: usize = 16;

/// What can't be written now, and why, for whoever asks.
#[derive(Debug, Default)]
pub(super) struct Health(Mutex<Option<String>>);

impl Health {
    pub(super) fn trouble(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes that calls have waited for room in vain.
    pub(super) fn stalled(&self) {
        let words = format!("no row was written for {}", Span(super::queue::PATIENCE));
        tell(&format!(
            "warning: the audit is stalled: {words}\n  \
             hint: calls don't wait for it until rows are written again; what is dropped is counted"
        ));
        _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(words);
    }

    fn set(&self, trouble: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

/// What a writer is made with.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) file: PathBuf,
    /// The key of its hashes.
    pub(super) key: PathBuf,
    /// Whether the text of arguments is kept.
    pub(super) is_full: bool,
    /// Whether the process ends soon: it leaves tidying the file to others.
    pub(super) is_passing: bool,
    /// Hides values that rows must not hold.
    pub(super) veil: Arc<Veil>,
}

/// What the thread works with.
pub(super) struct Writer {
    queue: RowQueue,
    health: Arc<Health>,
    place: Place,
    settings: config::Audit,
    database: Database,
    /// Opened with the file.
    ink: Option<Ink>,
    /// Rows that were taken and are not written yet.
    batch: Batch,
    /// Rows of the writer's own, which are written after these.
    own: Vec<Queued>,
    retention: Retention,
    /// Rows were dropped when the queue was last looked at.
    is_losing: bool,
    trimmed: Option<Instant>,
    /// Rows that were deleted because the file is too large, and have no row yet; one for each class.
    deleted: Vec<Deleted>,
    /// When rows about such were last written.
    noted: Option<Instant>,
}

impl Serve for Writer {
    type Waiting = Rows;

    fn serve(&mut self, _queue: &Queue<Rows>, is_last: bool) -> Next {
        let is_done = self.write_all(is_last);
        if is_last {
            self.finish(is_done);
        }
        if !is_done {
            return Next::Pause(AGAIN);
        }
        let patience = self.trim();
        if self.noted.is_none_or(|at| at.elapsed() >= TRIM_EVERY) {
            self.note_deleted();
        }
        Next::Wait(patience)
    }
}

impl Writer {
    pub(super) fn new(queue: RowQueue, health: Arc<Health>, place: Place, settings: config::Audit) -> Self {
        let layout = Layout { tidies_at_end: !place.is_passing, ..LAYOUT };
        Self {
            queue,
            health,
            database: Database::new(place.file.clone(), layout),
            place,
            settings,
            ink: None,
            batch: Batch::default(),
            own: Vec::new(),
            retention: Retention::default(),
            is_losing: false,
            trimmed: None,
            deleted: Vec::new(),
            noted: None,
        }
    }

    /// Writes what there is, in transactions of bounded size; false if something could not be written.
    fn write_all(&mut self, is_last: bool) -> bool {
        for _ in 0..if is_last { usize::MAX } else { IN_A_ROW } {
            if self.batch.rows.is_empty() && self.own.is_empty() {
                self.queue.take(&mut self.batch);
                self.note_lost(self.batch.lost);
                self.own.extend(self.batch.counted.drain(..).chain(self.batch.lost.row()).map(Queued::from));
            }
            if self.batch.rows.is_empty() && self.own.is_empty() {
                return true;
            }
            if !self.write() {
                return false;
            }
        }
        true
    }

    /// Writes what was taken. Where the file is not the one of before, it goes into a new one.
    fn write(&mut self) -> bool {
        let written = match self.try_write() {
            Err(failed) if failed.error.is_new_file() => {
                self.note_new_file(&failed.error);
                self.try_write()
            }
            other => other,
        };
        match written {
            Ok(Written { outage, .. }) => {
                self.own.clear();
                let was_stalled = self.queue.done(&mut self.batch);
                self.recovered(outage, was_stalled);
                true
            }
            Err(failed) => {
                self.failed(&failed);
                false
            }
        }
    }

    fn try_write(&mut self) -> Result<Written<()>, Failed> {
        let Self { database, ink, batch, own, place, .. } = self;
        database.write(|writing| {
            let ink = match ink {
                Some(ink) => ink,
                none => none.insert(Ink::open(&place.key, place.is_full, Arc::clone(&place.veil))?),
            };
            ink.write(writing, batch.rows.make_contiguous())?;
            Ok(ink.write(writing, own)?)
        })
    }

    /// Notes that rows go into a new file from now on; where the old one is says a row in it.
    fn note_new_file(&mut self, error: &StoreError) {
        // The key may be gone with the file.
        self.ink = None;
        let StoreError::PutAside { why, kept } = error else { return };
        tell(&format!(
            "warning: the audit is corrupt ({why}), so a new one is begun\n  \
             hint: the old one is kept as {}",
            kept.display()
        ));
        let said = Said { action: "corrupt", detail: &error.to_string(), ..Said::default() };
        self.own.push(Row::now(Kind::Gap, "lost", &said).into());
    }

    /// Makes room; says when to go on with that.
    fn trim(&mut self) -> Duration {
        let is_due = self.trimmed.is_none_or(|at| at.elapsed() >= TRIM_EVERY) || self.is_large();
        if !is_due || self.database.connection().is_none() {
            return TRIM_EVERY;
        }
        let oldest = row::now().saturating_sub(row::micros(self.settings.keep));
        let trimmed = self.retention.trim(&mut self.database, oldest, self.settings.max_size as u64);
        // What can't be deleted now will be, later.
        let Ok(trimmed) = trimmed else { return AGAIN };
        if let Some(more) = trimmed.for_size {
            match self.deleted.iter_mut().find(|deleted| deleted.class == more.class) {
                Some(deleted) => deleted.add(&more),
                None => self.deleted.push(more),
            }
        }
        if trimmed.has_more {
            return TRIM_PAUSE;
        }
        self.trimmed = Some(Instant::now());
        if !self.is_large() {
            return TRIM_EVERY;
        }
        // The file itself becomes smaller when the log has been written into
        // it, for which nobody may be reading.
        if let Some(connection) = self.database.connection() {
            retention::checkpoint(connection);
        }
        if self.is_large() { AGAIN } else { TRIM_EVERY }
    }

    /// Writes down what was deleted because the file is too large: at most a row
    /// a minute for each class, so that these do not fill the file themselves.
    fn note_deleted(&mut self) {
        if self.deleted.is_empty() {
            return;
        }
        self.noted = Some(Instant::now());
        self.own.extend(self.deleted.drain(..).map(|deleted| Queued::from(deleted.row())));
        self.write();
    }

    /// Whether the file is too large, or will be when the log has been written
    /// into it.
    fn is_large(&mut self) -> bool {
        let most = self.settings.max_size as u64;
        let used = self.database.connection().and_then(|connection| retention::used(connection).ok());
        size_of_file(&self.place.file) > most || used.is_some_and(|used| used > most)
    }

    /// Says that rows were dropped when that begins, and not again until it has ended.
    fn note_lost(&mut self, lost: Lost) {
        let was_losing = std::mem::replace(&mut self.is_losing, lost.count > 0);
        if self.is_losing && !was_losing {
            tell(&format!(
                "warning: rows of the audit are dropped, {} so far: they come faster than they can be written\n  \
                 hint: a row of the kind `gap` says how many are missing",
                lost.count
            ));
        }
    }

    /// Says it once, and not for every row.
    fn failed(&self, Failed { error, is_first }: &Failed) {
        self.health.set(Some(error.to_string()));
        if *is_first {
            tell(&format!(
                "warning: the audit can't be written: {error}\n  file: {}\n  \
                 hint: calls go on; rows wait as long as there is room for them, and what is dropped is counted",
                self.place.file.display()
            ));
        }
    }

    fn recovered(&self, outage: Option<Duration>, was_stalled: bool) {
        if outage.is_some() || was_stalled {
            self.health.set(None);
        }
        if let Some(outage) = outage {
            tell(&format!("the audit is written again, after {}", Span(outage)));
        }
    }

    fn finish(&mut self, is_done: bool) {
        self.place.veil.lift();
        if !is_done {
            return;
        }
        if self.trimmed.is_none() || self.is_large() {
            let _ = (0..LAST_TRIMS).find(|_| self.trim() != TRIM_PAUSE);
        }
        self.note_deleted();
    }
}

fn size_of_file(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |meta| meta.len())
}
