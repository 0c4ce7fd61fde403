//! Status of a server, as an operator sees it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use crate::breaker;
use crate::cache::CacheStats;
use crate::card::CardStatus;
use crate::config::DisabledServer;
use crate::fault::{Exit, HumanDuration};
use crate::server_name::ServerName;
use crate::spec::{Isolation, ServerSpec};

/// A word of a fixed set. The alias is needed because serde would treat a plain reference as one into the
/// parsed text.
type StaticWord = &'static str;

/// Status of one server at one moment. The field names are the public JSON shape of `ostler status --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerStatus {
    /// The operator's name for it.
    pub name: ServerName,
    /// State of the server.
    pub state: ServerState,
    /// `stdio` or `http`.
    #[serde(deserialize_with = "read_transport")]
    pub transport: StaticWord,
    /// True if it starts at its first use and ends when idle.
    pub lazy: bool,
    /// True if a session is live.
    pub active: bool,
    /// Process id of the live child process.
    pub pid: Option<u32>,
    /// The protocol revision spoken with the live session.
    pub protocol: Option<String>,
    /// Number of the current session, or of the last one; 0 before the first.
    pub generation: u64,
    /// Leases held by calls and binders.
    pub leases: usize,
    /// Calls at the server.
    pub in_flight: usize,
    /// Callers waiting because `max_in_flight` is reached.
    pub queued: usize,
    /// Restart budget.
    pub restarts: Restarts,
    /// Attempted starts since the server was registered, failed ones included.
    pub starts_total: u64,
    /// Failures since the last success.
    pub consecutive_failures: u32,
    /// State of the breaker.
    pub circuit: CircuitState,
    /// Callers held back by their own failures alone, counted per tool.
    #[serde(default)]
    pub held_back: usize,
    /// Time until a call may pass again, while none may.
    pub retry_after_ms: Option<u64>,
    /// True if only an operator can bring it back.
    pub ejected: bool,
    /// The start in progress.
    #[serde(default)]
    pub start: Option<StartStatus>,
    /// The last failure, also after a recovery.
    pub last_error: Option<LastError>,
    /// Age of the live session.
    pub uptime_ms: Option<u64>,
    /// Duration of the live session's start, from its process to the end of the handshake.
    #[serde(default)]
    pub start_ms: Option<u64>,
    /// Time for which that start waited for its turn before.
    #[serde(default)]
    pub start_wait_ms: Option<u64>,
    /// Its part of the cache.
    pub cache: CacheStats,
    /// Tools in its last list, before any role filter; `None` before the first list.
    pub tools: Option<usize>,
    /// Items left out of its lists: invalid ones, and those beyond `max_tools` and the like.
    #[serde(default)]
    pub left_out: usize,
    /// Definitions in its last lists that the schema of MCP does not allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid_definitions: Option<InvalidDefinitions>,
    /// Tools with an approved definition; `None` without a lock file.
    pub pinned: Option<usize>,
    /// Tools that differ from their approved definition; `None` without a lock file.
    pub changed: Option<usize>,
    /// Tools that are not approved yet; `None` without a lock file.
    pub new: Option<usize>,
    /// Approved tools that the server no longer lists; `None` without a lock file.
    pub removed: Option<usize>,
    /// Cleanup of its processes if the host dies.
    pub containment: Containment,
    /// Lines of output that were not JSON-RPC messages, or were too long.
    pub skipped_lines: u64,
    /// Notifications beyond the rate limit.
    pub dropped_notifications: u64,
    /// Callers that share a process of it.
    #[serde(default)]
    pub isolation: Isolation,
    /// Processes of a server with isolation, without sleeping ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessStatus>,
    /// Its card, if it was read. The server's own claims, never a reason to trust it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<CardStatus>,
}

/// One process of a server that has one for each caller, session or workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessStatus {
    /// The directory of a workspace; the principal of a caller, or of the caller of a session.
    pub of: String,
    /// State of the process.
    pub state: ServerState,
    /// Process id of the live child process.
    pub pid: Option<u32>,
    /// Calls at it.
    pub in_flight: usize,
    /// Age of the live session.
    pub uptime_ms: Option<u64>,
}

impl ServerStatus {
    /// Creates the status of a server that is registered and has never been started.
    pub fn registered(spec: &ServerSpec) -> Self {
        Self {
            name: spec.name.clone(),
            state: ServerState::Idle,
            transport: spec.transport.kind(),
            lazy: spec.lazy,
            active: false,
            pid: None,
            protocol: None,
            generation: 0,
            leases: 0,
            in_flight: 0,
            queued: 0,
            restarts: Restarts { used: 0, budget: spec.restart.max },
            starts_total: 0,
            consecutive_failures: 0,
            circuit: CircuitState::Closed,
            held_back: 0,
            retry_after_ms: None,
            ejected: false,
            start: None,
            last_error: None,
            uptime_ms: None,
            start_ms: None,
            start_wait_ms: None,
            cache: CacheStats::default(),
            tools: None,
            left_out: 0,
            invalid_definitions: None,
            pinned: None,
            changed: None,
            new: None,
            removed: None,
            containment: Containment::None,
            skipped_lines: 0,
            dropped_notifications: 0,
            isolation: spec.isolation,
            processes: Vec::new(),
            card: None,
        }
    }

    /// Creates the status of a server that is listed and not run.
    pub fn disabled(server: &DisabledServer) -> Self {
        let error = LastError {
            message: server.cause.clone(),
            cause: None,
            hint: Some(server.remedy.clone()),
            exit: None,
            stderr: Vec::new(),
            seconds_ago: 0,
        };
        Self { state: ServerState::Disabled, last_error: Some(error), ..Self::registered(&server.spec) }
    }
}

/// Parses the word of a transport.
fn read_transport<'de, D: Deserializer<'de>>(from: D) -> Result<StaticWord, D::Error> {
    let word = String::deserialize(from)?;
    let known = ["stdio", "http"].into_iter().find(|known| *known == word);
    known.ok_or_else(|| serde::de::Error::custom(format!("unknown transport {word:?}")))
}

/// State of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// Not running; the next call starts it.
    Idle,
    /// Being started or in its handshake.
    Starting,
    /// Being downloaded by its package manager, or queued for that.
    Fetching,
    /// Answering calls.
    Ready,
    /// Finishing its calls, taking no new ones.
    Draining,
    /// Stopped by an operator.
    Stopped,
    /// Failed, and waiting to be started again.
    Backoff,
    /// Failed too often; out until it is readmitted or reloaded.
    Ejected,
    /// Waits for a person to authorize it.
    NeedsAuth,
    /// Listed in the config and not run.
    Disabled,
}

impl ServerState {
    /// Returns the word in JSON, metrics and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Fetching => "fetching",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
            Self::Backoff => "backoff",
            Self::Ejected => "ejected",
            Self::NeedsAuth => "needs_auth",
            Self::Disabled => "disabled",
        }
    }
}

/// Definitions that the schema of MCP does not allow, and their handling for clients of `/mcp`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InvalidDefinitions {
    /// Listed in a repaired form that the schema allows.
    pub completed: usize,
    /// Not listed.
    pub left_out: usize,
    /// The first ones of both.
    pub first: Vec<InvalidDefinition>,
}

/// One definition that the schema of MCP does not allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InvalidDefinition {
    /// `tool`, `prompt`, `resource` or `resource template`.
    pub kind: String,
    /// The server's own name for it.
    pub name: String,
    /// True if `/mcp` does not list it in any form.
    pub left_out: bool,
    /// The problem.
    pub problem: String,
}

/// A start in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StartStatus {
    /// Stage of the start.
    pub stage: StartStage,
    /// The package manager that may have to download the server.
    pub downloader: Option<String>,
    /// Process id of the starting process.
    pub pid: Option<u32>,
    /// Time spent in the stage.
    pub age_ms: u64,
    /// Its last lines on stderr, control characters escaped.
    pub stderr: Vec<String>,
    /// True if the program seems to be an HTTP server, which never speaks on stdout.
    #[serde(default)]
    pub serves_http: bool,
    /// Advice, if the start will probably not finish.
    #[serde(default)]
    pub hint: Option<String>,
}

/// Stage of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StartStage {
    /// It waits for other starts.
    Queued,
    /// It waits for a place in the process pool.
    WaitingForRoom,
    /// It waits for another download of the same package manager.
    WaitingForDownload,
    /// Its package manager runs for the first time, and may be downloading.
    Fetching,
    /// Its process runs and has not answered yet.
    Starting,
}

impl StartStage {
    /// Returns whether the start waits for other servers, and nothing of it runs yet.
    pub fn is_waiting(self) -> bool {
        matches!(self, Self::Queued | Self::WaitingForRoom | Self::WaitingForDownload)
    }
}

impl fmt::Display for StartStatus {
    /// Writes the stage and its duration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let manager = self.downloader.as_deref().unwrap_or("the package manager");
        match self.stage {
            StartStage::Queued => f.write_str("waits for other servers to start")?,
            StartStage::WaitingForRoom => f.write_str("waits for a place in the process pool")?,
            StartStage::WaitingForDownload => write!(f, "waits for another download by {manager}")?,
            StartStage::Fetching => write!(f, "is being fetched by {manager}")?,
            StartStage::Starting if self.serves_http => {
                f.write_str("seems to be an HTTP server and has not spoken MCP on stdout")?
            }
            StartStage::Starting => f.write_str("has been starting")?,
        }
        // Never more than has passed: whole seconds from the first on.
        let age = if self.age_ms < 1_000 { self.age_ms } else { self.age_ms / 1_000 * 1_000 };
        write!(f, " for {}", HumanDuration(Duration::from_millis(age)))?;
        if let Some(pid) = self.pid {
            write!(f, ", pid {pid}")?;
        }
        match self.stderr.last() {
            Some(line) => write!(f, ": {line}"),
            None => Ok(()),
        }
    }
}

/// State of the restart budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Restarts {
    /// Restarts in the current window.
    pub used: u32,
    /// Restarts allowed in a window.
    pub budget: u32,
}

/// State of the breaker, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CircuitState {
    /// Calls pass.
    Closed,
    /// No call passes.
    Open,
    /// One call passes as a probe.
    HalfOpen,
}

impl From<breaker::BreakerState> for CircuitState {
    fn from(circuit: breaker::BreakerState) -> Self {
        match circuit {
            breaker::BreakerState::Closed { .. } => Self::Closed,
            breaker::BreakerState::Open { .. } => Self::Open,
            breaker::BreakerState::HalfOpen { .. } => Self::HalfOpen,
        }
    }
}

/// The last failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastError {
    /// Description of the failure, in one line.
    pub message: String,
    /// The line of stderr that tells the cause.
    #[serde(default)]
    pub cause: Option<String>,
    /// Advice about it.
    #[serde(default)]
    pub hint: Option<String>,
    /// Exit of the process, if it ended.
    pub exit: Option<Exit>,
    /// Its last lines on stderr, control characters escaped.
    pub stderr: Vec<String>,
    /// Age of the failure.
    pub seconds_ago: u64,
}

impl fmt::Display for LastError {
    /// Writes the cause first, then the failure.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => write!(f, "\"{cause}\", {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Cleanup of a server's processes if the host dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Containment {
    /// A guard process that outlives the host and ends every descendant.
    Guard,
    /// The process group, which misses descendants that left it.
    ProcessGroup,
    /// There is no local process.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time() -> ServerStatus {
        ServerStatus::registered(
            &ServerSpec::stdio(ServerName::new("time").unwrap(), "mcp-server-time").lazy(),
        )
    }

    #[test]
    fn a_server_that_never_ran_shows_every_field() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&time()).unwrap());
    }

    #[test]
    fn an_ejected_server_tells_how_it_ended() {
        let status = ServerStatus {
            state: ServerState::Ejected,
            generation: 6,
            restarts: Restarts { used: 5, budget: 5 },
            starts_total: 6,
            consecutive_failures: 6,
            circuit: breaker::BreakerState::HalfOpen { is_probing: true }.into(),
            retry_after_ms: Some(1_000),
            ejected: true,
            last_error: Some(LastError {
                message: "the process ended (code 1)".into(),
                cause: Some("missing GITHUB_TOKEN".into()),
                hint: None,
                exit: Some(Exit::Code(1)),
                stderr: vec!["missing GITHUB_TOKEN".into()],
                seconds_ago: 12,
            }),
            containment: Containment::ProcessGroup,
            ..time()
        };
        insta::assert_snapshot!(serde_json::to_string_pretty(&status).unwrap());
        let read: ServerStatus = serde_json::from_str(&serde_json::to_string(&status).unwrap()).unwrap();
        assert_eq!(read, status);
    }

    #[test]
    fn a_start_is_never_told_to_last_longer_than_it_has() {
        let start = |age_ms| StartStatus {
            stage: StartStage::Starting,
            downloader: None,
            pid: None,
            age_ms,
            stderr: Vec::new(),
            serves_http: false,
            hint: None,
        };
        for (age_ms, told) in [(7, "7ms"), (999, "999ms"), (1_001, "1s"), (1_999, "1s"), (59_999, "59s")] {
            assert_eq!(start(age_ms).to_string(), format!("has been starting for {told}"));
        }
    }

    #[test]
    fn the_word_of_a_state_is_its_json() {
        use ServerState::*;
        for state in [Idle, Starting, Fetching, Ready, Draining, Stopped, Backoff, Ejected, NeedsAuth] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
    }
}
