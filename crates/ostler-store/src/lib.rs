//! Ostler keeps: files that only their user may read, and databases that one thread writes.
//!
//! ```text
//! private.rs    files and folders without rights for others; whole or not there
//! database.rs   one SQLite file: opened, written in transactions, put aside when it is corrupt
//! file_id.rs    whether open files are still the ones of their names
//! queue.rs      what waits for a writer thread, and the thread
//! ```
//!
//! The modules with SQLite are behind the feature `sqlite`. What the tables are, and what happens to work that
//! can't be written, is the business of the users: the audit counts rows that it drops, the journal of relayed calls
//! refuses claims.

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
