//! `[servers.NAME]`: one server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::restart::{BreakerSettings, RestartSettings};
use super::tools::{self, ToolFilter, ToolRules};
use super::transport::{self, TRANSPORT_KEYS};
use crate::config::keys::section::{section, words};
use crate::config::keys::{Settings as _, WriteValue};
use crate::config::read::{ConfigTable, FileContext, SectionReader, SourceSpan as At};
use crate::error::{CallError, Unavailable, UnavailableState};
use crate::fault::HumanDuration;
use crate::server_name::ServerName;
use crate::spec::ServerTransport;

section! {
    /// One MCP server: a command to run, or a URL.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct ServerSpec("server", written) rows TRANSPORT_KEYS check check_call_times given {
        /// The operator's name; the server's own `serverInfo.name` is never used.
        pub name: ServerName,
        /// The command or the URL.
        pub transport: ServerTransport,
    } {
        /// Start at the first use; false starts now and stays up.
        lazy: bool = flag(true);
        /// Time a lazy server outlives its last use.
        keep_alive: Duration = duration(0.., "5m");
        /// Callers that share a process: all, one caller, one client session, or clients in one directory.
        isolation: Isolation = choice;
        /// With isolation = "workspace": the directory of callers that name none, instead of this file's.
        #[serde(skip_serializing_if = "Option::is_none")]
        workspace: Option<PathBuf> = text => workspace;
        /// Time from the start to the end of the handshake; a busy process gets up to five times as long.
        start_timeout: Duration = duration(1.., "60s");
        /// The same for npx, uvx, docker run and other commands that may download the server first.
        fetch_timeout: Duration = duration(1.., "5m");
        /// Time of one call; progress may extend it.
        call_timeout: Duration = duration(1.., "60s");
        /// Hard limit of a call's time, whatever progress it reports.
        max_call_time: Duration = duration(1.., "10m");
        /// Calls at the server at once.
        max_in_flight: usize = count(1.., 64);
        /// Calls that may wait while max_in_flight is reached.
        max_queued: usize = count(0.., 256);
        /// The longest line accepted from the server.
        max_line: usize = size(1_024.., "16MiB");
        /// Items kept of each of the server's lists.
        lists: ListLimits = inline;
        /// Time calls have to finish when the server is stopped.
        drain: Duration = duration(0.., "5s");
        /// Restart budget and delays.
        restart: RestartSettings = section;
        /// Limits after which a failing server receives no calls.
        breaker: BreakerSettings = section;
        /// True if the server's pinned hints about its tools are trusted.
        trust: bool = flag(false);
        /// server trusts the server when it calls an answer public; private shares no answer between callers.
        cache_scope: CacheScopeRule = choice;
        /// True if arguments are checked against a tool's schema before they are sent.
        validate: bool = flag(true);
        /// The server's tools that are exposed.
        tools: ToolFilter = section(ToolFilter, else ToolFilter::everything());
        /// Rules for single tools, by name.
        tool: BTreeMap<String, ToolRules> = named(ToolRules) => tools::rules;
        /// off exempts the server from ostler.lock, for servers whose definitions differ at every start.
        // Not part of the fingerprint: the pins are swapped, and the process keeps running.
        #[serde(skip)]
        is_pinned as pins: bool = either("on", "off");
        /// The server's card: a URL, or a path relative to this file. For a `url` server, `URL/server-card` unless set.
        card: Option<String> = text => card;
    }
}

section! {
    /// Limits on the items kept of a server's lists; the rest is left out and reported. The defaults are
    /// several times what the largest published servers list.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    pub struct ListLimits("lists", inline, written) {
        /// Tools kept of the server's list; the rest is left out and reported.
        tools as max_tools: usize = count(0.., 2_000);
        /// Prompts kept of the server's list; the rest is left out and reported.
        prompts as max_prompts: usize = count(0.., 2_000);
        /// Resources kept of the server's list; the rest is left out and reported.
        resources as max_resources: usize = count(0.., 10_000);
        /// Resource templates kept of the server's list; the rest is left out and reported.
        templates as max_templates: usize = count(0.., 2_000);
    }
}

words! {
    /// Callers that share a process of a server.
    #[derive(Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Isolation {
        /// One process for all callers.
        Shared = "shared",
        /// A process per principal.
        Caller = "caller",
        /// A process per client session.
        Session = "session",
        /// A process per working directory of the clients.
        Workspace = "workspace",
    }
}

words! {
    /// Callers that may receive a server's cached answers and lists.
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum CacheScopeRule {
        /// The callers that the server's hint names.
        Server = "server",
        /// The caller that asked, whatever the server's hint says.
        Private = "private",
    }
}

impl WriteValue for Isolation {}

impl WriteValue for CacheScopeRule {}

/// Reads a server; all its problems are reported before it is given up.
pub(crate) fn read(
    context: &FileContext<'_>,
    name: ServerName,
    at: At,
    table: &ConfigTable,
) -> Option<ServerSpec> {
    let reader =
        SectionReader::from_table(context, ServerSpec::SECTION, &format!("servers.{name}"), at, table);
    context.is_per_workspace.set(is_per_workspace(&reader));
    context.is_workspace_warned.set(false);
    let transport = transport::read(&reader);
    context.is_per_workspace.set(false);
    // The loader has handled it.
    reader.flag("disabled");
    let mut spec = ServerSpec::stdio(name, "").lazy().filled(reader);
    spec.transport = transport?;
    Some(spec)
}

/// Checks that the time of one call is not longer than the longest.
fn check_call_times(spec: &mut ServerSpec, reader: &SectionReader<'_>) {
    if spec.call_timeout > spec.max_call_time {
        let key = if reader.has("call_timeout") { "call_timeout" } else { "max_call_time" };
        let message = format!(
            "`call_timeout` ({}) of {} is longer than `max_call_time` ({})",
            HumanDuration(spec.call_timeout),
            reader.path,
            HumanDuration(spec.max_call_time)
        );
        reader.context.error(reader.key_span(key), &reader.key_path(key), message, "raise `max_call_time`");
    }
}

/// Returns whether the server has a process per workspace, as far as the file can be read.
fn is_per_workspace(reader: &SectionReader<'_>) -> bool {
    reader.peek("isolation") == Some("workspace")
}

/// Returns the workspace of callers that name none: the file's directory by default.
fn workspace(reader: &SectionReader<'_>, key: &'static str) -> Option<Option<PathBuf>> {
    let written = reader.text(key);
    if !is_per_workspace(reader) {
        if written.is_some() {
            let (at, path) = (reader.key_span(key), reader.key_path(key));
            let message = format!("`{path}` has no meaning without isolation = \"workspace\"");
            reader.context.error_or_warn(
                at,
                &path,
                message,
                "leave it out, or add isolation = \"workspace\"",
            );
        }
        return None;
    }
    Some(match written {
        None => Some(reader.context.base.clone()).filter(|base| !base.as_os_str().is_empty()),
        Some((text, node)) => reader.absolute(key, text, node),
    })
}

/// Returns a URL unchanged, or a path made absolute.
fn card(reader: &SectionReader<'_>, key: &'static str) -> Option<Option<String>> {
    let (text, node) = reader.text(key)?;
    if text.starts_with("https://") || text.starts_with("http://") {
        return Some(Some(text.to_owned()));
    }
    if text.contains("://") {
        let why = "`card` is neither an http:// or https:// address nor a path";
        reader.context.error(node.span, &reader.key_path(key), why, None);
        return None;
    }
    Some(reader.absolute(key, text, node).map(|path| path.to_string_lossy().into_owned()))
}

/// A server that is listed and not run.
#[derive(Debug, Clone, PartialEq)]
pub struct DisabledServer {
    /// The spec, as far as it could be read.
    pub spec: ServerSpec,
    /// The reason why it is not run.
    pub cause: String,
    /// The change that enables it.
    pub remedy: String,
}

impl DisabledServer {
    /// Returns the error of a call to it.
    pub fn error(&self) -> CallError {
        CallError::Unavailable(Unavailable {
            server: self.spec.name.clone(),
            state: UnavailableState::Disabled,
            cause: self.cause.clone(),
            action: self.remedy.as_str().into(),
            remedy: None,
            retry_after: None,
        })
    }
}
