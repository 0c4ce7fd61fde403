//! Command extensions: replies to the program's own commands carry more than replies to clients.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::error::CallError;

/// Extensions for commands: errors with all their fields, and a list timeout of their own.
pub trait CommandExtensions: fmt::Debug + Send + Sync {
    /// Returns the timeout of one server for its prompt, resource and template lists.
    fn list_patience(&self) -> Duration;

    /// Returns an error with all its fields as JSON: the `data` of the JSON-RPC error.
    fn error_data(&self, error: &CallError) -> Vec<u8>;
}

pub(crate) type SharedCommandExtensions = Arc<dyn CommandExtensions>;
