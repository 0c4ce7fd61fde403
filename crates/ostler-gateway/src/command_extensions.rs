//! The program's own commands as clients: what they are told beyond what clients are told.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::error::CallError;

/// What commands are told beyond what clients are told: all parts of errors, after a patience of their own.
pub trait CommandExtensions: fmt::Debug + Send + Sync {
    /// Returns how long one server may take to list what it offers beside tools.
    fn list_patience(&self) -> Duration;

    /// Returns an error with all its parts, as JSON: the `data` of the JSON-RPC error.
    fn error_data(&self, error: &CallError) -> Vec<u8>;
}

pub(crate) type SharedCommandExtensions = Arc<dyn CommandExtensions>;
