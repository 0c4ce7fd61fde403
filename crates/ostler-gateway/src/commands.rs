//! The program's own commands as clients: what they are told beyond what clients are told.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;

/// What commands are told beyond what clients are told: servers that the host does not have, and all parts of errors.
pub trait Commands: fmt::Debug + Send + Sync {
    /// Returns the names of the servers of the config that are run.
    fn servers(&self) -> Vec<ServerName>;

    /// Returns the name of a server that the caller may see.
    ///
    /// # Errors
    ///
    /// Fails if there is none of this name.
    fn server(&self, caller: &Caller, name: &str) -> Result<ServerName, CallError>;

    /// Returns why nothing can be asked of a server.
    fn refusal(&self, server: &str) -> Option<CallError>;

    /// Returns how long one server may take to list what it offers beside tools.
    fn list_patience(&self) -> Duration;

    /// Returns an error with all its parts, as JSON: the `data` of the JSON-RPC error.
    fn error_data(&self, error: &CallError) -> Vec<u8>;
}

pub(crate) type SharedCommands = Arc<dyn Commands>;
