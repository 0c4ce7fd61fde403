//! Writer thread of the audit. It retries after every failure; while it can't write, rows wait in the queue, and rows
//! beyond the queue are counted.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ostler_core::config::{self, WhenFull};
use ostler_core::fault::HumanDuration;
use ostler_store::{BatchWriter, Committed, Database, NextBatch, StoreError, WriteError, WriterQueue};

use super::ProcessLifetime;
use super::batch::RowEncoder;
use super::queue::{AuditBatch, PendingRows, RowQueue};
use super::redact::AuditRedactor;
use super::retention::{self, DeletedRows, Retention};
use super::row::{self, AuditRow, QueuedRow, RowFields, RowKind};
use super::schema::{self, LAYOUT};
use crate::time_text;

/// Pause before a retry.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Interval of retention while no rows are written.
const TRIM_INTERVAL: Duration = Duration::from_secs(60);
/// Interval of the check that the files still exist while no rows are written.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Pause between two steps of retention.
const TRIM_PAUSE: Duration = Duration::from_millis(20);
/// Upper bound on steps of retention at the end, which delay the shutdown.
const MAX_FINAL_TRIMS: usize = 32;
/// Transactions in a row before retention has its turn. At the end there may be more.
const MAX_TRANSACTIONS: usize = 16;

/// Duration from which a transaction is reported as slow: it keeps a busy daemon's rows from the queue.
const SLOW_WRITE: Duration = Duration::from_secs(1);

/// Health of the writer, shared with its readers.
#[derive(Debug, Default)]
pub(super) struct WriterHealth {
    /// Current failure; `None` while rows can be written.
    error: Mutex<Option<String>>,
    /// Last incident with the write-ahead log.
    log_gone: Mutex<Option<String>>,
}

impl WriterHealth {
    pub(super) fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn log_gone(&self) -> Option<String> {
        self.log_gone.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that calls have waited for room in vain.
    pub(super) fn report_stall(&self, lifetime: ProcessLifetime) {
        let words = format!("no row was written for {}", HumanDuration(super::queue::ROOM_TIMEOUT));
        lifetime.print(&format!(
            "warning: the audit is stalled: {words}\n  \
             hint: calls don't wait for it until rows are written again; what is dropped is counted"
        ));
        _ = self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(words);
    }

    fn set_log_gone(&self, what: String) {
        *self.log_gone.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
    }

    fn set(&self, trouble: Option<String>) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

/// Options of a writer.
#[derive(Debug, Clone)]
pub(super) struct AuditWriterOptions {
    pub(super) file: PathBuf,
    /// File with the key of its hashes.
    pub(super) key: PathBuf,
    /// True if the text of arguments is kept.
    pub(super) keeps_arguments: bool,
    /// Decides whether the last row is the end of a daemon.
    pub(super) lifetime: ProcessLifetime,
    /// Redacts values that rows must not hold.
    pub(super) redactor: Arc<AuditRedactor>,
}

/// State of the writer thread.
pub(super) struct AuditWriter {
    queue: RowQueue,
    health: Arc<WriterHealth>,
    options: AuditWriterOptions,
    settings: config::AuditConfig,
    database: Database,
    /// Opened with the file.
    encoder: Option<RowEncoder>,
    /// Rows that were taken and are not written yet.
    batch: AuditBatch,
    /// Rows of the writer itself, which are written after the batch.
    own_rows: Vec<QueuedRow>,
    /// True until it is known whether the daemon before has ended in order.
    checks_last_end: bool,
    retention: Retention,
    /// True if rows were dropped at the last look at the queue.
    is_dropping: bool,
    /// Cause of the current delay, until all delayed rows are written.
    wait_cause: Option<String>,
    last_trim: Option<Instant>,
    /// Rows that were deleted because the file is too large and have no gap row yet; one entry for each class.
    unreported_deletions: Vec<DeletedRows>,
    /// Time of the last gap rows about deleted rows.
    last_report: Option<Instant>,
}

impl BatchWriter for AuditWriter {
    type Waiting = PendingRows;

    fn write_batch(&mut self, _queue: &WriterQueue<PendingRows>, is_last: bool) -> NextBatch {
        if let Err(error) = self.database.check_files() {
            self.report_reopened(&error);
        }
        let is_done = self.write_all(is_last);
        if is_last {
            self.finish(is_done);
        }
        if !is_done {
            self.warn_dropped();
            return NextBatch::Pause(RETRY_DELAY);
        }
        let patience = self.trim().min(CHECK_INTERVAL);
        if self.last_report.is_none_or(|at| at.elapsed() >= TRIM_INTERVAL) {
            self.report_deleted();
        }
        NextBatch::Wait(self.database.settle(Instant::now()).map_or(patience, |settle| settle.min(patience)))
    }
}

impl AuditWriter {
    pub(super) fn new(
        queue: RowQueue,
        health: Arc<WriterHealth>,
        options: AuditWriterOptions,
        settings: config::AuditConfig,
    ) -> Self {
        Self {
            queue,
            health,
            database: Database::new(options.file.clone(), LAYOUT),
            checks_last_end: options.lifetime == ProcessLifetime::Daemon,
            options,
            settings,
            encoder: None,
            batch: AuditBatch::default(),
            own_rows: Vec::new(),
            retention: Retention::default(),
            is_dropping: false,
            wait_cause: None,
            last_trim: None,
            unreported_deletions: Vec::new(),
            last_report: None,
        }
    }

    /// Writes all queued rows, in transactions of bounded size. Returns false if something could not be written.
    fn write_all(&mut self, is_last: bool) -> bool {
        for _ in 0..if is_last { usize::MAX } else { MAX_TRANSACTIONS } {
            if self.batch.rows.is_empty() && self.own_rows.is_empty() {
                self.queue.take(&mut self.batch);
                self.warn_dropped();
                let dropped = self.batch.dropped.gap_row(self.wait_cause());
                self.own_rows.extend(self.batch.refusal_counts.drain(..).chain(dropped).map(QueuedRow::from));
            }
            if self.batch.rows.is_empty() && self.own_rows.is_empty() {
                self.wait_cause = None;
                return true;
            }
            if !self.write() {
                return false;
            }
        }
        true
    }

    /// Writes the batch. If the file was replaced, the batch goes into a new one.
    fn write(&mut self) -> bool {
        let began = Instant::now();
        let written = match self.try_write() {
            Err(failed) if failed.error.is_reopened() => {
                self.report_reopened(&failed.error);
                self.try_write()
            }
            other => other,
        };
        match written {
            Ok(Committed { outage, .. }) => {
                self.own_rows.clear();
                self.checks_last_end = false;
                let took = began.elapsed();
                if took >= SLOW_WRITE {
                    let cause = format!("the disk took {} for a transaction", HumanDuration(took));
                    self.wait_cause.get_or_insert(cause);
                }
                let was_stalled = self.queue.finish(&mut self.batch);
                self.report_recovery(outage, was_stalled);
                true
            }
            Err(failed) => {
                self.report_failure(&failed);
                false
            }
        }
    }

    fn try_write(&mut self) -> Result<Committed<()>, WriteError> {
        let Self { database, encoder: ink, batch, own_rows: own, options: place, checks_last_end, .. } = self;
        database.write(|writing| {
            let ink = match ink {
                Some(ink) => ink,
                none => none.insert(RowEncoder::open(
                    &place.key,
                    place.keeps_arguments,
                    Arc::clone(&place.redactor),
                )?),
            };
            let rows = batch.rows.make_contiguous();
            if *checks_last_end && schema::lacks_end_of_daemon(writing)? {
                let first = rows.first().map_or_else(row::now_micros, |row| row.at);
                ink.write(writing, &[missing_end(first).into()])?;
            }
            ink.write(writing, rows)?;
            Ok(ink.write(writing, own)?)
        })
    }

    /// Records that rows go into another file, or into the same one with another log. A row in it says what became of
    /// the earlier ones.
    fn report_reopened(&mut self, error: &StoreError) {
        // The key may be gone with the file.
        self.encoder = None;
        let file = self.options.file.display();
        let (action, warning) = match error {
            StoreError::PutAside { why, kept } => (
                "corrupt",
                format!(
                    "the audit is corrupt ({why}), so a new one is begun\n  hint: the old one is kept as {}",
                    kept.display()
                ),
            ),
            StoreError::FileGone { .. } => {
                ("file-gone", format!("the file of the audit: {error}; a new one is begun\n  file: {file}"))
            }
            StoreError::LogGone { .. } => {
                self.health.set_log_gone(format!("{}: {error}", time_text::rfc3339(SystemTime::now())));
                ("log-gone", format!("the file of the audit: {error}\n  file: {file}"))
            }
            _ => return,
        };
        self.options.lifetime.print(&format!("warning: {warning}"));
        let said = RowFields { action, detail: &error.to_string(), ..RowFields::default() };
        self.own_rows.push(AuditRow::now(RowKind::Gap, "lost", &said).into());
    }

    /// Runs a step of retention, and returns the pause before the next one.
    fn trim(&mut self) -> Duration {
        let is_due = self.last_trim.is_none_or(|at| at.elapsed() >= TRIM_INTERVAL) || self.is_too_large();
        if !is_due || self.database.connection().is_none() {
            return TRIM_INTERVAL;
        }
        let oldest = row::now_micros().saturating_sub(row::micros(self.settings.keep));
        let trimmed = self.retention.trim(&mut self.database, oldest, self.settings.max_size as u64);
        // A failed deletion is retried later.
        let Ok(trimmed) = trimmed else { return RETRY_DELAY };
        if let Some(more) = trimmed.for_size {
            match self.unreported_deletions.iter_mut().find(|deleted| deleted.class == more.class) {
                Some(deleted) => deleted.add(&more),
                None => self.unreported_deletions.push(more),
            }
        }
        if trimmed.has_more {
            return TRIM_PAUSE;
        }
        self.last_trim = Some(Instant::now());
        if !self.is_too_large() {
            return TRIM_INTERVAL;
        }
        // The file shrinks only after a checkpoint, which readers can delay.
        if let Some(connection) = self.database.connection() {
            retention::checkpoint(connection);
        }
        if self.is_too_large() { RETRY_DELAY } else { TRIM_INTERVAL }
    }

    /// Writes gap rows about deleted rows: at most one a minute for each class, so that these do not fill the file
    /// themselves.
    fn report_deleted(&mut self) {
        if self.unreported_deletions.is_empty() {
            return;
        }
        self.last_report = Some(Instant::now());
        self.own_rows
            .extend(self.unreported_deletions.drain(..).map(|deleted| QueuedRow::from(deleted.gap_row())));
        self.write();
    }

    /// Returns whether the file is too large, or will be after a checkpoint.
    fn is_too_large(&mut self) -> bool {
        let most = self.settings.max_size as u64;
        let used = self.database.connection().and_then(|connection| retention::used_bytes(connection).ok());
        file_size(&self.options.file) > most || used.is_some_and(|used| used > most)
    }

    /// Warns that rows are dropped when that begins, and not again until it has ended.
    fn warn_dropped(&mut self) {
        let count = self.batch.dropped.count + self.queue.unreported();
        let was_dropping = std::mem::replace(&mut self.is_dropping, count > 0);
        if self.is_dropping && !was_dropping {
            self.options.lifetime.print(&format!(
                "warning: rows of the audit are dropped, {count} so far: {}\n  \
                 hint: a row of the kind `gap` says how many are missing",
                self.wait_cause()
            ));
        }
    }

    fn wait_cause(&self) -> &str {
        self.wait_cause.as_deref().unwrap_or("they come faster than they can be written")
    }

    /// Reports a failure once, and not for every row.
    fn report_failure(&mut self, WriteError { error, is_first }: &WriteError) {
        self.health.set(Some(error.to_string()));
        self.wait_cause = Some(error.to_string());
        if *is_first {
            let hint = match self.settings.when_full {
                WhenFull::Gap => "calls go on; rows wait as long as there is room for them".to_owned(),
                WhenFull::Wait => format!(
                    "rows wait; when half of their room is taken calls wait too, for at most {}, and then go on",
                    HumanDuration(super::queue::ROOM_TIMEOUT)
                ),
            };
            self.options.lifetime.print(&format!(
                "warning: the audit can't be written: {error}\n  file: {}\n  \
                 hint: {hint}, and what is dropped is counted",
                self.options.file.display()
            ));
        }
    }

    fn report_recovery(&self, outage: Option<Duration>, was_stalled: bool) {
        if outage.is_some() || was_stalled {
            self.health.set(None);
        }
        if let Some(outage) = outage {
            let dropped = match self.queue.unreported() {
                0 => String::new(),
                count => format!("; {count} rows were dropped"),
            };
            self.options
                .lifetime
                .print(&format!("the audit is written again, after {}{dropped}", HumanDuration(outage)));
        }
    }

    fn finish(&mut self, is_done: bool) {
        self.options.redactor.detach();
        if !is_done {
            return;
        }
        if self.last_trim.is_none() || self.is_too_large() {
            let _ = (0..MAX_FINAL_TRIMS).find(|_| self.trim() != TRIM_PAUSE);
        }
        self.report_deleted();
        self.database.close();
    }
}

/// Returns the row about rows that the daemon before may have left unwritten.
fn missing_end(at: i64) -> AuditRow {
    let detail =
        "the daemon before has no row `daemon-ended`: it was killed, or could not write its last rows";
    let said = RowFields { action: "end-missing", detail, ..RowFields::default() };
    AuditRow { at, ..AuditRow::now(RowKind::Gap, "lost", &said) }
}

fn file_size(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |meta| meta.len())
}
