//! Pins on disk: the lock file beside the config, and its differences for people.

pub(crate) mod diff_output;
pub(crate) mod findings;
pub(crate) mod lock_context;
pub(crate) mod lock_file;
pub(crate) mod shown_diffs;

pub(crate) use self::lock_file::{LockFileError, LockFileResult};
