//! How a daemon serves workers elsewhere, as it says itself.

use serde::{Deserialize, Serialize};

/// How a daemon serves workers elsewhere.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Relayed {
    /// Where the broker is.
    pub(crate) place: String,
    /// A word: `connected`, `waiting`, `refused` or `over`.
    pub(crate) state: String,
    /// Why there is no connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// Whether it takes no new calls.
    #[serde(default)]
    pub(crate) draining: bool,
    /// Calls under way.
    pub(crate) in_flight: usize,
    /// Calls that were answered.
    pub(crate) answered: u64,
    /// Messages that were refused before anything was asked.
    pub(crate) refused: u64,
    /// Workers that were heard lately.
    pub(crate) workers: Vec<RelayedWorker>,
}

/// One worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RelayedWorker {
    /// Its name.
    pub(crate) name: String,
    /// Its role.
    pub(crate) role: String,
    /// Its calls under way.
    pub(crate) in_flight: usize,
}
