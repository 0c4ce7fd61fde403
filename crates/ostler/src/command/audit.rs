//! `ostler audit`: calls and events with their outcome.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use ostler_core::fault::Span;

use crate::audit::query::{Event, Filter, QueryError, Reader};
use crate::clock::{When, Zone};
use crate::failure::Failure;
use crate::output::{self, Style, Tint, tell};
use crate::spot::Spot;
use crate::table::{Cell, Table};
use crate::{cli, config_file};

/// Rows that are shown to people who don't say how many.
const SHOWN: u32 = 100;
/// How often somebody who follows is shown news.
const LOOK: Duration = Duration::from_millis(300);

pub(super) fn run(typed: &cli::Audit, shared: &cli::Shared) -> Result<(), Failure> {
    if shared.daemon.is_some() {
        return Err(Failure::Usage {
            what: "the audit is read from a file beside the daemon, with or without one".into(),
            hint: Some("run the command there, without --daemon, or ask `GET /api/v1/audit`".into()),
        });
    }
    let found = config_file::find(shared.config.as_deref())?;
    let file = Spot::of(found.file())?.audit_file();
    let zone = shared.zone();
    let mut filter = filter_of(typed, zone);
    let mut last = show(typed, &file, &filter, zone)?;
    if !typed.follow {
        if last.is_none() {
            tell("nothing of that is on record");
        }
        return Ok(());
    }
    loop {
        std::thread::sleep(LOOK);
        (filter.after, filter.limit) = (last.or(filter.after), None);
        last = show(typed, &file, &filter, zone)?.or(last);
    }
}

fn filter_of(typed: &cli::Audit, zone: Zone) -> Filter {
    let micros = |when: When| {
        let since = when.moment(zone).duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    };
    let usual = (!typed.json).then_some(SHOWN);
    Filter {
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

/// Shows what there is; gives the number of the last row.
fn show(typed: &cli::Audit, file: &Path, filter: &Filter, zone: Zone) -> Result<Option<i64>, Failure> {
    let unreadable = |error: QueryError| Failure::Unreadable {
        file: file.to_owned(),
        why: error.to_string(),
        hint: "the daemon puts a spoilt file aside when it next writes",
    };
    let Some(reader) = Reader::open(file).map_err(unreadable)? else { return Ok(None) };
    match typed.json {
        true => print_lines(&reader, filter).map_err(|error| error.or_else(unreadable)),
        false => {
            let mut events = Vec::new();
            let read = reader.each(filter, |event| {
                events.push(event);
                true
            });
            read.map_err(unreadable)?;
            print_table(&events, typed.follow && filter.after.is_some(), zone)?;
            Ok(events.iter().map(|event| event.id).max())
        }
    }
}

/// Why lines were not printed.
enum Unprinted {
    Output(io::Error),
    Query(QueryError),
}

impl Unprinted {
    fn or_else(self, unreadable: impl FnOnce(QueryError) -> Failure) -> Failure {
        match self {
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            Self::Output(error) => Failure::Output(error),
            Self::Query(error) => unreadable(error),
        }
    }
}

/// One JSON object a line, written as they are read.
fn print_lines(reader: &Reader, filter: &Filter) -> Result<Option<i64>, Unprinted> {
    let mut stdout = BufWriter::new(io::stdout().lock());
    let (mut last, mut refused) = (None, None);
    let read = reader.each(filter, |event| {
        last = last.max(Some(event.id));
        let line = serde_json::to_string(&event).map_err(io::Error::from);
        refused = line.and_then(|line| writeln!(stdout, "{line}")).err();
        refused.is_none()
    });
    let refused = refused.or(stdout.flush().err());
    match (refused, read) {
        (Some(error), _) => Err(Unprinted::Output(error)),
        (None, Err(error)) => Err(Unprinted::Query(error)),
        (None, Ok(())) => Ok(last),
    }
}

fn print_table(events: &[Event], is_continued: bool, zone: Zone) -> Result<(), Failure> {
    let mut table = Table::new(&[zone.heading(), "WHO", "WHAT", "OUTCOME", "TOOK", "WHY"]);
    for event in events {
        table.row([
            Cell::tinted(&time(event, zone), Tint::Faint),
            who(event).into(),
            what(event).into(),
            Cell::tinted(&event.outcome, tint(event)),
            took(event).into(),
            why(event).into(),
        ]);
    }
    let text = table.render(Style::stdout(), output::width());
    // Whoever follows has seen the heading.
    let text = if is_continued { text.split_once('\n').map_or("", |(_, rows)| rows) } else { &text };
    output::print(text)
}

/// `2026-07-28 12:00:00`
fn time(event: &Event, zone: Zone) -> String {
    When::parse(&event.at).map_or_else(|_| event.at.clone(), |when| zone.second(when.moment(zone)))
}

fn who(event: &Event) -> String {
    match (&event.principal, &event.role) {
        (Some(principal), Some(role)) if principal != role => format!("{principal} ({role})"),
        (Some(principal), _) => principal.clone(),
        (None, _) => "-".into(),
    }
}

fn what(event: &Event) -> String {
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

fn tint(event: &Event) -> Tint {
    match event.outcome.as_str() {
        "ok" | "cached" => Tint::Good,
        "cancelled" => Tint::Doubtful,
        _ => Tint::Bad,
    }
}

/// Most calls take less than a millisecond of which whole ones tell nothing.
fn took(event: &Event) -> String {
    match event.took_ms {
        None => String::new(),
        Some(ms) if ms < 10.0 => format!("{ms:.1}ms"),
        Some(ms) => Span(Duration::from_secs_f64(ms / 1_000.0)).to_string(),
    }
}

fn why(event: &Event) -> String {
    event.rule.clone().or_else(|| event.detail.clone()).unwrap_or_default()
}
