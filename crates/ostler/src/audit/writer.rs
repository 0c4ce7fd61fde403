//! The thread that writes. Whatever the disk does, it tries again; while it
//! can't write, rows wait, and beyond the queue they are counted.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ostler_core::config;
use ostler_core::fault::Span;

use super::queue::{Call, Lost, Queue};
use super::retention::Deleted;
use super::row::{self, Kind, Queued, Row, Said};
use super::store::{Place, Store, StoreError, put_aside};
use crate::output::tell;

/// How long to wait before what failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// After this long the file is opened anew before every attempt.
const STUCK: Duration = Duration::from_secs(10);
/// How often rows that are too old are looked for while nothing happens.
const TRIM_EVERY: Duration = Duration::from_secs(60);
/// How long to wait between two steps of making room.
const TRIM_PAUSE: Duration = Duration::from_millis(20);
/// Steps of making room at the end, for which somebody waits.
const LAST_TRIMS: usize = 32;
/// A file that is spoilt is put aside at most this often: on a disk that spoils
/// everything, putting aside would fill it.
const ASIDE_EVERY: Duration = Duration::from_secs(3600);

/// How writing goes, for whoever asks.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<Going>);

#[derive(Debug, Clone, Default)]
pub(crate) struct Going {
    /// Why nothing can be written now.
    pub(crate) trouble: Option<String>,
    /// Rows that were dropped so far.
    pub(crate) lost: u64,
}

impl Health {
    pub(crate) fn going(&self) -> Going {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes that calls have waited for room in vain.
    pub(super) fn stalled(&self) {
        let words = format!("no row was written for {}", Span(super::queue::PATIENCE));
        tell(&format!(
            "warning: the audit is stalled: {words}\n  \
             hint: calls don't wait for it until rows are written again; what is dropped is counted"
        ));
        self.change(|going| _ = going.trouble.get_or_insert(words));
    }

    fn change(&self, change: impl FnOnce(&mut Going)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// What the thread works with.
pub(super) struct Writer {
    pub(super) queue: Arc<Queue>,
    pub(super) health: Arc<Health>,
    pub(super) place: Place,
    pub(super) settings: config::Audit,
    store: Option<Store>,
    /// Rows that were taken and are not written yet.
    rows: Vec<Queued>,
    /// Since when nothing can be written.
    failing: Option<Instant>,
    /// Rows were dropped when the queue was last looked at.
    is_losing: bool,
    /// When a spoilt file was last put aside.
    aside: Option<Instant>,
    trimmed: Option<Instant>,
    /// Rows that were deleted because the file is too large, and have no row yet; one for each class.
    deleted: Vec<Deleted>,
    /// When rows about such were last written.
    noted: Option<Instant>,
}

impl Writer {
    pub(super) fn new(queue: Arc<Queue>, health: Arc<Health>, place: Place, settings: config::Audit) -> Self {
        Self {
            queue,
            health,
            place,
            settings,
            store: None,
            rows: Vec::new(),
            failing: None,
            is_losing: false,
            aside: None,
            trimmed: None,
            deleted: Vec::new(),
            noted: None,
        }
    }

    /// Writes until the queue is closed and what was in it is written, or can't be.
    pub(super) fn run(mut self) {
        let mut patience = TRIM_EVERY;
        loop {
            let call = match self.rows.is_empty() {
                true => self.queue.wait(patience),
                false => self.queue.pause(AGAIN),
            };
            let is_done = self.write_all();
            if call == Call::End {
                return self.finish(is_done);
            }
            patience = if is_done { self.trim() } else { TRIM_EVERY };
            if is_done && self.noted.is_none_or(|at| at.elapsed() >= TRIM_EVERY) {
                self.note_deleted();
            }
        }
    }

    /// Writes everything there is; false if something is left.
    fn write_all(&mut self) -> bool {
        if !self.rows.is_empty() && !self.write() {
            return false;
        }
        let lost = self.queue.take(&mut self.rows);
        self.note_lost(lost);
        self.rows.extend(lost.row().map(Queued::from));
        self.rows.is_empty() || self.write()
    }

    /// Writes what was taken. Of a file that turns out to be spoilt, what can
    /// be saved is saved, and the rows go into a new one.
    fn write(&mut self) -> bool {
        let written = match self.write_rows() {
            Err(error) if error.is_spoilt() && self.begin_anew(&error) => self.write_rows(),
            other => other,
        };
        match written {
            Ok(()) => {
                let was_stalled = self.queue.done(&mut self.rows);
                self.recovered(was_stalled);
                true
            }
            Err(error) => {
                let is_stuck = self.failing.is_some_and(|since| since.elapsed() >= STUCK);
                if is_stuck || !error.may_pass() {
                    self.store = None;
                }
                self.failed(&error);
                false
            }
        }
    }

    fn write_rows(&mut self) -> Result<(), StoreError> {
        let place = &self.place;
        drop(self.store.take_if(|store| !store.is_in_place(place)));
        let store = match &mut self.store {
            Some(store) => store,
            none => none.insert(Store::open(place)?),
        };
        store.write(&self.rows)
    }

    /// Puts a spoilt file aside; the next attempt makes a new one, in which a
    /// row says where the old one is.
    fn begin_anew(&mut self, error: &StoreError) -> bool {
        if self.aside.is_some_and(|at| at.elapsed() < ASIDE_EVERY) {
            return false;
        }
        self.store = None;
        self.aside = Some(Instant::now());
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let Ok(aside) = put_aside(&self.place.file, at) else { return false };
        tell(&format!(
            "warning: the audit is spoilt ({error}), so a new one is begun\n  \
             hint: the old one is kept as {}",
            aside.display()
        ));
        let detail = format!("{error}; what was written before is kept as {}", aside.display());
        let said = Said { action: "corrupt", detail: &detail, ..Said::default() };
        self.rows.insert(0, Row::now(Kind::Gap, "lost", &said).into());
        true
    }

    /// Makes room; says when to go on with that.
    fn trim(&mut self) -> Duration {
        let is_due = self.trimmed.is_none_or(|at| at.elapsed() >= TRIM_EVERY) || self.is_large();
        let Some(store) = self.store.as_mut().filter(|_| is_due) else { return TRIM_EVERY };
        let oldest = row::now().saturating_sub(row::micros(self.settings.keep));
        // What can't be deleted now will be, later.
        let Ok(trimmed) = store.trim(oldest, self.settings.max_size as u64) else { return AGAIN };
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
        if let Some(store) = &self.store {
            store.checkpoint();
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
        self.rows.extend(self.deleted.drain(..).map(|deleted| Queued::from(deleted.row())));
        self.write();
    }

    /// Whether the file is too large, or will be when the log has been written
    /// into it.
    fn is_large(&self) -> bool {
        let most = self.settings.max_size as u64;
        let used = self.store.as_ref().and_then(|store| store.used().ok());
        size_of_file(&self.place.file) > most || used.is_some_and(|used| used > most)
    }

    /// Counts what was dropped; says so when it begins, and not again until it has ended.
    fn note_lost(&mut self, lost: Lost) {
        let was_losing = std::mem::replace(&mut self.is_losing, lost.count > 0);
        if self.is_losing {
            self.health.change(|going| going.lost += lost.count);
        }
        if self.is_losing && !was_losing {
            tell(&format!(
                "warning: rows of the audit are dropped, {} so far: they come faster than they can be written\n  \
                 hint: a row of the kind `gap` says how many are missing",
                lost.count
            ));
        }
    }

    /// Says it once, and not for every row.
    fn failed(&mut self, error: &StoreError) {
        self.health.change(|going| going.trouble = Some(error.to_string()));
        if self.failing.is_none() {
            self.failing = Some(Instant::now());
            tell(&format!(
                "warning: the audit can't be written: {error}\n  file: {}\n  \
                 hint: calls go on; rows wait as long as there is room for them, and what is dropped is counted",
                self.place.file.display()
            ));
        }
    }

    fn recovered(&mut self, was_stalled: bool) {
        let failing = self.failing.take();
        if failing.is_some() || was_stalled {
            self.health.change(|going| going.trouble = None);
        }
        if let Some(since) = failing {
            tell(&format!("the audit is written again, after {}", Span(since.elapsed())));
        }
    }

    /// Tells how many rows are lost at the end: those in hand, those behind them in the queue, and those dropped there.
    fn tell_unwritten(&mut self) {
        let mut unwritten = count(&self.rows);
        self.rows.clear();
        let lost = self.queue.take(&mut self.rows);
        unwritten += count(&self.rows) + lost.count;
        self.health.change(|going| going.lost += unwritten);
        tell(&format!("warning: {unwritten} rows of the audit could not be written"));
    }

    fn finish(mut self, is_done: bool) {
        self.place.veil.lift();
        if !is_done {
            return self.tell_unwritten();
        }
        if self.trimmed.is_none() || self.is_large() {
            let _ = (0..LAST_TRIMS).find(|_| self.trim() != TRIM_PAUSE);
        }
        self.note_deleted();
    }
}

/// Counts what rows stand for.
fn count(rows: &[Queued]) -> u64 {
    rows.iter().map(|row| row.about.count.unwrap_or(1)).sum()
}

fn size_of_file(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |meta| meta.len())
}
