//! The file: how it is opened, written, and put aside when it is spoilt.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::batch::Ink;
use super::fingerprint::Fingerprints;
use super::layout;
use super::redact::Veil;
use super::row::Class;
use crate::spot;

/// How long another process may hold the file before writing has failed for now.
const BUSY: Duration = Duration::from_secs(1);
/// Statements that stay prepared: some for each class.
const STATEMENTS: usize = 64;

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
    pub(super) ink: Ink,
    /// The number of the file that was opened.
    inode: u64,
    /// The bytes of each class, and when they were measured.
    pub(super) sizes: Option<(Instant, [u64; Class::ALL.len()])>,
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
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        layout::prepare(&mut connection)?;
        if place.is_passing {
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        }
        let ink = Ink { fingerprints, is_full: place.is_full, veil: Arc::clone(&place.veil) };
        Ok(Self { connection, ink, inode: std::fs::metadata(&place.file)?.ino(), sizes: None })
    }

    /// Whether the file is still the one of that name. Into one that was moved
    /// away or deleted SQLite would go on writing.
    pub(super) fn is_in_place(&self, place: &Place) -> bool {
        std::fs::metadata(&place.file).is_ok_and(|meta| meta.ino() == self.inode)
    }
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
