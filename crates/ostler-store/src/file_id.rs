//! Identity of files: tells if open files still have their names.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Identity of a file, different from that of another file of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(crate) fn read(file: &Path) -> io::Result<Self> {
        let meta = std::fs::metadata(file)?;
        Ok(Self { device: meta.dev(), inode: meta.ino() })
    }
}

/// Log and index: the two files that SQLite keeps beside an open database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogFiles {
    /// `-wal`: commits that may not be in the database file yet.
    pub(crate) log: Option<FileId>,
    /// `-shm`: positions of pages in the log, and the locks of all processes.
    pub(crate) index: Option<FileId>,
}

impl LogFiles {
    /// Reads the identities of the log and the index beside a database file.
    pub(crate) fn beside(file: &Path) -> Self {
        let [log, index] = log_names(file).map(|name| FileId::read(&name).ok());
        Self { log, index }
    }

    /// Removes those that still have their names.
    pub(crate) fn remove(self, file: &Path) {
        for (name, id) in log_names(file).into_iter().zip([self.log, self.index]) {
            if id.is_some() && FileId::read(&name).ok() == id {
                let _ = std::fs::remove_file(name);
            }
        }
    }
}

/// Returns the names of the log and its index.
fn log_names(file: &Path) -> [PathBuf; 2] {
    ["-wal", "-shm"].map(|end| with_ending(file, end))
}

pub(crate) fn with_ending(file: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(end);
    PathBuf::from(name)
}
