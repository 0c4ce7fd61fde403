//! The file: how it is opened, written, and put aside when it is spoilt.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql, TransactionBehavior};

use super::fingerprint::Fingerprints;
use super::redact::{Veil, redact};
use super::row::{Arguments, Row, micros};
use crate::spot;

/// How long another process may hold the file before writing has failed for now.
const BUSY: Duration = Duration::from_secs(1);
/// What the file looks like; raised when that changes.
const VERSION: i64 = 1;

/// Deleted pages are given back in small steps, so the file must be made for it.
const SETTINGS: &str = "
    PRAGMA auto_vacuum = INCREMENTAL;
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA wal_autocheckpoint = 256;
    PRAGMA journal_size_limit = 1048576;
    PRAGMA cache_size = -1024;
    PRAGMA temp_store = MEMORY;
";

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        principal TEXT,
        role TEXT,
        session TEXT,
        server TEXT,
        action TEXT NOT NULL,
        subject TEXT,
        outcome TEXT NOT NULL,
        rule TEXT,
        delivery TEXT,
        generation INTEGER,
        took INTEGER,
        count INTEGER,
        arguments_hash TEXT,
        arguments TEXT,
        detail TEXT
    );
    CREATE INDEX IF NOT EXISTS events_at ON events (at);
    PRAGMA user_version = 1;
";

const INSERT: &str = "
    INSERT INTO events (at, kind, principal, role, session, server, action, subject, outcome, rule, delivery,
        generation, took, count, arguments_hash, arguments, detail)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
";

/// Why the file can't be written.
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
}

impl StoreError {
    /// Whether the file is no database any more.
    pub(super) fn is_spoilt(&self) -> bool {
        let code = match self {
            Self::Sqlite(error) => error.sqlite_error_code(),
            Self::File(_) | Self::Newer => None,
        };
        matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
    }

    /// Whether it may pass without the file being opened anew: somebody else
    /// holds it, or the disk is full. Opening needs room too, and would keep
    /// readers out meanwhile.
    pub(super) fn may_pass(&self) -> bool {
        let code = match self {
            Self::Sqlite(error) => error.sqlite_error_code(),
            Self::File(_) | Self::Newer => None,
        };
        use ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull, SystemIoFailure};
        matches!(code, Some(DatabaseBusy | DatabaseLocked | DiskFull | SystemIoFailure))
    }
}

/// What a store is made with.
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

/// The open file.
pub(super) struct Store {
    pub(super) connection: Connection,
    fingerprints: Fingerprints,
    is_full: bool,
    veil: Arc<Veil>,
    /// The number of the file that was opened.
    inode: u64,
}

impl Store {
    /// Opens the file, or makes one that only its user may read.
    pub(super) fn open(place: &Place) -> Result<Self, StoreError> {
        if let Some(folder) = place.file.parent() {
            spot::make_private_folder(folder)?;
        }
        let made = spot::private().write(true).create_new(true).open(&place.file);
        if let Err(error) = made
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error.into());
        }
        let fingerprints = Fingerprints::open(&place.key)?;
        // One thread uses it, so SQLite need not lock for others.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&place.file, flags)?;
        connection.busy_timeout(BUSY)?;
        connection.execute_batch(SETTINGS)?;
        if place.is_passing {
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        }
        match connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))? {
            VERSION => {}
            version if version > VERSION => return Err(StoreError::Newer),
            _ => {
                let making = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                making.execute_batch(SCHEMA)?;
                making.commit()?;
            }
        }
        let (veil, inode) = (Arc::clone(&place.veil), std::fs::metadata(&place.file)?.ino());
        Ok(Self { connection, fingerprints, is_full: place.is_full, veil, inode })
    }

    /// Whether the file is still the one of that name. Into one that was moved
    /// away or deleted SQLite would go on writing.
    pub(super) fn is_in_place(&self, place: &Place) -> bool {
        std::fs::metadata(&place.file).is_ok_and(|meta| meta.ino() == self.inode)
    }

    /// Writes rows, all or none.
    pub(super) fn write<'r>(&mut self, rows: impl Iterator<Item = &'r Row>) -> Result<(), StoreError> {
        let writing = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut insert = writing.prepare_cached(INSERT)?;
            for row in rows {
                let said = row.words.said();
                let veil = |text: &str| self.veil.hide(text);
                let (hash, text) = match &row.arguments {
                    Arguments::None => (None, None),
                    Arguments::LeftOut => (Some("left-out".into()), None),
                    Arguments::Kept(text) => {
                        let hash = self.fingerprints.of_arguments(text);
                        (Some(hash), self.is_full.then(|| redact(text, veil)))
                    }
                };
                let (subject, detail) = (self.veil.hide(said.subject), self.veil.hide(said.detail));
                let session = (!said.session.is_empty()).then(|| self.fingerprints.of_session(said.session));
                let values: [&dyn ToSql; 17] = [
                    &row.at,
                    &row.kind.as_str(),
                    &word(said.principal),
                    &word(said.role),
                    &session,
                    &word(said.server),
                    &said.action,
                    &word(&subject),
                    &row.outcome,
                    &word(said.rule),
                    &row.delivery,
                    &row.generation.map(u64::cast_signed),
                    &row.took.map(micros),
                    &row.count.map(u64::cast_signed),
                    &hash,
                    &text,
                    &word(&detail),
                ];
                insert.execute(values)?;
            }
        }
        Ok(writing.commit()?)
    }
}

/// An empty word is none.
fn word(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Puts a spoilt file aside under a name that says so; gives the name.
pub(super) fn put_aside(file: &Path, at: u64) -> io::Result<PathBuf> {
    let named = |end: &str| {
        let mut name = OsString::from(file);
        name.push(end);
        PathBuf::from(name)
    };
    let aside = named(&format!(".corrupt-{at}"));
    std::fs::rename(file, &aside)?;
    for end in ["-wal", "-shm"] {
        // What belongs to the spoilt file would spoil the next one.
        let _ = std::fs::rename(named(end), named(&format!(".corrupt-{at}{end}")));
    }
    Ok(aside)
}
