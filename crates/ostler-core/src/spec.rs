//! What an operator says about one server: the checked, complete form.
//!
//! A [`ServerSpec`] is what the config file and the library's builder both
//! end in. Every field has its final value; nothing in it is optional because
//! somebody forgot it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::config::{WORKSPACE, hide_in_address, hide_in_args};
use crate::downloader::Downloader;
use crate::name::ServerName;
use crate::policy::Filter;

/// One upstream MCP server, as the operator wants it run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerSpec {
    /// The operator's name; the server's own `serverInfo.name` is never used.
    pub name: ServerName,
    /// How the server is reached.
    pub transport: Transport,
    /// Lazy servers start at their first use and end `keep_alive` after their last.
    pub lazy: bool,
    /// How long a lazy server outlives its last lease.
    pub keep_alive: Duration,
    /// Who shares a process of this server.
    pub isolation: Isolation,
    /// The workspace of callers that name none, for [`Isolation::Workspace`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PathBuf>,
    /// From the spawn to the end of the handshake.
    pub start_timeout: Duration,
    /// The same for a command that may have to download the server first, see [`Downloader`].
    pub fetch_timeout: Duration,
    /// One call; progress may extend it up to `max_call_time`.
    pub call_timeout: Duration,
    /// The hard end of a call, whatever progress it reports.
    pub max_call_time: Duration,
    /// Calls at the server at once.
    pub max_in_flight: usize,
    /// Callers waiting for a place among those; one more is shed.
    pub max_queued: usize,
    /// Longest line accepted from the server, in bytes.
    pub max_line: usize,
    /// Items kept of each of the server's lists.
    pub lists: ListCaps,
    /// How long calls in flight may finish when the server is stopped or replaced.
    pub drain: Duration,
    /// Restart budget and delays.
    pub restart: RestartSettings,
    /// When calls stop being sent to a failing server.
    pub breaker: BreakerSettings,
    /// Whether the server's pinned `readOnlyHint`/`idempotentHint` are believed.
    pub trust: bool,
    /// Whether the server is believed when it calls an answer public.
    pub cache_scope: CacheScopeRule,
    /// Whether arguments are checked against the schemas of the server's tools before they are sent.
    pub validate: bool,
    /// Which of the server's tools exist as far as anybody here is concerned.
    pub tools: Filter,
    /// Rules for single tools, by the server's own tool names.
    pub tool: BTreeMap<String, ToolRules>,
    /// Where the server's card is found: a path or a URL.
    pub card: Option<String>,
    /// Whether its definitions are compared with `ostler.lock`. Not part of the fingerprint: the pins are swapped, and
    /// the process stays.
    #[serde(skip)]
    pub is_pinned: bool,
}

impl ServerSpec {
    /// A server behind a child process, with every default of the
    /// documentation, that is started at once and stays up.
    pub fn stdio(name: ServerName, command: impl Into<String>) -> Self {
        let process = Process {
            command: command.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            env_pass: Vec::new(),
            cwd: None,
        };
        Self::with_transport(name, Transport::Stdio(process))
    }

    /// A server behind a URL, with every default of the documentation, that is connected to at once.
    pub fn http(name: ServerName, url: impl Into<String>) -> Self {
        Self::with_transport(name, Transport::Http(Endpoint { url: url.into(), headers: BTreeMap::new() }))
    }

    /// A server with every default of the documentation, that is started at
    /// once and stays up. (Servers of a config file are lazy unless it says
    /// otherwise: a file lists what may be needed, code what is.)
    pub fn with_transport(name: ServerName, transport: Transport) -> Self {
        Self {
            name,
            transport,
            lazy: false,
            keep_alive: Duration::from_secs(300),
            isolation: Isolation::Shared,
            workspace: None,
            start_timeout: Duration::from_secs(60),
            fetch_timeout: Duration::from_secs(300),
            call_timeout: Duration::from_secs(60),
            max_call_time: Duration::from_secs(600),
            max_in_flight: 64,
            max_queued: 256,
            max_line: 16 << 20,
            lists: ListCaps::default(),
            drain: Duration::from_secs(5),
            restart: RestartSettings::default(),
            breaker: BreakerSettings::default(),
            trust: false,
            cache_scope: CacheScopeRule::default(),
            validate: true,
            tools: Filter::everything(),
            tool: BTreeMap::new(),
            card: None,
            is_pinned: true,
        }
    }

    /// Appends arguments to the command line of a stdio server; no effect on others.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        if let Transport::Stdio(process) = &mut self.transport {
            process.args.extend(args.into_iter().map(Into::into));
        }
        self
    }

    /// Adds a variable to the cleared environment of a stdio server; no effect on others. The value may hold
    /// references such as `${env:TOKEN}`.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Transport::Stdio(process) = &mut self.transport {
            process.env.insert(name.into(), value.into());
        }
        self
    }

    /// Passes variables of the host on to a stdio server, by name or by prefix such as `AWS_*`; no effect on others.
    #[must_use]
    pub fn env_pass<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        if let Transport::Stdio(process) = &mut self.transport {
            process.env_pass.extend(names.into_iter().map(Into::into));
        }
        self
    }

    /// Sets the working directory of a stdio server; no effect on others.
    #[must_use]
    pub fn cwd(mut self, folder: impl Into<PathBuf>) -> Self {
        if let Transport::Stdio(process) = &mut self.transport {
            process.cwd = Some(folder.into());
        }
        self
    }

    /// Sends a header with every request to a remote server; no effect on others. The value may hold references such
    /// as `${env:TOKEN}`.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Transport::Http(endpoint) = &mut self.transport {
            endpoint.headers.insert(name.into(), value.into());
        }
        self
    }

    /// Sets how long a lazy server outlives its last use.
    #[must_use]
    pub fn keep_alive(mut self, time: Duration) -> Self {
        self.keep_alive = time;
        self
    }

    /// Sets how often and how fast the server is started again when it fails.
    #[must_use]
    pub fn restart(mut self, settings: RestartSettings) -> Self {
        self.restart = settings;
        self
    }

    /// Sets who shares a process of the server.
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Sets how long a start may take while its processes are idle.
    #[must_use]
    pub fn start_timeout(mut self, time: Duration) -> Self {
        self.start_timeout = time;
        self
    }

    /// Sets the same for a command that may have to download the server first.
    #[must_use]
    pub fn fetch_timeout(mut self, time: Duration) -> Self {
        self.fetch_timeout = time;
        self
    }

    /// Sets how long one call may take; `max_call_time` grows with it.
    #[must_use]
    pub fn call_timeout(mut self, time: Duration) -> Self {
        self.call_timeout = time;
        self.max_call_time = self.max_call_time.max(time);
        self
    }

    /// Sets whether arguments are checked against the schemas of the server's tools.
    #[must_use]
    pub fn validate(mut self, validate: bool) -> Self {
        self.validate = validate;
        self
    }

    /// Starts the server at its first use and ends it `keep_alive` after its last.
    #[must_use]
    pub fn lazy(mut self) -> Self {
        self.lazy = true;
        self
    }

    /// Returns the package manager that may have to download the server before it starts.
    pub fn downloader(&self) -> Option<Downloader> {
        match &self.transport {
            Transport::Stdio(process) => Downloader::of(process),
            Transport::Http(_) => None,
        }
    }

    /// Returns how long a start may take while its processes are idle.
    pub fn start_limit(&self) -> Duration {
        match self.downloader() {
            Some(_) => self.fetch_timeout.max(self.start_timeout),
            None => self.start_timeout,
        }
    }

    /// The rules of one tool; those of an unmentioned tool are the defaults.
    pub fn rules(&self, tool: &str) -> ToolRules {
        self.tool.get(tool).copied().unwrap_or_default()
    }

    /// Equal fingerprints mean that a respawn would change nothing.
    pub fn fingerprint(&self) -> Fingerprint {
        #[expect(clippy::expect_used, reason = "maps have string keys and no field can fail to serialize")]
        let text = serde_json::to_vec(self).expect("a spec is plain JSON");
        Fingerprint(Sha256::digest(text).into())
    }
}

/// Items kept of each list of a server; the rest is left out and reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ListCaps {
    /// Tools.
    pub tools: usize,
    /// Prompts.
    pub prompts: usize,
    /// Resources.
    pub resources: usize,
    /// Resource templates.
    pub templates: usize,
}

impl Default for ListCaps {
    /// Several times what the largest published servers list.
    fn default() -> Self {
        Self { tools: 2_000, prompts: 2_000, resources: 10_000, templates: 2_000 }
    }
}

/// Who may be given remembered answers of a server, and its lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheScopeRule {
    /// Whoever the server says.
    #[default]
    Server,
    /// The caller who asked, whatever the server says.
    Private,
}

/// The SHA-256 of a spec.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// A child process that speaks over its stdin and stdout.
    Stdio(Process),
    /// A Streamable HTTP endpoint.
    Http(Endpoint),
}

impl Transport {
    /// The word used in status output.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Stdio(_) => "stdio",
            Self::Http(_) => "http",
        }
    }
}

/// A child process. Values may hold `${env:X}`, `${file:path}` and `${workspace}` references,
/// which are resolved when the process is started and at no other time.
#[derive(Clone, PartialEq, Serialize)]
pub struct Process {
    /// A program name looked up in `PATH`, or a path; never a shell line.
    pub command: String,
    /// The argument vector, without the program itself.
    pub args: Vec<String>,
    /// Variables added to the cleared environment.
    pub env: BTreeMap<String, String>,
    /// Variables of the host that are passed on beside the [usual ones](crate::variables::PASSED): names, or prefixes that
    /// end in `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_pass: Vec<String>,
    /// The working directory; the host's own when absent. It may begin with `${workspace}`.
    pub cwd: Option<PathBuf>,
}

/// A remote server. Header values may hold references like [`Process`] values.
#[derive(Clone, PartialEq, Serialize)]
pub struct Endpoint {
    /// `http://` or `https://`.
    pub url: String,
    /// Sent with every request.
    pub headers: BTreeMap<String, String>,
}

impl Process {
    /// Returns the working directory of a process that is started for a workspace.
    pub fn cwd_in(&self, workspace: Option<&str>) -> Option<PathBuf> {
        let cwd = self.cwd.as_ref()?;
        match (cwd.strip_prefix(WORKSPACE), workspace) {
            (Ok(rest), Some(workspace)) => Some(Path::new(workspace).join(rest)),
            _ => Some(cwd.clone()),
        }
    }
}

// Specs get logged. Values of variables and headers, and what looks like a
// secret elsewhere, stay out of that.

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("command", &self.command)
            .field("args", &hide_in_args(&self.args))
            .field("env", &self.env.keys())
            .field("env_pass", &self.env_pass)
            .field("cwd", &self.cwd)
            .finish()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("url", &hide_in_address(&self.url))
            .field("headers", &self.headers.keys())
            .finish()
    }
}

/// Who shares a process of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// One process for everybody.
    #[default]
    Shared,
    /// A process per principal.
    Caller,
    /// A process per client session.
    Session,
    /// A process per directory that clients work in.
    Workspace,
}

impl Isolation {
    /// Returns whether callers with different principals share a process.
    pub fn has_several_callers(self) -> bool {
        matches!(self, Self::Shared | Self::Workspace)
    }
}

/// How often and how fast a failing server is started again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RestartSettings {
    /// Restarts allowed in `window`; the failure after the last one ejects.
    pub max: u32,
    /// The sliding window over which restarts are counted.
    pub window: Duration,
    /// The first delay before a restart; doubles from there.
    pub first_delay: Duration,
    /// The longest delay.
    pub max_delay: Duration,
    /// How long an ejected server stays out the first time; doubles up to ten times that. `None` leaves it to an operator.
    pub readmit_after: Option<Duration>,
}

impl Default for RestartSettings {
    fn default() -> Self {
        Self {
            max: 5,
            window: Duration::from_secs(300),
            first_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(5),
            readmit_after: Some(Duration::from_secs(60)),
        }
    }
}

/// When calls stop being sent to a failing server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BreakerSettings {
    /// Consecutive failures that open the breaker; 0 switches it off.
    pub failures: u32,
    /// How long it stays open the first time; doubles with each failed probe.
    pub reset: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self { failures: 5, reset: Duration::from_secs(30) }
    }
}

/// What an operator says about one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub struct ToolRules {
    /// Whether results may be remembered.
    pub cache: CacheRule,
    /// Whether a call whose outcome is unknown may be repeated.
    pub retry: RetryRule,
}

/// Whether results of a tool may be remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum CacheRule {
    /// As long as the server's own hint says.
    #[default]
    Hint,
    /// This long, whatever the server says.
    For(Duration),
    /// Never, whatever the server says.
    Never,
}

/// Whether a call whose outcome is unknown may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum RetryRule {
    /// Not repeated: the tool runs at most once per call.
    #[default]
    Never,
    /// The operator vouches that running it twice does no harm.
    Safe,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_that_is_logged_shows_no_secret() {
        let name = ServerName::new("s").unwrap();
        let mut spec = ServerSpec::stdio(name.clone(), "server").args(["--token", "hunter2-hunter2"]);
        if let Transport::Stdio(process) = &mut spec.transport {
            process.env.insert("API_KEY".into(), "hunter3".into());
        }
        let headers = BTreeMap::from([("Authorization".to_owned(), "Bearer hunter4".to_owned())]);
        let endpoint = Endpoint { url: "https://me:hunter5@example.com".into(), headers };
        let remote = ServerSpec::with_transport(name, Transport::Http(endpoint));
        let shown = format!("{spec:?} {remote:?}");
        assert!(shown.contains("API_KEY") && shown.contains("Authorization"), "{shown}");
        assert!(!shown.contains("hunter"), "{shown}");
    }

    #[test]
    fn a_fingerprint_is_shown_in_hexadecimal_digits() {
        let print = Fingerprint(std::array::from_fn(|i| i as u8));
        let digits = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
        assert_eq!(format!("{print} {print:?}"), format!("{digits} Fingerprint({digits})"));
    }
}
