//! Answers of the admin API.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use ostler_core::config::{PinMode, Plan, Problem};
use ostler_core::pins::LockSection;
use ostler_core::server_name::ServerName;
use ostler_core::status::ServerStatus;
use ostler_host::BudgetStatus;
use ostler_relay::service::ServiceStatus;
#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::ErrorBody;
use crate::audit::query::AuditEvent;
#[cfg(test)]
pub(crate) use crate::command::explain::ExplainResponse;
use crate::command::list::ConfigEntry;

/// Confirmation of something that has no other answer.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Confirmation {
    pub(crate) ok: bool,
}

/// Readiness of the servers that should be up.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ReadinessResponse {
    pub(crate) ready: bool,
    /// Servers that have neither come up nor failed.
    pub(crate) waiting: usize,
}

/// Version and process of a daemon.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct VersionResponse {
    pub(crate) version: String,
    pub(crate) pid: u32,
    /// Absent from a daemon of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) audit: Option<AuditState>,
}

/// State of writing the audit.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct AuditState {
    /// Whether anything is written.
    #[serde(default)]
    pub(crate) enabled: bool,
    /// Why nothing can be written now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trouble: Option<String>,
    /// The last loss of the log beside the file, which had to be begun anew, and its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) log_gone: Option<String>,
    /// Rows that this daemon has dropped.
    pub(crate) lost: u64,
}

/// The newest rows of the audit that fit a query, oldest first.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct AuditPage {
    pub(crate) events: Vec<AuditEvent>,
    pub(crate) state: AuditState,
}

/// All servers, in the order of the config.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ServersResponse {
    pub(crate) servers: Vec<ServerResponse>,
}

/// One server: the fields of `ostler status --json`.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ServerResponse {
    #[serde(flatten)]
    pub(crate) status: ServerStatus,
    /// Why the host does not take the server at all.
    pub(crate) error: Option<ErrorBody>,
}

/// A server that could not be asked or changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ServerError {
    pub(crate) server: ServerName,
    pub(crate) error: ErrorBody,
}

/// Everything that servers define, asked for now.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct DefinitionsResponse {
    pub(crate) servers: Vec<ServerDefinitions>,
    pub(crate) errors: Vec<ServerError>,
}

/// Everything that a server defines.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ServerDefinitions {
    pub(crate) server: ServerName,
    pub(crate) items: Vec<DefinitionItem>,
    /// Items that the server lists more than once.
    pub(crate) repeated: Vec<RepeatedItem>,
}

/// One definition.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct DefinitionItem {
    pub(crate) section: LockSection,
    /// As the server calls it.
    pub(crate) name: String,
    /// As the server wrote it.
    #[cfg_attr(test, schemars(with = "serde_json::Map<String, serde_json::Value>"))]
    pub(crate) definition: Box<RawValue>,
}

/// An item that a server lists more than once.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct RepeatedItem {
    pub(crate) section: LockSection,
    pub(crate) name: String,
}

/// The lock file, and what differs from it as far as it is known.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct PinsResponse {
    /// The lock file; null for the built-in server.
    pub(crate) file: Option<PathBuf>,
    /// What happens to tools that are not approved; `off` without a lock file.
    pub(crate) mode: PinMode,
    /// Why the lock file on disk is not in force.
    pub(crate) error: Option<String>,
    /// Recognizes the lock that is in force; null without one.
    pub(crate) sha256: Option<String>,
    /// The lock file on disk is another one, and waits for `POST /api/v1/config/reload`.
    pub(crate) pending: bool,
    pub(crate) servers: Vec<PinnedServer>,
}

/// A server beside what was approved of it.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct PinnedServer {
    pub(crate) server: ServerName,
    /// Approved tools.
    pub(crate) pinned: usize,
    /// Whether any list of it is known yet.
    pub(crate) seen: bool,
    pub(crate) changed: Vec<String>,
    pub(crate) new: Vec<String>,
    pub(crate) removed: Vec<String>,
}

/// Use of the budgets of roles, and of tokens that have made calls lately.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct BudgetsResponse {
    pub(crate) budgets: Vec<BudgetStatus>,
    /// Whether a restart would keep what was charged.
    pub(crate) kept: bool,
}

/// State of the service for workers elsewhere.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct RelayResponse {
    /// Null where the config has none.
    pub(crate) relay: Option<ServiceStatus>,
}

/// The config as it is applied.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct AppliedConfig {
    /// The main file; null for the built-in server.
    pub(crate) file: Option<PathBuf>,
    /// Whether an edit applies by itself.
    pub(crate) watch: bool,
    /// The entries of `ostler list --json`.
    pub(crate) servers: Vec<ConfigEntry>,
    /// Warnings.
    pub(crate) problems: Vec<Problem>,
    /// What became of the last change; null if there was none.
    pub(crate) last_change: Option<Reload>,
}

/// A change of the config, and what became of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Reload {
    /// When, in seconds since 1970.
    pub(crate) at: u64,
    #[serde(flatten)]
    pub(crate) outcome: ReloadOutcome,
}

impl Reload {
    /// Makes the record of a change that came to its end now.
    pub(crate) fn now(outcome: ReloadOutcome) -> Self {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Self { at, outcome }
    }
}

/// Outcome of a change of the config.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(crate) enum ReloadOutcome {
    /// It was applied, except for what failed.
    Applied {
        /// What it came to.
        plan: Plan,
        /// Servers that could not be changed as the plan says; they stay as they were.
        failed: Vec<ServerError>,
        /// What became of the lock file.
        lock: LockChange,
    },
    /// The config can't be used, so nothing was changed.
    Broken {
        /// What is wrong with it.
        problems: Vec<Problem>,
    },
    /// The config can't be read, so nothing was changed.
    Unreadable {
        /// Why not.
        why: String,
        /// What to do about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    /// The config runs or contacts something that needs consent, so nothing was changed.
    Untrusted {
        /// The main file.
        file: PathBuf,
    },
}

impl ReloadOutcome {
    /// Returns whether the config before it stays in force.
    pub(crate) fn is_refused(&self) -> bool {
        !matches!(self, Self::Applied { .. })
    }
}

/// What an operator's request made of the lock file on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LockChange {
    /// It is the one in force, or was not to be taken up.
    Unchanged,
    /// It is in force now.
    TakenUp,
    /// There is none any more, so nothing is pinned.
    Gone,
    /// It can't be used; the one before stays in force.
    Unusable,
}

/// Times at which the tokens of callers were last used, by name.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct TokensResponse {
    pub(crate) tokens: Vec<TokenUse>,
}

/// Last use of a token.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct TokenUse {
    pub(crate) name: String,
    /// In seconds since 1970; null if it was not used.
    pub(crate) last_used: Option<u64>,
}

/// Number of tokens that are good.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct TokenCount {
    pub(crate) tokens: usize,
}

/// One line of a server's stderr. `ostler logs --own` has lines without a server.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ServerLogLine {
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) server: Option<String>,
    /// When the line began, as RFC 3339 has it.
    #[cfg_attr(test, schemars(with = "String", extend("format" = "date-time")))]
    pub(crate) at: Option<String>,
    pub(crate) line: String,
    /// Ostler's own line before the first one of a process; absent in all others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) start: bool,
}
