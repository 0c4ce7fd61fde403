//! Ostler store: files that only their user may read, and databases that one thread writes.
//!
//! ```text
//! private_file.rs   files and folders without rights for others; replaced atomically
//! database.rs       one SQLite file: opened, written in transactions, put aside when it is corrupt
//! file_id.rs        identity of open files: tells if they still have their names
//! writer_thread.rs  queue of work for a writer thread, and the thread
//! ```
//!
//! The modules with SQLite are behind the feature `sqlite`. Users define the tables, and the handling of work that
//! can't be written: the audit counts rows that it drops, the journal of relayed calls refuses claims.

#![forbid(unsafe_code)]

#[cfg(feature = "sqlite")]
mod database;
#[cfg(feature = "sqlite")]
mod file_id;
pub mod private_file;
#[cfg(feature = "sqlite")]
mod writer_thread;

#[cfg(feature = "sqlite")]
pub use database::{Committed, Database, DatabaseOptions, StoreError, WriteError};
#[cfg(feature = "sqlite")]
pub use writer_thread::{Backlog, BatchWriter, NextBatch, Urgency, WriterQueue, WriterThread};
