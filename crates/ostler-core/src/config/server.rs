//! `[servers.NAME]`: one server.

use std::path::PathBuf;

use super::document::Span as At;
use super::field::{Field, Kind, Preset, Section};
use super::node::Table;
use super::reader::{Reader, clip};
use super::scope::Scope;
use super::{restart, tools, transport};
use crate::fault::Span;
use crate::name::ServerName;
use crate::spec::{CacheScopeRule, Isolation, ServerSpec};

/// MCP's own limit for tool names is half of this.
const LONGEST_TOOL_NAME: usize = 256;

const fn field(key: &'static str, kind: Kind, preset: Preset, doc: &'static str) -> Field {
    Field { key, kind, preset, doc }
}

pub(crate) static SECTION: Section = Section {
    name: "server",
    doc: "One MCP server: a command to run, or a URL.",
    fields: &[
        field("command", Kind::Text, Preset::Nothing, "The program: a name looked up in PATH, or a path."),
        field("args", Kind::Texts, Preset::Texts(&[]), "The program's arguments, one text each."),
        field("env", Kind::TextMap, Preset::Nothing, "Variables added to the program's cleared environment."),
        field(
            "env_pass",
            Kind::Texts,
            Preset::Texts(&[]),
            "Variables of Ostler's environment that the program is given too: names, or prefixes such as AWS_*.",
        ),
        field("cwd", Kind::Text, Preset::Nothing, "The program's working directory, relative to this file."),
        field("url", Kind::Text, Preset::Nothing, "The endpoint of a remote server, instead of a command."),
        field(
            "disabled",
            Kind::Flag,
            Preset::Flag(false),
            "Whether the server is only known: it is listed, never run, and its tools are not offered.",
        ),
        field("headers", Kind::TextMap, Preset::Nothing, "Headers sent to a remote server."),
        field(
            "lazy",
            Kind::Flag,
            Preset::Flag(true),
            "Start at the first use; false starts now and stays up.",
        ),
        field(
            "keep_alive",
            Kind::Duration(0),
            Preset::Text("5m"),
            "How long a lazy server outlives its last use.",
        ),
        field(
            "isolation",
            Kind::Choice(&["shared", "caller", "session", "workspace"]),
            Preset::Text("shared"),
            "Who shares a process: everybody, one caller, one client session, or clients in one directory.",
        ),
        field(
            "workspace",
            Kind::Text,
            Preset::Nothing,
            "With isolation = \"workspace\": the directory of callers that name none, instead of this file's.",
        ),
        field(
            "start_timeout",
            Kind::Duration(1),
            Preset::Text("60s"),
            "From the start to the end of the handshake; a process that is busy gets up to five times as long.",
        ),
        field(
            "fetch_timeout",
            Kind::Duration(1),
            Preset::Text("5m"),
            "The same for npx, uvx, docker run and other commands that may download the server first.",
        ),
        field("call_timeout", Kind::Duration(1), Preset::Text("60s"), "One call; progress may extend it."),
        field(
            "max_call_time",
            Kind::Duration(1),
            Preset::Text("10m"),
            "The hard end of a call, whatever progress it reports.",
        ),
        field("max_in_flight", Kind::Count(1, u64::MAX), Preset::Count(64), "Calls at the server at once."),
        field(
            "max_queued",
            Kind::Count(0, u64::MAX),
            Preset::Count(256),
            "Callers waiting for a place among those.",
        ),
        field(
            "max_line",
            Kind::Size(1024),
            Preset::Text("16MiB"),
            "The longest line accepted from the server.",
        ),
        field(
            "max_tools",
            Kind::Count(0, u64::MAX),
            Preset::Count(2000),
            "Tools kept of the server's list; the rest is left out and reported.",
        ),
        field(
            "max_prompts",
            Kind::Count(0, u64::MAX),
            Preset::Count(2000),
            "Prompts kept of the server's list; the rest is left out and reported.",
        ),
        field(
            "max_resources",
            Kind::Count(0, u64::MAX),
            Preset::Count(10000),
            "Resources kept of the server's list; the rest is left out and reported.",
        ),
        field(
            "max_templates",
            Kind::Count(0, u64::MAX),
            Preset::Count(2000),
            "Resource templates kept of the server's list; the rest is left out and reported.",
        ),
        field(
            "drain",
            Kind::Duration(0),
            Preset::Text("5s"),
            "How long calls may finish when the server is stopped.",
        ),
        field("restart", Kind::Section(&restart::RESTART), Preset::Nothing, "Restart budget and delays."),
        field("breaker", Kind::Section(&restart::BREAKER), Preset::Nothing, "When calls stop being sent."),
        field(
            "trust",
            Kind::Flag,
            Preset::Flag(false),
            "Whether the server's pinned hints about its tools are believed.",
        ),
        field(
            "cache_scope",
            Kind::Choice(&["server", "private"]),
            Preset::Text("server"),
            "Whether the server is believed when it calls an answer public; private shares nothing between callers.",
        ),
        field(
            "validate",
            Kind::Flag,
            Preset::Flag(true),
            "Whether arguments are checked against a tool's schema before they are sent.",
        ),
        field("tools", Kind::Section(&tools::TOOLS), Preset::Nothing, "Which of the server's tools exist."),
        field("tool", Kind::Named(&tools::TOOL), Preset::Nothing, "Rules for single tools, by name."),
        field(
            "pins",
            Kind::Choice(&["on", "off"]),
            Preset::Text("on"),
            "off exempts the server from ostler.lock, for servers whose definitions differ at every start.",
        ),
        field(
            "card",
            Kind::Text,
            Preset::Nothing,
            "The server's card: a URL, or a path relative to this file. For a `url` server, `URL/server-card` unless set.",
        ),
    ],
};

/// Reads a server; everything wrong with it is reported before it is given up.
pub(crate) fn read(scope: &Scope<'_>, name: ServerName, at: At, table: &Table) -> Option<ServerSpec> {
    let reader = Reader::open(scope, &SECTION, &format!("servers.{name}"), at, table);
    let isolation = reader.choice("isolation").map(isolation).unwrap_or_default();
    scope.has_workspaces.set(isolation == Isolation::Workspace);
    scope.is_workspace_told.set(false);
    let transport = transport::read(&reader);
    scope.has_workspaces.set(false);
    // Who reads the file has acted on it.
    reader.flag("disabled");
    let mut spec = ServerSpec::stdio(name, "").lazy().isolation(isolation);
    spec.workspace = read_workspace(&reader, isolation);
    read_settings(&reader, &mut spec);
    if spec.call_timeout > spec.max_call_time {
        let key = if reader.has("call_timeout") { "call_timeout" } else { "max_call_time" };
        let message = format!(
            "`call_timeout` ({}) of {} is longer than `max_call_time` ({})",
            Span(spec.call_timeout),
            reader.path,
            Span(spec.max_call_time)
        );
        scope.error(reader.at_of(key), &reader.path_of(key), message, "raise `max_call_time`");
    }
    reader.finish();
    spec.transport = transport?;
    Some(spec)
}

/// Overwrites the defaults with what the file says.
fn read_settings(reader: &Reader<'_>, spec: &mut ServerSpec) {
    set(&mut spec.lazy, reader.flag("lazy"));
    set(&mut spec.keep_alive, reader.duration("keep_alive"));
    set(&mut spec.start_timeout, reader.duration("start_timeout"));
    set(&mut spec.fetch_timeout, reader.duration("fetch_timeout"));
    set(&mut spec.call_timeout, reader.duration("call_timeout"));
    set(&mut spec.max_call_time, reader.duration("max_call_time"));
    set(&mut spec.max_in_flight, reader.size_count("max_in_flight"));
    set(&mut spec.max_queued, reader.size_count("max_queued"));
    set(&mut spec.max_line, reader.size("max_line"));
    set(&mut spec.lists.tools, reader.size_count("max_tools"));
    set(&mut spec.lists.prompts, reader.size_count("max_prompts"));
    set(&mut spec.lists.resources, reader.size_count("max_resources"));
    set(&mut spec.lists.templates, reader.size_count("max_templates"));
    set(&mut spec.drain, reader.duration("drain"));
    set(&mut spec.restart, reader.section("restart").map(restart::read));
    set(&mut spec.breaker, reader.section("breaker").map(restart::read_breaker));
    set(&mut spec.trust, reader.flag("trust"));
    set(&mut spec.cache_scope, reader.choice("cache_scope").map(cache_scope));
    set(&mut spec.validate, reader.flag("validate"));
    set(&mut spec.is_pinned, reader.choice("pins").map(|word| word == "on"));
    set(&mut spec.tools, reader.section("tools").map(tools::read_filter));
    spec.card = read_card(reader);
    for entry in reader.named("tool") {
        let path = format!("{}.{}", reader.path_of("tool"), clip(&entry.key));
        if entry.key.is_empty() || entry.key.len() > LONGEST_TOOL_NAME {
            let message = format!("`{path}`: a tool's name has 1 to {LONGEST_TOOL_NAME} characters");
            reader.scope.error(entry.key_at, &path, message, None);
        } else if let Some(rules) = Reader::of(reader.scope, &tools::TOOL, &path, entry) {
            spec.tool.insert(entry.key.clone(), tools::read_rules(rules));
        }
    }
}

fn set<T>(slot: &mut T, found: Option<T>) {
    if let Some(found) = found {
        *slot = found;
    }
}

fn isolation(word: &str) -> Isolation {
    match word {
        "caller" => Isolation::Caller,
        "session" => Isolation::Session,
        "workspace" => Isolation::Workspace,
        _ => Isolation::Shared,
    }
}

fn cache_scope(word: &str) -> CacheScopeRule {
    match word {
        "private" => CacheScopeRule::Private,
        _ => CacheScopeRule::Server,
    }
}

/// The workspace of callers that name none: the file's directory unless the file says otherwise.
fn read_workspace(reader: &Reader<'_>, isolation: Isolation) -> Option<PathBuf> {
    let written = reader.text("workspace");
    if isolation != Isolation::Workspace {
        if written.is_some() {
            let (at, path) = (reader.at_of("workspace"), reader.path_of("workspace"));
            let message = format!("`{path}` has no meaning without isolation = \"workspace\"");
            reader.scope.complain(at, &path, message, "leave it out, or add isolation = \"workspace\"");
        }
        return None;
    }
    match written {
        None => Some(reader.scope.base.clone()).filter(|base| !base.as_os_str().is_empty()),
        Some((text, node)) => match reader.scope.absolute(text.as_ref()) {
            Ok(folder) => Some(folder),
            Err(why) => {
                reader.scope.error(node.at, &reader.path_of("workspace"), why, None);
                None
            }
        },
    }
}

/// A URL as it stands, or a path made absolute.
fn read_card(reader: &Reader<'_>) -> Option<String> {
    let (text, node) = reader.text("card")?;
    if text.starts_with("https://") || text.starts_with("http://") {
        return Some(text.to_owned());
    }
    if text.contains("://") {
        let why = "`card` is neither an http:// or https:// address nor a path";
        reader.scope.error(node.at, &reader.path_of("card"), why, None);
        return None;
    }
    match reader.scope.absolute(text.as_ref()) {
        Ok(path) => Some(path.to_string_lossy().into_owned()),
        Err(why) => {
            reader.scope.error(node.at, &reader.path_of("card"), why, None);
            None
        }
    }
}
