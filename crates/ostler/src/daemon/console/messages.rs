//! Messages of the console: what happened, why, and the command to type next.

use std::fmt;
use std::time::Duration;

use ostler_core::fault::HumanDuration;
use ostler_host::EjectionReason;

use super::line_quota::HeldLines;
use crate::invocation::Invocation;
use crate::output::{Tint, escape_line};

/// Upper bound on the characters of a cause.
const MAX_CAUSE_CHARS: usize = 300;

/// Line about a server, without its name and cause.
#[derive(Debug, Clone)]
pub(super) enum ConsoleMessage {
    /// The server was up and exited or hung; it restarts after a delay, or with the next call.
    Lost { delay: Option<Duration> },
    /// The server did not come up; it is retried after a delay, or with the next call.
    NotStarted { delay: Option<Duration> },
    /// The server is ejected.
    Ejected { ejection: EjectionReason, remedy: Option<String>, readmit_in: Option<Duration> },
    /// The server requires other credentials.
    NeedsAuth { retry_in: Duration },
    /// The server works again.
    Recovered { took: Duration },
    /// The breaker holds calls back.
    BreakerOpened { wait: Duration },
    /// The breaker lets calls through again.
    BreakerClosed,
}

impl ConsoleMessage {
    pub(super) fn tint(&self) -> Tint {
        match self {
            Self::Lost { .. } | Self::NotStarted { .. } | Self::Ejected { .. } => Tint::Error,
            Self::NeedsAuth { .. } | Self::BreakerOpened { .. } => Tint::Warning,
            Self::Recovered { .. } | Self::BreakerClosed => Tint::Success,
        }
    }

    /// Returns whether both have the same kind, whatever their times.
    pub(super) fn is_same_kind(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Lost { delay: one }, Self::Lost { delay: other })
            | (Self::NotStarted { delay: one }, Self::NotStarted { delay: other }) => {
                one.is_some() == other.is_some()
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// Renders the line. The part of an isolated server's partition that names the caller is shown.
    pub(super) fn render(&self, server: &str, partition: &str, cause: &str, hints: &Invocation) -> String {
        let owner = partition.split('\0').next().unwrap_or_default();
        let whose = if owner.is_empty() { String::new() } else { format!(" (for {})", escape_line(owner)) };
        let name = format!("`{server}`{whose}");
        match self {
            Self::Lost { delay } => format!(
                "{name} stopped working: {cause}; it is started again {} ({})",
                restart_time(*delay),
                hints.command(&format!("logs {server}"))
            ),
            Self::NotStarted { delay } => format!(
                "{name} could not be started: {cause}; it is tried again {} ({})",
                restart_time(*delay),
                hints.command(&format!("logs {server}"))
            ),
            Self::Ejected { ejection: ejection @ EjectionReason::Permanent, remedy, readmit_in } => format!(
                "{name} can't be used: {cause}; {} ({}, then {})",
                ejection.explain(*readmit_in),
                remedy.as_deref().unwrap_or("correct it"),
                hints.command(&format!("reload {server}"))
            ),
            Self::Ejected { ejection, remedy, readmit_in } => format!(
                "{name} keeps failing: {cause}; {} ({}, then {})",
                ejection.explain(*readmit_in),
                remedy.clone().unwrap_or_else(|| hints.command(&format!("logs {server}"))),
                hints.command(&format!("reload {server}"))
            ),
            Self::NeedsAuth { retry_in } => format!(
                "{name} needs sign-in: {cause}; it is asked again {} (put valid credentials into its `headers`, then {})",
                retry_time(*retry_in),
                hints.command(&format!("reload {server}"))
            ),
            Self::Recovered { took } => {
                format!("{name} works again, started in {}", HumanDuration(rounded(*took)))
            }
            Self::BreakerOpened { wait } => format!(
                "calls to {name} are held back for {}, since they keep failing ({})",
                HumanDuration(rounded(*wait)),
                hints.command(&format!("status {server}"))
            ),
            Self::BreakerClosed => format!("calls reach {name} again"),
        }
    }
}

/// Renders a line about unapproved definitions: some names, and how many more.
pub(super) fn unapproved_line(
    server: &str,
    (names, more): (&[String], usize),
    is_refused: bool,
    hints: &Invocation,
) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let mut list = names.join(", ");
    if more > 0 {
        list.push_str(&format!(" and {more} more"));
    }
    let (are, they) = match names.len() + more {
        1 => ("is", "it is"),
        _ => ("are", "they are"),
    };
    let so = if is_refused { format!(", so {they} refused") } else { String::new() };
    format!(
        "`{server}`: {list} {are} not what was approved{so} ({}, then {})",
        hints.command(&format!("diff {server}")),
        hints.command(&format!("approve {server}"))
    )
}

/// Renders the summary of held lines.
pub(super) fn summary_line(server: &str, held: &HeldLines, hints: &Invocation) -> String {
    let HeldLines { number, last } = held;
    let audit = hints.command(&format!("audit --server {server}"));
    match number {
        1 => last.clone(),
        _ => format!("`{server}`: {number} more in this minute ({audit}), the last: {last}"),
    }
}

/// `now`, `in 500ms`, `with the next call`.
fn restart_time(delay: Option<Duration>) -> String {
    delay.map_or_else(|| "with the next call".into(), retry_time)
}

/// `now`, `in 500ms`.
fn retry_time(delay: Duration) -> String {
    match delay.is_zero() {
        true => "now".into(),
        false => format!("in {}", HumanDuration(rounded(delay))),
    }
}

/// Rounds to whole milliseconds below a second, and to tenths below a minute.
fn rounded(time: Duration) -> Duration {
    let unit = match time.as_secs() {
        0 => 1,
        1..60 => 100,
        _ => 1_000,
    };
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX) / unit * unit)
}

/// Cause on one line, truncated where it is long.
pub(super) struct CauseText<'a>(pub(super) &'a str);

impl fmt::Display for CauseText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = escape_line(self.0.trim());
        match text.char_indices().nth(MAX_CAUSE_CHARS) {
            None => f.write_str(&text),
            Some((end, _)) => write!(f, "{}…", &text[..end]),
        }
    }
}
