//! Spec of one server: the checked, complete form of its config.
//!
//! The config file and the library's builder both produce a [`ServerSpec`]. Every field has its final value;
//! no field is optional because it might have been forgotten.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use sha2::{Digest, Sha256};

pub use crate::config::{
    BreakerSettings, CacheRule, CacheScopeRule, Isolation, ListLimits, RestartSettings, RetryRule,
    ServerSpec, ToolRules,
};
use crate::config::{WORKSPACE, redact_args, redact_url};
use crate::downloader::Downloader;
use crate::server_name::ServerName;

impl ServerSpec {
    /// Creates a server behind a child process, with the documented defaults, that is started at once and
    /// stays up.
    pub fn stdio(name: ServerName, command: impl Into<String>) -> Self {
        let process = ProcessSpec {
            command: command.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            env_pass: Vec::new(),
            cwd: None,
        };
        Self::with_transport(name, ServerTransport::Stdio(process))
    }

    /// Creates a server behind a URL, with the documented defaults, that is connected to at once.
    pub fn http(name: ServerName, url: impl Into<String>) -> Self {
        Self::with_transport(
            name,
            ServerTransport::Http(EndpointSpec { url: url.into(), headers: BTreeMap::new() }),
        )
    }

    /// Creates a server with the documented defaults that is started at once and stays up. (Servers of a
    /// config file are lazy by default: a file lists servers that may be needed, code those that are.)
    pub fn with_transport(name: ServerName, transport: ServerTransport) -> Self {
        Self { lazy: false, ..Self::preset(name, transport) }
    }

    /// Appends arguments to the command line of a stdio server; no effect on others.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        if let ServerTransport::Stdio(process) = &mut self.transport {
            process.args.extend(args.into_iter().map(Into::into));
        }
        self
    }

    /// Adds a variable to the cleared environment of a stdio server; no effect on others. The value may hold
    /// references such as `${env:TOKEN}`.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let ServerTransport::Stdio(process) = &mut self.transport {
            process.env.insert(name.into(), value.into());
        }
        self
    }

    /// Passes variables of the host on to a stdio server, by name or by prefix such as `AWS_*`; no effect on others.
    #[must_use]
    pub fn env_pass<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        if let ServerTransport::Stdio(process) = &mut self.transport {
            process.env_pass.extend(names.into_iter().map(Into::into));
        }
        self
    }

    /// Sets the working directory of a stdio server; no effect on others.
    #[must_use]
    pub fn cwd(mut self, folder: impl Into<PathBuf>) -> Self {
        if let ServerTransport::Stdio(process) = &mut self.transport {
            process.cwd = Some(folder.into());
        }
        self
    }

    /// Sends a header with every request to a remote server; no effect on others. The value may hold references such
    /// as `${env:TOKEN}`.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let ServerTransport::Http(endpoint) = &mut self.transport {
            endpoint.headers.insert(name.into(), value.into());
        }
        self
    }

    /// Sets the time a lazy server outlives its last use.
    #[must_use]
    pub fn keep_alive(mut self, time: Duration) -> Self {
        self.keep_alive = time;
        self
    }

    /// Sets the number and delays of restarts after failures.
    #[must_use]
    pub fn restart(mut self, settings: RestartSettings) -> Self {
        self.restart = settings;
        self
    }

    /// Sets the callers that share a process of the server.
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Sets the time a start may take while its processes are idle.
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

    /// Sets the time one call may take; `max_call_time` grows with it.
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
            ServerTransport::Stdio(process) => Downloader::from_process(process),
            ServerTransport::Http(_) => None,
        }
    }

    /// Returns the time a start may take while its processes are idle.
    pub fn start_limit(&self) -> Duration {
        match self.downloader() {
            Some(_) => self.fetch_timeout.max(self.start_timeout),
            None => self.start_timeout,
        }
    }

    /// Returns the rules of one tool; those of an unmentioned tool are the defaults.
    pub fn tool_rules(&self, tool: &str) -> ToolRules {
        self.tool.get(tool).copied().unwrap_or_default()
    }

    /// Returns this spec with what the host decides with each call taken from `other`: rights, retries, caching, pins.
    /// None of it needs another process. How the server is reached, shared and supervised stays that of `self`.
    #[must_use]
    pub fn with_call_settings_of(&self, other: &Self) -> Self {
        // Without `..`: a new key is put on one side or the other.
        let Self {
            name,
            transport,
            lazy,
            keep_alive,
            isolation,
            workspace,
            start_timeout,
            fetch_timeout,
            call_timeout,
            max_call_time: _,
            max_in_flight,
            max_queued,
            max_line,
            lists,
            drain,
            restart,
            breaker,
            trust: _,
            cache_scope: _,
            validate: _,
            tools: _,
            tool: _,
            is_pinned: _,
            card: _,
        } = self.clone();
        let Self { max_call_time, trust, cache_scope, validate, tools, tool, is_pinned, card, .. } =
            other.clone();
        Self {
            name,
            transport,
            lazy,
            keep_alive,
            isolation,
            workspace,
            start_timeout,
            fetch_timeout,
            call_timeout,
            max_call_time,
            max_in_flight,
            max_queued,
            max_line,
            lists,
            drain,
            restart,
            breaker,
            trust,
            cache_scope,
            validate,
            tools,
            tool,
            is_pinned,
            card,
        }
    }

    /// Returns whether a process that was started for this spec serves another one: what differs, the host decides with
    /// each call.
    pub fn has_same_process(&self, other: &Self) -> bool {
        self.with_call_settings_of(other) == *other
    }

    /// Returns the fingerprint. Equal fingerprints mean that a respawn would change nothing.
    pub fn fingerprint(&self) -> SpecFingerprint {
        #[expect(clippy::expect_used, reason = "maps have string keys and no field can fail to serialize")]
        let text = serde_json::to_vec(self).expect("a spec is plain JSON");
        SpecFingerprint(Sha256::digest(text).into())
    }
}

/// The SHA-256 of a spec.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpecFingerprint([u8; 32]);

impl fmt::Display for SpecFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SpecFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpecFingerprint({self})")
    }
}

/// Transport of a server.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerTransport {
    /// A child process that speaks over its stdin and stdout.
    Stdio(ProcessSpec),
    /// A Streamable HTTP endpoint.
    Http(EndpointSpec),
}

impl ServerTransport {
    /// Returns the word used in status output.
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
pub struct ProcessSpec {
    /// A program name looked up in `PATH`, or a path; never a shell line.
    pub command: String,
    /// The argument vector, without the program itself.
    pub args: Vec<String>,
    /// Variables added to the cleared environment.
    pub env: BTreeMap<String, String>,
    /// Variables of the host that are passed on beside the [inherited ones](crate::inherited_env::INHERITED):
    /// names, or prefixes that end in `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_pass: Vec<String>,
    /// The working directory; the host's own if absent. It may begin with `${workspace}`.
    pub cwd: Option<PathBuf>,
}

/// A remote server. Header values may hold references like [`ProcessSpec`] values.
#[derive(Clone, PartialEq, Serialize)]
pub struct EndpointSpec {
    /// `http://` or `https://`.
    pub url: String,
    /// Sent with every request.
    pub headers: BTreeMap<String, String>,
}

impl ProcessSpec {
    /// Returns the working directory of a process that is started for a workspace.
    pub fn cwd_in(&self, workspace: Option<&str>) -> Option<PathBuf> {
        let cwd = self.cwd.as_ref()?;
        match (cwd.strip_prefix(WORKSPACE), workspace) {
            (Ok(rest), Some(workspace)) => Some(Path::new(workspace).join(rest)),
            _ => Some(cwd.clone()),
        }
    }
}

// Specs are logged, so values of variables and headers, and apparent secrets elsewhere, are redacted.

impl fmt::Debug for ProcessSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessSpec")
            .field("command", &self.command)
            .field("args", &redact_args(&self.args))
            .field("env", &self.env.keys())
            .field("env_pass", &self.env_pass)
            .field("cwd", &self.cwd)
            .finish()
    }
}

impl fmt::Debug for EndpointSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointSpec")
            .field("url", &redact_url(&self.url))
            .field("headers", &self.headers.keys())
            .finish()
    }
}

impl Isolation {
    /// Returns whether callers with different principals share a process.
    pub fn is_shared_by_callers(self) -> bool {
        matches!(self, Self::Shared | Self::Workspace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_that_is_logged_shows_no_secret() {
        let name = ServerName::new("s").unwrap();
        let mut spec = ServerSpec::stdio(name.clone(), "server").args(["--token", "hunter2-hunter2"]);
        if let ServerTransport::Stdio(process) = &mut spec.transport {
            process.env.insert("API_KEY".into(), "hunter3".into());
        }
        let headers = BTreeMap::from([("Authorization".to_owned(), "Bearer hunter4".to_owned())]);
        let endpoint = EndpointSpec { url: "https://me:hunter5@example.com".into(), headers };
        let remote = ServerSpec::with_transport(name, ServerTransport::Http(endpoint));
        let shown = format!("{spec:?} {remote:?}");
        assert!(shown.contains("API_KEY") && shown.contains("Authorization"), "{shown}");
        assert!(!shown.contains("hunter"), "{shown}");
    }

    #[test]
    fn a_fingerprint_is_shown_in_hexadecimal_digits() {
        let print = SpecFingerprint(std::array::from_fn(|i| i as u8));
        let digits = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
        assert_eq!(format!("{print} {print:?}"), format!("{digits} SpecFingerprint({digits})"));
    }
}
