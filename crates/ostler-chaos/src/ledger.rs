//! What servers executed.

use serde::{Deserialize, Serialize};

use crate::history::{Micros, Nonce};

/// One execution of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    pub server: String,
    pub pid: u32,
    pub tool: String,
    pub call: Nonce,
    pub began: Micros,
    /// Missing if the server ended first.
    pub ended: Option<Micros>,
    /// Whether it ended with an error that counts against the server.
    pub has_failed: bool,
    /// Names this execution in its answer.
    pub stamp: String,
}
