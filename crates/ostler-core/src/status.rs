//! What an operator sees of a server.

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

/// A word of a fixed set. It has a name of its own because a field that is
/// plainly a reference would be taken for one into the text that is read.
type StaticWord = &'static str;

/// Everything known about one server at one moment. The field names are the
/// public JSON shape of `ostler status --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerStatus {
    /// The operator's name for it.
    pub name: ServerName,
    /// Where it stands in its life.
    pub state: ServerState,
    /// `stdio` or `http`.
    #[serde(deserialize_with = "read_transport")]
    pub transport: StaticWord,
    /// Whether it starts at its first use and ends when idle.
    pub lazy: bool,
    /// Whether a session is live.
    pub active: bool,
    /// Of the live child process.
    pub pid: Option<u32>,
    /// The protocol revision spoken with the live session.
    pub protocol: Option<String>,
    /// Of the current session, or of the last one; 0 before the first.
    pub generation: u64,
    /// Held by calls and binders.
    pub leases: usize,
    /// Calls at the server.
    pub in_flight: usize,
    /// Callers waiting for a place among those.
    pub queued: usize,
    /// Of the restart budget.
    pub restarts: Restarts,
    /// Starts tried since the server was registered, failed ones included.
    pub starts_total: u64,
    /// Failures since the last success.
    pub consecutive_failures: u32,
    /// Of the breaker.
    pub circuit: CircuitState,
    /// Callers held back by their own failures alone, counted per tool.
    #[serde(default)]
    pub held_back: usize,
    /// When a call may pass again, while none may.
    pub retry_after_ms: Option<u64>,
    /// Whether only an operator brings it back.
    pub ejected: bool,
    /// The start that is under way.
    #[serde(default)]
    pub start: Option<StartStatus>,
    /// What went wrong last, also when it works again.
    pub last_error: Option<LastError>,
    /// Of the live session.
    pub uptime_ms: Option<u64>,
    /// How long the start of the live session took, from its process to the end of the handshake.
    #[serde(default)]
    pub start_ms: Option<u64>,
    /// How long that start had waited for its turn before.
    #[serde(default)]
    pub start_wait_ms: Option<u64>,
    /// Its part of the cache.
    pub cache: CacheStats,
    /// Tools in its last list, before any role filter; `None` before the first list.
    pub tools: Option<usize>,
    /// Items that were left out of its lists: bad ones, and those beyond `max_tools` and the like.
    #[serde(default)]
    pub left_out: usize,
    /// Definitions in its last lists that the schema of MCP does not allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid_definitions: Option<InvalidDefinitions>,
    /// Tools with an approved definition; `None` without a lock file.
    pub pinned: Option<usize>,
    /// Tools that differ from their approved definition; `None` without a lock file.
    pub changed: Option<usize>,
    /// Tools that nobody has approved; `None` without a lock file.
    pub new: Option<usize>,
    /// Approved tools that the server does not list any more; `None` without a lock file.
    pub removed: Option<usize>,
    /// What ends its processes if the host can't.
    pub containment: Containment,
    /// Lines of output that were not JSON-RPC messages, or were too long.
    pub skipped_lines: u64,
    /// Notifications beyond the rate limit.
    pub dropped_notifications: u64,
    /// Who shares a process of it.
    #[serde(default)]
    pub isolation: Isolation,
    /// Processes of a server that not everybody shares, those that sleep left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessStatus>,
    /// Its card, if that was read. Its own words, never a reason to trust it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<CardStatus>,
}

/// One process of a server that has one for each caller, session or workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessStatus {
    /// The directory of a workspace; the principal of a caller, or of the caller of a session.
    pub of: String,
    /// Where it stands in its life.
    pub state: ServerState,
    /// Of the live child process.
    pub pid: Option<u32>,
    /// Calls at it.
    pub in_flight: usize,
    /// Of the live session.
    pub uptime_ms: Option<u64>,
}

impl ServerStatus {
    /// A server that is registered and has never been started.
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

    /// A server that is named and not run.
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

/// One of the words that there are.
fn read_transport<'de, D: Deserializer<'de>>(from: D) -> Result<StaticWord, D::Error> {
    let word = String::deserialize(from)?;
    let known = ["stdio", "http"].into_iter().find(|known| *known == word);
    known.ok_or_else(|| serde::de::Error::custom(format!("unknown transport {word:?}")))
}

/// Where a server stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// Not running; the next call starts it.
    Idle,
    /// Being started or shaking hands.
    Starting,
    /// Being downloaded by its package manager, or in line for that.
    Fetching,
    /// Answering calls.
    Ready,
    /// Finishing its calls, taking no new ones.
    Draining,
    /// Stopped by an operator.
    Stopped,
    /// Failed, and waiting to be started again.
    Backoff,
    /// Failed too often; out until an operator reloads it.
    Ejected,
    /// Waits for a person to authorize it.
    NeedsAuth,
    /// Named in the config and not run.
    Disabled,
}

impl ServerState {
    /// The word in JSON, metrics and tables.
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

/// Definitions that the schema of MCP does not allow, and what clients of `/mcp` get instead.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InvalidDefinitions {
    /// Listed in a form that the schema allows.
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
    /// Whether `/mcp` lists it in no form.
    pub left_out: bool,
    /// What the schema does not allow.
    pub problem: String,
}

/// A start under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StartStatus {
    /// How far it has come.
    pub stage: StartStage,
    /// The package manager that may have to download the server.
    pub downloader: Option<String>,
    /// Of the starting process.
    pub pid: Option<u32>,
    /// How long the stage has lasted.
    pub age_ms: u64,
    /// Its last lines on stderr, control characters escaped.
    pub stderr: Vec<String>,
    /// Whether the program seems to be an HTTP server, which never speaks on stdout.
    #[serde(default)]
    pub serves_http: bool,
    /// Advice, where the start is not likely to come to its end.
    #[serde(default)]
    pub hint: Option<String>,
}

/// How far a start has come.
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
    /// Says what is waited for, and since when.
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

/// Of the restart budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Restarts {
    /// Restarts in the current window.
    pub used: u32,
    /// Restarts allowed in a window.
    pub budget: u32,
}

/// The breaker, in one word.
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

/// What went wrong last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastError {
    /// How it was noticed, in one line.
    pub message: String,
    /// The line of stderr that tells the cause.
    #[serde(default)]
    pub cause: Option<String>,
    /// Advice that goes with it.
    #[serde(default)]
    pub hint: Option<String>,
    /// How the process ended, if it did.
    pub exit: Option<Exit>,
    /// Its last lines on stderr, control characters escaped.
    pub stderr: Vec<String>,
    /// How long ago.
    pub seconds_ago: u64,
}

impl fmt::Display for LastError {
    /// The cause comes first, then how it was noticed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => write!(f, "\"{cause}\", {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// What ends a server's processes if the host can't.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Containment {
    /// A guard process that outlives the host and ends every descendant.
    Guard,
    /// The process group, which misses descendants that left it.
    ProcessGroup,
    /// There is no process of ours to end.
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
