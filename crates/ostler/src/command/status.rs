//! `ostler status`: the states of the servers.

use std::time::Duration;

use ostler_core::error::{CallError, Unavailable};
use ostler_core::fault::HumanDuration;
use ostler_core::server_name::ServerName;
use ostler_core::spec::Isolation;
use ostler_core::status::{
    CircuitState, InvalidDefinition, InvalidDefinitions, LastError, ServerState, ServerStatus,
};
use ostler_relay::service::{ServiceState, ServiceStatus};
use serde::Serialize;

use super::tools::list_error_body;
use crate::api::ErrorBody;
use crate::client::{self, Backend, BackendChoice, ProbeResult, RefusedChange};
use crate::daemon_info::{DaemonInfo, format_age};
use crate::failure::{CommandFailure, list_hint};
use crate::invocation::command;
use crate::output::{self, Style, Tint, escape_line, print_stderr};
use crate::text_table::{TableCell, TextTable};
use crate::{cli, config_file, pins, xdg};

/// Refresh interval of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Limit of the processes of one server that are shown to people.
const SHOWN_PROCESSES: usize = 10;

/// Limit of the stderr lines of one server, where several are shown.
const MAX_SHOWN_STDERR: usize = 8;

/// ANSI sequence that moves the cursor home and clears the screen below.
const CLEAR: &str = "\x1b[H\x1b[J";

pub(super) fn run(typed: &cli::StatusArgs, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    let way = client::choose_backend(shared)?;
    if typed.probe {
        return client::run_with_backend(way, async |reach| probe(typed, reach).await);
    }
    if let BackendChoice::InProcess(setting) = &way
        && !typed.json
    {
        setting.print_trust_state();
    }
    client::run_without_consent(way, async |reach| {
        if typed.watch && !reach.is_daemon() {
            return Err(CommandFailure::Usage {
                what: "there is nothing to watch: no daemon runs for this config".into(),
                hint: Some(format!("start one with {}, or add --probe", command("serve"))),
            });
        }
        let mut shown: Vec<StatusRow> =
            select_statuses(reach, typed).await?.into_iter().map(StatusRow::from_status).collect();
        let view = if reach.is_daemon() { View::Live } else { View::Offline };
        show(&typed.format(), view, &shown, &StatusContext::fetch(typed, reach).await)?;
        if let Some(trouble) = reach.audit_warning().await? {
            print_stderr(&format!("warning: {trouble}"));
        }
        pins::lock_context::warn_pending_lock(reach).await?;
        if typed.watch {
            return watch(typed, view, reach, &mut shown).await;
        }
        if !typed.json && !reach.is_daemon() {
            print_stderr(
                "nothing runs between commands; `--probe` starts the servers and shows what they say",
            );
        }
        Ok(())
    })
}

/// Starts servers ahead of their first use, and shows the result.
pub(super) fn warm(typed: &cli::WarmArgs, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    client::run_with_backend(client::choose_backend(shared)?, async |reach| {
        let all = reach.enabled_servers().await?;
        let names = match typed.servers.is_empty() {
            true => all,
            false => typed.servers.iter().map(|name| find_server(name, &all)).collect::<Result<_, _>>()?,
        };
        let probed = reach.probe(&names, false).await?;
        let shown: Vec<StatusRow> =
            probed.iter().map(|probed| StatusRow::from_probe(probed).shorten_stderr()).collect();
        show(
            &StatusFormat { json: typed.json, clear: false },
            View::Probed,
            &shown,
            &StatusContext::default(),
        )?;
        CommandFailure::require_all(
            probed.iter().filter(|probed| probed.error.is_some()).count(),
            probed.len(),
        )
    })
}

/// Finds a server by its name.
fn find_server(name: &str, all: &[ServerName]) -> Result<ServerName, CommandFailure> {
    let found = all.iter().find(|known| known.as_str() == name).cloned();
    found.ok_or_else(|| CommandFailure::unknown_server(name, all))
}

/// Starts the servers and shows their answers.
async fn probe(typed: &cli::StatusArgs, reach: &Backend) -> Result<(), CommandFailure> {
    let (disabled, run): (Vec<_>, Vec<_>) = select_statuses(reach, typed)
        .await?
        .into_iter()
        .partition(|status| status.state == ServerState::Disabled);
    let names: Vec<ServerName> = run.into_iter().map(|status| status.name).collect();
    let probed = reach.probe(&names, typed.watch).await?;
    let failed = probed.iter().filter(|probed| probed.error.is_some()).count();
    let mut shown: Vec<StatusRow> = probed.iter().map(StatusRow::from_probe).collect();
    if typed.server.is_none() {
        shown = shown.into_iter().map(StatusRow::shorten_stderr).collect();
    }
    shown.extend(disabled.into_iter().map(StatusRow::from_status));
    show(&typed.format(), View::Probed, &shown, &StatusContext::fetch(typed, reach).await)?;
    if typed.watch {
        return watch(typed, View::Probed, reach, &mut shown).await;
    }
    CommandFailure::require_all(failed, probed.len())
}

/// Shows the servers repeatedly; only a signal or a closed output ends it.
async fn watch(
    typed: &cli::StatusArgs,
    view: View,
    reach: &Backend,
    shown: &mut Vec<StatusRow>,
) -> Result<(), CommandFailure> {
    loop {
        tokio::time::sleep(WATCH_INTERVAL).await;
        let now = select_statuses(reach, typed).await?;
        // An edit of the config may have added or removed servers.
        let look = |status: ServerStatus| {
            let before = shown.iter().position(|shown| shown.status.name == status.name);
            match before {
                Some(at) => shown.swap_remove(at).refreshed(status),
                None => StatusRow::from_status(status),
            }
        };
        *shown = now.into_iter().map(look).collect();
        show(&typed.format(), view, shown, &StatusContext::fetch(typed, reach).await)?;
    }
}

/// Returns the states of the named servers.
async fn select_statuses(
    reach: &Backend,
    typed: &cli::StatusArgs,
) -> Result<Vec<ServerStatus>, CommandFailure> {
    let all = reach.statuses().await?;
    let Some(server) = typed.server.as_deref() else { return Ok(all) };
    match all.iter().find(|status| status.name.as_str() == server) {
        Some(status) => Ok(vec![status.clone()]),
        None => {
            let known: Vec<ServerName> = all.iter().map(|status| status.name.clone()).collect();
            Err(CommandFailure::unknown_server(server, &known))
        }
    }
}

/// Choice of columns, by the source of the states.
#[derive(Debug, Clone, Copy)]
enum View {
    /// No server runs.
    Offline,
    /// Servers were started for this command.
    Probed,
    /// Servers run in a daemon.
    Live,
}

/// Row of one server.
#[derive(Serialize)]
struct StatusRow {
    #[serde(flatten)]
    status: ServerStatus,
    /// Error of the probe, for programs.
    error: Option<ErrorBody>,
    /// The same for people.
    #[serde(skip)]
    words: Option<String>,
    /// Next step for the user.
    #[serde(skip)]
    hint: Option<String>,
    /// All retained stderr of a server whose probe failed.
    #[serde(skip)]
    stderr: Vec<String>,
}

/// Returns whether a lazy server failed and nothing starts it before its next use.
fn has_failed_idle(status: &ServerStatus) -> bool {
    status.state == ServerState::Idle && status.consecutive_failures > 0
}

/// Returns whether an error has a hint of its own: every error but an unavailable server without a remedy.
fn has_remedy(error: &CallError) -> bool {
    !matches!(error, CallError::Unavailable(Unavailable { remedy: None, .. }))
}

impl StatusRow {
    /// Returns the row of a server that was not asked. A broken or starting one has its cause.
    fn from_status(status: ServerStatus) -> Self {
        let has_failed = has_failed_idle(&status);
        let is_out = has_failed
            || matches!(
                status.state,
                ServerState::Backoff | ServerState::Ejected | ServerState::NeedsAuth | ServerState::Disabled
            );
        let failure = status.last_error.as_ref().filter(|_| is_out && status.start.is_none());
        let hint = failure.and_then(|failure| failure.hint.clone()).map(|hint| match status.state {
            ServerState::Ejected => format!("{hint}; then {}", command(&format!("reload {}", status.name))),
            _ => hint,
        });
        let hint = hint.or_else(|| status.start.as_ref()?.hint.clone());
        let described = |failure: &LastError| match has_failed {
            true => format!("{failure}; it is started again with the next call"),
            false => failure.to_string(),
        };
        let words = status.start.as_ref().map(ToString::to_string).or_else(|| failure.map(described));
        Self { status, error: None, words, hint, stderr: Vec::new() }
    }

    fn from_probe(probed: &ProbeResult) -> Self {
        let error = probed.error.as_ref();
        Self {
            status: probed.status.clone(),
            error: error.map(list_error_body),
            words: error.map(|error| error.reason()),
            hint: error.filter(|error| has_remedy(error)).and_then(list_hint),
            stderr: probed.stderr.clone(),
        }
    }

    /// Shortens the stderr of several servers to its end; that of a single named server is kept.
    fn shorten_stderr(mut self) -> Self {
        let left_out = self.stderr.len().saturating_sub(MAX_SHOWN_STDERR);
        if left_out > 0 {
            let all = command(&format!("status {} --probe", self.status.name));
            let lines = output::count(left_out, "line");
            self.stderr.splice(..left_out, [format!("… {lines} before; {all} shows all")]);
        }
        self
    }

    /// Returns the cells that every table of servers begins with.
    fn cells(&self) -> [TableCell; 5] {
        let status = &self.status;
        [
            status.name.as_str().into(),
            self.state(),
            or_dash(status.pid.map(|pid| pid.to_string())),
            or_dash(status.protocol.clone()),
            or_dash(status.tools.map(|tools| tools.to_string())),
        ]
    }

    /// Returns the row with a new state. An error is dropped once the server is up.
    fn refreshed(self, status: ServerStatus) -> Self {
        match (status.state, self.error) {
            (ServerState::Ready, _) | (_, None) => Self::from_status(status),
            (_, error) => Self { status, error, ..self },
        }
    }

    fn state(&self) -> TableCell {
        let state = self.status.state;
        let tint = match state {
            ServerState::Starting | ServerState::Fetching => Tint::Warning,
            ServerState::Disabled => Tint::Faint,
            _ if self.words.is_some() => Tint::Error,
            ServerState::Ready => Tint::Success,
            ServerState::Idle | ServerState::Stopped => Tint::Faint,
            ServerState::Draining | ServerState::Backoff => Tint::Warning,
            ServerState::Ejected | ServerState::NeedsAuth => Tint::Error,
        };
        // A failed server waits for its next start; this command does not wait for it.
        let has_failed = has_failed_idle(&self.status) && self.status.start.is_none();
        let word = match self.error.is_some() && state == ServerState::Backoff || has_failed {
            true => "failed",
            false => state.as_str(),
        };
        TableCell::tinted(word, tint)
    }

    /// Returns the list of unapproved definitions.
    fn render_unapproved(&self, style: Style) -> String {
        let counted =
            [(self.status.changed, "changed"), (self.status.new, "new"), (self.status.removed, "removed")];
        let known = counted.iter().filter_map(|(number, word)| Some((number.filter(|it| *it > 0)?, word)));
        let words: Vec<String> = known.map(|(number, word)| format!("{number} {word}")).collect();
        if words.is_empty() {
            return String::new();
        }
        let name = self.status.name.as_str();
        let shown = style.paint(Tint::Heading, name);
        format!(
            "\n{shown}: definitions are not as they were approved: {}; see {}\n",
            words.join(", "),
            command(&format!("diff {name}"))
        )
    }

    /// Returns the processes of a server that are not shared by all callers, with their owners.
    fn render_processes(&self, style: Style) -> String {
        let ServerStatus { name, isolation, processes, .. } = &self.status;
        let whose = match isolation {
            Isolation::Shared => return String::new(),
            _ if processes.is_empty() => return String::new(),
            Isolation::Caller => "caller",
            Isolation::Session => "session",
            Isolation::Workspace => "workspace",
        };
        let count = processes.len();
        let count = if count == 1 { "1 process".to_owned() } else { format!("{count} processes") };
        let shown = style.paint(Tint::Heading, name.as_str());
        let mut text = format!("\n{shown}: {count}, one for each {whose}\n");
        for process in processes.iter().take(SHOWN_PROCESSES) {
            let of = match isolation {
                Isolation::Workspace => xdg::abbreviate_home(process.of.as_ref()),
                _ => process.of.clone(),
            };
            let pid = process.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
            let up = process
                .uptime_ms
                .map(|ms| format!(", up {}", format_age(Duration::from_millis(ms))))
                .unwrap_or_default();
            text.push_str(&format!("  {}: {}{pid}{up}\n", escape_line(&of), process.state.as_str()));
        }
        if processes.len() > SHOWN_PROCESSES {
            text.push_str("  … `--json` shows all\n");
        }
        text
    }

    /// Returns list items that were left out, and calls that are held back.
    fn render_limits(&self, style: Style) -> String {
        let shown = style.paint(Tint::Heading, self.status.name.as_str());
        let mut text = String::new();
        if self.status.left_out > 0 {
            text.push_str(&format!(
                "\n{shown}: at least {} of the items it lists are left out: they are bad, or beyond `max_tools`, `max_prompts`, \
                 `max_resources` or `max_templates`; the log says which\n",
                self.status.left_out
            ));
        }
        if let Some(invalid) = &self.status.invalid_definitions {
            text.push_str(&format!("\n{shown}: {}\n", escape_line(&describe_invalid(invalid))));
        }
        for difference in self.status.card.iter().flat_map(|card| &card.differences) {
            text.push_str(&format!("\n{shown}: {}\n", escape_line(difference)));
        }
        if self.status.circuit == CircuitState::Open {
            let reload = command(&format!("reload {}", self.status.name));
            text.push_str(&format!(
                "\n{shown}: its breaker is open: all calls are held back because several failed in a row; {reload} \
                 lets them pass\n"
            ));
        }
        if self.status.held_back > 0 {
            text.push_str(&format!(
                "\n{shown}: callers are held back at {} tools because their own calls keep failing\n",
                self.status.held_back
            ));
        }
        text
    }

    /// Returns the error, and the last output of the server.
    fn render_error(&self, style: Style) -> String {
        let Some(words) = &self.words else { return String::new() };
        let name = style.paint(Tint::Heading, self.status.name.as_str());
        let mut text = format!("\n{name}: {}\n", escape_line(words));
        let stderr = match (&self.status.start, &self.status.last_error) {
            _ if !self.stderr.is_empty() => &self.stderr[..],
            (Some(start), _) => &start.stderr[..],
            (None, Some(error)) => &error.stderr[..],
            (None, None) => &[],
        };
        for line in stderr {
            let (stream, line) = output::split_stream_label(line);
            text.push_str(&format!("  {} {}\n", style.paint(Tint::Faint, stream), escape_line(line)));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("  {} {}\n", style.paint(Tint::Label, "hint:"), escape_line(hint)));
        }
        text
    }
}

/// Limit of the invalid definitions that are listed for people.
const MAX_NAMED_DEFINITIONS: usize = 5;

fn describe_invalid(invalid: &InvalidDefinitions) -> String {
    let InvalidDefinitions { completed, left_out, first } = invalid;
    let named = |item: &InvalidDefinition| {
        let action = if item.left_out { "left out" } else { "completed" };
        format!("{} `{}` is {action} because {}", item.kind, item.name, item.problem)
    };
    let mut names: Vec<String> = first.iter().take(MAX_NAMED_DEFINITIONS).map(named).collect();
    let count = completed + left_out;
    if count > names.len() {
        names.push(format!("and {} more", count - names.len()));
    }
    let definitions = if count == 1 { "1 definition".to_owned() } else { format!("{count} definitions") };
    format!(
        "the MCP schema does not allow {definitions}, so that validating clients would refuse the whole list at /mcp: {}",
        names.join("; ")
    )
}

/// The stable shape of `--json`.
#[derive(Serialize)]
struct StatusOutput<'a> {
    servers: &'a [StatusRow],
    #[serde(flatten)]
    around: &'a StatusContext,
}

/// State of the daemon and its relay, beside the servers.
#[derive(Default, Serialize)]
struct StatusContext {
    /// Absent without a daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    daemon: Option<DaemonInfo>,
    /// Absent where the daemon runs the config as it is on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused_change: Option<RefusedChange>,
    /// Absent where workers are not served, and where one server was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    relay: Option<ServiceStatus>,
}

impl StatusContext {
    async fn fetch(typed: &cli::StatusArgs, reach: &Backend) -> Self {
        let relay = if typed.server.is_some() { None } else { reach.relay().await };
        Self { daemon: reach.daemon_info().await, refused_change: reach.refused_change().await, relay }
    }
}

/// Format of the output.
struct StatusFormat {
    json: bool,
    /// Clears the terminal first.
    clear: bool,
}

impl cli::StatusArgs {
    fn format(&self) -> StatusFormat {
        StatusFormat { json: self.json, clear: self.watch }
    }
}

fn show(
    format: &StatusFormat,
    view: View,
    servers: &[StatusRow],
    around: &StatusContext,
) -> Result<(), CommandFailure> {
    if format.json {
        return output::print_json(&StatusOutput { servers, around });
    }
    let StatusContext { daemon, refused_change, relay } = around;
    if servers.is_empty() {
        config_file::print_no_servers(None, &[]);
    }
    let style = Style::stdout();
    let table = match view {
        View::Offline => render_offline(servers),
        View::Probed => render_probed(servers),
        View::Live => render_live(servers),
    };
    let notes = |server: &StatusRow| {
        server.render_processes(style)
            + &server.render_error(style)
            + &server.render_unapproved(style)
            + &server.render_limits(style)
    };
    let trouble: String = servers.iter().map(notes).collect();
    let relay = relay.as_ref().map(|relay| describe_relay(relay, style)).unwrap_or_default();
    let clear = if format.clear && style.has_colours() { CLEAR } else { "" };
    let mut daemon = daemon.as_ref().map(|daemon| describe_daemon(daemon, style)).unwrap_or_default();
    if let Some(RefusedChange { message, .. }) = refused_change {
        daemon.push_str(&format!("{} {message}\n", style.paint(Tint::Warning, "warning:")));
    }
    output::print(&format!(
        "{clear}{daemon}{}{trouble}{relay}",
        table.render(style, output::stdout_columns())
    ))
}

/// Returns `daemon: http://127.0.0.1:7777, pid 4711, version 0.1.0, up 3h, config ~/ostler.toml`.
fn describe_daemon(daemon: &DaemonInfo, style: Style) -> String {
    let label = style.paint(Tint::Heading, "daemon");
    let DaemonInfo { url, pid, version, .. } = daemon;
    let (version, up, config) = (escape_line(version), daemon.uptime(), daemon.config());
    format!("{label}: {url}, pid {pid}, version {version}, up {up}, config {config}\n")
}

/// Returns `relay: connected to nats://127.0.0.1:4222, 1 call of 2 workers: ci-7 (ci), ci-8 (ci)`.
fn describe_relay(relay: &ServiceStatus, style: Style) -> String {
    let (word, tint) = match relay.state {
        ServiceState::Connected if relay.draining => ("draining, connected to", Tint::Warning),
        ServiceState::Connected => ("connected to", Tint::Success),
        ServiceState::Waiting => ("waiting for", Tint::Warning),
        ServiceState::Refused => ("refused by", Tint::Error),
        ServiceState::Over => ("ended with", Tint::Faint),
    };
    let workers: Vec<String> = relay
        .workers
        .iter()
        .map(|worker| match worker.role.as_str() {
            "" => escape_line(&worker.name),
            role => format!("{} ({})", escape_line(&worker.name), escape_line(role)),
        })
        .collect();
    let calls = output::count(relay.in_flight, "call");
    let busy = match workers.len() {
        0 => "no workers".to_owned(),
        some => format!("{calls} of {}: {}", output::count(some, "worker"), workers.join(", ")),
    };
    let label = style.paint(Tint::Heading, "relay");
    let why = relay.why.as_ref().map(|why| format!("\n  {}", escape_line(why))).unwrap_or_default();
    format!("\n{label}: {} {}, {busy}{why}\n", style.paint(tint, word), escape_line(&relay.place))
}

fn render_offline(servers: &[StatusRow]) -> TextTable {
    let mut table = TextTable::new(&["NAME", "STATE", "TRANSPORT", "STARTS"]);
    for server in servers {
        let starts = if server.status.lazy { "when used" } else { "at once" };
        table.row([
            server.status.name.as_str().into(),
            server.state(),
            server.status.transport.into(),
            starts.into(),
        ]);
    }
    table
}

fn render_probed(servers: &[StatusRow]) -> TextTable {
    let mut table = TextTable::new(&["NAME", "STATE", "PID", "PROTOCOL", "TOOLS", "START"]);
    for server in servers {
        let start = server.status.start_ms.map(Duration::from_millis);
        let start = or_dash(start.map(|start| HumanDuration(start).to_string()));
        table.row(server.cells().into_iter().chain([start]));
    }
    table
}

fn render_live(servers: &[StatusRow]) -> TextTable {
    let mut table =
        TextTable::new(&["NAME", "STATE", "PID", "PROTOCOL", "TOOLS", "IN FLIGHT", "RESTARTS", "UP"]);
    for server in servers {
        let status = &server.status;
        table.row(server.cells().into_iter().chain([
            status.in_flight.to_string().into(),
            format!("{}/{}", status.restarts.used, status.restarts.budget).into(),
            or_dash(status.uptime_ms.map(|ms| format_age(Duration::from_millis(ms)))),
        ]));
    }
    table
}

fn or_dash(text: Option<String>) -> TableCell {
    TableCell::from(text.unwrap_or_else(|| "-".into()))
}

#[cfg(test)]
mod tests {
    use ostler_core::spec::ServerSpec;

    use super::*;

    #[test]
    fn an_open_breaker_is_told_with_the_command_that_closes_it() {
        let name = ServerName::new("git").unwrap();
        let closed = ServerStatus::registered(&ServerSpec::stdio(name, "x"));
        assert_eq!(StatusRow::from_status(closed.clone()).render_limits(Style::plain()), "");
        let open = StatusRow::from_status(ServerStatus { circuit: CircuitState::Open, ..closed });
        let text = open.render_limits(Style::plain());
        assert!(text.contains("git: its breaker is open") && text.contains("ostler reload git"), "{text}");
    }
}
