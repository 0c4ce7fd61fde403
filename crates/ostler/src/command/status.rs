//! `ostler status`: how the servers are.

use std::path::Path;
use std::time::Duration;

use ostler_core::error::CallError;
use ostler_core::fault::Span;
use ostler_core::spec::ServerSpec;
use ostler_core::status::{ServerStatus, State};
use serde::Serialize;

use super::tools::Reason;
use crate::failure::Failure;
use crate::output::{self, Style, Tint, clean, tell};
use crate::reach::{self, Probed, Reach};
use crate::table::{Cell, Table};
use crate::{cli, config_file};

/// How often `--watch` looks.
const EVERY: Duration = Duration::from_secs(1);

/// Moves the cursor home and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

pub(super) fn run(typed: &cli::Status, file: Option<&Path>) -> Result<(), Failure> {
    let config = config_file::load(file)?;
    reach::run(&config, async |reach| {
        let specs = select(reach, typed.server.as_deref())?;
        if !typed.probe {
            let shown: Vec<Shown> = specs.iter().map(|spec| Shown::asleep(reach.status(spec))).collect();
            show(typed, &shown)?;
            if !typed.json {
                tell("nothing runs between commands; `--probe` starts the servers and shows what they say");
            }
            return Ok(());
        }
        let probed = reach.probe(&specs, typed.watch).await;
        let failed = probed.iter().filter(|probed| probed.error.is_some()).count();
        let mut shown: Vec<Shown> = probed.iter().map(Shown::of).collect();
        show(typed, &shown)?;
        if typed.watch {
            return watch(typed, reach, &specs, &mut shown).await;
        }
        match probed.len() {
            0 => Ok(()),
            all if failed == all => Err(Failure::NoneAnswered(all)),
            _ => Ok(()),
        }
    })
}

/// Shows the servers again and again; only a signal or a closed output ends it.
async fn watch(
    typed: &cli::Status,
    reach: &Reach,
    specs: &[&ServerSpec],
    shown: &mut [Shown],
) -> Result<(), Failure> {
    loop {
        tokio::time::sleep(EVERY).await;
        for (shown, spec) in shown.iter_mut().zip(specs) {
            shown.look(reach.status(spec));
        }
        show(typed, shown)?;
    }
}

fn select<'a>(reach: &'a Reach, server: Option<&str>) -> Result<Vec<&'a ServerSpec>, CallError> {
    let Some(server) = server else { return Ok(reach.specs().iter().collect()) };
    match reach.specs().iter().find(|spec| spec.name.as_str() == server) {
        Some(spec) => Ok(vec![spec]),
        None => Err(CallError::unknown_server(server, reach.specs().iter().map(|spec| spec.name.as_str()))),
    }
}

/// One server, as it is shown.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    status: ServerStatus,
    /// How long the start took; absent without a probe.
    start_ms: Option<u128>,
    /// Why the probe failed.
    error: Option<Reason>,
    /// The same for people.
    #[serde(skip)]
    words: Option<String>,
}

impl Shown {
    fn asleep(status: ServerStatus) -> Self {
        Self { status, start_ms: None, error: None, words: None }
    }

    fn of(probed: &Probed) -> Self {
        let error = probed.error.as_ref();
        Self {
            status: probed.status.clone(),
            start_ms: error.is_none().then_some(probed.start.as_millis()),
            error: error.map(Reason::from),
            words: error.map(|error| error.cause().unwrap_or_else(|| error.to_string())),
        }
    }

    /// Looks again. What went wrong is over when the server is up.
    fn look(&mut self, status: ServerStatus) {
        if status.state == State::Ready {
            (self.error, self.words) = (None, None);
        }
        self.status = status;
    }

    fn state(&self) -> Cell {
        let state = self.status.state;
        let tint = match state {
            _ if self.words.is_some() => Tint::Bad,
            State::Ready => Tint::Good,
            State::Idle | State::Stopped => Tint::Faint,
            State::Starting | State::Draining | State::Backoff => Tint::Doubtful,
            State::Ejected | State::NeedsAuth => Tint::Bad,
        };
        // A server that failed waits to be started again; nobody waits for it here.
        let word = if self.words.is_some() && state == State::Backoff { "failed" } else { state.as_str() };
        Cell::tinted(word, tint)
    }

    /// What went wrong, and what the server last said.
    fn trouble(&self, style: Style) -> String {
        let Some(words) = &self.words else { return String::new() };
        let name = style.paint(Tint::Heading, self.status.name.as_str());
        let mut text = format!("\n{name}: {}\n", clean(words));
        for line in self.status.last_error.iter().flat_map(|error| &error.stderr) {
            text.push_str(&format!("  {} {}\n", style.paint(Tint::Faint, "stderr:"), clean(line)));
        }
        text
    }
}

/// The stable shape of `--json`.
#[derive(Serialize)]
struct Listing<'a> {
    servers: &'a [Shown],
}

fn show(typed: &cli::Status, servers: &[Shown]) -> Result<(), Failure> {
    if typed.json {
        return output::print_json(&Listing { servers });
    }
    if servers.is_empty() {
        tell("the config has no servers");
    }
    let style = Style::stdout();
    let table = if typed.probe { render_probe(servers) } else { render(servers) };
    let trouble: String = servers.iter().map(|server| server.trouble(style)).collect();
    let clear = if typed.watch && style.has_colours() { CLEAR } else { "" };
    output::print(&format!("{clear}{}{trouble}", table.render(style, output::width())))
}

fn render(servers: &[Shown]) -> Table {
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

fn render_probe(servers: &[Shown]) -> Table {
    let mut table = Table::new(&["NAME", "STATE", "PID", "PROTOCOL", "TOOLS", "START"]);
    for server in servers {
        let or_dash = |text: Option<String>| Cell::from(text.unwrap_or_else(|| "-".into()));
        let status = &server.status;
        let start = server.start_ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        table.row([
            status.name.as_str().into(),
            server.state(),
            or_dash(status.pid.map(|pid| pid.to_string())),
            or_dash(status.protocol.clone()),
            or_dash(status.tools.map(|tools| tools.to_string())),
            or_dash(start.map(|start| Span(start).to_string())),
        ]);
    }
    table
}
