//! Database: one SQLite file that one thread writes and that only its user may read.
//!
//! A transient error (another process holds the file, the disk is full) keeps the connection open: a new one needs
//! space on the disk, and blocks readers. A corrupt file is put aside, and the next write begins a new one.
//!
//! SQLite would go on writing into files that were moved away or deleted. So before every write the store checks that
//! the file, its log and the index of the log are still the open ones. If not, the open log is written into the open
//! file, under any name, and the next write opens the file that has the name now.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use crate::file_id::{FileId, LogFiles, with_ending};
use crate::private_file;

/// Time without success after which the file is reopened before every attempt.
const REOPEN_AFTER: Duration = Duration::from_secs(10);
/// Minimum time between two corrupt files put aside: on a disk that corrupts every file, putting aside would fill it.
const PUT_ASIDE_INTERVAL: Duration = Duration::from_secs(3600);

/// Time without a write after which the log is written into the file.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// Deleted pages are freed in small steps, which the file must be created for. The log is written into the file every 4
/// MiB and is then as large at most. `NORMAL` flushes with the log and not with each transaction: a commit survives the
/// process, and the last ones may not survive a power cut.
const PRAGMAS: &str = "
    PRAGMA auto_vacuum = INCREMENTAL;
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA wal_autocheckpoint = 1024;
    PRAGMA journal_size_limit = 4194304;
    PRAGMA temp_store = MEMORY;
";

/// Schema of a file, and the limits of its use.
#[derive(Debug, Clone, Copy)]
pub struct DatabaseOptions {
    /// Raised whenever the tables change.
    pub schema_version: i64,
    /// Migrates the tables of the found version to those of `version`; 0 is an empty file.
    pub migrate: fn(&Transaction<'_>, i64) -> rusqlite::Result<()>,
    /// Time for which another process may hold the file before a write fails.
    pub busy_timeout: Duration,
    /// KiB of pages that are kept in memory.
    pub cache_kib: u32,
    /// Statements that stay prepared.
    pub prepared_statements: usize,
    /// Maximum time for which a row stays in the log alone, even if writes never pause for a second.
    pub max_log_age: Duration,
}

/// Reason for a failed write.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite returned an error.
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The file or its folder can't be created.
    #[error("{0}")]
    File(#[from] io::Error),
    /// A later version of Ostler has written it.
    #[error("it was written by a later version of Ostler")]
    NewerVersion,
    /// The file is at its size limit.
    #[error("{0}")]
    Full(String),
    /// It was corrupt. The next write begins a new one.
    #[error("{why}; what was written before is kept as {}", kept.display())]
    PutAside {
        /// Corruption that was found.
        why: rusqlite::Error,
        /// Its name now.
        kept: PathBuf,
    },
    /// It was moved away or deleted. The next write begins a new one.
    #[error("it was moved away or deleted{}", describe_loss(*is_log_saved))]
    FileGone {
        /// True if the rows in its log alone were written into it.
        is_log_saved: bool,
    },
    /// Its log, or the index of the log, was moved away or deleted. The next write begins another log.
    #[error("the log beside it was moved away or deleted{}", describe_log(*is_log_saved))]
    LogGone {
        /// True if the rows in the log alone were written into the file.
        is_log_saved: bool,
    },
}

fn describe_log(is_log_saved: bool) -> &'static str {
    if is_log_saved { "; its rows are in the file" } else { describe_loss(is_log_saved) }
}

fn describe_loss(is_log_saved: bool) -> &'static str {
    if is_log_saved { "" } else { ", and what stood in its log alone may be lost" }
}

impl StoreError {
    fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Sqlite(error) => error.sqlite_error_code(),
            _ => None,
        }
    }

    /// Returns whether the error may pass without reopening the file.
    fn is_transient(&self) -> bool {
        use ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull, SystemIoFailure};
        matches!(self, Self::Full(_))
            || matches!(self.code(), Some(DatabaseBusy | DatabaseLocked | DiskFull | SystemIoFailure))
    }

    /// Returns whether the next write opens another file, or reopens the file.
    pub fn is_reopened(&self) -> bool {
        matches!(self, Self::PutAside { .. } | Self::FileGone { .. } | Self::LogGone { .. })
    }

    /// Returns whether earlier rows may be missing in the file that is written next.
    pub fn may_have_lost(&self) -> bool {
        self.is_reopened() && !matches!(self, Self::LogGone { is_log_saved: true })
    }
}

/// Result of a transaction.
#[derive(Debug)]
pub struct Committed<T> {
    /// Value that the transaction returned.
    pub value: T,
    /// Duration of the failed writes before it; `None` if the last write succeeded.
    pub outage: Option<Duration>,
}

/// Failed transaction.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct WriteError {
    pub error: StoreError,
    /// True if the attempt before this one succeeded.
    pub is_first: bool,
}

/// Database file with at most one open connection.
pub struct Database {
    file: PathBuf,
    options: DatabaseOptions,
    connection: Option<Connection>,
    log: LogState,
    /// File that was opened last.
    opened_file: Option<FileId>,
    /// Log of the connection and its index; `None` without a connection, and if SQLite has no log.
    opened_log: Option<LogFiles>,
    /// Start of the current outage; `None` while writes succeed.
    failing_since: Option<Instant>,
    /// Time at which a corrupt file was last put aside.
    last_put_aside: Option<Instant>,
}

/// Progress of the log into the file, counted in rows that the connection has changed.
#[derive(Debug, Default)]
struct LogState {
    /// Changes that are all in the file; `None` before that is known.
    in_file: Option<u64>,
    /// Changes at the last check.
    seen: u64,
    /// Times at which the first and the last change beyond `in_file` were seen.
    pending: Option<(Instant, Instant)>,
}

impl Database {
    /// Makes a database that touches no file before its first write.
    pub fn new(file: PathBuf, options: DatabaseOptions) -> Self {
        Self {
            file,
            options,
            connection: None,
            log: LogState::default(),
            opened_file: None,
            opened_log: None,
            failing_since: None,
            last_put_aside: None,
        }
    }

    /// Returns the file's name.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Runs one transaction: all of it is written, or nothing.
    pub fn write<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<Committed<T>, WriteError> {
        match self.try_write(work) {
            Ok(value) => {
                Ok(Committed { value, outage: self.failing_since.take().map(|since| since.elapsed()) })
            }
            Err(error) => Err(self.handle_error(error)),
        }
    }

    /// Returns the open connection, for statements outside a transaction.
    pub fn connection(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut()
    }

    /// Frees that many unused pages to the disk.
    pub fn vacuum(&mut self, pages: u32) -> Result<(), StoreError> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let mut vacuum = connection.prepare_cached(&format!("PRAGMA incremental_vacuum({pages})"))?;
        // Each step of the statement frees one page.
        let mut pages = vacuum.query([])?;
        while pages.next()?.is_some() {}
        Ok(())
    }

    /// Runs a function on the open file without waiting for other processes.
    pub fn with_zero_busy_timeout<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.set_busy_timeout(Duration::ZERO)?;
        let done = work(self);
        self.set_busy_timeout(self.options.busy_timeout)?;
        done
    }

    /// Writes the log into the file after a second without writes, or if its oldest row has waited for
    /// [`max_log_age`](DatabaseOptions::max_log_age). Waits for no reader. Returns the delay until the next call;
    /// `None` if no row is in the log alone.
    pub fn settle(&mut self, now: Instant) -> Option<Duration> {
        let connection = self.connection.as_ref()?;
        let changes = connection.total_changes();
        if self.log.in_file == Some(changes) {
            return None;
        }
        let (first, last) = match self.log.pending {
            Some((first, _)) if self.log.seen != changes => (first, now),
            Some(pending) => pending,
            None => (now, now),
        };
        let due = (last + QUIET_TIME).min(first + self.options.max_log_age);
        (self.log.seen, self.log.pending) = (changes, Some((first, last)));
        if now < due {
            return Some(due - now);
        }
        self.log.pending = None;
        if checkpoint(connection, Checkpoint::Passive) {
            self.log.in_file = Some(changes);
            return None;
        }
        // A reader needs the file as it was.
        Some(QUIET_TIME)
    }

    /// Writes the whole log into the file and empties it, as far as readers permit. Waits for them as long as for other
    /// writers.
    pub fn checkpoint(&mut self) {
        if let Some(connection) = &self.connection {
            checkpoint(connection, Checkpoint::Truncate);
        }
    }

    /// Closes the file, after its log was written into it.
    pub fn close(&mut self) {
        self.checkpoint();
        self.disconnect();
    }

    fn disconnect(&mut self) {
        self.connection = None;
        self.opened_log = None;
    }

    /// Checks that the open files still have their names. If not, saves the rows in the open log alone, and closes the
    /// files.
    pub fn check_files(&mut self) -> Result<(), StoreError> {
        if self.opened_file.is_none() {
            return Ok(());
        }
        let has_file = FileId::read(&self.file).ok() == self.opened_file;
        let beside = LogFiles::beside(&self.file);
        if has_file && self.opened_log.is_none_or(|opened| opened == beside) {
            return Ok(());
        }
        let is_log_saved = self.save_log(has_file, beside);
        if let Some(connection) = &self.connection {
            // SQLite would delete files of other processes by name.
            let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
        let opened = self.opened_log;
        self.disconnect();
        if has_file {
            if let Some(opened) = opened.filter(|opened| opened.log != beside.log) {
                // It leads into the log that is gone.
                LogFiles { log: None, ..opened }.remove(&self.file);
            }
            return Err(StoreError::LogGone { is_log_saved });
        }
        if let Some(opened) = opened {
            // They would be mistaken for those of the next file.
            opened.remove(&self.file);
        }
        self.opened_file = None;
        Err(StoreError::FileGone { is_log_saved })
    }

    /// Writes the rows in the open log alone into the open file. Returns whether they are there, or will be found.
    fn save_log(&self, has_file: bool, beside: LogFiles) -> bool {
        let (Some(connection), Some(opened)) = (&self.connection, self.opened_log) else { return false };
        if has_file && opened.log == beside.log {
            return true;
        }
        if self.log.in_file == Some(connection.total_changes()) {
            return true;
        }
        // Rows that another process has written into a log of its own do not fit this one.
        let other_log = std::fs::metadata(with_ending(&self.file, "-wal"));
        let is_shared = has_file && other_log.is_ok_and(|log| log.len() > 0);
        !is_shared && checkpoint(connection, Checkpoint::Truncate)
    }

    fn set_busy_timeout(&self, busy: Duration) -> Result<(), StoreError> {
        self.connection.as_ref().map_or(Ok(()), |connection| Ok(connection.busy_timeout(busy)?))
    }

    fn try_write<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.check_files()?;
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                create_private_file(&self.file)?;
                self.opened_file = Some(FileId::read(&self.file)?);
                let opened = open(&self.file, &self.options)?;
                self.opened_log = open_log(&opened, &self.file)?;
                self.log = LogState::default();
                none.insert(opened)
            }
        };
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = work(&transaction)?;
        transaction.commit()?;
        Ok(value)
    }

    /// Handles an error: reopens the file or puts it aside as needed.
    fn handle_error(&mut self, error: StoreError) -> WriteError {
        let error = match error {
            StoreError::Sqlite(why) if is_corrupt(&why) => self.put_aside(why),
            other => other,
        };
        if error.is_reopened() {
            return WriteError { error, is_first: self.failing_since.is_none() };
        }
        let is_stuck = self.failing_since.is_some_and(|since| since.elapsed() >= REOPEN_AFTER);
        if is_stuck || !error.is_transient() {
            self.disconnect();
        }
        let is_first = self.failing_since.is_none();
        self.failing_since.get_or_insert_with(Instant::now);
        WriteError { error, is_first }
    }

    /// Puts the corrupt file aside under a name that says so, unless another process was faster.
    fn put_aside(&mut self, why: rusqlite::Error) -> StoreError {
        self.disconnect();
        let is_too_often = self.last_put_aside.is_some_and(|at| at.elapsed() < PUT_ASIDE_INTERVAL);
        if is_too_often || FileId::read(&self.file).ok() != self.opened_file {
            return why.into();
        }
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mark = format!(".corrupt-{at}");
        let kept = with_ending(&self.file, &mark);
        if let Err(error) = std::fs::rename(&self.file, &kept) {
            return error.into();
        }
        for end in ["-wal", "-shm"] {
            // Log and index of the corrupt file would corrupt the next one.
            let _ = std::fs::rename(
                with_ending(&self.file, end),
                with_ending(&self.file, &format!("{mark}{end}")),
            );
        }
        self.opened_file = None;
        self.last_put_aside = Some(Instant::now());
        StoreError::PutAside { why, kept }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Creates a file that only its user may read, if there is none. The files that SQLite creates beside it get the same
/// mode.
fn create_private_file(file: &Path) -> io::Result<()> {
    private_file::create_parent_dir(file)?;
    // Log and index of a file that was moved away, which a process may still have open.
    let left_behind = LogFiles::beside(file);
    match private_file::open_options().write(true).create_new(true).open(file) {
        Ok(_) => left_behind.remove(file),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Returns the log of a connection. A connection shares its index with others of this process, and that may be deleted
/// already: then other processes would not see its locks.
fn open_log(connection: &Connection, file: &Path) -> Result<Option<LogFiles>, StoreError> {
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if mode != "wal" {
        return Ok(None);
    }
    let opened = LogFiles::beside(file);
    match opened.log.is_some() && opened.index.is_some() {
        true => Ok(Some(opened)),
        false => Err(io::Error::other("its log is deleted while it is opened").into()),
    }
}

fn open(file: &Path, layout: &DatabaseOptions) -> Result<Connection, StoreError> {
    // One thread uses it, so SQLite needs no mutex.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(layout.busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(layout.prepared_statements);
    connection.execute_batch(PRAGMAS)?;
    connection.pragma_update(None, "cache_size", -i64::from(layout.cache_kib))?;
    if schema_version(&connection)? != layout.schema_version {
        let making = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have been faster.
        let found = schema_version(&making)?;
        if found > layout.schema_version {
            return Err(StoreError::NewerVersion);
        }
        if found != layout.schema_version {
            (layout.migrate)(&making, found)?;
            making.pragma_update(None, "user_version", layout.schema_version)?;
            making.commit()?;
        }
    }
    Ok(connection)
}

/// Wait of a checkpoint for other users of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checkpoint {
    /// None: pages that readers still need stay in the log.
    Passive,
    /// For readers and writers; the log is empty then.
    Truncate,
}

/// Writes the log into the file. Returns whether all of it is there.
fn checkpoint(connection: &Connection, how: Checkpoint) -> bool {
    let pragma = match how {
        Checkpoint::Passive => "PRAGMA wal_checkpoint(PASSIVE)",
        Checkpoint::Truncate => "PRAGMA wal_checkpoint(TRUNCATE)",
    };
    // Pages of the log, and those of them that are in the file.
    let pages = connection.query_row(pragma, [], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)));
    pages.is_ok_and(|(log, written)| log == written)
}

fn schema_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Returns whether the error means that the file is corrupt.
fn is_corrupt(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const OPTIONS: DatabaseOptions = DatabaseOptions {
        schema_version: 2,
        migrate: |making, _| making.execute_batch("CREATE TABLE IF NOT EXISTS notes (note TEXT)"),
        busy_timeout: Duration::ZERO,
        cache_kib: 64,
        prepared_statements: 4,
        max_log_age: Duration::from_secs(10),
    };

    fn database(folder: &Path) -> Database {
        Database::new(folder.join("deep/er/x.db"), OPTIONS)
    }

    fn note(database: &mut Database, note: &str) -> Result<Committed<()>, WriteError> {
        database.write(|writing| Ok(writing.execute("INSERT INTO notes VALUES (?)", [note]).map(drop)?))
    }

    impl Database {
        /// Opens it without a write.
        fn reading(mut self) -> Self {
            self.connection = Some(Connection::open(&self.file).unwrap());
            self
        }
    }

    fn notes(database: &mut Database) -> Vec<String> {
        let connection = database.connection().unwrap();
        let mut read = connection.prepare("SELECT note FROM notes").unwrap();
        let notes = read.query_map([], |row| row.get(0)).unwrap();
        notes.map(Result::unwrap).collect()
    }

    #[test]
    fn a_file_is_made_with_the_first_write_and_is_nobody_elses_to_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut database = database(folder.path());
        assert!(!folder.path().join("deep").exists());
        note(&mut database, "a").unwrap();
        let files = std::fs::read_dir(folder.path().join("deep/er")).unwrap();
        let modes: Vec<u32> =
            files.map(|file| file.unwrap().metadata().unwrap().permissions().mode() & 0o777).collect();
        assert_eq!(modes, [0o600; 3], "the file, its log and the index of that");
    }

    #[test]
    fn what_fails_half_way_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut database = database(folder.path());
        note(&mut database, "a").unwrap();
        let failed = database.write(|writing| {
            writing.execute("INSERT INTO notes VALUES ('b')", [])?;
            Err::<(), _>(StoreError::Full("enough".into()))
        });
        assert!(failed.is_err_and(|failed| failed.is_first && failed.to_string() == "enough"));
        assert_eq!(notes(&mut database), ["a"]);
    }

    #[test]
    fn a_file_that_another_process_holds_is_written_when_it_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let mut database = database(folder.path());
        note(&mut database, "a").unwrap();
        let other = Connection::open(database.file()).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let firsts = [(); 2].map(|()| note(&mut database, "b").unwrap_err().is_first);
        assert_eq!(firsts, [true, false], "told once");
        assert!(database.connection().is_some(), "it is kept open");
        other.execute_batch("ROLLBACK").unwrap();
        assert!(note(&mut database, "b").unwrap().outage.is_some());
        assert!(note(&mut database, "c").unwrap().outage.is_none());
        assert_eq!(notes(&mut database), ["a", "b", "c"]);
    }

    #[test]
    fn a_corrupt_file_is_put_aside_once_whoever_finds_it() {
        let folder = tempfile::tempdir().unwrap();
        let (mut one, mut other) = (database(folder.path()), database(folder.path()));
        std::fs::create_dir_all(one.file().parent().unwrap()).unwrap();
        std::fs::write(one.file(), "no database ".repeat(1_000)).unwrap();
        let StoreError::PutAside { kept, .. } = note(&mut one, "a").unwrap_err().error else {
            panic!("it is corrupt");
        };
        assert!(std::fs::read_to_string(kept).unwrap().starts_with("no database"));
        note(&mut one, "a").unwrap();
        note(&mut other, "b").unwrap();
        assert_eq!(notes(&mut one), ["a", "b"]);
        let files = std::fs::read_dir(one.file().parent().unwrap()).unwrap();
        let kept = files.filter(|file| format!("{file:?}").contains(".corrupt-")).count();
        assert_eq!(kept, 1);
    }

    #[test]
    fn a_file_that_was_taken_away_is_told_and_another_one_begun() {
        let folder = tempfile::tempdir().unwrap();
        let mut database = database(folder.path());
        note(&mut database, "a").unwrap();
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(with_ending(database.file(), end));
        }
        assert!(matches!(note(&mut database, "b").unwrap_err().error, StoreError::FileGone { .. }));
        note(&mut database, "b").unwrap();
        assert_eq!(notes(&mut database), ["b"]);
    }

    #[test]
    fn a_file_that_is_moved_takes_what_stood_in_its_log_along() {
        let folder = tempfile::tempdir().unwrap();
        let mut database = database(folder.path());
        note(&mut database, "a").unwrap();
        let moved = folder.path().join("moved.db");
        std::fs::rename(database.file(), &moved).unwrap();
        let error = note(&mut database, "b").unwrap_err().error;
        assert!(matches!(error, StoreError::FileGone { is_log_saved: true }), "{error}");
        note(&mut database, "b").unwrap();
        assert_eq!(notes(&mut database), ["b"]);
        assert_eq!(notes(&mut Database::new(moved, OPTIONS).reading()), ["a"]);
    }

    #[test]
    fn another_process_that_begins_a_file_where_one_was_moved_spoils_neither() {
        let folder = tempfile::tempdir().unwrap();
        let (mut database, mut other) = (database(folder.path()), database(folder.path()));
        note(&mut database, "a").unwrap();
        let moved = folder.path().join("moved.db");
        std::fs::rename(database.file(), &moved).unwrap();
        note(&mut other, "b").unwrap();
        assert!(note(&mut database, "c").is_err());
        note(&mut database, "c").unwrap();
        assert_eq!(notes(&mut other), ["b", "c"]);
        assert_eq!(notes(&mut Database::new(moved, OPTIONS).reading()), ["a"]);
    }

    #[test]
    fn a_log_that_is_deleted_loses_nothing_of_what_was_and_will_be_written() {
        for ends in [&["-wal", "-shm"][..], &["-wal"], &["-shm"]] {
            let folder = tempfile::tempdir().unwrap();
            let mut database = database(folder.path());
            note(&mut database, "a").unwrap();
            ends.iter().for_each(|end| std::fs::remove_file(with_ending(database.file(), end)).unwrap());
            let error = note(&mut database, "b").unwrap_err().error;
            assert!(matches!(error, StoreError::LogGone { is_log_saved: true }), "{ends:?}: {error}");
            assert!(!error.may_have_lost());
            note(&mut database, "b").unwrap();
            database.check_files().unwrap();
            assert_eq!(notes(&mut database), ["a", "b"], "{ends:?}");
            database.close();
            assert_eq!(notes_in_file_alone(&database, folder.path()), 2, "{ends:?}");
        }
    }

    #[test]
    fn a_log_that_another_process_has_replaced_and_written_is_not_mixed_with_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let mut database = database(folder.path());
        note(&mut database, "a").unwrap();
        database.settle(Instant::now());
        assert_eq!(database.settle(Instant::now() + QUIET_TIME), None);
        note(&mut database, "b").unwrap();
        let log = with_ending(database.file(), "-wal");
        std::fs::remove_file(&log).unwrap();
        std::fs::write(&log, "what another process has written").unwrap();
        let error = note(&mut database, "c").unwrap_err().error;
        assert!(matches!(error, StoreError::LogGone { is_log_saved: false }) && error.may_have_lost());
        assert!(error.to_string().contains("may be lost"), "{error}");
        note(&mut database, "c").unwrap();
        assert_eq!(notes(&mut database), ["a", "c"]);
    }

    #[test]
    fn files_that_are_gone_are_told_though_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut database = database(folder.path());
        database.check_files().unwrap();
        note(&mut database, "a").unwrap();
        database.check_files().unwrap();
        std::fs::remove_file(database.file()).unwrap();
        assert!(database.check_files().is_err());
        database.check_files().unwrap();
        assert!(!database.file().exists(), "nothing is begun without a write");
    }

    /// Notes in the file itself, without what stands in the log beside it.
    fn notes_in_file_alone(database: &Database, folder: &Path) -> i64 {
        let copy = folder.join("copy.db");
        std::fs::copy(database.file(), &copy).unwrap();
        let copy = Connection::open(copy).unwrap();
        copy.query_row("SELECT count(*) FROM notes", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn after_a_quiet_second_nothing_stands_in_the_log_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut database = database(folder.path());
        assert_eq!(database.settle(Instant::now()), None, "there is no file");
        let mut now = Instant::now();
        for _ in 0..3 {
            note(&mut database, "a").unwrap();
            assert_eq!(database.settle(now), Some(QUIET_TIME));
            now += QUIET_TIME / 2;
        }
        assert_eq!(database.settle(now), Some(QUIET_TIME / 2));
        assert_eq!(database.settle(now + QUIET_TIME / 2), None);
        assert_eq!(notes_in_file_alone(&database, folder.path()), 3);
        assert_eq!(database.settle(now + QUIET_TIME), None, "nothing is left to do");
    }

    #[test]
    fn a_file_that_is_written_all_the_time_falls_behind_by_the_age_of_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut database = database(folder.path());
        let (began, mut writes) = (Instant::now(), 0);
        loop {
            note(&mut database, "a").unwrap();
            writes += 1;
            if database.settle(began + QUIET_TIME / 2 * (writes - 1)).is_none() {
                break;
            }
        }
        assert_eq!(QUIET_TIME / 2 * (writes - 1), OPTIONS.max_log_age);
        assert_eq!(notes_in_file_alone(&database, folder.path()), i64::from(writes));
    }

    #[test]
    fn a_reader_holds_up_no_write_and_the_log_is_settled_when_it_has_gone() {
        let folder = tempfile::tempdir().unwrap();
        let mut database = database(folder.path());
        note(&mut database, "a").unwrap();
        let other = Connection::open(database.file()).unwrap();
        other.execute_batch("BEGIN; SELECT * FROM notes").unwrap();
        note(&mut database, "b").unwrap();
        let mut now = Instant::now();
        let mut settle = |database: &mut Database| {
            database.settle(now);
            now += QUIET_TIME;
            database.settle(now)
        };
        assert_eq!(settle(&mut database), Some(QUIET_TIME));
        other.execute_batch("ROLLBACK").unwrap();
        assert_eq!(settle(&mut database), None);
        assert_eq!(notes_in_file_alone(&database, folder.path()), 2);
    }

    #[test]
    fn a_file_that_is_closed_holds_everything_though_others_have_it_open() {
        let folder = tempfile::tempdir().unwrap();
        let mut database = database(folder.path());
        note(&mut database, "a").unwrap();
        let other = Connection::open(database.file()).unwrap();
        let count = |file: &Connection| file.query_row("SELECT count(*) FROM notes", [], |row| row.get(0));
        assert_eq!(count(&other), Ok(1));
        database.close();
        assert_eq!(notes_in_file_alone(&database, folder.path()), 1);
        assert_eq!(count(&other), Ok(1));
    }

    #[test]
    fn a_file_of_a_later_version_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut database = database(folder.path());
        note(&mut database, "a").unwrap();
        let mut older =
            Database::new(database.file().to_owned(), DatabaseOptions { schema_version: 1, ..OPTIONS });
        assert!(matches!(note(&mut older, "b").unwrap_err().error, StoreError::NewerVersion));
        assert_eq!(notes(&mut database), ["a"]);
    }
}
