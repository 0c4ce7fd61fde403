//! The file: how it is opened, written, and put aside when it is spoilt.

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, params};

use super::super::{Claim, KEPT};
use crate::call_id::CallId;

/// How long another process may hold the file before writing has failed for now.
/// A claim that comes while another waits waits twice as long, and must hear the
/// reason before its patience ends.
const BUSY: Duration = Duration::from_millis(750);
/// What the file looks like; raised when that changes.
const VERSION: i64 = 1;
/// Claims that are kept at most: ten minutes of ten thousand calls a second,
/// and some more. They take about half a gigabyte.
const MOST: i64 = 8_000_000;
/// Claims that are deleted at a time: less than a millisecond of work.
const STEP: i64 = 256;
/// Pages that are given back at a time: more than a step frees.
const PAGES: i64 = 64;

/// Deleted pages are given back in small steps, so the file must be made for it.
const SETTINGS: &str = "
    PRAGMA auto_vacuum = INCREMENTAL;
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA journal_size_limit = 8388608;
    PRAGMA cache_size = -8192;
    PRAGMA temp_store = MEMORY;
";

/// The numbers grow with time, so the oldest claims are the first ones.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS claims (
        id INTEGER PRIMARY KEY,
        call BLOB NOT NULL UNIQUE,
        at INTEGER NOT NULL,
        settled INTEGER NOT NULL DEFAULT 0
    );
    PRAGMA user_version = 1;
";

/// Why the file can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// SQLite says no.
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The file or its folder can't be made.
    #[error("{0}")]
    File(#[from] io::Error),
    /// A later version of Ostler has written it.
    #[error("it was written by a later version of Ostler")]
    Newer,
    /// There is no room for more.
    #[error("it holds {MOST} calls of the last ten minutes")]
    Full,
}

impl StoreError {
    fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Sqlite(error) => error.sqlite_error_code(),
            Self::File(_) | Self::Newer | Self::Full => None,
        }
    }

    /// Whether the file is no database any more.
    pub(super) fn is_spoilt(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
    }

    /// Whether it may pass without the file being opened anew: somebody else
    /// holds it, or there is no room. Opening needs room too.
    pub(super) fn may_pass(&self) -> bool {
        use ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull, SystemIoFailure};
        matches!(self, Self::Full)
            || matches!(self.code(), Some(DatabaseBusy | DatabaseLocked | DiskFull | SystemIoFailure))
    }
}

/// The open file.
pub(super) struct Store {
    connection: Connection,
    clock: Clock,
}

impl Store {
    /// Opens the file, or makes one that only its user may read. Those that
    /// SQLite makes beside it get the same rights.
    pub(super) fn open(file: &Path) -> Result<Self, StoreError> {
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
        if let Err(error) = made
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error.into());
        }
        // One thread uses it, so SQLite need not lock for others.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(file, flags)?;
        connection.busy_timeout(BUSY)?;
        connection.execute_batch(SETTINGS)?;
        match connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))? {
            VERSION => {}
            version if version > VERSION => return Err(StoreError::Newer),
            _ => {
                let making = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                making.execute_batch(SCHEMA)?;
                making.commit()?;
            }
        }
        Ok(Self { connection, clock: Clock::new() })
    }

    /// Claims calls and notes ends, all or none.
    pub(super) fn write(&mut self, calls: &[CallId], settled: &[CallId]) -> Result<Vec<Claim>, StoreError> {
        let at = self.clock.now();
        let writing = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Ends come first: who claims what has just ended reads so.
        note_ends(&writing, settled)?;
        let claims = make_claims(&writing, calls, at)?;
        writing.commit()?;
        Ok(claims)
    }

    /// Deletes a few of the claims that are too old. True if there may be more.
    /// While somebody else holds the file there are none: claims that come
    /// meanwhile have not the time to wait for this one's wait.
    pub(super) fn trim(&mut self) -> Result<bool, StoreError> {
        self.connection.busy_timeout(Duration::ZERO)?;
        let has_more = self.try_trim();
        self.connection.busy_timeout(BUSY)?;
        has_more
    }

    fn try_trim(&mut self) -> Result<bool, StoreError> {
        let now = self.clock.now();
        let kept = i64::try_from(KEPT.as_secs()).unwrap_or(i64::MAX);
        // One from the future was made before the clock was set back.
        let deleted = self
            .connection
            .prepare_cached(
                "DELETE FROM claims WHERE id IN (SELECT id FROM claims ORDER BY id LIMIT ?1)
                    AND (at < ?2 OR at > ?3)",
            )?
            .execute(params![STEP, now - kept, now + kept])?;
        if deleted == 0 {
            let mut vacuum = self.connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES})"))?;
            // Each step of the statement gives one page back.
            let mut pages = vacuum.query([])?;
            while pages.next()?.is_some() {}
        }
        Ok(deleted > 0)
    }
}

fn note_ends(writing: &Transaction<'_>, settled: &[CallId]) -> Result<(), StoreError> {
    let mut note = writing.prepare_cached("UPDATE claims SET settled = 1 WHERE call = ?1")?;
    for call in settled {
        note.execute([call.as_bytes()])?;
    }
    Ok(())
}

fn make_claims(writing: &Transaction<'_>, calls: &[CallId], at: i64) -> Result<Vec<Claim>, StoreError> {
    if calls.is_empty() {
        return Ok(Vec::new());
    }
    let held: i64 = writing
        .prepare_cached("SELECT ifnull((SELECT max(id) FROM claims) - (SELECT min(id) FROM claims) + 1, 0)")?
        .query_row([], |row| row.get(0))?;
    if held >= MOST {
        return Err(StoreError::Full);
    }
    let mut insert =
        writing.prepare_cached("INSERT INTO claims (call, at) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?;
    let mut look = writing.prepare_cached("SELECT settled FROM claims WHERE call = ?1")?;
    let mut claims = Vec::with_capacity(calls.len());
    for call in calls {
        claims.push(match insert.execute(params![call.as_bytes(), at])? {
            0 => Claim::Taken { is_settled: look.query_row([call.as_bytes()], |row| row.get(0))? },
            _ => Claim::Ours,
        });
    }
    Ok(claims)
}

/// Seconds since 1970, counted on from one look at the system's clock: one
/// that is set meanwhile makes no claim old.
struct Clock {
    base: Instant,
    base_unix: i64,
}

impl Clock {
    fn new() -> Self {
        Self { base: Instant::now(), base_unix: seconds(unix_now()) }
    }

    fn now(&self) -> i64 {
        self.base_unix.saturating_add(seconds(self.base.elapsed()))
    }
}

fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// Puts a spoilt file aside under a name that says so; gives the name.
pub(super) fn put_aside(file: &Path) -> io::Result<PathBuf> {
    let named = |end: &str| {
        let mut name = OsString::from(file);
        name.push(end);
        PathBuf::from(name)
    };
    let mark = format!(".corrupt-{}", unix_now().as_secs());
    let aside = named(&mark);
    std::fs::rename(file, &aside)?;
    for end in ["-wal", "-shm"] {
        // What belongs to the spoilt file would spoil the next one.
        let _ = std::fs::rename(named(end), named(&format!("{mark}{end}")));
    }
    Ok(aside)
}
