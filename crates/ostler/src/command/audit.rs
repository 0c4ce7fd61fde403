//! `ostler audit`: calls and events with their outcome.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use ostler_core::fault::HumanDuration;

use crate::api::AuditState;
use crate::audit::query::{AuditEvent, AuditFilter, AuditReader, QueryError};
use crate::failure::CommandFailure;
use crate::instance::DaemonInstance;
use crate::output::{self, Style, Tint, print_stderr};
use crate::text_table::{TableCell, TextTable};
use crate::time_text::{TimeArg, Zone};
use crate::{cli, client, config_file};

/// Default of `--limit` without `--json`.
const DEFAULT_LIMIT: u32 = 100;
/// Limit of the JSON lines in [`TimeOrder`]: as many as are written together under load.
const MAX_WAITING_LINES: usize = 10_000;
/// Limit of the same in bytes, since a row may hold arguments.
const MAX_WAITING_BYTES: usize = 8 << 20;
/// Polling interval of `--follow`, short enough to look immediate.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

pub(super) fn run(typed: &cli::AuditArgs, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    if shared.daemon.is_some() {
        return Err(CommandFailure::Usage {
            what: "the audit is read from a file beside the daemon, with or without one".into(),
            hint: Some("run the command there, without --daemon, or ask `GET /api/v1/audit`".into()),
        });
    }
    let found = config_file::find(shared.config.as_deref())?;
    let instance = DaemonInstance::for_config(found.file())?;
    let file = instance.audit_file();
    let zone = shared.zone();
    let mut filter = build_filter(typed, zone);
    let mut last = print_events(typed, &file, &filter, zone)?;
    warn_unwritten(&instance);
    if !typed.follow {
        if last.is_none() {
            print_stderr(
                "nothing of that is on record; rows are written up to 200ms after what they tell of",
            );
        }
        return Ok(());
    }
    loop {
        std::thread::sleep(POLL_INTERVAL);
        (filter.after, filter.limit) = (last.or(filter.after), None);
        last = print_events(typed, &file, &filter, zone)?.or(last);
    }
}

/// Warns that newer rows are not in the file, if the daemon can't write them now.
fn warn_unwritten(instance: &DaemonInstance) {
    let state = client::with_running_daemon(instance, async |daemon| daemon.audit_state().await);
    let Some(Ok(Some(AuditState { trouble: Some(trouble), lost, .. }))) = state else { return };
    let dropped = if lost > 0 { format!("; {lost} rows were dropped so far") } else { String::new() };
    print_stderr(&format!(
        "warning: newer rows are missing: the daemon can't write the audit: {trouble}{dropped}"
    ));
}

fn build_filter(typed: &cli::AuditArgs, zone: Zone) -> AuditFilter {
    let micros = |when: TimeArg| {
        let since = when.to_system_time(zone).duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    };
    let usual = (!typed.json).then_some(DEFAULT_LIMIT);
    AuditFilter {
        since: typed.since.map(micros),
        until: typed.until.map(micros),
        role: typed.role.clone(),
        caller: typed.caller.clone(),
        server: typed.server.clone(),
        tool: typed.tool.clone(),
        outcome: typed.outcome.clone(),
        denied: typed.denied,
        after: None,
        limit: typed.limit.or(usual).filter(|limit| *limit > 0),
    }
}

/// Prints the matching rows; returns the number of the last one.
fn print_events(
    typed: &cli::AuditArgs,
    file: &Path,
    filter: &AuditFilter,
    zone: Zone,
) -> Result<Option<i64>, CommandFailure> {
    let unreadable = |error: QueryError| CommandFailure::Unreadable {
        file: file.to_owned(),
        why: error.to_string(),
        hint: "the daemon puts a spoilt file aside when it next writes",
    };
    let Some(reader) = AuditReader::open(file).map_err(unreadable)? else { return Ok(None) };
    match typed.json {
        true => print_json_lines(&reader, filter).map_err(|error| error.into_failure(unreadable)),
        false => {
            let mut events = Vec::new();
            let read = reader.each(filter, |event| {
                events.push(event);
                true
            });
            read.map_err(unreadable)?;
            events.sort_by(|a, b| (&a.at, a.id).cmp(&(&b.at, b.id)));
            print_table(&events, typed.follow && filter.after.is_some(), zone)?;
            Ok(events.iter().map(|event| event.id).max())
        }
    }
}

/// Failure to read the audit or to print its lines.
enum PrintError {
    Output(io::Error),
    Query(QueryError),
}

impl PrintError {
    fn into_failure(self, unreadable: impl FnOnce(QueryError) -> CommandFailure) -> CommandFailure {
        match self {
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => CommandFailure::OutputClosed,
            Self::Output(error) => CommandFailure::Output(error),
            Self::Query(error) => unreadable(error),
        }
    }
}

/// Prints one JSON object a line, as they are read.
fn print_json_lines(reader: &AuditReader, filter: &AuditFilter) -> Result<Option<i64>, PrintError> {
    let mut stdout = BufWriter::new(io::stdout().lock());
    let (mut last, mut refused, mut by_time) = (None, None, TimeOrder::default());
    let read = reader.each(filter, |event| {
        last = last.max(Some(event.id));
        let line = match serde_json::to_string(&event) {
            Ok(line) => line,
            Err(error) => {
                refused = Some(io::Error::from(error));
                return false;
            }
        };
        refused = by_time.push(event, line).try_for_each(|line| writeln!(stdout, "{line}")).err();
        refused.is_none()
    });
    if refused.is_none() {
        refused = by_time.lines.into_values().try_for_each(|line| writeln!(stdout, "{line}")).err();
    }
    let refused = refused.or(stdout.flush().err());
    match (refused, read) {
        (Some(error), _) => Err(PrintError::Output(error)),
        (None, Err(error)) => Err(PrintError::Query(error)),
        (None, Ok(())) => Ok(last),
    }
}

/// JSON lines sorted by time within a bounded buffer. Rows are read by their number, and a row that another process
/// wrote late has a larger number than its time says.
#[derive(Default)]
struct TimeOrder {
    /// Lines by time and number.
    lines: BTreeMap<(String, i64), String>,
    bytes: usize,
}

impl TimeOrder {
    /// Adds a line, and returns the oldest ones beyond the limits.
    fn push(&mut self, event: AuditEvent, line: String) -> impl Iterator<Item = String> {
        self.bytes += line.len();
        self.lines.insert((event.at, event.id), line);
        std::iter::from_fn(|| {
            if self.lines.len() <= MAX_WAITING_LINES && self.bytes <= MAX_WAITING_BYTES {
                return None;
            }
            let (_, line) = self.lines.pop_first()?;
            self.bytes -= line.len();
            Some(line)
        })
    }
}

fn print_table(events: &[AuditEvent], is_continued: bool, zone: Zone) -> Result<(), CommandFailure> {
    let mut table = TextTable::new(&[zone.heading(), "WHO", "WHAT", "OUTCOME", "TOOK", "WHY"]);
    for event in events {
        table.row([
            TableCell::tinted(&time(event, zone), Tint::Faint),
            format_caller(event).into(),
            format_action(event).into(),
            TableCell::tinted(&event.outcome, tint(event)),
            format_duration(event).into(),
            format_reason(event).into(),
        ]);
    }
    let text = table.render(Style::stdout(), output::stdout_columns());
    // With `--follow`, the heading is printed once.
    let text = if is_continued { text.split_once('\n').map_or("", |(_, rows)| rows) } else { &text };
    output::print(text)
}

/// Returns `2026-07-28 12:00:00`.
fn time(event: &AuditEvent, zone: Zone) -> String {
    TimeArg::parse(&event.at)
        .map_or_else(|_| event.at.clone(), |when| zone.format_second(when.to_system_time(zone)))
}

fn format_caller(event: &AuditEvent) -> String {
    match (&event.principal, &event.role) {
        (Some(principal), Some(role)) if principal != role => format!("{principal} ({role})"),
        (Some(principal), _) => principal.clone(),
        (None, _) => "-".into(),
    }
}

fn format_action(event: &AuditEvent) -> String {
    if let Some(count) = event.count {
        let subject = event.subject.as_deref().unwrap_or_default();
        match (event.kind.as_str(), event.action.as_str()) {
            ("refusal", "others") => return format!("{count} more refusals"),
            ("gap", "dropped") => return format!("{count} rows dropped"),
            ("gap", "deleted") => return format!("{count} rows of {subject} deleted"),
            _ => {}
        }
    }
    let (server, subject) = (event.server.as_deref(), event.subject.as_deref());
    let name = match (server, subject) {
        (Some(server), Some(subject)) if event.action == "tools/call" => {
            return format!("{server}__{subject}");
        }
        (Some(server), Some(subject)) => format!(" {server} {subject}"),
        (Some(name), None) | (None, Some(name)) => format!(" {name}"),
        (None, None) => String::new(),
    };
    let times = event.count.map_or_else(String::new, |count| format!(" ({count})"));
    format!("{}{name}{times}", event.action)
}

fn tint(event: &AuditEvent) -> Tint {
    match event.outcome.as_str() {
        "ok" | "cached" => Tint::Success,
        "cancelled" => Tint::Warning,
        _ => Tint::Error,
    }
}

/// Returns the duration, below 10 ms with one decimal: most calls take less than a millisecond.
fn format_duration(event: &AuditEvent) -> String {
    match event.took_ms {
        None => String::new(),
        Some(ms) if ms < 10.0 => format!("{ms:.1}ms"),
        Some(ms) => HumanDuration(Duration::from_secs_f64(ms / 1_000.0)).to_string(),
    }
}

fn format_reason(event: &AuditEvent) -> String {
    event.rule.clone().or_else(|| event.detail.clone()).unwrap_or_default()
}
