//! `ostler status`: how the servers are.

use std::time::Duration;

use ostler_core::error::{CallError, Unavailable};
use ostler_core::fault::Span;
use ostler_core::name::ServerName;
use ostler_core::spec::Isolation;
use ostler_core::status::{Circuit, InvalidDefinition, InvalidDefinitions, ServerStatus, State};
use ostler_relay::service::{ServiceState, ServiceStatus};
use serde::Serialize;

use super::tools::error_of_list;
use crate::about::{About, lasting};
use crate::api::ErrorBody;
use crate::failure::{Failure, hint_of_list};
use crate::invocation::command;
use crate::output::{self, Style, Tint, clean, tell};
use crate::reach::{self, Probed, Reach, RefusedChange, Way};
use crate::table::{Cell, Table};
use crate::{cli, config_file, folders, pins};

/// How often `--watch` looks.
const EVERY: Duration = Duration::from_secs(1);

/// Processes of one server that are shown to people.
const SHOWN_PROCESSES: usize = 10;

/// Moves the cursor home and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

pub(super) fn run(typed: &cli::Status, shared: &cli::Shared) -> Result<(), Failure> {
    let way = reach::find(shared)?;
    if typed.probe {
        return reach::run(way, async |reach| probe(typed, reach).await);
    }
    if let Way::Here(setting) = &way
        && !typed.json
    {
        setting.tell_standing();
    }
    reach::look(way, async |reach| {
        if typed.watch && !reach.is_lasting() {
            return Err(Failure::Usage {
                what: "there is nothing to watch: no daemon runs for this config".into(),
                hint: Some(format!("start one with {}, or add --probe", command("serve"))),
            });
        }
        let mut shown: Vec<Shown> = select(reach, typed).await?.into_iter().map(Shown::seen).collect();
        let view = if reach.is_lasting() { View::Live } else { View::Asleep };
        show(&typed.format(), view, &shown, &Around::of(typed, reach).await)?;
        if let Some(trouble) = reach.audit_trouble().await? {
            tell(&format!("warning: {trouble}"));
        }
        pins::desk::say_pending(reach).await?;
        if typed.watch {
            return watch(typed, view, reach, &mut shown).await;
        }
        if !typed.json && !reach.is_lasting() {
            tell("nothing runs between commands; `--probe` starts the servers and shows what they say");
        }
        Ok(())
    })
}

/// Starts servers ahead of their first use, and shows what came of it.
pub(super) fn warm(typed: &cli::Warm, shared: &cli::Shared) -> Result<(), Failure> {
    reach::run(reach::find(shared)?, async |reach| {
        let all = reach.names().await?;
        let names = match typed.servers.is_empty() {
            true => all,
            false => typed.servers.iter().map(|name| named(name, &all)).collect::<Result<_, _>>()?,
        };
        let probed = reach.probe(&names, false).await?;
        let shown: Vec<Shown> = probed.iter().map(Shown::of).collect();
        show(&Format { json: typed.json, clear: false }, View::Probed, &shown, &Around::default())?;
        Failure::of_servers(probed.iter().filter(|probed| probed.error.is_some()).count(), probed.len())
    })
}

/// Finds a server by its name.
fn named(name: &str, all: &[ServerName]) -> Result<ServerName, Failure> {
    let found = all.iter().find(|known| known.as_str() == name).cloned();
    found.ok_or_else(|| Failure::unknown_server(name, all))
}

/// Starts the servers and shows what they say.
async fn probe(typed: &cli::Status, reach: &Reach) -> Result<(), Failure> {
    let (disabled, run): (Vec<_>, Vec<_>) =
        select(reach, typed).await?.into_iter().partition(|status| status.state == State::Disabled);
    let names: Vec<ServerName> = run.into_iter().map(|status| status.name).collect();
    let probed = reach.probe(&names, typed.watch).await?;
    let failed = probed.iter().filter(|probed| probed.error.is_some()).count();
    let mut shown: Vec<Shown> = probed.iter().map(Shown::of).collect();
    shown.extend(disabled.into_iter().map(Shown::seen));
    show(&typed.format(), View::Probed, &shown, &Around::of(typed, reach).await)?;
    if typed.watch {
        return watch(typed, View::Probed, reach, &mut shown).await;
    }
    Failure::of_servers(failed, probed.len())
}

/// Shows the servers again and again; only a signal or a closed output ends it.
async fn watch(
    typed: &cli::Status,
    view: View,
    reach: &Reach,
    shown: &mut Vec<Shown>,
) -> Result<(), Failure> {
    loop {
        tokio::time::sleep(EVERY).await;
        let now = select(reach, typed).await?;
        // An edit of the config may have brought servers, or taken some away.
        let look = |status: ServerStatus| {
            let before = shown.iter().position(|shown| shown.status.name == status.name);
            match before {
                Some(at) => shown.swap_remove(at).look(status),
                None => Shown::seen(status),
            }
        };
        *shown = now.into_iter().map(look).collect();
        show(&typed.format(), view, shown, &Around::of(typed, reach).await)?;
    }
}

/// The servers that are meant, as they are.
async fn select(reach: &Reach, typed: &cli::Status) -> Result<Vec<ServerStatus>, Failure> {
    let all = reach.statuses().await?;
    let Some(server) = typed.server.as_deref() else { return Ok(all) };
    match all.iter().find(|status| status.name.as_str() == server) {
        Some(status) => Ok(vec![status.clone()]),
        None => {
            let known: Vec<ServerName> = all.iter().map(|status| status.name.clone()).collect();
            Err(Failure::unknown_server(server, &known))
        }
    }
}

/// Which columns tell something.
#[derive(Debug, Clone, Copy)]
enum View {
    /// Nothing runs.
    Asleep,
    /// Servers were started to be looked at.
    Probed,
    /// Servers live in a daemon.
    Live,
}

/// One server, as it is shown.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    status: ServerStatus,
    /// How long the start took; absent without a probe.
    start_ms: Option<u128>,
    /// Why the probe failed.
    error: Option<ErrorBody>,
    /// The same for people.
    #[serde(skip)]
    words: Option<String>,
    /// What to do about it.
    #[serde(skip)]
    hint: Option<String>,
}

/// Whether there is more to say than that this command shows what is known.
fn has_remedy(error: &CallError) -> bool {
    !matches!(error, CallError::Unavailable(Unavailable { remedy: None, .. }))
}

impl Shown {
    /// A server that was not asked anything. One that is out of order or not up yet says why.
    fn seen(status: ServerStatus) -> Self {
        // A lazy server that failed waits for its next use, which tries again.
        let has_failed = status.state == State::Idle && status.consecutive_failures > 0;
        let is_out = has_failed
            || matches!(status.state, State::Backoff | State::Ejected | State::NeedsAuth | State::Disabled);
        let failure = status.last_error.as_ref().filter(|_| is_out && status.start.is_none());
        let hint = failure.and_then(|failure| failure.hint.clone()).map(|hint| match status.state {
            State::Ejected => format!("{hint}; then {}", command(&format!("reload {}", status.name))),
            _ => hint,
        });
        let hint = hint.or_else(|| status.start.as_ref()?.hint.clone());
        let words =
            status.start.as_ref().map(ToString::to_string).or_else(|| failure.map(ToString::to_string));
        Self { status, start_ms: None, error: None, words, hint }
    }

    fn of(probed: &Probed) -> Self {
        let error = probed.error.as_ref();
        Self {
            status: probed.status.clone(),
            start_ms: error.is_none().then_some(probed.start.as_millis()),
            error: error.map(error_of_list),
            words: error.map(|error| error.reason()),
            hint: error.filter(|error| has_remedy(error)).and_then(hint_of_list),
        }
    }

    /// Returns the cells that every table of servers begins with.
    fn cells(&self) -> [Cell; 5] {
        let status = &self.status;
        [
            status.name.as_str().into(),
            self.state(),
            or_dash(status.pid.map(|pid| pid.to_string())),
            or_dash(status.protocol.clone()),
            or_dash(status.tools.map(|tools| tools.to_string())),
        ]
    }

    /// Looks again. What went wrong is over when the server is up.
    fn look(self, status: ServerStatus) -> Self {
        match (status.state, self.error) {
            (State::Ready, _) | (_, None) => Self { start_ms: self.start_ms, ..Self::seen(status) },
            (_, error) => Self { status, start_ms: self.start_ms, error, words: self.words, hint: self.hint },
        }
    }

    fn state(&self) -> Cell {
        let state = self.status.state;
        let tint = match state {
            State::Starting | State::Fetching => Tint::Doubtful,
            State::Disabled => Tint::Faint,
            _ if self.words.is_some() => Tint::Bad,
            State::Ready => Tint::Good,
            State::Idle | State::Stopped => Tint::Faint,
            State::Draining | State::Backoff => Tint::Doubtful,
            State::Ejected | State::NeedsAuth => Tint::Bad,
        };
        // A server that failed waits to be started again; nobody waits for it here.
        let word = if self.error.is_some() && state == State::Backoff { "failed" } else { state.as_str() };
        Cell::tinted(word, tint)
    }

    /// What is not as it was approved.
    fn unapproved(&self, style: Style) -> String {
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

    /// Processes of a server that not everybody shares, and whose they are.
    fn processes(&self, style: Style) -> String {
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
                Isolation::Workspace => folders::short(process.of.as_ref()),
                _ => process.of.clone(),
            };
            let pid = process.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
            let up = process
                .uptime_ms
                .map(|ms| format!(", up {}", lasting(Duration::from_millis(ms))))
                .unwrap_or_default();
            text.push_str(&format!("  {}: {}{pid}{up}\n", clean(&of), process.state.as_str()));
        }
        if processes.len() > SHOWN_PROCESSES {
            text.push_str("  … `--json` shows all\n");
        }
        text
    }

    /// List items that are left out, and calls that are held back.
    fn limited(&self, style: Style) -> String {
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
            text.push_str(&format!("\n{shown}: {}\n", clean(&told_invalid(invalid))));
        }
        for difference in self.status.card.iter().flat_map(|card| &card.differences) {
            text.push_str(&format!("\n{shown}: {}\n", clean(difference)));
        }
        if self.status.circuit == Circuit::Open {
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

    /// What went wrong, and what the server last said.
    fn trouble(&self, style: Style) -> String {
        let Some(words) = &self.words else { return String::new() };
        let name = style.paint(Tint::Heading, self.status.name.as_str());
        let mut text = format!("\n{name}: {}\n", clean(words));
        let stderr = match (&self.status.start, &self.status.last_error) {
            (Some(start), _) => &start.stderr[..],
            (None, Some(error)) => &error.stderr[..],
            (None, None) => &[],
        };
        for line in stderr {
            let (stream, line) = output::stream_of(line);
            text.push_str(&format!("  {} {}\n", style.paint(Tint::Faint, stream), clean(line)));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("  {} {}\n", style.paint(Tint::Label, "hint:"), clean(hint)));
        }
        text
    }
}

/// Invalid definitions that are named to a person.
const MAX_TOLD: usize = 5;

fn told_invalid(invalid: &InvalidDefinitions) -> String {
    let InvalidDefinitions { completed, left_out, first } = invalid;
    let named = |item: &InvalidDefinition| {
        let action = if item.left_out { "left out" } else { "completed" };
        format!("{} `{}` is {action} because {}", item.kind, item.name, item.problem)
    };
    let mut names: Vec<String> = first.iter().take(MAX_TOLD).map(named).collect();
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
struct Listing<'a> {
    servers: &'a [Shown],
    #[serde(flatten)]
    around: &'a Around,
}

/// What there is to say besides the servers.
#[derive(Default, Serialize)]
struct Around {
    /// Absent without a daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    daemon: Option<About>,
    /// Absent where the daemon runs the config as it is on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused_change: Option<RefusedChange>,
    /// Absent where workers are not served, and where one server was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    relay: Option<ServiceStatus>,
}

impl Around {
    async fn of(typed: &cli::Status, reach: &Reach) -> Self {
        let relay = if typed.server.is_some() { None } else { reach.relay().await };
        Self { daemon: reach.about().await, refused_change: reach.refused_change().await, relay }
    }
}

/// How the servers are shown.
struct Format {
    json: bool,
    /// Whether a terminal is cleared first.
    clear: bool,
}

impl cli::Status {
    fn format(&self) -> Format {
        Format { json: self.json, clear: self.watch }
    }
}

fn show(format: &Format, view: View, servers: &[Shown], around: &Around) -> Result<(), Failure> {
    if format.json {
        return output::print_json(&Listing { servers, around });
    }
    let Around { daemon, refused_change, relay } = around;
    if servers.is_empty() {
        config_file::tell_no_servers(None, &[]);
    }
    let style = Style::stdout();
    let table = match view {
        View::Asleep => render_asleep(servers),
        View::Probed => render_probed(servers),
        View::Live => render_live(servers),
    };
    let notes = |server: &Shown| {
        server.processes(style) + &server.trouble(style) + &server.unapproved(style) + &server.limited(style)
    };
    let trouble: String = servers.iter().map(notes).collect();
    let relay = relay.as_ref().map(|relay| describe_relay(relay, style)).unwrap_or_default();
    let clear = if format.clear && style.has_colours() { CLEAR } else { "" };
    let mut daemon = daemon.as_ref().map(|daemon| describe_daemon(daemon, style)).unwrap_or_default();
    if let Some(RefusedChange { message, .. }) = refused_change {
        daemon.push_str(&format!("{} {message}\n", style.paint(Tint::Doubtful, "warning:")));
    }
    output::print(&format!("{clear}{daemon}{}{trouble}{relay}", table.render(style, output::width())))
}

/// `daemon: http://127.0.0.1:7777, pid 4711, version 0.1.0, up 3h, config ~/ostler.toml`
fn describe_daemon(daemon: &About, style: Style) -> String {
    let label = style.paint(Tint::Heading, "daemon");
    let About { url, pid, version, .. } = daemon;
    let (version, up, config) = (clean(version), daemon.uptime(), daemon.config());
    format!("{label}: {url}, pid {pid}, version {version}, up {up}, config {config}\n")
}

/// `relay: connected to nats://127.0.0.1:4222, 1 call of 2 workers: ci-7 (ci), ci-8 (ci)`
fn describe_relay(relay: &ServiceStatus, style: Style) -> String {
    let (word, tint) = match relay.state {
        ServiceState::Connected if relay.draining => ("draining, connected to", Tint::Doubtful),
        ServiceState::Connected => ("connected to", Tint::Good),
        ServiceState::Waiting => ("waiting for", Tint::Doubtful),
        ServiceState::Refused => ("refused by", Tint::Bad),
        ServiceState::Over => ("ended with", Tint::Faint),
    };
    let workers: Vec<String> = relay
        .workers
        .iter()
        .map(|worker| match worker.role.as_str() {
            "" => clean(&worker.name),
            role => format!("{} ({})", clean(&worker.name), clean(role)),
        })
        .collect();
    let calls = output::count(relay.in_flight, "call");
    let busy = match workers.len() {
        0 => "no workers".to_owned(),
        some => format!("{calls} of {}: {}", output::count(some, "worker"), workers.join(", ")),
    };
    let label = style.paint(Tint::Heading, "relay");
    let why = relay.why.as_ref().map(|why| format!("\n  {}", clean(why))).unwrap_or_default();
    format!("\n{label}: {} {}, {busy}{why}\n", style.paint(tint, word), clean(&relay.place))
}

fn render_asleep(servers: &[Shown]) -> Table {
    let mut table = Table::new(&["NAME", "STATE", "TRANSPORT", "STARTS"]);
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

fn render_probed(servers: &[Shown]) -> Table {
    let mut table = Table::new(&["NAME", "STATE", "PID", "PROTOCOL", "TOOLS", "START"]);
    for server in servers {
        let start = server.start_ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        let start = or_dash(start.map(|start| Span(start).to_string()));
        table.row(server.cells().into_iter().chain([start]));
    }
    table
}

fn render_live(servers: &[Shown]) -> Table {
    let mut table = Table::new(&["NAME", "STATE", "PID", "PROTOCOL", "TOOLS", "IN FLIGHT", "RESTARTS", "UP"]);
    for server in servers {
        let status = &server.status;
        table.row(server.cells().into_iter().chain([
            status.in_flight.to_string().into(),
            format!("{}/{}", status.restarts.used, status.restarts.budget).into(),
            or_dash(status.uptime_ms.map(|ms| lasting(Duration::from_millis(ms)))),
        ]));
    }
    table
}

fn or_dash(text: Option<String>) -> Cell {
    Cell::from(text.unwrap_or_else(|| "-".into()))
}

#[cfg(test)]
mod tests {
    use ostler_core::spec::ServerSpec;

    use super::*;

    #[test]
    fn an_open_breaker_is_told_with_the_command_that_closes_it() {
        let name = ServerName::new("git").unwrap();
        let closed = ServerStatus::registered(&ServerSpec::stdio(name, "x"));
        assert_eq!(Shown::seen(closed.clone()).limited(Style::plain()), "");
        let open = Shown::seen(ServerStatus { circuit: Circuit::Open, ..closed });
        let text = open.limited(Style::plain());
        assert!(text.contains("git: its breaker is open") && text.contains("ostler reload git"), "{text}");
    }
}
